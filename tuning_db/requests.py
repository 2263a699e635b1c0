"""Requests and the conditions of their answers: everything that an answer depends on."""

import json
from dataclasses import asdict, dataclass
from functools import cached_property

from fusion_ir.records import NUMERICS, WIRE_VERSION, Device, Plan
from tuning_db.checks import digest
from tuning_db.states import PlanState


@dataclass(frozen=True)
class RequestKey:
    """Everything on which the correctness of an answer depends.

    device_key: `Device.class_key`. numerics: the loosest class allowed. generator: version of the code generator,
    raised by the service when code made before must not run again. memory_bytes: limit on the plan's temporaries, None
    for no limit. A change in graph, device, tenant, generator or wire version is another request: a miss. Plans for
    other numerics and memory limits answer this request, too, where they keep to its own.
    """

    graph_key: str
    device_key: str
    numerics: str = "reassociate"
    tenant: str = ""
    generator: str = "1"
    wire_version: int = WIRE_VERSION
    memory_bytes: int | None = None

    @cached_property
    def digest(self) -> str:
        """sha256 over all parts: the key of the row. A request without a memory limit keeps the key that it had before
        there were limits."""
        parts = (self.graph_key, self.device_key, self.numerics, self.tenant, self.generator, self.wire_version)
        every = parts if self.memory_bytes is None else (*parts, self.memory_bytes)
        return digest(json.dumps(every, default=repr))  # parts of a damaged row may be anything

    def admits(self, looseness: int, temporary_bytes: int) -> bool:
        """Whether a plan with numerics at place `looseness` in NUMERICS and `temporary_bytes` bytes of temporaries may
        answer this request."""
        fits = self.memory_bytes is None or temporary_bytes <= self.memory_bytes
        return self.numerics in NUMERICS[looseness:] and fits

    def covers(self, other: "RequestKey") -> bool:
        """Whether a search for this request may take every plan that one for `other`, of the same graph, device,
        tenant, generator and wire version, may take."""
        fits = self.memory_bytes is None or (other.memory_bytes is not None and other.memory_bytes <= self.memory_bytes)
        return other.numerics in NUMERICS and self.numerics in NUMERICS[NUMERICS.index(other.numerics) :] and fits


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions that a measured time depends on, and no result does: a change makes a measured plan `stale`."""

    driver: str
    toolchain: str
    version: str  # of Fuseplan

    def json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @staticmethod
    def of_device(device: Device, version: str) -> "Conditions":
        """The present conditions of a device, with this version of Fuseplan."""
        return Conditions(device.driver, device.toolchain, version)

    @staticmethod
    def of_plan(plan: Plan) -> "Conditions":
        """The conditions under which a plan was made."""
        return Conditions.of_device(plan.device, plan.version)


@dataclass(frozen=True, slots=True)
class Searched:
    """How a search ended. had_s: a search with no more seconds than these would find nothing new; None: one with any
    number of seconds. cut_short: why it ended before it had measured all it wanted to, None where it did not."""

    had_s: float | None = None
    cut_short: str | None = None


WHOLE = Searched()


@dataclass(frozen=True, slots=True)
class Resolved:
    """The answer to a request. `body` is the plan as JSON; its sha256 is `plan_key` (checked).

    request: the request that it is stored for, whose graph, device, tenant and generator are those of the one asked.
    cut_short: why the search behind it ended early, None where it did not. had_s: seconds that it counts as, None where
    it did not end early. due: another search may find a better plan
    for the request asked, with the seconds that it would have, under the present conditions.
    """

    request: RequestKey
    plan_key: str
    state: PlanState
    body: bytes
    cut_short: str | None = None
    due: bool = False
    had_s: float | None = None

    def plan(self) -> Plan:
        return Plan.model_validate_json(self.body)
