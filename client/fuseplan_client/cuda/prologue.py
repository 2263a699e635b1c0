"""The prologue of a plan, which computes all that depends on constants alone: once, kept for later calls, and again
when a constant is another one."""

from collections.abc import Mapping, Sequence
from typing import Any

from fuseplan_client.cuda.launches import Launches, cupy, of_address
from fuseplan_client.guards import GuardError
from fuseplan_client.plan import ALIGNMENT, Plan
from fuseplan_client.tensors import View, version


class PrologueError(RuntimeError):
    """The plan's constants are others than before, and the prologue cannot run while the stream is being captured:
    `CudaPlan.prepare` runs it before."""


class Prologue:
    """The prologue of one loaded plan. Its results lie in one allocation, whose address does not change in the plan's
    life, so that CUDA graphs of the other steps stay valid.

    The constants are held, so that no other tensor is allocated unnoticed at their addresses.
    """

    def __init__(self, plan: Plan, launches: Launches) -> None:
        self._plan, self._launches = plan, launches
        self._memory: Any = None
        self._addresses: dict[int, int] = {}
        self._held: list[Any] = []
        self._known: tuple[tuple[int, Any], ...] | None = None  # address and version of each constant
        self.runs = 0

    def addresses(self, stream: int) -> Mapping[int, int]:
        """Addresses of the kept buffers, by buffer; they are allocated at the first call."""
        kept = [i for i, buffer in enumerate(self._plan.buffers) if buffer.kept]
        if kept and self._memory is None:
            offsets, end = list[int](), 0
            for i in kept:
                offsets.append(end)
                end += -(-self._plan.buffers[i].bytes // ALIGNMENT) * ALIGNMENT
            with of_address(stream):
                self._memory = cupy().cuda.alloc(max(end, 1))
            self._addresses = {i: int(self._memory.ptr) + offset for i, offset in zip(kept, offsets, strict=True)}
        return self._addresses

    def forget(self) -> None:
        """Has the prologue run again at the next call, as the constants may have other values now."""
        self._known = None

    def ensure(
        self,
        inputs: Sequence[Any],
        views: Sequence[View],
        versions: Mapping[int, Any],
        addresses: Sequence[int],
        stream: int,
    ) -> None:
        """Runs the prologue on the stream unless it ran last for constants of these addresses and versions. Waits for
        the device before it, whose other streams may read its results, and for the stream after it. Raises GuardError
        for a version of an input that is no constant, PrologueError."""
        for i in versions:
            if not 0 <= i < len(views) or self._plan.inputs[i].constant is None:
                raise GuardError(f"in{i} is no constant of the plan: it has no version")
        if not self._plan.constants:
            return
        known = tuple((views[i].address, versions.get(i, version(inputs[i]))) for i in self._plan.constants)
        if known == self._known:
            return
        if self._launches.is_capturing(stream):
            raise PrologueError(
                f"{', '.join(f'in{i}' for i in self._plan.constants)}: expected constants that the plan was prepared "
                "with, since the stream is being captured; call prepare before"
            )
        cupy().cuda.Device().synchronize()
        self._known = None
        self._launches.queue(addresses, stream, prologue=True)
        of_address(stream).synchronize()
        self._held = [inputs[i] for i in self._plan.constants]
        self._known = known
        self.runs += 1
