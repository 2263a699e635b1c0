"""Candidates: convex, accepted, whole where that is possible, siblings among them; and quick."""

from collections.abc import Callable
from pathlib import Path

import pytest
import rustworkx as rx

from fusion_ir import building as B
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import f32, f64
from fusion_ir.formats import read
from fusion_ir.ops import OpKind, make, make_input
from scheduler.bitset import bits
from scheduler.rewrites.prepare import prepare
from scheduler.segments.atoms import Atoms, atoms_of
from scheduler.segments.enumeration import Candidate, Candidates, CandidateSettings, find_candidates
from scheduler.segments.segment_mask import SegmentMask
from scheduler.tuning.trials import Ledger
from testing.random_graphs import Seeded, any_graph
from tests.support.partitions import execution_order
from tests.unit.scheduler.fakes import DEVICE, Memory, families

UNCHANGED = CandidateSettings()
ROPE = Path(__file__).parents[3] / "examples" / "mistral_rope_forward.nvfuser.py"


def search(graph: Graph, settings: CandidateSettings = UNCHANGED, **kwargs: object) -> tuple[Atoms, Candidates]:
    ledger = Ledger(DEVICE, families(**kwargs), Memory(), None, 0)
    atoms = atoms_of(prepare(graph).graph)
    return atoms, find_candidates(atoms, lambda piece: ledger.acceptor.ask(atoms, piece), settings)


def is_convex(atoms: Atoms, members: int) -> bool:
    """By definition: no node outside lies on a path between two inside."""
    graph = rx.PyDiGraph()
    graph.add_nodes_from(range(len(atoms)))
    graph.add_edges_from_no_data([(p, a) for a in range(len(atoms)) for p in bits(atoms.preds[a])])
    inside = set(bits(members))
    for outside in set(range(len(atoms))) - inside:
        if rx.ancestors(graph, outside) & inside and rx.descendants(graph, outside) & inside:
            return False
    return True


def chain(x: Node, *ops: str) -> list[Node]:
    nodes: list[Node] = []
    for op in ops:
        x = make(op, [x])
        nodes.append(x)
    return nodes


SPEC = InputSpec(shape_of((4, 8)), f32, (8, 1))
X = make_input(0, SPEC)
Y = make_input(1, SPEC)


def graph_of(*outputs: Node) -> Graph:
    return Graph((SPEC, SPEC), tuple(OutputSpec(o, dense_strides(o.sizes)) for o in outputs))


def test_random_graphs_have_convex_candidates_that_hold_a_cover() -> None:
    for seed in range(60):
        atoms, found = search(any_graph(Seeded(seed), steps=12), most=4)
        for piece, candidate in found.accepted.items():
            assert is_convex(atoms, piece.members) or not atoms.is_plain(piece), seed
            assert candidate.segment.piece == piece
        for a in range(len(atoms)):
            if found.whole(1 << a) is None:
                ledger = Ledger(DEVICE, families(most=4), Memory(), None, 0)
                assert ledger.acceptor.ask(atoms, atoms.piece(1 << a)) is None
        for partition in found.regions:
            assert sum(partition) == atoms.all
            assert execution_order(atoms.preds, partition) is not None


def test_growing_finds_every_connected_set() -> None:
    ends = [chain(X, "neg", "exp", "abs")[-1], chain(Y, "sin", "cos")[-1]]
    atoms, found = search(graph_of(make("add", ends)))
    expected = 0
    for members in range(1, 1 << len(atoms)):
        graph = rx.PyGraph()
        index = {a: graph.add_node(a) for a in bits(members)}
        graph.add_edges_from_no_data([(index[p], index[a]) for a in index for p in bits(atoms.preds[a]) if p in index])
        if rx.is_connected(graph) and is_convex(atoms, members):
            expected += 1
            assert found.whole(members)
    assert expected > 15


def test_disconnected_siblings_are_candidates() -> None:
    one, other = chain(X, "neg", "exp"), chain(Y, "sin", "cos")
    atoms, found = search(graph_of(one[-1], other[-1]))
    assert found.whole(atoms.all)
    assert found.regions[0] == (atoms.all,)
    # With room for half of it, siblings are still found among the smaller ones.
    atoms, found = search(graph_of(make("neg", [X]), make("exp", [X]), make("abs", [X])), most=2)
    assert {p.members for p in found.accepted if p.members.bit_count() == 2} == {0b011, 0b101, 0b110}


def test_caps_are_told() -> None:
    nodes = chain(X, *("neg", "exp") * 10)
    _, found = search(graph_of(nodes[-1]), CandidateSettings(max_atoms=5, max_grown=20), most=6)
    assert {r.kind for r in found.reasons} == {"cap"}
    assert "20 connected segments" in found.reasons[0].text
    _, found = search(graph_of(nodes[-1]), CandidateSettings(max_atoms=5))
    assert any("at most 5 atoms" in r.text for r in found.reasons)
    assert found.whole((1 << 20) - 1), "regions are not capped"


def test_asked_once_for_each_set() -> None:
    graph = graph_of(chain(X, "neg", "exp", "abs", "sin")[-1])
    atoms = atoms_of(graph)
    ledger = Ledger(DEVICE, families(most=2), Memory(), None, 0)
    asked: list[SegmentMask] = []

    def ask(piece: SegmentMask) -> Candidate | None:
        asked.append(piece)
        return ledger.acceptor.ask(atoms, piece)

    find_candidates(atoms, ask)
    assert len(asked) == len(set(asked))


def test_mistral_rope_is_one_candidate() -> None:
    graph = read(ROPE.read_text()).graph
    atoms, found = search(graph)
    assert len(atoms) == 22
    assert len(found.accepted) < 4000
    assert found.whole(atoms.all)
    v_path = next(a for a in range(len(atoms)) if atoms.preds[a] == 0 and atoms.nodes[a].op == "reshape")
    assert any(m >> v_path & 1 and m.bit_count() > 1 for m, _ in found.accepted), (
        "its V path shares nothing with the rest"
    )


# In order: what is copied, by what views it is read, and by which sum.
COPIED: dict[str, Callable[[Node, Node], Node]] = {
    "pad": lambda x, y: B.pad(x, (0, 0), (0, 1)),
    "cat": lambda x, y: B.cat([x, y], 1),
    "nested": lambda x, y: B.pad(B.cat([x, B.pad(y, (2, 0), (0, 0))], 0), (1, 2), (0, 1)),
    "of a computation": lambda x, y: B.pad(B.exp(x), (1, 0), (0, 0)),
}
VIEWED: dict[str, Callable[[Node], Node]] = {
    "": lambda x: x,
    "widened": lambda x: B.cast(x, f64),
    "permuted": lambda x: B.reshape(
        B.permute(B.expand(B.unsqueeze(x, 0), (3, *x.sizes)), (1, 0, 2)), (-1, x.sizes[-1])
    ),
}
SUMMED: dict[str, Callable[[Node], Node]] = {
    "matmul": lambda x: B.matmul(x, B.transpose(x)),
    "softmax": B.softmax,
    "sum": lambda x: B.sum_(x, 0),
    "cumsum": lambda x: B.cumsum(x, 1),
    "argmax": lambda x: B.argmax(x, 1),
}


@pytest.mark.parametrize("summed", SUMMED)
@pytest.mark.parametrize("viewed", VIEWED)
@pytest.mark.parametrize("copied", COPIED)
def test_what_is_padded_or_concatenated_for_a_sum_can_be_stored_and_need_not_be(
    copied: str, viewed: str, summed: str
) -> None:
    copy = COPIED[copied](X, Y)
    atoms, found = search(graph_of(SUMMED[summed](VIEWED[viewed](copy))), kinds=frozenset(OpKind))
    stored = [a for a, n in enumerate(atoms.nodes) if n.op in ("pad", "cat")]
    assert len(stored) == 1, "the outermost alone"
    assert found.whole(1 << stored[0]) and found.whole(atoms.all)
    (reader, *_) = bits(atoms.succs[stored[0]])
    assert found.whole(1 << stored[0] | 1 << reader)


@pytest.mark.parametrize("copied", COPIED)
def test_what_is_padded_or_concatenated_for_arithmetic_is_no_tensor(copied: str) -> None:
    atoms, _ = search(graph_of(B.neg(COPIED[copied](X, Y))))
    assert all(n.op in ("exp", "neg") for n in atoms.nodes)
