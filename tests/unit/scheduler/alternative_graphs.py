"""Graphs with other ways to the same bits, and random covers of them."""

import random
from collections.abc import Iterator

from fusion_ir.core.node import Node
from fusion_ir.ops import OpKind, kind_of, make
from scheduler.bitset import bits
from scheduler.rewrites.matching.graph_queries import GraphQueries
from scheduler.rewrites.prepare import Prepared
from scheduler.rewrites.rule import Alternative
from scheduler.segments.atoms import Atoms, atoms_of
from scheduler.segments.enumeration import Candidates, CandidateSettings, find_candidates
from scheduler.segments.segment_mask import SegmentMask
from scheduler.tuning.trials import Ledger
from tests.unit.scheduler.fakes import DEVICE, Memory, families


def _other_sign(node: Node, _: GraphQueries) -> Iterator[Node]:
    if node.op in ("add", "sub") and node.dtype.is_float:
        a, b = node.args
        yield make("sub" if node.op == "add" else "add", [a, make("neg", [b])])


def _around(node: Node, _: GraphQueries) -> Iterator[Node]:
    if node.op in ("add", "mul") and node.args[0] is not node.args[1]:
        yield make(node.op, node.args[::-1])


def _as_view(node: Node, _: GraphQueries) -> Iterator[Node]:
    """A part of a larger tensor, as parts of a horizontal product are."""
    if kind_of(node) is OpKind.POINTWISE and node.rank and 0 not in node.sizes:
        whole = make(node.op, [make("cat", [a, a], {"axis": 0}) for a in node.args], dict(node.attrs))
        stop = node.sizes
        yield make("slice", [whole], {"start": (0,) * node.rank, "stop": stop, "step": (1,) * node.rank})


OFFERS = (
    Alternative("other-sign", "a + b = a - -b", "exact", _other_sign),
    Alternative("around", "a + b = b + a", "exact", _around),
    Alternative("as-view", "f(x) = f([x | x])[:n]", "exact", _as_view),
)


def searched(prepared: Prepared, most: int = 4) -> tuple[Atoms, Candidates]:
    """Atoms and candidates of a graph and its alternatives, on a device that takes anything up to a size."""
    atoms = atoms_of(prepared.graph, alternatives=prepared.alternatives)
    ledger = Ledger(DEVICE, families(most=most, kinds=frozenset(OpKind)), Memory(), None, 0)  # type: ignore[arg-type]
    few = CandidateSettings(max_grown=300, max_unions=50, max_again=100)
    return atoms, find_candidates(atoms, lambda piece: ledger.acceptor.ask(atoms, piece), few)


def random_cover(atoms: Atoms, found: Candidates, rng: random.Random) -> list[SegmentMask] | None:
    """Some pieces that write the outputs and what they read, in execution order; None where these made a cycle."""
    writers: dict[int, list[SegmentMask]] = {}
    for piece in found.accepted:
        for t in bits(piece.writes):
            writers.setdefault(t, []).append(piece)
    chosen: list[SegmentMask] = []
    wanted, written = atoms.outputs, 0
    while missing := wanted & ~written:
        able = writers[rng.choice(list(bits(missing)))]
        others = [p for p in able if p.members & ~atoms.givens]
        piece = rng.choice(others if others and rng.random() < 0.5 else able)
        chosen.append(piece)
        written |= piece.writes
        wanted |= atoms.reads_of(piece.members) & atoms.all
    order: list[SegmentMask] = []
    there = ~atoms.all
    while len(order) < len(chosen):
        ready = next((p for p in chosen if p not in order and not atoms.reads_of(p.members) & ~there), None)
        if ready is None:
            return None
        order.append(ready)
        there |= ready.writes
    return order
