"""Regions: partitions without cycles, merged wherever that is accepted, the likeliest siblings first."""

from itertools import combinations

from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import f32
from fusion_ir.ops import make, make_input
from scheduler.rewrites.prepare import prepare
from scheduler.segments.atoms import Atoms, atoms_of
from scheduler.segments.greedy_merge import Regions, merged, with_siblings
from testing.random_graphs import Seeded, any_graph
from tests.support.partitions import execution_order

SPECS = tuple(InputSpec(shape_of(sizes), f32, dense_strides(sizes)) for sizes in ((4, 8), (4, 8), (16,)))
X, Y, Z = (make_input(i, spec) for i, spec in enumerate(SPECS))


def atoms_for(*outputs: Node) -> Atoms:
    return atoms_of(Graph(SPECS, tuple(OutputSpec(o, dense_strides(o.sizes)) for o in outputs)))


def test_regions_close_no_cycles() -> None:
    """Two regions that read each other's atoms must not both be merged."""
    a, b = make("neg", [X]), make("neg", [Y])
    atoms = atoms_for(make("add", [a, b]), make("mul", [a, b]))
    for order in (range(4), reversed(range(4))):
        partition = merged(atoms, order, lambda m: m.bit_count() <= 2)
        assert max(m.bit_count() for m in partition) == 2
        assert execution_order(atoms.preds, partition) is not None


def test_random_graphs_are_parted_without_cycles_until_no_join_is_left() -> None:
    for seed in range(40):
        atoms = atoms_of(prepare(any_graph(Seeded(seed), steps=12)).graph)

        def accepts(members: int, seed: int = seed) -> bool:
            """An arbitrary answer that depends on the set alone."""
            return members.bit_count() <= 4 and (members ^ seed) % 7 != 0

        partition = merged(atoms, range(len(atoms)), accepts)
        joined = with_siblings(atoms, partition, accepts)
        for regions in (partition, joined):
            assert sum(regions) == atoms.all
            assert execution_order(atoms.preds, regions) is not None
            assert all(m.bit_count() == 1 or accepts(m) for m in regions)
        assert all(any(m & r == m for r in joined) for m in partition), "joined, never parted"


def test_no_join_that_is_accepted_closes_a_cycle() -> None:
    for seed in range(40):
        atoms = atoms_of(prepare(any_graph(Seeded(seed), steps=10)).graph)
        regions = Regions(atoms)
        for a, b in combinations(range(len(atoms)), 2):
            before = regions.masks()
            could = regions.region[a] != regions.region[b]
            together = regions.region[a] | regions.region[b]
            after = (*(m for m in before if not m & together), together)
            closes = execution_order(atoms.preds, after) is None
            joined = regions.join(a, b, lambda m: m.bit_count() <= 5)
            assert joined == (could and not closes and together.bit_count() <= 5), seed


def test_siblings_that_read_the_same_come_first() -> None:
    """Each of three equal shapes could join one other: the two that read the same do."""
    same, apart, other = make("neg", [X]), make("exp", [X]), make("abs", [Y])
    atoms = atoms_for(other, same, apart, make("sin", [Z]))
    singles = tuple(1 << a for a in range(len(atoms)))
    joined = with_siblings(atoms, singles, lambda m: m.bit_count() <= 2)
    shared = sum(1 << a for a, n in enumerate(atoms.nodes) if n.args[0] is X)
    assert shared in joined
