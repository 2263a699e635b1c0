"""Why neighbours are in different kernels, for a person to read."""

from collections.abc import Iterator, Sequence

from codegen.kernel import Reject
from fusion_ir.records import Reason
from scheduler.atoms import Atoms
from scheduler.candidates import Candidate, Candidates
from scheduler.cover import bits
from scheduler.ledger import Ledger
from scheduler.prepare import Prepared


def explain(
    prepared: Prepared, atoms: Atoms, cover: Sequence[Candidate], found: Candidates, ledger: Ledger
) -> tuple[Reason, ...]:
    """One reason for every two segments of the cover of which one reads what the other writes."""
    return tuple(
        _apart(prepared, atoms, one, other, found, ledger)
        for i, one in enumerate(cover)
        for other in cover[i + 1 :]
        if atoms.reads_of(other.segment.members) & one.segment.members
    )


def _apart(
    prepared: Prepared, atoms: Atoms, one: Candidate, other: Candidate, found: Candidates, ledger: Ledger
) -> Reason:
    """Why not in one launch: impossible, refused, failed, slower or not tried."""
    members = one.segment.members | other.segment.members
    nodes = tuple(sorted({p for a in _edge(atoms, one, other) for p in prepared.origin.get(atoms.nodes[a], ())}))
    if not atoms.is_convex(members):
        text = "other kernels run between them, which need the one and feed the other"
        return Reason(kind="not_fused", nodes=nodes, text=text)
    together = found.accepted.get(members) or ledger.ask(atoms, members)
    if isinstance(together, Reject):
        return Reason(kind="rejected", nodes=nodes, text=together.reason)
    apart = f"apart {_time_text(one, ledger)} + {_time_text(other, ledger)}"
    time_us = ledger.time_us(together)
    if time_us is not None:
        compared = ledger.time_us(one) is not None and ledger.time_us(other) is not None
        kind = "measured_worse" if compared else "not_fused"
        return Reason(kind=kind, nodes=nodes, text=f"together {time_us:.1f} us, {apart}")
    failures = ledger.failures(together)
    if failures:
        text = f"together: {failures[0].family} {failures[0].schedule} {failures[0].status.value}: {failures[0].detail}"
        return Reason(kind="not_fused", nodes=nodes, text=text)
    expected = f"predicted {ledger.predicted_us(together):.1f} us, at the least {ledger.bound_us(together):.1f} us"
    return Reason(kind="not_fused", nodes=nodes, text=f"together not measured ({expected}), {apart}")


def _time_text(candidate: Candidate, ledger: Ledger) -> str:
    time_us = ledger.time_us(candidate)
    return f"{ledger.predicted_us(candidate):.1f} us (predicted)" if time_us is None else f"{time_us:.1f} us"


def _edge(atoms: Atoms, one: Candidate, other: Candidate) -> Iterator[int]:
    """Atoms of the first that the second reads, and the atoms there that read them."""
    for a in bits(other.segment.members):
        read = atoms.preds[a] & one.segment.members
        if read:
            yield a
            yield from bits(read)
