"""Making an imported plan anew from its decisions: kernels, binaries, checks, times or predictions.

Nothing is believed: which kernels a plan has, the file says; what they compute, the interpreter; how fast, the clock.
Where nothing can be run, a plan is refused unless its kernels are what this version's own rewrites make of the graph.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from codegen.families import FAMILIES
from codegen.kernel import EmitError, Kernel, offers
from codegen.sandbox.object_cache import ObjectCache
from codegen.toolchain.compiler import Binary
from codegen.workbench.workbench import PlanTiming, Workbench
from fusion_ir.errors import FormatError, excerpt, nearest
from fusion_ir.records import NUMERICS, Device, Measurement, Plan, Search, Status
from scheduler.cost.roofline_cpu import predicted_kernel_us
from scheduler.cost.traffic import traffic_of
from scheduler.plans.assemble import Choice, assemble, meanings_of
from scheduler.plans.compose import Composed, StepGraph, compose
from scheduler.plans.whole_time import times
from scheduler.segments.segment import Segment
from service.transfer.lines import PlanLine
from service.transfer.reading import ExportContent

PLAN_SECONDS = 2.0  # for timing a plan beside what it may replace


class Refused(Exception):
    """The plan is not what its file says, or does not work here; says where, what was expected and what was found."""


@dataclass(frozen=True, slots=True)
class Decided:
    """The decisions in a plan's line as kernels of this version. plan: made of these kernels, with nothing compiled."""

    composed: Composed
    kernels: Sequence[Kernel]
    plan: Plan


@dataclass(frozen=True, slots=True)
class Made:
    """A plan that passed what can be checked here. rows: measurements of its kernels. timings: of it and of those that
    it was timed beside, in one race; none where nothing was timed."""

    plan: Plan
    rows: Sequence[Measurement] = ()
    timings: Sequence[PlanTiming] = ()


@dataclass(frozen=True, slots=True)
class _Kernel:
    """The binary of one kernel, with its time or predicted time, and its error where it was checked by itself."""

    binary: Binary
    time_us: float | None = None
    predicted_us: float | None = None
    max_rel_error: float | None = None


class Maker:
    """Workbenches by device, for one import. A context manager."""

    def __init__(self, cache: ObjectCache, seed: int) -> None:
        self.cache, self.seed = cache, seed
        self._benches: dict[str, Workbench] = {}

    def __enter__(self) -> "Maker":
        return self

    def __exit__(self, *exception: object) -> None:
        for bench in self._benches.values():
            bench.close()

    def decided(self, content: ExportContent, line: PlanLine, device: Device) -> Decided:
        """The steps as segments of the graph, each with its kernel, emitted anew. Raises Refused."""
        steps = [StepGraph(content.segments[s.segment], s.reads, s.writes) for s in line.steps]
        strictest = min(line.asked, key=NUMERICS.index)
        given = content.graphs[line.graph].graph
        try:
            composed = compose(given, steps, line.aliases, device, strictest, rewrites=line.rewrites)
        except FormatError as error:
            raise Refused(str(error)) from error
        if not line.steps and not composed.recognised:
            raise Refused("/steps: expected kernels, got none for a graph whose outputs are not its inputs")
        kernels = [
            _emitted(step.family, step.schedule, segment, device, f"/steps/{i}")
            for i, (step, segment) in enumerate(zip(line.steps, composed.segments, strict=True))
        ]
        plan, limit = self._assembled(composed, kernels, device), line.memory_bytes
        if limit is not None and plan.temporary_bytes > limit:
            expected = f"expected at most {limit:,} bytes of temporaries, as its request allowed"
            raise Refused(f"/memory_bytes: {expected}; made here it needs {plan.temporary_bytes:,}")
        return Decided(composed, kernels, plan)

    def measured(
        self, content: ExportContent, line: PlanLine, decided: Decided, device: Device, incumbents: Sequence[Plan]
    ) -> Made:
        """The plan with binaries and times of here, timed in one race with the incumbents. Raises Refused where
        something does not compile or computes something else."""
        graph, composed, kernels = content.graphs[line.graph].graph, decided.composed, decided.kernels
        if not kernels:
            return Made(decided.plan)
        bench = self._bench(device)
        made: list[_Kernel] = []
        known: dict[tuple[str, str], Measurement] = {}
        for i, binary in enumerate(self._binaries(bench, kernels)):
            row = self._checked(bench, composed.segments[i], kernels[i], known, f"/steps/{i}")
            made.append(_Kernel(binary, row.time_us))
        plan = self._assembled(composed, kernels, device, made)
        timings = bench.measure_plans(graph, [plan, *incumbents], seed=self.seed, seconds=PLAN_SECONDS)
        by_steps = timings[0].status is Status.wrong_result and line.judged_by_steps and composed.recognised
        if by_steps:  # what its steps are to compute is proved, so that each can be held to that
            meanings = meanings_of(composed.prepared, composed.segments)
            judged = bench.measure_by_steps(graph, plan, meanings, seed=self.seed, seconds=PLAN_SECONDS)
            timings = [judged, *timings[1:]]
        if timings[0].status is not Status.ok:
            how = " step by step" if by_steps else ""
            raise Refused(f"the plan does not compute the graph{how}: {timings[0].status.value}: {timings[0].detail}")
        found = times(timings[0]) | ({"max_rel_error": None, "judged_by_steps": True} if by_steps else {})
        return Made(plan.model_copy(update=found), list(known.values()), timings)

    def untimed(self, decided: Decided, device: Device) -> Made:
        """The plan with binaries for a device that times nothing: predicted; in the emulator each kernel is checked by
        itself. Raises Refused where something does not compile, or nothing shows what the plan computes."""
        composed, kernels = decided.composed, decided.kernels
        if not composed.recognised:
            raise Refused(
                "/steps: rewritten by another version's rules: that they compute the graph would rest on a run of the "
                f"whole plan, which nobody can make here of one for {device.name}"
            )
        if not kernels:
            return Made(decided.plan)
        bench, made = self._bench(device), list[_Kernel]()
        known: dict[tuple[str, str], Measurement] = {}
        for i, binary in enumerate(self._binaries(bench, kernels)):
            segment, kernel = composed.segments[i], kernels[i]
            if device.target == "emulator":
                row = self._checked(bench, segment, kernel, known, f"/steps/{i}")
                made.append(_Kernel(binary, max_rel_error=row.max_rel_error))
            else:
                made.append(_Kernel(binary, predicted_us=_predicted_us(segment, kernel, binary, device)))
        return Made(self._assembled(composed, kernels, device, made))

    def _binaries(self, bench: Workbench, kernels: Sequence[Kernel]) -> list[Binary]:
        found: list[Binary] = []
        for i, (kernel, result) in enumerate(zip(kernels, bench.compile_for_plans(kernels), strict=True)):
            if isinstance(result, Measurement):
                raise Refused(f"/steps/{i}: {kernel.schedule}: {result.status.value}: {result.detail}")
            found.append(result)
        return found

    def _checked(
        self,
        bench: Workbench,
        segment: Segment,
        kernel: Kernel,
        known: dict[tuple[str, str], Measurement],
        place: str,
    ) -> Measurement:
        """The row of a kernel that computes its segment. known: rows of this plan by segment and schedule."""
        variant = segment.key, kernel.schedule
        if variant not in known:
            (known[variant],) = bench.measure(segment.canonical.graph, segment.key, [kernel], seed=self.seed)
        row = known[variant]
        if row.status is not Status.ok:
            raise Refused(f"{place}: {kernel.schedule}: {row.status.value}: {row.detail}")
        return row

    def _assembled(
        self, composed: Composed, kernels: Sequence[Kernel], device: Device, made: Sequence[_Kernel] = ()
    ) -> Plan:
        """The plan of these kernels. made: their binaries and times here, () before they are compiled."""
        choices = [
            Choice(segment, traffic_of(segment.graph), kernel, None, None)
            if not made
            else Choice(
                segment,
                traffic_of(segment.graph),
                kernel,
                made[i].binary,
                made[i].time_us,
                made[i].predicted_us,
                made[i].max_rel_error,
            )
            for i, (segment, kernel) in enumerate(zip(composed.segments, kernels, strict=True))
        ]
        search = Search(seconds=0.0, candidates=0, measured=0, complete=False, seed=self.seed)
        return assemble(composed.prepared, device, choices, search)

    def _bench(self, device: Device) -> Workbench:
        if device.class_key not in self._benches:
            self._benches[device.class_key] = Workbench(device, self.cache)
        return self._benches[device.class_key]


def _emitted(name: str, schedule: str, segment: Segment, device: Device, place: str) -> Kernel:
    """The kernel of a step. Raises Refused."""
    graph, family = segment.canonical.graph, FAMILIES.get(name)
    if family is None:
        raise Refused(f"{place}/family: expected a kernel family, got {excerpt(name)}{nearest(name, list(FAMILIES))}")
    reject = family.accepts(graph, device)
    if reject is not None:
        raise Refused(f"{place}/family: {name} does not take the segment: {reject.reason}")
    if not offers(family, graph, schedule, device):
        expected = f"expected a schedule of {name} for this segment, such as {family.space(graph, device)[0]}"
        raise Refused(f"{place}/schedule: {expected}, got {excerpt(schedule, 200)}")
    try:
        return family.emit(graph, schedule, device)
    except EmitError as error:
        raise Refused(f"{place}/schedule: {schedule} cannot be emitted: {error}") from error


def _predicted_us(segment: Segment, kernel: Kernel, binary: Binary, device: Device) -> float:
    """Time of a kernel (us) as a search predicts it before anything was timed."""
    graph = segment.canonical.graph
    among = [name for name, family in FAMILIES.items() if family.accepts(graph, device) is None]
    return predicted_kernel_us(traffic_of(segment.graph), kernel, binary.report, device, among)
