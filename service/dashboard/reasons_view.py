"""Why a plan is as it is: its reasons by kind, and what families cost for its contractions."""

from collections.abc import Sequence
from dataclasses import dataclass

from fusion_ir.core.graph import Graph
from fusion_ir.records import Alternative, Cost, Plan, Reason
from service.wording import formatting
from service.wording.contractions import contraction_words, launch_words
from service.wording.nodes import NodeWords
from service.wording.whole_plan_times import untried

MANY = 20  # reasons of a kind that are shown unasked
NAMED = 3  # nodes of a contraction that its heading says the ops of
OPEN = {"not_fused": MANY, "rejected": 3, "measured_worse": MANY, "predicted_worse": MANY}  # why kernels are apart
UNTRIED = "Not tried before the search ended"
GO_ON = "a request with more seconds goes on"
REASON_TITLES = {
    "not_fused": "Why not fused",
    "rejected": "Refused by a kernel family",
    "measured_worse": "Tried, and slower",
    "predicted_worse": "Predicted to be slower",
    "alternative": "Other ways to compute it",
    "cap": "Limits that were hit",
    "note": "Notes",
}


@dataclass(frozen=True)
class ReasonGroup:
    """Reasons of a kind. doubt: a warning about reasons that rest on predictions, "" where nothing is to be said."""

    title: str
    open: bool
    reasons: Sequence[Reason]
    doubt: str = ""


@dataclass(frozen=True)
class CostRow:
    """The cost of a family for one launch that computes a contraction, alone or with other nodes; or its refusal."""

    launch: str
    family: str
    schedule: str
    time: str
    apart: str
    chosen: bool
    refusal: str


@dataclass(frozen=True)
class CostTable:
    """name: what the contraction is called; text: what it computes."""

    nodes: Sequence[int]
    name: str
    text: str
    rows: Sequence[CostRow]

    @property
    def chosen(self) -> str:
        """ "matmul, 2.01 ms": what the plan took, "" where that is in no row."""
        return "; ".join(f"{r.family}, {r.time}" for r in self.rows if r.chosen)


def reason_groups(plan: Plan) -> list[ReasonGroup]:
    """Reasons by kind. Groups on why kernels are apart are open, unless they have many reasons. The first group, always
    open, has the pairs of kernels that the search had no time for, by expected gain, the largest first."""
    pairs = sorted((r for r in plan.reasons if _is_untried_pair(r)), key=_gain_us, reverse=True)
    groups = [ReasonGroup(UNTRIED, True, pairs, untried(plan, pairs, GO_ON))] if pairs else []
    return groups + [
        ReasonGroup(title, len(reasons) <= OPEN.get(kind, 0), reasons, untried(plan, reasons, GO_ON))
        for kind, title in REASON_TITLES.items()
        if (reasons := [r for r in plan.reasons if r.kind == kind and not _is_untried_pair(r)])
    ]


def _is_untried_pair(reason: Reason) -> bool:
    """Whether the reason is about kernels that the search had no time to try as one."""
    return reason.kind == "cap" and bool(reason.edges)


def _gain_us(reason: Reason) -> float:
    """Time in µs that one launch in place of two is expected to save; 0 where that is not known."""
    return reason.apart.us - reason.together.us if reason.apart and reason.together else 0.0


def node_texts(graph: Graph | None) -> dict[int, str]:
    """Op, dtype and shape of each node, by its number: "contract f32[24, 96]". Empty where the graph is gone."""
    nodes = graph.nodes if graph is not None else ()
    return {i: f"{n.op} {n.dtype}[{', '.join(map(str, n.sizes))}]" for i, n in enumerate(nodes)}


def cost_tables(plan: Plan, words: NodeWords) -> list[CostTable]:
    """A table for each contraction with the costs of families, in the words of `fuseplan explain`."""
    texts = node_texts(words.graph)
    return [
        CostTable(
            c.nodes,
            contraction_words(c, words),
            ", ".join(dict.fromkeys(texts[n] for n in c.nodes[:NAMED] if n in texts)),
            [r for a, launch in zip(c.alternatives, launch_words(c, words), strict=True) for r in _rows(a, launch)],
        )
        for c in plan.contractions
    ]


def _rows(alternative: Alternative, launch: str) -> list[CostRow]:
    apart = alternative.apart
    apart_text = _cost(apart) if apart else ""
    rows = [CostRow(launch, c.family, c.schedule, _cost(c.cost), apart_text, c.chosen, "") for c in alternative.costs]
    return rows + [CostRow(launch, ", ".join(r.families), "", "", "", False, r.text) for r in alternative.refusals]


def _cost(cost: Cost) -> str:
    return formatting.expected(cost.us if cost.measured else None, cost.us)
