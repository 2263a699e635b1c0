"""Importing an export: each plan is made anew from its decisions, checked and timed here, and kept where it is faster.

A plan for a device that is not here is made anew for its data sheet where there is one: compiled, and predicted.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from codegen.sandbox.object_cache import ObjectCache
from codegen.timing.protocol import beats
from codegen.workbench.workbench import PlanTiming
from fusion_ir.records import Device, Plan, Reason, Status
from fusion_ir.text.printing import print_graph
from fusion_ir.units import duration
from scheduler.plans.compose import Composed
from scheduler.plans.whole_time import BY_STEPS, UNCHECKED
from service.planning.planner import artifacts, is_timed
from service.transfer.lines import PlanLine
from service.transfer.making import Decided, Made, Maker, Refused
from service.transfer.places import NoDevice, Places
from service.transfer.reading import ExportContent
from service.version import VERSION
from tuning_db.requests import Conditions, RequestKey, Resolved
from tuning_db.states import PlanState
from tuning_db.store import Store

Result = Literal["stored", "kept", "known", "elsewhere", "refused"]
LEAST_GAIN = 0.02  # of a plan that cannot be timed beside the one that it is to replace


@dataclass(frozen=True, slots=True)
class ImportOutcome:
    """Result of importing one plan. key: of the plan in the file; plan_key: of the plan stored here. time_us: as
    measured here; predicted_us: as predicted here, where nothing of the plan can be timed.

    stored: the plan is an answer now. kept: the plan stored already is not clearly slower. known: the stored plan makes
    the same decisions. elsewhere: measured on a device that is not here, and of which there is no data sheet. refused:
    `detail` says where the plan is wrong, or that it can neither be measured nor predicted here.
    """

    key: str
    result: Result
    detail: str
    plan_key: str | None = None
    time_us: float | None = None
    predicted_us: float | None = None


class Importer:
    """One import. A context manager: it holds a workbench for each device. targets: by kind, the device that stands
    for it, as `codegen.devices.detection.detect` names it. force: replace answers whatever they take."""

    def __init__(
        self, store: Store, cache: ObjectCache, targets: Mapping[str, str], *, force: bool = False, seed: int = 0
    ) -> None:
        self.store, self.cache, self.force = store, cache, force
        self._places, self._maker = Places(targets, cache), Maker(cache, seed)
        self._distrusted: set[str] = set()  # graphs of plans that are not what they say

    def __enter__(self) -> "Importer":
        return self

    def __exit__(self, *exception: object) -> None:
        self._maker.__exit__(*exception)

    def plans(
        self, content: ExportContent, told: Callable[[ImportOutcome], None] = lambda outcome: None
    ) -> list[ImportOutcome]:
        """Imports every plan; `told` of each as it is done. Raises DatabaseError, SlotError."""
        outcomes: list[ImportOutcome] = []
        for number, line in content.plans:
            made_for = content.devices[line.device]
            try:
                outcome = self._plan(content, line, self._places.of(made_for))
            except Refused as refusal:
                self._distrusted.add(line.graph)
                outcome = ImportOutcome(line.key, "refused", f"line {number}: {refusal}")
            except NoDevice as reason:
                outcome = _not_here(line.key, number, made_for, str(reason))
            outcomes.append(outcome)
            told(outcome)
        return outcomes

    def measurements(self, content: ExportContent) -> int:
        """Stores the file's measurements as imported ones, with segments and devices, but for those of graphs of which
        a plan was not what it says. Returns how many were new."""
        segments: set[str] = set()
        for key, parts in content.segments_of.items():
            if key not in self._distrusted:
                segments.update(parts)
                self._keep_graph(content, key)
                for part in parts:
                    self.store.segments.put(key, print_graph(content.segments[part]))
        trials = [t for t in content.trials if t.measurement.segment_key in segments]
        here = {stored.class_key for stored in self.store.devices.devices()}
        for key in {t.measurement.device_key for t in trials} - here:
            self.store.devices.put(content.devices[key])
        return self.store.trials.add(trials)

    def _keep_graph(self, content: ExportContent, key: str) -> None:
        """Stores a graph of the file that is not stored here; a graph that is keeps its names."""
        if self.store.graphs.graph(key) is None:
            self.store.graphs.put(key, print_graph(content.graphs[key].graph), content.names(key))

    def _plan(self, content: ExportContent, line: PlanLine, device: Device) -> ImportOutcome:
        started = time.monotonic()
        decided = self._maker.decided(content, line, device)
        limit, timed = line.memory_bytes, is_timed(device)
        requests = [RequestKey(line.graph, device.class_key, n, memory_bytes=limit) for n in line.asked]
        answers = {r: self.store.plans.answer(r, Conditions.of_device(device, VERSION)) for r in requests}
        open_ = [r for r in requests if self.force or not _is_known(answers[r], decided.plan, timed=timed)]
        if not open_:
            return ImportOutcome(line.key, "known", "the stored plan decides the same", _key_of(answers[requests[0]]))
        rivals = {a.plan_key: a for r in open_ if (a := answers[r]) is not None}
        if timed:
            made, stay = self._timed(content, line, decided, device, rivals.values())
        else:
            made = self._maker.untimed(decided, device)
            stay = {key for key, answer in rivals.items() if not _is_predicted_faster(made.plan, answer)}
        search = made.plan.search.model_copy(update={"seconds": time.monotonic() - started, "measured": len(made.rows)})
        plan = made.plan.model_copy(update={"search": search, "reasons": _reasons(line, decided.composed, made.plan)})
        self._keep_graph(content, line.graph)
        for segment in decided.composed.segments:
            self.store.segments.put(line.graph, print_graph(segment.canonical.graph))
        self.store.trials.record(made.rows, VERSION)
        replaced = [r for r in open_ if self.force or _key_of(answers[r]) not in stay]
        if not replaced:
            key = next(key for key in rivals if key in stay)
            text = f"the stored plan {_took(rivals[key].plan())}; this one {_took(plan)}, and does not clearly beat it"
            return ImportOutcome(line.key, "kept", text, key, plan.time_us, plan.predicted_us)
        state: PlanState = "predicted" if plan.time_us is None else "measured"
        binaries, sources = artifacts(plan, self.cache)
        for request in replaced:
            self.store.plans.put(request, plan, state, binaries, sources)
        return ImportOutcome(line.key, "stored", _how(plan), plan.plan_key, plan.time_us, plan.predicted_us)

    def _timed(
        self, content: ExportContent, line: PlanLine, decided: Decided, device: Device, answers: Iterable[Resolved]
    ) -> tuple[Made, set[str]]:
        """The plan as it is here, and which stored plans it is not clearly faster than: of those that were measured
        and that can still be run. Raises Refused."""
        stored = self._incumbents(answers)
        racing = {key: plan for key, plan in stored.items() if not plan.judged_by_steps}
        made = self._maker.measured(content, line, decided, device, list(racing.values()))
        stay = {key for key, timing in zip(racing, made.timings[1:], strict=False) if not _wins(made, timing)}
        others = stored.keys() - racing.keys()  # of which nothing but their steps can be checked
        return made, stay | {key for key in others if not _is_faster(made.plan.time_us, stored[key].time_us)}

    def _incumbents(self, answers: Iterable[Resolved]) -> dict[str, Plan]:
        """Plans to race against, by key: measured ones, their binaries at hand."""
        found: dict[str, Plan] = {}
        for answer in answers:
            if answer.state == "predicted":
                continue
            plan = answer.plan()
            binaries = {s.binary: self.cache.get(s.binary) or self.store.plans.binary(s.binary) for s in plan.steps}
            if None not in binaries.values():
                for data in binaries.values():
                    self.cache.put(data or b"")
                found[answer.plan_key] = plan
        return found


def _wins(made: Made, theirs: PlanTiming) -> bool:
    """Whether the imported plan beats a stored one. If the stored plan still works, only by a clear difference, and not
    where the stored plan alone agrees as a whole."""
    if theirs.status is not Status.ok or not theirs.samples_us:
        return True
    return not made.plan.judged_by_steps and beats(made.timings[0].samples_us, theirs.samples_us)


def _is_predicted_faster(plan: Plan, answer: Resolved) -> bool:
    """Whether a plan is faster than a stored one by predictions; a stored plan that was measured stays."""
    return answer.state == "predicted" and _is_faster(plan.predicted_us, answer.plan().predicted_us)


def _is_faster(us: float | None, than_us: float | None) -> bool:
    """Whether a time is below another one by more than chance, where they are not from one race; an unknown time is
    not."""
    return us is not None and than_us is not None and us < (1 - LEAST_GAIN) * than_us


def _is_known(answer: Resolved | None, plan: Plan, *, timed: bool) -> bool:
    """Whether the stored answer makes the same decisions as the plan, and was measured under the conditions of now, or
    predicted under them where nothing can be timed."""
    if answer is None or (timed and answer.state != "measured"):
        return False
    stored = answer.plan()
    same = timed or Conditions.of_plan(stored) == Conditions.of_plan(plan)  # a prediction gets no state that says so
    return same and _decisions(stored) == _decisions(plan)


def _decisions(plan: Plan) -> object:
    return plan.aliases, [(s.segment_key, s.family, s.schedule, s.reads, s.writes) for s in plan.steps]


def _key_of(answer: Resolved | None) -> str | None:
    return answer and answer.plan_key


def _took(plan: Plan) -> str:
    """The time of a plan in words: "takes 12.3 µs", "is predicted to take 12.3 µs"."""
    if plan.time_us is not None:
        return f"takes {duration(plan.time_us)}"
    unknown = plan.predicted_us is None
    return "takes an unknown time" if unknown else f"is predicted to take {duration(plan.predicted_us)}"


def _how(plan: Plan) -> str:
    """How a plan was checked and timed before it was stored, in words."""
    name = plan.device.name
    if plan.device.target == "emulator":
        return "each kernel checked against the interpreter in the emulator, which times nothing"
    if not is_timed(plan.device):
        return f"as predicted: made for {name}, which is not here, so nothing of it ran"
    if plan.judged_by_steps:
        return "each step checked against the interpreter on what it is given, and timed here"
    return "checked against the interpreter and timed here"


def _not_here(key: str, number: int, made_for: Device, why: str) -> ImportOutcome:
    """The outcome of a plan that cannot be made here: "elsewhere" where it was made for a real device, whose
    measurements stay true there; "refused" where it was made for a data sheet, with nothing but predictions."""
    who = f"{made_for.name} ({made_for.class_key})"
    if made_for.origin == "specified":
        text = f"line {number}: for {who}, for which plans can neither be measured nor predicted here: {why}"
        return ImportOutcome(key, "refused", text)
    text = f"for {who}, {why}: its measurements are stored, the plan is not; import it on such a device"
    return ImportOutcome(key, "elsewhere", f"{text}, or tune the graph here")


def _reasons(line: PlanLine, composed: Composed, plan: Plan) -> tuple[Reason, ...]:
    done = "made, checked and timed anew here" if is_timed(plan.device) else "made anew here, and not timed"
    texts = [f"decisions imported from plan {line.key} of version {line.version}; {done}"]
    if not composed.recognised:
        texts.append("rewritten by another version's rules: that it computes the graph rests on the check")
    if plan.judged_by_steps:
        texts.append(BY_STEPS)
    if plan.rounds_elsewhere and plan.time_us is None:
        texts.append(UNCHECKED)
    if plan.time_us is not None and plan.time_us < plan.lower_bound_us:
        texts.append("faster than its bound: the device's ceilings were measured while it was slower than now")
    return tuple(Reason(kind="note", text=text) for text in texts)
