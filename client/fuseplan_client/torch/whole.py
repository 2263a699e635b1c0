"""A graph of Dynamo's: in its compiled form, or as PyTorch runs it where no plan is of use."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fuseplan_client.torch.group import PlannedGroup

LOOK = 32  # calls from one look at the plans to the next; a power of two


@dataclass
class WholeGraph:
    """The function that Dynamo calls. AOTAutograd's graphs are of more and smaller ops than a model's own: where every
    plan was refused, the model's own run again. groups: of the forward and the backward graph. updates_in_place: the
    graph is mostly that.
    """

    eager: Callable[..., Any]
    compiled: Callable[..., Any] | None = None
    groups: list[PlannedGroup] = field(default_factory=list)
    updates_in_place: bool = False
    is_given_up: bool = False
    _calls: int = 0

    def __call__(self, *args: Any) -> Any:
        if self.is_given_up or self.compiled is None:
            return self.eager(*args)
        self._calls += 1
        if not self._calls % LOOK:
            self.is_given_up = self._is_useless()
        return self.compiled(*args)

    def _is_useless(self) -> bool:
        """Whether every group was called, and none has a plan or may get one."""
        slots = [slot for group in self.groups for slot in group.slots.values()]
        is_settled = all(group.slots for group in self.groups) and not any(s.is_open or s.is_judging for s in slots)
        return is_settled and not any(slot.accepted is not None for slot in slots)
