"""Importing an export: each plan is made anew from its decisions, checked and timed here, and kept where it is faster.

Nothing is believed: which kernels a plan has, the file says; what they compute, the interpreter; how fast, the clock.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from codegen.devices import DeviceError, detect
from codegen.families import FAMILIES
from codegen.kernel import EmitError, Kernel, offers
from codegen.measure import beats, median, spread
from codegen.object_cache import ObjectCache
from codegen.toolchain.compiler import Binary, CompilerMissing
from codegen.workbench import PlanTiming, Workbench
from fusion_ir.errors import FormatError, excerpt, nearest
from fusion_ir.records import NUMERICS, Device, Measurement, Plan, Reason, Search, Status
from fusion_ir.text import print_graph
from scheduler.assemble import Choice, assemble
from scheduler.compose import Composed, Part, compose
from scheduler.traffic import traffic_of
from service.planner import artifacts
from service.transfer.lines import PlanLine
from service.transfer.reading import Bundle
from service.version import VERSION
from tuning_db import Conditions, RequestKey, Resolved, Store

Result = Literal["stored", "kept", "known", "elsewhere", "refused"]
PLAN_SECONDS = 2.0  # for timing a plan beside what it may replace


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one plan. key: of the plan in the file; plan_key: of the one stored here. time_us: as it was
    measured here.

    stored: it is an answer now. kept: what is stored already is not clearly slower. known: what is stored decides the
    same. elsewhere: of a device that is not here. refused: `detail` says where it is wrong.
    """

    key: str
    result: Result
    detail: str
    plan_key: str | None = None
    time_us: float | None = None


class _Refused(Exception):
    """The plan is not what its file says, or does not work here."""


class _Elsewhere(Exception):
    """The plan's device is not here."""


@dataclass(frozen=True, slots=True)
class _Tried:
    """A plan that passed here, with the measurements of its kernels."""

    plan: Plan
    rows: Sequence[Measurement]


class Importer:
    """One import. A context manager: it holds a workbench for each kind of device. targets: by kind, the device that
    stands for it, as `codegen.devices.detect` names it. force: replace answers whatever they take."""

    def __init__(
        self, store: Store, cache: ObjectCache, targets: Mapping[str, str], *, force: bool = False, seed: int = 0
    ) -> None:
        self.store, self.cache, self.targets, self.force, self.seed = store, cache, targets, force, seed
        self._devices: dict[str, Device | str] = {}  # by kind; the reason where there is none
        self._benches: dict[str, Workbench] = {}

    def __enter__(self) -> "Importer":
        return self

    def __exit__(self, *exception: object) -> None:
        for bench in self._benches.values():
            bench.close()

    def plans(self, bundle: Bundle, told: Callable[[Outcome], None] = lambda outcome: None) -> list[Outcome]:
        """Imports every plan; `told` of each as it is done. Raises DatabaseError, SlotError."""
        outcomes: list[Outcome] = []
        for number, line in bundle.plans:
            try:
                outcome = self._plan(bundle, line)
            except _Refused as refusal:
                outcome = Outcome(line.key, "refused", f"line {number}: {refusal}")
            except _Elsewhere as reason:
                outcome = Outcome(line.key, "elsewhere", str(reason))
            outcomes.append(outcome)
            told(outcome)
        return outcomes

    def measurements(self, bundle: Bundle, outcomes: Sequence[Outcome]) -> int:
        """Stores the file's measurements as imported ones, with segments and devices, but for those of graphs of which
        a plan was refused. Returns how many were new."""
        refused = {outcome.key for outcome in outcomes if outcome.result == "refused"}
        distrusted = {line.graph for _, line in bundle.plans if line.key in refused}
        segments: set[str] = set()
        for key, parts in bundle.segments_of.items():
            if key not in distrusted:
                segments.update(parts)
                self._keep_graph(bundle, key)
                for part in parts:
                    self.store.put_segment(key, print_graph(bundle.segments[part]))
        trials = [t for t in bundle.trials if t.measurement.segment_key in segments]
        here = {stored.class_key for stored in self.store.devices()}
        for key in {t.measurement.device_key for t in trials} - here:
            self.store.put_device(bundle.devices[key])
        return self.store.import_trials(trials)

    def _keep_graph(self, bundle: Bundle, key: str) -> None:
        """Names that the graph has here stay."""
        if self.store.graph(key) is None:
            self.store.put_graph(key, print_graph(bundle.graphs[key].graph), bundle.names(key))

    def _plan(self, bundle: Bundle, line: PlanLine) -> Outcome:
        device = self._here(bundle.devices[line.device])
        started = time.monotonic()
        composed, kernels = self._kernels(bundle, line, device)
        decided = self._assembled(composed, kernels, device)
        limit = line.memory_bytes
        requests = [RequestKey(line.graph, device.class_key, n, memory_bytes=limit) for n in line.asked]
        answers = {r: self.store.answer(r, Conditions.of_device(device, VERSION)) for r in requests}
        open_ = [r for r in requests if self.force or not _is_known(answers[r], decided)]
        if not open_:
            return Outcome(line.key, "known", "the stored plan decides the same", _key_of(answers[requests[0]]))
        incumbents = self._incumbents([answers[r] for r in open_])
        tried, timings = self._tried(bundle, line, composed, kernels, device, list(incumbents.values()))
        search = decided.search.model_copy(update={"seconds": time.monotonic() - started, "measured": len(tried.rows)})
        plan = tried.plan.model_copy(update={"search": search, "reasons": _reasons(line, composed, tried.plan)})
        self._keep_graph(bundle, line.graph)
        for segment in composed.segments:
            self.store.put_segment(line.graph, print_graph(segment.canonical.graph))
        self.store.record(tried.rows, VERSION)
        rivals = dict(zip(incumbents, timings[1:], strict=False))
        slower = {key for key, timing in rivals.items() if self._wins(timings[0], timing)}
        stay = rivals.keys() - slower if not self.force else set[str]()
        replaced = [r for r in open_ if _key_of(answers[r]) not in stay]
        if not replaced:
            took = median(next(iter(rivals.values())).samples_us)
            detail = (
                f"the stored plan takes {took:.4g} us, which this one, at {plan.time_us:.4g} us, does not clearly beat"
            )
            return Outcome(line.key, "kept", detail, next(iter(incumbents)), plan.time_us)
        binaries, sources = artifacts(plan, self.cache)
        for request in replaced:
            self.store.store_plan(request, plan, "measured", binaries, sources)
        detail = "checked against the interpreter and timed here"
        return Outcome(line.key, "stored", detail, plan.plan_key, plan.time_us)

    def _here(self, made_for: Device) -> Device:
        """This machine's device of the class. Raises _Elsewhere."""
        kind = made_for.target
        if kind not in self._devices:
            try:
                self._devices[kind] = detect(self.targets.get(kind, kind), self.cache)
            except (DeviceError, CompilerMissing) as error:
                self._devices[kind] = str(error)
        found = self._devices[kind]
        if isinstance(found, Device) and found.class_key == made_for.class_key:
            return found
        here = found if isinstance(found, str) else f"here is {found.name} ({found.class_key})"
        raise _Elsewhere(
            f"for {made_for.name} ({made_for.class_key}), {here}: its measurements are stored, the plan is not; "
            "import it on such a device, or tune the graph here"
        )

    def _kernels(self, bundle: Bundle, line: PlanLine, device: Device) -> tuple[Composed, list[Kernel]]:
        """The steps as segments of the graph, each with its kernel, emitted anew. Raises _Refused."""
        parts = [Part(bundle.segments[s.segment], s.reads, s.writes) for s in line.steps]
        strictest = min(line.asked, key=NUMERICS.index)
        try:
            composed = compose(
                bundle.graphs[line.graph].graph, parts, line.aliases, device, strictest, rewrites=line.rewrites
            )
        except FormatError as error:
            raise _Refused(str(error)) from error
        kernels: list[Kernel] = []
        for i, (step, segment) in enumerate(zip(line.steps, composed.segments, strict=True)):
            family = FAMILIES.get(step.family)
            if family is None:
                hint = nearest(step.family, list(FAMILIES))
                raise _Refused(f"/steps/{i}/family: expected a kernel family, got {excerpt(step.family)}{hint}")
            graph, place = segment.canonical.graph, f"/steps/{i}/schedule"
            reject = family.accepts(graph, device)
            if reject is not None:
                raise _Refused(f"/steps/{i}/family: {step.family} does not take the segment: {reject.reason}")
            if not offers(family, graph, step.schedule, device):
                schedules = (
                    f"expected a schedule of {step.family} for this segment, such as {family.space(graph, device)[0]}"
                )
                raise _Refused(f"{place}: {schedules}, got {excerpt(step.schedule, 200)}")
            try:
                kernels.append(family.emit(graph, step.schedule, device))
            except EmitError as error:
                raise _Refused(f"{place}: {step.schedule} cannot be emitted: {error}") from error
        return composed, kernels

    def _assembled(
        self,
        composed: Composed,
        kernels: Sequence[Kernel],
        device: Device,
        made: Sequence[tuple[Binary, Measurement]] = (),
    ) -> Plan:
        """The plan of these kernels. made: what became of them here."""
        choices = [
            Choice(s, traffic_of(s.graph), k, made[i][0] if made else None, made[i][1].time_us if made else None)
            for i, (s, k) in enumerate(zip(composed.segments, kernels, strict=True))
        ]
        search = Search(seconds=0.0, candidates=0, measured=0, complete=False, seed=self.seed)
        return assemble(composed.prepared, device, choices, search)

    def _tried(
        self,
        bundle: Bundle,
        line: PlanLine,
        composed: Composed,
        kernels: Sequence[Kernel],
        device: Device,
        incumbents: Sequence[Plan],
    ) -> tuple[_Tried, list[PlanTiming]]:
        """The plan with binaries and times of here, and the timings of it and of the incumbents in one race. Raises
        _Refused where something does not compile or computes something else."""
        graph = bundle.graphs[line.graph].graph
        if not kernels:
            if not composed.recognised:
                raise _Refused("/steps: expected kernels, got none for a graph whose outputs are not its inputs")
            return _Tried(self._assembled(composed, kernels, device), []), []
        bench = self._bench(device)
        made: list[tuple[Binary, Measurement]] = []
        known: dict[tuple[str, str], Measurement] = {}
        for i, result in enumerate(bench.compile_for_plans(kernels)):
            segment, kernel = composed.segments[i], kernels[i]
            if isinstance(result, Measurement):
                raise _Refused(f"/steps/{i}: {kernel.schedule}: {result.status.value}: {result.detail}")
            variant = segment.key, kernel.schedule
            if variant not in known:
                (known[variant],) = bench.measure(segment.canonical.graph, segment.key, [kernel], seed=self.seed)
            row = known[variant]
            if row.status is not Status.ok:
                raise _Refused(f"/steps/{i}: {kernel.schedule}: {row.status.value}: {row.detail}")
            made.append((result, row))
        plan = self._assembled(composed, kernels, device, made)
        timings = bench.measure_plans(graph, [plan, *incumbents], seed=self.seed, seconds=PLAN_SECONDS)
        mine = timings[0]
        if mine.status is not Status.ok:
            raise _Refused(f"the plan does not compute the graph: {mine.status.value}: {mine.detail}")
        found = {
            "time_us": median(mine.samples_us),
            "spread": spread(mine.samples_us),
            "max_rel_error": mine.max_rel_error,
            "prologue_us": mine.prologue_us,
        }
        plan = plan.model_copy(update=found)
        return _Tried(plan, list(known.values())), timings

    def _incumbents(self, answers: Sequence[Resolved | None]) -> dict[str, Plan]:
        """Plans to race against, by key: measured ones, their binaries at hand."""
        found: dict[str, Plan] = {}
        for answer in answers:
            if answer is None or answer.state == "predicted":
                continue
            plan = answer.plan()
            binaries = {s.binary: self.cache.get(s.binary) or self.store.binary(s.binary) for s in plan.steps}
            if None not in binaries.values():
                for data in binaries.values():
                    self.cache.put(data or b"")
                found[answer.plan_key] = plan
        return found

    def _wins(self, mine: PlanTiming, theirs: PlanTiming) -> bool:
        """Against an incumbent that still works: only by a clear difference."""
        if theirs.status is not Status.ok or not theirs.samples_us:
            return True
        return beats(mine.samples_us, theirs.samples_us)

    def _bench(self, device: Device) -> Workbench:
        if device.target not in self._benches:
            self._benches[device.target] = Workbench(device, self.cache)
        return self._benches[device.target]


def _is_known(answer: Resolved | None, plan: Plan) -> bool:
    """Whether what is stored, measured under the conditions of now, decides the same."""
    return answer is not None and answer.state == "measured" and _decisions(answer.plan()) == _decisions(plan)


def _decisions(plan: Plan) -> object:
    return plan.aliases, [(s.segment_key, s.family, s.schedule, s.reads, s.writes) for s in plan.steps]


def _key_of(answer: Resolved | None) -> str | None:
    return answer and answer.plan_key


def _reasons(line: PlanLine, composed: Composed, plan: Plan) -> tuple[Reason, ...]:
    texts = [f"decisions imported from plan {line.key} of version {line.version}; made, checked and timed anew here"]
    if not composed.recognised:
        texts.append("rewritten by another version's rules: that it computes the graph rests on the check")
    if plan.time_us is not None and plan.time_us < plan.lower_bound_us:
        texts.append("faster than its bound: the device's ceilings were measured while it was slower than now")
    return tuple(Reason(kind="note", text=text) for text in texts)
