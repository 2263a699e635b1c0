"""Interfaces of the search to its surroundings: a bench that compiles and times, a store of earlier measurements."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from codegen.kernel import Kernel
from codegen.toolchain.compiler import Binary
from codegen.workbench.step_check import Meanings
from fusion_ir.core.graph import Graph
from fusion_ir.records import Measurement, Plan, Status
from scheduler.cost.features import Tuned


class Failed(Protocol):
    """A kernel that did not become a binary."""

    @property
    def status(self) -> Status: ...

    @property
    def detail(self) -> str: ...


class TimedPlan(Protocol):
    """A whole plan, timed end to end: microseconds per run, empty unless `status` is ok. prologue_us: of its prologue,
    which is not part of a run. warm_us: of runs on the same tensors again and again, where the samples were not.
    disturbed: share of the visits of its race during which others had the CPUs, as far as that is known."""

    @property
    def disturbed(self) -> float | None: ...

    @property
    def warm_us(self) -> float | None: ...

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
    """Compiles kernels, checks them against the interpreter and times them: `codegen.workbench.workbench.Workbench`."""

    def allow(self, seconds: float) -> None:
        """Begins a search of `seconds`: a compiler that takes longer for a kernel gives it up."""
        ...

    def idle_share(self, seconds: float) -> float | None:
        """Share of the `seconds` since `allow` in which a core had nothing to do for the search; None where nobody
        counted."""
        ...

    def cpu_share(self) -> float | None:
        """Share of the time since `allow` in which the search's own thread wanted a CPU that it had one; None where
        nobody counted."""
        ...

    @property
    def at_once(self) -> int:
        """Kernels whose first race takes about as long as that of one."""
        ...

    def expect(self, kernels: Sequence[Kernel]) -> None:
        """Takes kernels that will most likely be measured after the next race: they are compiled meanwhile, where that
        disturbs nothing that is timed. Returns at once."""
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
        """Predicted seconds of `measure` for `count` kernels, by earlier races of the segment; 0 without any."""
        ...

    def first_race_seconds(self, segment: Graph, segment_keys: frozenset[str], count: int) -> float:
        """Predicted seconds of `measure` for a segment that was in no race: those of one of the slower ones of
        `segment_keys`, less where the segment is smaller."""
        ...

    def measure_plans(
        self, graph: Graph, plans: Sequence[Plan], *, seed: int = 0, seconds: float
    ) -> Sequence[TimedPlan]:
        """Whole plans in interleaved rounds; sample i of one belongs with sample i of another. seconds: of checking and
        timing them, about."""
        ...

    def measure_by_steps(
        self, graph: Graph, plan: Plan, meanings: Meanings, *, seed: int = 0, seconds: float
    ) -> TimedPlan:
        """A plan whose outputs as a whole say nothing, since steps of the graph make any error larger: each step is
        judged on what it was given (`codegen.workbench.step_check`)."""
        ...

    def compile_for_plans(
        self,
        kernels: Sequence[Kernel],
        graph: Graph | None = None,
        *,
        seed: int = 0,
        together: bool = False,
        optional: bool = False,
        quickly: bool = False,
    ) -> Sequence[Binary | Failed]:
        """Binaries, one for each kernel, by way of the object cache. graph: what `measure_plans` will be asked for
        next, if anything. together: several may share a file, which takes compilers half as long. optional: raises
        OutOfTime once the seconds that were allowed are over, except that what compilers are at is finished. quickly:
        for less of a compiler's time, kernels that may take longer."""
        ...


class Costs(Protocol):
    """Measurements, by segment: they outlive the search and serve every graph that holds the segment."""

    def known(self, segment_key: str) -> Sequence[Measurement]:
        """Measurements of the segment on this device, in order."""
        ...

    def others(self, family: str) -> Sequence[Tuned]:
        """Segments that schedules of a family were timed on, on this device: the last ones, for a first guess."""
        ...

    def timed(self, family: str) -> Sequence[tuple[Graph, float]]:
        """Segments that schedules of a family were timed on, on this device, and the shortest time of each in
        microseconds: the last ones, to correct predictions with."""
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

    def timed(self, family: str) -> Sequence[tuple[Graph, float]]:
        return ()

    def record(self, segment: Graph, measurements: Sequence[Measurement]) -> None:
        pass
