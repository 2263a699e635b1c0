"""Plans of graphs that are too large for a search of covers, or for one in the time there is: linear in the graph.

The graph is cut into sections, and each into stretches: runs of atoms in topological order that some family computes in
one launch. No stretch waits for a later one, whatever the graph looks like. Kernels for single atoms come first, which
are few where ops and shapes repeat; then those of stretches, by what they save for each second of a compiler, until
time is up: the plan has a stretch where its kernel is there, else its atoms one by one.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from codegen.kernel import EmitError, Kernel
from codegen.timing.protocol import median
from codegen.toolchain.compiler import Binary, OutOfTime
from fusion_ir.core.graph import Graph
from fusion_ir.records import Plan, Reason, Search, Status
from scheduler.context import SearchContext
from scheduler.cost.compile_time import COMPILERS, compile_seconds, is_too_much, is_unrolled
from scheduler.no_plan import Disagreement, MemoryExceeded, NoPlan, refused, unusable
from scheduler.plan_ranking import unclear, unfused_is_chosen
from scheduler.plans.assemble import Choice, assemble, meanings_of
from scheduler.plans.whole_time import BY_STEPS, times
from scheduler.rewrites.prepare import Prepared
from scheduler.segments.atom_cuts import cut
from scheduler.segments.atoms import Atoms
from scheduler.segments.consecutive_atoms import SectionCandidate, Stretch, distinct
from scheduler.segments.enumeration import Candidate
from scheduler.segments.sections import Section, sections
from scheduler.tuning.trials import Ledger
from scheduler.verdict import QUICKLY

SECTION = 96  # atoms
LONGEST = 24  # atoms of a stretch: a kernel of more computes as long as it moves, and takes compilers seconds
EMITTING_SHARE = 0.8  # of the time that is left once stretches are found: for making their kernels before compiling
ROUND_S = 1.0  # of compilers, between two looks at the clock
ASSEMBLED_S = 2e-4  # a step of the plan
LATE_S = 0.5  # after the budget, that a plan may be checked and timed in
RUNS = 12  # of each plan, for its check and its samples
INTERPRETED_S = (
    5e-8  # of an element of a node, to know what is right, how far off it may be, and to compare (3,000 ops: 10 s)
)
NODE_INTERPRETED_S = 3e-5

ALONE = "timed alone: there was no time to time the graph with a kernel for each op beside it"


@dataclass
class LargeGraphPlanner:
    """Makes a plan. until_s: when looking for stretches ends. reasons: why it is made so, for the plan."""

    context: SearchContext
    prepared: Prepared
    ledger: Ledger
    until_s: float
    why: str
    notes: list[Reason] = field(default_factory=list[Reason])
    _kernels: dict[str, Kernel | None] = field(default_factory=dict[str, Kernel | None])  # by segment key
    _us: dict[str, float] = field(default_factory=dict[str, float])  # the same
    _binaries: dict[str, Binary] = field(default_factory=dict[str, Binary])  # by entry
    _failed: dict[str, tuple[Status, str]] = field(default_factory=dict[str, tuple[Status, str]])  # the same
    _errors: dict[str, float | None] = field(default_factory=dict[str, float | None])  # of those checked
    _found: int = 0
    _quickly: bool = False  # by the schedules that compilers are soonest through with

    def __post_init__(self) -> None:
        self.deadline, self.bench, self.timed = self.context.deadline, self.context.bench, self.context.timed
        self.memory_bytes = self.context.budget.memory_bytes

    def plan(self) -> Plan:
        """The plan. Raises NoPlan, MemoryExceeded."""
        stretches = self._stretches()
        self._quickly = self._is_too_much(distinct(p for s in stretches for p in s.fewest).values())
        stretches = self._emitted(stretches, self._left() * (1 - EMITTING_SHARE))
        singles = distinct(p for s in stretches for p in s.singles)
        wholes = distinct(s.whole for s in stretches if s.whole)
        saved = self._saved(stretches)
        worth = sorted((k for k in saved if saved[k] > 0), key=lambda k: -saved[k] / self._seconds([wholes[k]]))
        lonely = distinct(p for s in stretches if s.whole is None or s.whole.key not in worth for p in s.singles)
        fewest_s = self._seconds([*lonely.values(), *(wholes[key] for key in worth)])
        if not self.timed or self._seconds(singles.values()) <= max(fewest_s, COMPILERS * self._left()):
            kernels = self._compiled(singles)
            kernels |= self._compiled_until([wholes[key] for key in worth])
        else:  # single atoms would take compilers longer than stretches, and than there is time
            kernels = self._compiled(lonely | {key: wholes[key] for key in worth})
            missing = distinct(p for s in stretches for p in s.parts(kernels) if p.key not in kernels)
            kernels |= self._compiled(missing) if missing else {}
            others = {key: part for key, part in singles.items() if key not in kernels}
            if others and self._seconds(others.values()) <= self._left():  # took less than it was thought to
                with suppress(OutOfTime):
                    kernels |= self._compiled(others, optional=True)
        if self._quickly:
            kernels |= self._unrolled([p for s in stretches for p in s.parts(kernels)])
        return self._decided(stretches, kernels, both=all(key in kernels for key in singles))

    def _stretches(self) -> list[Stretch]:
        found: list[Stretch] = []
        for section in sections(self.prepared.graph, SECTION):
            self.deadline.look()
            atoms = cut(section.graph, self.ledger.acceptor.computable)
            start = 0
            while start < len(atoms):
                whole = self._longest(atoms, start) if self.deadline.seconds < self.until_s else None
                stop = whole.families.piece.members.bit_length() if whole else start + 1
                singles = tuple(self._single(section, atoms, a) for a in range(start, stop))
                found.append(Stretch(atoms, SectionCandidate(section, whole) if whole else None, singles))
                start = stop
        self._found = sum(len(s.singles) + (s.whole is not None) for s in found)
        return found

    def _longest(self, atoms: Atoms, start: int) -> Candidate | None:
        """The longest stretch from an atom on that is accepted, of those up to the next product and of its halves."""
        most = min(len(atoms) - start, LONGEST)
        size = next((n for n in range(1, most) if atoms.nodes[start + n].op == "contract"), most)
        while size > 1:
            members = (1 << start + size) - (1 << start)
            if candidate := self.ledger.acceptor.ask(atoms, atoms.piece(members)):
                return candidate
            size //= 2
        return None

    def _emitted(self, stretches: Sequence[Stretch], until_left_s: float) -> list[Stretch]:
        """The stretches, halved where no kernel of the whole can be made after all. Once no more than `until_left_s`
        seconds are left, they stay as they are, and are given up where their kernels are asked for."""
        found: list[Stretch] = []
        for s in stretches:
            if s.whole is None or self._left() <= until_left_s or self._kernel(s.whole):
                found.append(s)
            else:
                middle = len(s.singles) // 2
                halves = [self._of(s.atoms, singles) for singles in (s.singles[:middle], s.singles[middle:])]
                found += self._emitted(halves, until_left_s)
        return found

    def _of(self, atoms: Atoms, singles: Sequence[SectionCandidate]) -> Stretch:
        """The stretch of these atoms."""
        members = sum(p.candidate.families.piece.members for p in singles)
        candidate = self.ledger.acceptor.ask(atoms, atoms.piece(members)) if len(singles) > 1 else None
        return Stretch(atoms, SectionCandidate(singles[0].section, candidate) if candidate else None, tuple(singles))

    def _single(self, section: Section, atoms: Atoms, atom: int) -> SectionCandidate:
        candidate = self.ledger.acceptor.ask(atoms, atoms.piece(1 << atom))
        if candidate is None:
            raise NoPlan(f"no family accepts {atoms.nodes[atom]}")
        return SectionCandidate(section, candidate)

    def _kernel(self, part: SectionCandidate) -> Kernel | None:
        """The kernel of the best variant known that can be emitted."""
        if part.key not in self._kernels:
            self._kernels[part.key] = None
            while variant := self.ledger.choice(part.candidate, self._quickly):
                try:
                    self._kernels[part.key] = self.ledger.kernel(part.candidate, variant)
                    break
                except EmitError as e:
                    self.ledger.reject(part.candidate, variant, Status.rejected, str(e))
        return self._kernels[part.key]

    def _predicted_us(self, part: SectionCandidate) -> float:
        if part.key not in self._us:
            self._us[part.key] = self.ledger.cost_us(part.candidate, self.ledger.model.predicted_us)
        return self._us[part.key]

    def _saved(self, stretches: Sequence[Stretch]) -> dict[str, float]:
        """Microseconds of a run that each stretch's kernel is expected to save, by its key."""
        saved: dict[str, float] = {}
        for s in stretches:
            if s.whole:
                us = sum(map(self._predicted_us, s.singles)) - self._predicted_us(s.whole)
                saved[s.whole.key] = saved.get(s.whole.key, 0.0) + us
        return saved

    def _seconds(self, parts: Iterable[SectionCandidate]) -> float:
        """Seconds of one core to compile a kernel for each of these parts."""
        return compile_seconds((p.candidate.segment for p in parts), unrolled=not self._quickly)

    def _is_too_much(self, parts: Iterable[SectionCandidate]) -> bool:
        """Whether compilers need longer for these than there is time."""
        segments = (p.candidate.segment for p in parts)
        return self.timed and is_too_much(segments, self._left(), unrolled=not self._quickly)

    def _left(self) -> float:
        """Seconds until the budget is spent."""
        return max(self.deadline.end - self.deadline.clock(), 0.0)

    def _compiled(
        self, parts: Mapping[str, SectionCandidate], again: bool = True, optional: bool = False
    ) -> dict[str, Kernel]:
        """Kernels of these, as far as they are emitted and compile, by key. again: of what does not, the next variant
        is tried, until there is none. optional: see `Bench.compile_for_plans`."""
        found = dict[str, Kernel]()
        waiting = dict(parts)
        while kernels := {key: kernel for key, part in waiting.items() if (kernel := self._kernel(part))}:
            self._compile(kernels.values(), optional, quickly=not optional and self._is_too_much(waiting.values()))
            usable = {
                key: k
                for key, k in kernels.items()
                if self.bench is None or (k.entry in self._binaries and self._passes(waiting[key], k))
            }
            found |= usable
            waiting = {key: part for key, part in waiting.items() if key in kernels and key not in usable}
            for key, part in waiting.items():
                kernel = self._kernels.pop(key)
                if kernel is not None:
                    status, detail = self._failed[kernel.entry]
                    self.ledger.reject(part.candidate, (kernel.family, kernel.schedule), status, detail)
            if not again:
                break
        return found

    def _compile(self, kernels: Iterable[Kernel], optional: bool, quickly: bool) -> None:
        """Adds their binaries, and what is wrong with those that have none."""
        by_entry = {k.entry: k for k in kernels if k.entry not in self._binaries}
        if self.bench is None or not by_entry:
            return
        given = self.prepared.given
        will_run = self.timed and _interpreted_s(given) < max(self._left() / 2, LATE_S)
        results = self.bench.compile_for_plans(
            list(by_entry.values()),
            given if will_run else None,
            seed=self.ledger.seed,
            together=True,
            optional=optional,
            quickly=quickly,
        )
        was_quick = any(isinstance(r, Binary) and r.quickly for r in results)
        if was_quick and not any(n.text == QUICKLY for n in self.notes):
            self.notes.append(Reason(kind="cap", text=QUICKLY))
        for entry, result in zip(by_entry, results, strict=True):
            if isinstance(result, Binary):
                self._binaries[entry] = result
            else:
                self._failed[entry] = result.status, result.detail[:200]
                text = f"{by_entry[entry].family}: {result.status.value}: {result.detail[:200]}"
                self.notes.append(Reason(kind="note", text=text))

    def _passes(self, part: SectionCandidate, kernel: Kernel) -> bool:
        """Whether it computes its segment: for a device that times nothing."""
        if self.bench is None or self.ledger.device.target != "emulator":
            return True
        segment = part.candidate.segment
        [row] = self.bench.measure(segment.canonical.graph, segment.key, [kernel], seed=self.ledger.seed)
        self._errors[kernel.entry] = row.max_rel_error
        if row.status is not Status.ok:
            self._failed[kernel.entry] = row.status, row.detail
        return row.status is Status.ok

    def _unrolled(self, parts: Iterable[SectionCandidate]) -> dict[str, Kernel]:
        """Kernels by the schedules that are tried first, instead of those that compilers were sooner through with: as
        many as there is time for, those first that take longest."""
        self._quickly = False
        others = [p for p in distinct(parts).values() if is_unrolled(p.candidate.segment)]
        for part in others:
            self._kernels.pop(part.key, None)
        return self._compiled_until(sorted(others, key=lambda p: -self._predicted_us(p)), "with sums written out")

    def _compiled_until(self, ordered: Sequence[SectionCandidate], what: str = "of several ops") -> dict[str, Kernel]:
        """Compiled kernels by key, of as many parts as there is time for, in this order. what: a description of the
        kernels, for the reason that tells how many were left out."""
        found, waiting = dict[str, Kernel](), list(ordered)
        until = min(self.deadline.plans_start, self.deadline.end - ASSEMBLED_S * self._found) - ROUND_S / COMPILERS
        while waiting and (not self.timed or self.deadline.clock() < until):
            self.deadline.tell("segments", self.ledger.measured)
            batch: dict[str, SectionCandidate] = {}
            while waiting and (not self.timed or not batch or self._seconds(batch.values()) < ROUND_S):
                part = waiting.pop(0)
                batch[part.key] = part
            try:
                found |= self._compiled(batch, again=False, optional=self.timed)
            except OutOfTime:
                waiting = [*batch.values(), *waiting]
                break
        if waiting:
            text = f"{len(waiting)} of {len(ordered)} kernels {what} were not compiled: the time was over"
            self.notes.append(Reason(kind="cap", text=text))
        return found

    def _decided(self, stretches: Sequence[Stretch], kernels: dict[str, Kernel], both: bool) -> Plan:
        proposal = [p for s in stretches for p in s.parts(kernels)]
        unfused = [p for s in stretches for p in s.singles] if both else []
        missing = next((p for p in proposal if p.key not in kernels), None)
        if missing:
            node = missing.section.whole[missing.candidate.segment.writes[0]]
            raise unusable(node, self.ledger.failures(missing.candidate))
        fused = any(s.whole and s.whole.key in kernels for s in stretches)
        plans = [self._plan(proposal, kernels)]
        if unfused and fused and self.timed and self._is_time_for(proposal, unfused):
            plans.append(self._plan(unfused, kernels))
        fitting = [p for p in plans if self.memory_bytes is None or p.temporary_bytes <= self.memory_bytes]
        if not fitting:
            least = min(p.temporary_bytes for p in plans)
            limit = f"at most {self.memory_bytes:,} bytes of temporaries"
            raise MemoryExceeded(f"no plan was found that needs {limit}; the least that was found needs {least:,}")
        plan, unfused_us = fitting[0], None
        if self.bench is not None and self.timed and self._is_time_for(proposal):
            self.deadline.tell("plans", self.ledger.measured)
            try:
                plan, unfused_us = self._timed(fitting, only=not fused)
            except Disagreement as e:
                singles = [p for s in stretches for p in s.singles]
                plan, unfused_us = self._unfused(singles, kernels, e, refused=not fused or len(plans) > 1)
            if unfused_us is None:
                self.notes.append(Reason(kind="note", text=ALONE))
        else:
            self.notes.append(Reason(kind="note", text="not timed: the time was over"))
        self.deadline.tell("done", self.ledger.measured)
        for part in distinct([*proposal, *unfused]).values():
            self.ledger.costs.record(part.candidate.segment.canonical.graph, [])
        reasons = (Reason(kind="cap", text=self.why), *self.prepared.alternatives.reasons, *self.notes[:20])
        return plan.model_copy(
            update={
                "unfused_us": unfused_us,
                "reasons": reasons,
                "search": self._record(),
            }
        )

    def _unfused(
        self, singles: Sequence[SectionCandidate], kernels: dict[str, Kernel], wrong: Disagreement, *, refused: bool
    ) -> tuple[Plan, float]:
        """The plan with a kernel for each op and its time, however late it is, since others are `wrong`. refused: that
        was as well, as a whole; it may be right step by step. Raises Disagreement."""
        assert self.bench is not None
        kernels = kernels | self._compiled({p.key: p for p in singles if p.key not in kernels})
        plan = self._plan(singles, kernels) if all(p.key in kernels for p in singles) else None
        if plan is None or (self.memory_bytes is not None and plan.temporary_bytes > self.memory_bytes):
            raise wrong
        if not refused:
            try:
                right, unfused_us = self._timed([plan], only=True)
                return right, unfused_us or 0.0
            except Disagreement as e:
                wrong = e
        meanings = meanings_of(self.prepared, [p.section.of_whole(p.candidate.segment) for p in singles])
        given, seed = self.prepared.given, self.ledger.seed
        result = self.bench.measure_by_steps(given, plan, meanings, seed=seed, seconds=LATE_S)
        if result.status is not Status.ok or not result.samples_us:
            text = f"step by step: {result.status.value}: {result.detail}"
            self.notes.append(Reason(kind="note", text=text))
            raise wrong
        self.notes.append(Reason(kind="note", text=BY_STEPS))
        found = {**times(result), "max_rel_error": None, "judged_by_steps": True}
        return plan.model_copy(update=found), median(result.samples_us)

    def _is_time_for(self, *proposals: Sequence[SectionCandidate]) -> bool:
        """Whether these can be checked and timed in what is left, and the moment after it."""
        runs_s = RUNS * sum(self._predicted_us(p) for parts in proposals for p in parts) / 1e6
        return runs_s + _interpreted_s(self.prepared.given) < self._left() + LATE_S

    def _timed(self, plans: Sequence[Plan], only: bool) -> tuple[Plan, float | None]:
        """The faster one with its time, and that of the unfused graph. only: the first is that. Raises NoPlan where
        none passed, Disagreement where one had a wrong result."""
        assert self.bench is not None
        given, seed = self.prepared.given, self.ledger.seed
        results = self.bench.measure_plans(given, plans, seed=seed, seconds=max(self._left(), 0.2))
        passed = [(p, r) for p, r in zip(plans, results, strict=True) if r.status is Status.ok and r.samples_us]
        failed = [(p, r) for p, r in zip(plans, results, strict=True) if r.status is not Status.ok]
        for p, r in failed:
            text = f"plan of {len(p.steps)} steps: {r.status.value}: {r.detail}"
            self.notes.append(Reason(kind="note", text=text))
        if not passed:
            wrong = next((r.detail for _, r in reversed(failed) if r.status is Status.wrong_result), "")
            raise refused(given, wrong, "; ".join(f"{r.status.value}: {r.detail}" for r in results))
        plan, result = passed[0]
        unfused_us = median(passed[-1][1].samples_us) if only or passed[-1][0] is not plans[0] else None
        if len(passed) == 2 and unfused_is_chosen(passed[1][1], result):
            plan, result = passed[1]
        elif len(passed) == 2 and (note := unclear(passed[1][1], result)):
            self.notes.append(note)
        return plan.model_copy(update=times(result)), unfused_us

    def _plan(self, parts: Sequence[SectionCandidate], kernels: dict[str, Kernel]) -> Plan:
        choices = [
            Choice(
                p.section.of_whole(p.candidate.segment),
                self.ledger.model.traffic(p.candidate),
                kernels[p.key],
                self._binaries.get(kernels[p.key].entry),
                None,
                None if self.ledger.device.target == "emulator" else self._predicted_us(p),
                self._errors.get(kernels[p.key].entry),
            )
            for p in parts
        ]
        return assemble(
            self.prepared,
            self.ledger.device,
            choices,
            self.context.record(self.ledger, self._found, cut_short=self.why),
        )

    def _record(self) -> Search:
        return self.context.record(self.ledger, self._found, cut_short=self.why)


def _interpreted_s(graph: Graph) -> float:
    return INTERPRETED_S * math.fsum(n.elements for n in graph.nodes) + NODE_INTERPRETED_S * len(graph.nodes)
