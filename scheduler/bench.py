"""What the search asks of its surroundings: a bench that compiles and times, and a memory of earlier measurements; and
what a search is allowed."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from codegen.by_steps import Meanings
from codegen.kernel import Kernel
from codegen.toolchain.compiler import Binary
from fusion_ir.graph import Graph
from fusion_ir.records import NUMERICS, Measurement, Plan, Status
from scheduler.experience import Tuned


class Failed(Protocol):
    """A kernel that did not become a binary."""

    @property
    def status(self) -> Status: ...

    @property
    def detail(self) -> str: ...


class PlanResult(Protocol):
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
    """Compiles kernels, checks them against the interpreter and times them: `codegen.workbench.Workbench`."""

    def allow(self, seconds: float) -> None:
        """What a search may take, which begins now: a compiler that takes longer for a kernel gives it up."""
        ...

    def idle_share(self, seconds: float) -> float | None:
        """Of so many seconds since `allow`: those in which a core had nothing to do for the search; None where nobody
        counted."""
        ...

    @property
    def at_once(self) -> int:
        """Kernels whose first race takes about as long as that of one."""
        ...

    def expect(self, kernels: Sequence[Kernel]) -> None:
        """What will be measured after the next race, most likely: compiled meanwhile, where that disturbs nothing
        that is timed. Returns at once."""
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

    def first_race_seconds(self, segment: Graph, segment_keys: frozenset[str], count: int) -> float:
        """The same for a segment that was in none, as if it were one of the slower ones of these; of a smaller
        one less."""
        ...

    def measure_plans(
        self, graph: Graph, plans: Sequence[Plan], *, seed: int = 0, seconds: float
    ) -> Sequence[PlanResult]:
        """Whole plans in interleaved rounds; sample i of one belongs with sample i of another. seconds: of checking and
        timing them, about."""
        ...

    def measure_by_steps(
        self, graph: Graph, plan: Plan, meanings: Meanings, *, seed: int = 0, seconds: float
    ) -> PlanResult:
        """A plan whose outputs as a whole say nothing, since steps of the graph make any error larger: each step is
        judged on what it was given (`codegen.by_steps`)."""
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
        """What was measured on this device, in order."""
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


MOST_SECONDS = 86_400.0  # of one search
MOST_MEMORY = 2**63 - 1  # bytes: what a database keeps


class RequestError(ValueError):
    """What was asked of a search cannot be; the message gives the expected and the actual value."""


@dataclass(frozen=True)
class Budget:
    """What a search may spend, and a plan of it. Raises RequestError.

    seconds: of wall clock, up to a day; 0: nothing is timed and the plan is a prediction. seed: of test data and
    rounds. memory_bytes: of temporaries that the plan may need (`Plan.temporary_bytes`; inputs and outputs are the
    caller's, whatever the plan), None for any number.
    """

    seconds: float
    seed: int = 0
    memory_bytes: int | None = None

    def __post_init__(self) -> None:
        seconds: Any = self.seconds  # of callers without types
        is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if not is_number or not 0 <= seconds <= MOST_SECONDS:  # NaN fails too
            expected = f"a number from 0 (nothing is timed) to {MOST_SECONDS:g}"
            raise RequestError(f"seconds: expected {expected}, got {seconds!r}")
        seed: Any = self.seed
        if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**63:
            raise RequestError(f"seed: expected a whole number from 0 to 2^63 - 1, got {seed!r}")
        if self.memory_bytes is not None:
            check_memory(self.memory_bytes)


def check_memory(memory_bytes: Any) -> None:
    """Raises RequestError for what is no limit of memory."""
    is_count = isinstance(memory_bytes, int) and not isinstance(memory_bytes, bool)
    if not is_count or not 1 <= memory_bytes <= MOST_MEMORY:
        raise RequestError(f"memory_bytes: expected a whole number from 1 to 2^63 - 1, got {memory_bytes!r}")


def check_numerics(numerics: Any) -> None:
    """Raises RequestError for what is no class of rewrites."""
    if numerics not in NUMERICS:
        raise RequestError(f"numerics: expected one of {', '.join(NUMERICS)}, got {numerics!r}")


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
