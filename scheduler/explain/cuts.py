"""Why neighbours are in different kernels, for a person to read."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fusion_ir.records import Cost, Reason
from fusion_ir.units import duration
from scheduler.bitset import bits
from scheduler.rewrites.prepare import Prepared
from scheduler.segments.atoms import Atoms
from scheduler.segments.enumeration import Candidate, Candidates
from scheduler.tuning.trials import Ledger


@dataclass(frozen=True)
class CutOutcome:
    """How the search ended. complete: nothing untried can win. by_plans: several whole plans were timed, and the
    fastest was taken."""

    complete: bool
    by_plans: bool


def explain(
    prepared: Prepared, cover: Sequence[Candidate], found: Candidates, ledger: Ledger, outcome: CutOutcome
) -> tuple[Reason, ...]:
    """Reasons why each two segments of the cover, of which one reads what the other writes, are apart. Pairs with equal
    reasons, in the layers of a model for instance, have one that names all of them."""
    reasons: dict[object, Reason] = {}
    edges = _Edges(cover)
    for i in range(len(cover)):
        for j in edges.readers(i):
            new = _apart(prepared, cover, i, j, edges, found, ledger, outcome)
            same = new.kind, new.text, new.together, new.apart, new.refusals
            old = reasons.get(same)
            update = old and {"nodes": tuple(sorted({*old.nodes, *new.nodes})), "edges": (*old.edges, *new.edges)}
            reasons[same] = old.model_copy(update=update) if old else new
    return tuple(reasons.values())


def _apart(
    prepared: Prepared,
    cover: Sequence[Candidate],
    i: int,
    j: int,
    edges: "_Edges",
    found: Candidates,
    ledger: Ledger,
    outcome: CutOutcome,
) -> Reason:
    """Why segments i and j are not in one launch: impossible, refused, failed, slower or not tried."""
    one, other = cover[i], cover[j]
    atoms = one.families.atoms
    members = one.segment.members | other.segment.members
    nodes = {p for a in _edge(atoms, one, other) for p in prepared.origin.get(atoms.nodes[a], ())}
    reason = Reason(kind="not_fused", nodes=tuple(sorted(nodes)), text="", edges=((i, j),))
    if not atoms.is_convex(members) or edges.lead_around(i, j):
        text = "other kernels run between them, which need the one and feed the other"
        return reason.model_copy(update={"text": text})
    answers = ledger.acceptor.answers(atoms, atoms.piece(members))
    if answers.any() is None:
        update = {"kind": "rejected", "text": "no family takes both", "refusals": answers.refusals()}
        return reason.model_copy(update=update)
    ours = atoms is found.atoms  # those of the unfused graph have numbers of their own
    looked_at = found.whole(members) if ours else None
    together = looked_at or Candidate(answers)
    kind, text = _why(together, one, other, ledger, outcome)
    if ours and looked_at is None and not _is_measured(together, ledger):
        kind, text = "cap", f"not among the segments looked at ({_limits(found)}); {text}"
    apart = [ledger.known(c) for c in (one, other)]
    costs = {"together": ledger.known(together), "apart": _sum(apart)}
    return reason.model_copy(update={"kind": kind, "text": text, **costs})


def _why(together: Candidate, one: Candidate, other: Candidate, ledger: Ledger, outcome: CutOutcome) -> tuple[str, str]:
    """Kind and text of the reason for two segments that some family takes in one launch."""
    ledger.logs.look_up(together)
    whole, parts = ledger.known(together), [ledger.known(c) for c in (one, other)]
    apart = _sum(parts)
    if whole is None:
        failed = ledger.failures(together)[0]
        return "not_fused", f"together: {failed.family} {failed.schedule} {failed.status.value}: {failed.detail}"
    if apart is None:
        return "not_fused", f"together {_text(whole)}; one of the two has no kernel that can be used"
    both = f"together {_text(whole)}, apart {' + '.join(_text(p) for p in parts if p)}"
    is_slower = whole.us >= apart.us
    if whole.measured:
        if is_slower:
            return ("measured_worse" if apart.measured else "predicted_worse"), both
        how = "several whole plans were timed, and this one won" if outcome.by_plans else "no cover with it was better"
        return "not_fused", f"{both}, but {how}"
    if is_slower:
        return "predicted_worse", both if ledger.bench is None else f"{both}; not tried"
    if ledger.bench is None:
        return "cap", f"{both}; no cover with it came up before the search ended"
    if outcome.complete:
        bound_us = ledger.model.bound_us(together)
        proof = (
            f"at its bound, {duration(bound_us)}, it would not win"
            if bound_us >= apart.us
            else "no cover with it can win"
        )
        return "predicted_worse", f"{both}; not tried: {proof}"
    return "cap", f"{both}; not tried before the time was over"


def _is_measured(candidate: Candidate, ledger: Ledger) -> bool:
    cost = ledger.known(candidate)
    return cost is not None and cost.measured


def _limits(found: Candidates) -> str:
    """The caps that kept the search from looking at more segments, as text."""
    caps = [r.text for r in found.reasons if r.kind == "cap"]
    return "; ".join(caps) or "they grow by one tensor at a time, and a part of this one is refused"


class _Edges:
    """Reads among the segments of a cover, which are in execution order."""

    def __init__(self, cover: Sequence[Candidate]) -> None:
        self._writes = [c.segment.piece.writes for c in cover]
        self._reads = [c.families.atoms.reads_of(c.segment.members) for c in cover]
        self._readers: dict[int, list[int]] = {}  # by tensor
        for j, reads in enumerate(self._reads):
            for t in bits(reads):
                self._readers.setdefault(t, []).append(j)

    def readers(self, i: int) -> list[int]:
        """Segments after segment i that read what it writes."""
        return sorted({j for t in bits(self._writes[i]) for j in self._readers.get(t, ()) if j > i})

    def lead_around(self, i: int, j: int) -> bool:
        """Whether other segments lie on a path from segment i to segment j: they and one launch of both would wait for
        each other."""
        reached = first = self._writes[i]
        for k in range(i + 1, j):
            if self._reads[k] & reached:
                reached |= self._writes[k]
        return bool(self._reads[j] & reached & ~first)


def _sum(costs: Sequence[Cost | None]) -> Cost | None:
    known = [c for c in costs if c]
    if len(known) < len(costs):
        return None
    return Cost(us=sum(c.us for c in known), measured=all(c.measured for c in known))


def _text(cost: Cost) -> str:
    return duration(cost.us) if cost.measured else f"{duration(cost.us)} (predicted)"


def _edge(atoms: Atoms, one: Candidate, other: Candidate) -> Iterator[int]:
    """Atoms of the first segment that the second reads, and the atoms of the second that read them."""
    for a in bits(other.segment.members):
        read = atoms.preds[a] & one.segment.members
        if read:
            yield a
            yield from bits(read)
