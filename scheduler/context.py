"""The context of one search: what it was asked for, and what it has to do it with."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from codegen.kernel import Family
from fusion_ir.core.graph import Graph
from fusion_ir.records import Device, Numerics, Search
from scheduler.budget import Budget
from scheduler.deadline import Deadline
from scheduler.interfaces import Bench, Costs
from scheduler.rewrites.rule import Alternative
from scheduler.segments.enumeration import CandidateSettings
from scheduler.settings import TuneSettings
from scheduler.spending import spending
from scheduler.tuning.trials import Ledger

FEW = CandidateSettings(max_grown=0, max_unions=0)  # of an interrupted search: single atoms, regions, the whole graph


@dataclass(frozen=True)
class SearchContext:
    """timed: whether kernels are timed: there is a bench, a budget, and a device of this machine that is no emulator.
    hurried: the search was interrupted, and takes no more than it needs to end with a plan.
    """

    graph: Graph
    device: Device
    budget: Budget
    costs: Costs
    bench: Bench | None
    deadline: Deadline
    numerics: Numerics
    families: Mapping[str, Family]
    offers: Sequence[Alternative]
    settings: TuneSettings
    timed: bool
    hurried: bool = False

    def interrupted(self) -> "SearchContext":
        """The context of what an interrupted search does to end with a plan: no alternatives, few segments."""
        return replace(self, offers=(), settings=replace(self.settings, candidates=FEW), hurried=True)

    def ledger(self) -> Ledger:
        """A ledger without trials."""
        bench = self.bench if self.timed else None
        return Ledger(self.device, self.families, self.costs, bench, self.budget.seed, self.budget.sampler)

    def seconds(self, share: float) -> float:
        """A share of the budget; infinite where nothing is timed."""
        return share * self.budget.seconds if self.timed else math.inf

    def is_late(self, share: float) -> bool:
        """Whether so much of the budget is spent. Who listens may end the search."""
        self.deadline.look()
        return self.deadline.seconds > self.seconds(share)

    def record(
        self, ledger: Ledger, candidates: int, *, complete: bool = False, cut_short: str | None = None
    ) -> Search:
        """The record of the search so far, for its plan. candidates: segments that some family accepts. complete,
        cut_short: as in `Search`."""
        counted = self.bench if self.budget.seconds else None
        return Search(
            seconds=self.deadline.seconds,
            candidates=candidates,
            measured=ledger.measured,
            failed=ledger.failed,
            dropped=ledger.dropped,
            complete=complete,
            seed=self.budget.seed,
            memory_bytes=self.budget.memory_bytes,
            budget_s=self.budget.seconds,
            idle_share=counted.idle_share(self.deadline.seconds) if counted else None,
            cpu_share=counted.cpu_share() if counted else None,
            cut_short=cut_short,
            spent=spending(self.deadline, ledger.races) if counted else None,
        )
