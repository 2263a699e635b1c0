"""Metrics of one API process, in the Prometheus text format. A registry per application, so that tests do not share."""

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from service.errors import PROBLEM_TYPES
from service.wording.failures import problem_in

_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60)


class Metrics:
    """The metrics and how they are fed."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        labels = ("route", "method", "status")
        self.requests = Counter("fuseplan_http_requests", "Requests answered.", labels, registry=self.registry)
        self.seconds = Histogram(
            "fuseplan_http_request_seconds",
            "Seconds from the request's head to the answer's end.",
            ("route",),
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.resolves = Counter(
            "fuseplan_resolves", "Resolves by outcome: hit, miss.", ("outcome",), registry=self.registry
        )
        self.refusals = Counter(
            "fuseplan_refusals",
            "Refusals of plans by clients: wrong, slower, unusable.",
            ("why",),
            registry=self.registry,
        )
        self.problems = Counter(
            "fuseplan_problems",
            "Problems by type, such as kernels-disagree: answers, items of batches that were refused, and failed "
            "operations, each counted once by one of the servers that share a database.",
            ("type",),
            registry=self.registry,
        )
        self.operations = Gauge("fuseplan_operations", "Operations by state.", ("state",), registry=self.registry)
        self.damaged = Gauge(
            "fuseplan_damaged_rows", "Rows of the database found damaged.", ("table",), registry=self.registry
        )

    def observe(self, route: str, method: str, status: int, seconds: float) -> None:
        """Counts one request. `route` is a template, never a client's path; odd methods count as one."""
        known = method if method in ("GET", "POST", "DELETE", "PUT", "HEAD", "OPTIONS", "PATCH") else "other"
        self.requests.labels(route, known, str(status)).inc()
        self.seconds.labels(route).observe(seconds)

    def problem(self, slug: str) -> None:
        """Counts a problem by its row of PROBLEM_TYPES."""
        self.problems.labels(slug).inc()

    def failed(self, error: str | None) -> None:
        """Counts a search that failed. error: what is kept of it."""
        slug = problem_in(error).type.rpartition("/")[2]
        self.problem(slug if slug in PROBLEM_TYPES else "tuning-failed")

    def text(self) -> bytes:
        return generate_latest(self.registry)
