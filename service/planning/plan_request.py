"""A plan asked for."""

from dataclasses import dataclass
from functools import cached_property

from fusion_ir.records import Device, Numerics
from scheduler.budget import Budget
from service.version import VERSION
from tuning_db.requests import Conditions, RequestKey


@dataclass(frozen=True)
class PlanRequest:
    """A request for a plan of the graph with this key on a device that was detected now. budget: of a search for it."""

    device: Device
    graph_key: str
    budget: Budget
    numerics: Numerics = "reassociate"
    tenant: str = ""

    @cached_property
    def key(self) -> RequestKey:
        memory_bytes = self.budget.memory_bytes
        return RequestKey(self.graph_key, self.device.class_key, self.numerics, self.tenant, memory_bytes=memory_bytes)

    @cached_property
    def now(self) -> Conditions:
        """The conditions under which a search now would measure."""
        return Conditions.of_device(self.device, VERSION)
