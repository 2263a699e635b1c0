"""What the search asks of its surroundings: a bench that compiles and times, and a memory of earlier measurements."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from codegen.kernel import Kernel
from codegen.toolchain.compiler import Binary
from fusion_ir.graph import Graph
from fusion_ir.records import Measurement, Plan, Status
from scheduler.experience import Tuned


class Failed(Protocol):
    """A kernel that did not become a binary."""

    @property
    def status(self) -> Status: ...

    @property
    def detail(self) -> str: ...


class PlanResult(Protocol):
    """A whole plan, timed end to end: microseconds per run, empty unless `status` is ok. prologue_us: of its prologue,
    which is not part of a run."""

    @property
    def samples_us(self) -> tuple[float, ...]: ...

    @property
    def prologue_us(self) -> float | None: ...

    @property
    def max_rel_error(self) -> float | None: ...

    @property
    def status(self) -> Status: ...

    @property
    def detail(self) -> str: ...


class Bench(Protocol):
    """Compiles kernels, checks them against the interpreter and times them: `codegen.workbench.Workbench`."""

    @property
    def compiles_ahead(self) -> bool:
        """Whether compiling disturbs nothing that is timed."""
        ...

    @property
    def at_once(self) -> int:
        """Kernels whose first race takes about as long as that of one."""
        ...

    def expect(self, kernels: Sequence[Kernel]) -> None:
        """What will be measured after the next race, most likely: compiled while that one runs. Returns at once."""
        ...

    def turn(self, segment_key: str) -> AbstractContextManager[None]:
        """Held from choosing schedules of a segment to recording their times: two searches at once, in two processes,
        choose different ones."""
        ...

    def measure(
        self,
        segment: Graph,
        segment_key: str,
        kernels: Sequence[Kernel],
        *,
        seed: int = 0,
    ) -> Sequence[Measurement]:
        """One row per kernel, in order, of one race. `segment`: in canonical form, whose boundary the kernels'
        parameters follow."""
        ...

    def race_seconds(self, segment_key: str, count: int) -> float:
        """What `measure` will take for so many kernels, going by earlier races of the segment; 0 where there were
        none."""
        ...

    def first_race_seconds(self, segment_keys: frozenset[str], count: int) -> float:
        """The same for a segment that was in none, as if it were the slowest of these."""
        ...

    def measure_plans(
        self, graph: Graph, plans: Sequence[Plan], *, seed: int = 0, seconds: float
    ) -> Sequence[PlanResult]:
        """Whole plans in interleaved rounds; sample i of one belongs with sample i of another."""
        ...

    def compile_for_plans(
        self, kernels: Sequence[Kernel], graph: Graph | None = None, *, seed: int = 0
    ) -> Sequence[Binary | Failed]:
        """Binaries, one for each kernel, by way of the object cache. graph: what `measure_plans` will be asked for
        next, if anything."""
        ...


class Costs(Protocol):
    """Measurements, by segment: they outlive the search and serve every graph that holds the segment."""

    def known(self, segment_key: str) -> Sequence[Measurement]:
        """What was measured on this device, in order."""
        ...

    def others(self, family: str) -> Sequence[Tuned]:
        """Segments that schedules of a family were timed on, on this device: the last ones, for a first guess."""
        ...

    def record(self, segment: Graph, measurements: Sequence[Measurement]) -> None:
        """Called once for each batch measured, with the segment in canonical form; and for each segment of the plan in
        the end, with no measurements."""
        ...


class Forgetful:
    """`Costs` of a search that starts with nothing known, and keeps nothing."""

    def known(self, segment_key: str) -> Sequence[Measurement]:
        return ()

    def others(self, family: str) -> Sequence[Tuned]:
        return ()

    def record(self, segment: Graph, measurements: Sequence[Measurement]) -> None:
        pass


@dataclass(frozen=True)
class Budget:
    """`seconds` of wall clock for a search; 0: nothing is timed and the plan is a prediction. `seed`: of test data and
    rounds."""

    seconds: float
    seed: int = 0


@dataclass(frozen=True)
class Event:
    """How a search is getting on. phase: "candidates", "segments", "plans" or "done". measured: kernels so far.
    best_us: sum of the segments' times of the best plan measured whole."""

    phase: str
    measured: int
    best_us: float | None
    seconds: float


class Progress(Protocol):
    """Told now and then. May raise KeyboardInterrupt, which ends the search with the best so far."""

    def __call__(self, event: Event) -> None: ...
