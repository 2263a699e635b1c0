"""Settings of a search: how its budget is shared among its phases, and how much it looks at."""

from dataclasses import dataclass, field

from fusion_ir.ops.value_preserving import is_free
from scheduler.rewrites.prepare import Prepared
from scheduler.segments.enumeration import CandidateSettings


@dataclass(frozen=True)
class TuneSettings:
    """candidates_share: part of the budget after which no more segments are looked for. cover_s: seconds of one run of
    the partition programme, no more than cover_share of the budget. batch: schedules of one segment measured together.
    finalists: whole plans timed end to end, besides the unfused one. plans_share, plans_s: part of the budget kept for
    that, and the most of it. play_off_share: part of it kept for near ties of schedules; play_off_s: of a small budget
    up to twice that part, as long as one race takes. rewriting_share: part after which nothing more is rewritten.
    early_share, early_s: part of the budget for timing the first plans, and the most of it; early_always_s: of budgets
    below, the plan of the unfused graph, too, where that is the best by predictions.
    least_atoms, atoms_per_s, most_atoms: tensors of a graph that covers are sought for, whatever the budget, for each
    second of it, and at the most."""

    candidates: CandidateSettings = field(default_factory=CandidateSettings)
    candidates_share: float = 0.5
    cover_s: float = 2.0
    cover_share: float = 0.2
    batch: int = 8
    finalists: int = 3
    rewriting_share: float = 0.15
    early_share: float = 0.1
    early_s: float = 0.5
    early_always_s: float = 3.0
    least_atoms: int = 40
    atoms_per_s: float = 25.0
    most_atoms: int = 1500
    plans_share: float = 0.2
    plans_s: float = 5.0
    play_off_share: float = 0.1
    play_off_s: float = 1.5

    def too_many(self, prepared: Prepared, seconds: float) -> str:
        """Why covers of this graph are not sought in so many seconds; "" where they are."""
        most = int(max(self.least_atoms, min(self.most_atoms, self.atoms_per_s * seconds)))
        written = {o.node for o in prepared.graph.outputs}  # views among them are copied
        count = sum(n in written or (n.op != "input" and not is_free(n)) for n in prepared.graph.nodes)
        if count <= most:
            return ""
        within = "" if most == self.most_atoms else f" in {seconds:g} s"
        return f"covers are sought of up to {most} tensors{within}, the graph has {count}: it was taken in stretches"


DEFAULT = TuneSettings()
