"""Covers made into plans: a kernel for each segment, compiled, and assembled."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from codegen.kernel import EmitError, Kernel
from codegen.toolchain.compiler import Binary, OutOfTime
from fusion_ir.records import Plan, Search, Status
from scheduler.context import SearchContext
from scheduler.cost.compile_time import is_too_much
from scheduler.cover.oracle import Proposal
from scheduler.plans.assemble import Choice, assemble
from scheduler.rewrites.prepare import Prepared
from scheduler.segments.enumeration import Candidate, Candidates
from scheduler.tuning.trials import Ledger

STREAM, PLAIN = "store=stream", "store=plain"  # of a schedule
KERNEL_S = 0.15  # that a kernel takes two compilers in a file of its own
COMPILING_SHARE = 0.25  # of a budget, that the first plans may take compilers so


class PlanMaker:
    """Kernels, binaries and plans of proposals.

    cut_short: why the search ended before it had measured what it wanted to, once it did. quick: sha256 of binaries
    that were compiled quickly, not to run fast.
    """

    def __init__(self, context: SearchContext, prepared: Prepared, found: Candidates, ledger: Ledger) -> None:
        self.context, self.prepared, self.found, self.ledger = context, prepared, found, ledger
        self.cut_short: str | None = None
        self.quick: set[str] = set()
        self._errors: dict[str, float | None] = {}  # of kernels that were checked by themselves, by entry

    def lacks_time(self, proposals: Sequence[Proposal], *, unrolled: bool = True) -> bool:
        """Whether compilers need longer for their kernels than there is time, and nothing was measured yet. unrolled:
        see `compile_seconds`."""
        left_s = max(self.context.deadline.end - self.context.deadline.clock(), 0.0)
        segments = [c.segment for c in {c for p in proposals for c in p}]
        return not self.ledger.measured and is_too_much(segments, left_s, unrolled=unrolled)

    def kernels(self, proposals: Sequence[Proposal], *, quickly: bool) -> dict[Candidate, Kernel] | None:
        """A kernel for each candidate, by the first of its schedules that one can be made of; None where some have
        none. quickly: those that compilers are soonest through with, see `Ledger.choice`."""
        kernels = dict[Candidate, Kernel]()
        for candidate in (c for p in proposals for c in p):
            while candidate not in kernels and (variant := self.ledger.choice(candidate, quickly)):
                try:
                    kernels[candidate] = self.ledger.kernel(candidate, variant)
                except EmitError as e:
                    self.ledger.reject(candidate, variant, Status.rejected, str(e))
        return kernels if all(c in kernels for p in proposals for c in p) else None

    def binaries(
        self, kernels: dict[Candidate, Kernel], timed: bool, together: bool = False, optional: bool = False
    ) -> dict[str, Binary] | None:
        """By entry; None where one did not compile and was struck out. Without a bench, none. timed: plans of these
        kernels will be. together: they may share files. optional: see `Bench.compile_for_plans`. Where nothing was
        measured yet and compilers would need longer than there is time, even for what writes out least, they are
        compiled quickly."""
        if self.context.bench is None:
            return {}
        by_entry = {k.entry: (c, k) for c, k in kernels.items()}
        distinct = [k for _, k in by_entry.values()]
        graph = self.prepared.given if timed else None
        quickly = timed and self.lacks_time([tuple(kernels)], unrolled=False)
        results = self.context.bench.compile_for_plans(
            distinct, graph, seed=self.ledger.seed, together=together, optional=optional, quickly=quickly
        )
        binaries: dict[str, Binary] = {}
        for (candidate, kernel), result in zip(by_entry.values(), results, strict=True):
            if isinstance(result, Binary):
                binaries[kernel.entry] = result
                if result.quickly:
                    self.quick.add(result.sha256)
            else:
                self.ledger.reject(candidate, (kernel.family, kernel.schedule), result.status, result.detail)
        if len(binaries) < len(by_entry) or (self.ledger.device.target == "emulator" and not self._pass(by_entry)):
            return None
        return binaries

    def _pass(self, kernels: Mapping[str, tuple[Candidate, Kernel]]) -> bool:
        """Whether all of these compute their segments: for a device that times nothing. Others are struck out."""
        assert self.context.bench is not None
        passed = True
        for candidate, kernel in kernels.values():
            segment = candidate.segment
            [row] = self.context.bench.measure(segment.canonical.graph, segment.key, [kernel], seed=self.ledger.seed)
            self._errors[kernel.entry] = row.max_rel_error
            if row.status is not Status.ok:
                self.ledger.reject(candidate, (kernel.family, kernel.schedule), row.status, row.detail)
                passed = False
        return passed

    def plan(self, proposal: Proposal, kernels: dict[Candidate, Kernel], binaries: dict[str, Binary]) -> Plan:
        choices = [
            Choice(
                c.segment,
                self.ledger.model.traffic(c),
                k,
                binary,
                time_us,
                self._predicted_us(c, k, binary),
                self._errors.get(k.entry),
            )
            for c in proposal
            for k in [kernels[c]]
            for binary, time_us in [(binaries.get(k.entry), self._time_us(c, k))]
        ]
        return assemble(self.prepared, self.ledger.device, choices, self.record())

    def in_caches(
        self, proposal: Proposal, kernels: Mapping[Candidate, Kernel], binaries: Mapping[str, Binary]
    ) -> Plan | None:
        """A plan once more, with stores that stay in the caches where others go past them and a later step reads what
        is stored: a kernel that is timed by itself does not see what its reader pays. None where there are no such
        stores, no time, or too little memory."""
        outputs = {o.node for o in self.prepared.graph.outputs}
        others: dict[Candidate, Kernel] = {}
        for c in proposal:
            family, schedule = kernels[c].family, kernels[c].schedule
            if STREAM in schedule and outputs.isdisjoint(c.segment.writes):
                with suppress(EmitError):
                    others[c] = self.ledger.kernel(c, (family, schedule.replace(STREAM, PLAIN)))
        if not others or self.context.deadline.is_over():
            return None
        compiled = None
        with suppress(OutOfTime):
            compiled = self.binaries(others, timed=True, together=True, optional=True)
        if compiled is None:
            return None
        plan = self.plan(proposal, {**kernels, **others}, {**binaries, **compiled})
        limit = self.context.budget.memory_bytes
        return plan if limit is None or plan.temporary_bytes <= limit else None

    def _time_us(self, candidate: Candidate, kernel: Kernel) -> float | None:
        variant = kernel.family, kernel.schedule
        if variant == self.ledger.choice(candidate):
            return self.ledger.time_us(candidate)
        return self.ledger.variant_us(candidate.segment.key, variant)

    def _predicted_us(self, candidate: Candidate, kernel: Kernel, binary: Binary | None) -> float | None:
        if self.ledger.device.target == "emulator":
            return None  # what orders its candidates is no time of any device
        return self.ledger.model.expected_us(candidate, kernel, binary.report if binary else None)

    def record(self, complete: bool = False) -> Search:
        """The record of the search so far."""
        found = len(self.found.accepted)
        return self.context.record(self.ledger, found, complete=complete, cut_short=self.cut_short)

    def are_many(self, kernels: Mapping[Candidate, Kernel]) -> bool:
        """Whether they take compilers too long for the budget in files of their own."""
        return len({k.entry for k in kernels.values()}) * KERNEL_S > COMPILING_SHARE * self.context.budget.seconds
