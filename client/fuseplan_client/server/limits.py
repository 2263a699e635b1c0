"""Limits of a client: seconds of an attempt, how often it is made again, bytes of an answer."""

from dataclasses import dataclass

from fuseplan_client.server.errors import BadArgument

LONGEST_ATTEMPT_S = 1.0


@dataclass(frozen=True)
class Limits:
    """Every request is made in attempts, each shorter than a second, so that no caller waits long for a dead server.

    attempt_s: seconds of one attempt, from before the connection to the last byte. connect_s: seconds of them for the
    connection. hedge_s: seconds after which an attempt without an answer is made a second time beside itself; the first
    good answer is taken. attempts: most attempts of a request, hedges aside. deadline_s: seconds after which no further
    attempt begins. backoff_s, most_backoff_s: attempt n waits a random time up to backoff_s 2^n before it, at the most
    most_backoff_s. most_retry_after_s: longest `Retry-After` that is waited for within a request; a longer one ends it.
    answer_bytes, binary_bytes: most bytes of an answer, and of a kernel.

    Raises BadArgument where a number is outside its range.
    """

    attempt_s: float = 0.9
    connect_s: float = 0.4
    hedge_s: float = 0.3
    attempts: int = 3
    deadline_s: float = 5.0
    backoff_s: float = 0.1
    most_backoff_s: float = 1.0
    most_retry_after_s: float = 2.0
    answer_bytes: int = 64 * 2**20
    binary_bytes: int = 256 * 2**20

    def __post_init__(self) -> None:
        if not 0 < self.attempt_s < LONGEST_ATTEMPT_S:
            raise BadArgument(f"attempt_s: expected more than 0 and less than 1 s, got {self.attempt_s!r}")
        if not 0 < self.connect_s <= self.attempt_s:
            raise BadArgument(f"connect_s: expected more than 0 and at most attempt_s, got {self.connect_s!r}")
        if self.attempts < 1:
            raise BadArgument(f"attempts: expected 1 or more, got {self.attempts!r}")
        for name in ("hedge_s", "deadline_s", "backoff_s", "most_backoff_s", "most_retry_after_s"):
            if not getattr(self, name) >= 0:  # NaN fails, too
                raise BadArgument(f"{name}: expected 0 or more, got {getattr(self, name)!r}")
        for name in ("answer_bytes", "binary_bytes"):
            if getattr(self, name) < 1:
                raise BadArgument(f"{name}: expected 1 or more, got {getattr(self, name)!r}")
