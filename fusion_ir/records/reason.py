"""Why a plan is as it is: why neighbours are in different kernels, and what each family costs for a contraction."""

from typing import Any, Literal

from pydantic import Field

from fusion_ir.records.base import Record
from fusion_ir.records.split_half import Half


def _if_any() -> Any:
    """A field that is left out of the JSON where it is empty: the keys of plans from before it stay what they were."""
    return Field(default=(), exclude_if=lambda value: not value)


def _if_known() -> Any:
    """A field that is left out of the JSON where it is None: the keys of older plans stay what they were."""
    return Field(default=None, exclude_if=lambda value: value is None)


class Refusal(Record):
    """The reason why kernel families cannot compute some nodes in one launch."""

    families: tuple[str, ...]
    text: str


class Cost(Record):
    """The time of one kernel, or of several one after another, in microseconds. measured: every one of them was timed
    here; otherwise some of it is predicted."""

    us: float
    measured: bool


class Reason(Record):
    """Why something is as it is: why two neighbours are apart, which cap was hit.

    Of neighbours, also: edges, (i, j) where step j reads what step i writes, all those that the reason holds for;
    together, apart: what one launch would cost, and what the two cost; refusals: where no family takes both.
    rejected: no family takes both. measured_worse, predicted_worse: it would be slower. not_fused: anything else.
    alternative: which of several ways to compute something the plan takes, and what the best plan without it costs.
    cap: a limit of the search, its time among them.
    """

    kind: Literal["not_fused", "rejected", "measured_worse", "predicted_worse", "alternative", "cap", "note"]
    nodes: tuple[int, ...] = ()
    text: str
    edges: tuple[tuple[int, int], ...] = _if_any()
    together: Cost | None = _if_known()
    apart: Cost | None = _if_known()
    refusals: tuple[Refusal, ...] = _if_any()


class FamilyCost(Record):
    """A family's best known schedule of a segment: the fastest that was timed, as in one race with the segment's
    winner; where none was, its first one and a prediction. chosen: it is a step of the plan, and this that step's."""

    family: str
    schedule: str
    cost: Cost
    chosen: bool = Field(default=False, exclude_if=lambda chosen: not chosen)


class Alternative(Record):
    """One launch that computes a contraction, alone or with neighbours.

    nodes: all that it computes. costs: by family, the cheapest first. refusals: by the others,
    or what became of all their schedules. apart: the contraction alone by its best family, and the rest of `nodes` in
    as few launches as are known; None where the contraction is all there is.
    """

    nodes: tuple[int, ...]
    costs: tuple[FamilyCost, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    apart: Cost | None = None


class Contraction(Record):
    """The launches that could compute a contraction. nodes: its position in the graph's canonical text, and those of
    contractions that the plan computes as it does this one; none where a rewrite made it. alternatives: the contraction
    alone first. half: the half that this is, where a rewrite cut the contraction's sums."""

    nodes: tuple[int, ...]
    alternatives: tuple[Alternative, ...]
    half: Half | None = _if_known()
