"""Which of several ways to its tensors a cover takes, and the best cover that takes another one.

%4 = (x y) z, or x (y z): the cover has x (y z), 12 us in all; the best one that has not, 17 us
"""

from collections.abc import Iterator
from dataclasses import dataclass

from fusion_ir.records import Reason
from fusion_ir.units import duration
from scheduler.bitset import bits
from scheduler.cover.oracle import CoverOracle, Proposal
from scheduler.rewrites.prepare import Prepared
from scheduler.segments.atoms import Atoms
from scheduler.segments.enumeration import Candidate
from scheduler.tuning.trials import Ledger

MOST = 6  # ways that are looked at
SHARE = 0.5  # of the time that one cover may take, for all of these


@dataclass(frozen=True)
class AlternativeCover:
    """atom: the producer that the cover takes of a tensor that has several. other: the best cover without that atom, by
    what is measured or predicted; () if there is none."""

    atom: int
    other: Proposal


def forms(atoms: Atoms, cover: Proposal, covers: CoverOracle, ledger: Ledger) -> Iterator[AlternativeCover]:
    """For producers in a cover of these atoms whose tensor has others, at most `MOST`: the best cover without each. Of
    equal segments, in other layers for instance, one is looked at."""
    until = covers.deadline.clock() + SHARE * covers.cover_s
    seen: set[tuple[str, int]] = set()
    for candidate in cover:
        members = candidate.segment.members
        several = [a for a in bits(members) if len(atoms.hypergraph.producers[atoms.stands[a]]) > 1]
        for number, a in enumerate(several):
            same = candidate.segment.key, number
            if same in seen:
                continue
            if len(seen) >= MOST or covers.deadline.clock() > until:
                return
            seen.add(same)
            without = {c for p, c in covers.found.accepted.items() if p.members >> a & 1}
            yield AlternativeCover(a, covers.cheapest(ledger.model.predictions, without))


def explained(
    prepared: Prepared, atoms: Atoms, cover: Proposal, covers: CoverOracle, ledger: Ledger
) -> Iterator[Reason]:
    """Reasons that give the cost of the cover, and of the best one with another way to a tensor: one for all tensors
    with an equal text."""
    if any(c.families.atoms is not atoms for c in cover):
        return  # of the unfused graph, which has no alternatives
    found_by = prepared.alternatives.found_by
    told: dict[str, list[int]] = {}
    for form in forms(atoms, cover, covers, ledger):
        if not form.other:
            continue
        tensor = atoms.stands[form.atom]
        others = [atoms.nodes[a] for a in atoms.hypergraph.producers[tensor] if a != form.atom]
        own, other = _text(cover, ledger), _text(form.other, ledger)
        if offer := found_by.get(atoms.nodes[form.atom]):
            text = f"by {offer.name} ({offer.equation}): kernels of {own} in all; otherwise {other}"
        else:
            names = " or ".join(dict.fromkeys(found_by[n].name for n in others))
            text = f"as given: kernels of {own} in all; by {names} {other}"
        told.setdefault(text, []).extend(prepared.origin.get(atoms.nodes[tensor], ()))
    for text, nodes in told.items():
        yield Reason(kind="alternative", nodes=tuple(dict.fromkeys(nodes)), text=text)


def _text(cover: Proposal, ledger: Ledger) -> str:
    us = sum(c.weight * ledger.cost_us(c, ledger.model.predicted_us) for c in cover)
    return duration(us) + ("" if all(_is_measured(c, ledger) for c in cover) else " (predicted)")


def _is_measured(candidate: Candidate, ledger: Ledger) -> bool:
    cost = ledger.known(candidate)
    return cost is not None and cost.measured
