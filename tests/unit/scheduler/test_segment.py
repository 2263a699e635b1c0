"""Atoms and segments: any partition of the atoms, computed segment by segment, gives the graph's own values."""

import random

import numpy as np
import pytest

from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.core.scalar import Scalar
from fusion_ir.dtype import bf16, f32, i64
from fusion_ir.ops import make, make_input
from fusion_ir.reference.interpreter import interpret
from scheduler.bitset import bits
from scheduler.rewrites.prepare import prepare
from scheduler.segments.atom_cuts import cut
from scheduler.segments.atoms import Atoms, atoms_of
from scheduler.segments.segment import extract
from scheduler.segments.segment_mask import SegmentMask
from testing.random_graphs import Seeded, any_graph
from tests.support.partitions import execution_order
from tests.unit.scheduler.fakes import random_inputs, same_bits


def random_partition(atoms: Atoms, rng: random.Random) -> tuple[int, ...]:
    """Some acyclic partition, in execution order."""
    blocks = [1 << a for a in range(len(atoms))]
    for _ in range(2 * len(blocks)):
        if len(blocks) < 2:
            break
        one, other = rng.sample(blocks, 2)
        merged = [b for b in blocks if b not in (one, other)] + [one | other]
        if execution_order(atoms.preds, merged) is not None:
            blocks = merged
    order = execution_order(atoms.preds, blocks)
    assert order is not None
    return order


def run(atoms: Atoms, partition: tuple[int, ...], inputs: list[np.ndarray]) -> list[np.ndarray]:
    """Outputs by interpreting one segment after the other."""
    values: dict[Node, np.ndarray] = {}
    for tensor in atoms.tensors:
        if tensor.op == "input":
            values[tensor] = inputs[tensor.attr("position", int)]
    for members in partition:
        segment = extract(atoms, atoms.piece(members))
        reads, writes = segment.arguments
        graph = segment.canonical.graph
        for spec, node in zip(graph.inputs, reads, strict=True):
            assert spec.sizes == node.sizes
        for node, value in zip(writes, interpret(graph, [values[n] for n in reads]), strict=True):
            assert node not in values, "written twice"
            values[node] = value
    return [values[o.node] for o in atoms.graph.outputs]


@pytest.mark.parametrize("materialise", [False, True])
def test_random_partitions_compute_the_graph(materialise: bool) -> None:
    free = 0
    for seed in range(150):
        rng = random.Random(seed)
        prepared = prepare(any_graph(Seeded(seed), steps=14))
        graph = prepared.graph
        nodes = [n for n in graph.nodes if n.op != "input"]
        chosen = frozenset(rng.sample(nodes, len(nodes) // 3) if materialise else ())
        atoms = atoms_of(graph, chosen)
        free += len(atoms.through)
        assert chosen <= set(atoms.nodes)
        inputs = random_inputs(graph, seed)
        expected = interpret(graph, inputs)
        for _ in range(3):
            for got, value in zip(run(atoms, random_partition(atoms, rng), inputs), expected, strict=True):
                assert same_bits(got, value), seed
    assert free > 100


def node(op: str, *args: Node, **attrs: object) -> Node:
    return make(op, args, attrs)  # type: ignore[arg-type]


def graph_of(outputs: list[Node], *specs: InputSpec, strides: tuple[int, ...] | None = None) -> Graph:
    return Graph(specs, tuple(OutputSpec(o, strides or dense_strides(o.sizes)) for o in outputs))


SPEC = InputSpec(shape_of((4, 8)), bf16, (8, 1))
X = make_input(0, SPEC)


def broadcast(x: Node, *sizes: int) -> Node:
    dims = tuple(range(len(sizes) - x.rank, len(sizes)))
    return node("broadcast_in_dim", x, shape=shape_of(sizes), dims=dims)


def test_views_and_widening_casts_are_free() -> None:
    y = node("neg", X)
    wide = node("cast", y, dtype=f32)
    z = node("exp", broadcast(wide, 3, 4, 8))
    atoms = atoms_of(graph_of([z], SPEC))
    assert atoms.nodes == (y, z)
    segment = extract(atoms, atoms.piece(0b10))
    assert [s.dtype for s in segment.graph.inputs] == [bf16], "the narrow tensor before its broadcast is stored"
    assert segment.cone == (wide, broadcast(wide, 3, 4, 8), z)


def test_broadcast_output_is_written_but_not_read() -> None:
    y = node("neg", X)
    out = broadcast(y, 3, 4, 8)
    z = node("exp", node("cast", out, dtype=f32))
    atoms = atoms_of(graph_of([out, z], SPEC))
    assert set(atoms.nodes) == {y, out, z}
    assert out in atoms.through
    both = extract(atoms, atoms.piece(sum(1 << atoms.nodes.index(n) for n in (out, z))))
    assert both.reads == (y,)


def test_output_of_equal_size_is_read_where_it_is() -> None:
    y = node("neg", X)
    out = node("permute", y, dims=(1, 0))
    z = node("exp", out)
    atoms = atoms_of(graph_of([out, z], SPEC))
    segment = extract(atoms, atoms.piece(1 << atoms.nodes.index(z)))
    assert segment.reads == (out,)
    first = extract(atoms, atoms.piece(1 << atoms.nodes.index(y) | 1 << atoms.nodes.index(out)))
    assert first.writes == (out,), "what only the output reads is not stored"


def test_reads_of_an_output_have_its_layout() -> None:
    y = node("neg", X)
    z = node("exp", y)
    graph = Graph((SPEC,), (OutputSpec(y, (1, 4)), OutputSpec(z, (8, 1))))
    atoms = atoms_of(graph)
    assert extract(atoms, atoms.piece(0b01)).graph.outputs[0].strides == (1, 4)
    assert extract(atoms, atoms.piece(0b10)).graph.inputs[0].strides == (1, 4)


def test_unchanged_nodes_stay_the_same_object() -> None:
    constant = node("iota", shape=shape_of((4, 8)), axis=1, start=Scalar.of(0, i64), step=Scalar.of(1, i64))
    y = node("add", node("cast", constant, dtype=f32), node("cast", X, dtype=f32))
    segment = extract(atoms_of(graph_of([y], SPEC)), SegmentMask(1, 1))
    assert constant in segment.graph.nodes


def test_equal_parts_have_equal_keys() -> None:
    chain = [X]
    for op in ("neg", "exp") * 3:
        chain.append(node(op, chain[-1]))
    atoms = atoms_of(graph_of([chain[-1]], SPEC))
    first, second, last = (extract(atoms, atoms.piece(mask)) for mask in (0b000011, 0b001100, 0b110000))
    assert second.key == last.key
    assert second.key != first.key, "the graph's input promises 16 bytes of alignment, a temporary has more"
    assert second.key != extract(atoms, atoms.piece(0b011000)).key


def test_views_that_cannot_be_lowered_become_atoms() -> None:
    y = node("exp", node("permute", node("neg", X), dims=(1, 0)))
    graph = graph_of([y], SPEC)

    def no_permutes(atoms: Atoms, atom: int) -> bool:
        return not any(n.op == "permute" for n in atoms.free_below(atom))

    assert len(cut(graph, lambda atoms, atom: True)) == 2
    assert [n.op for n in cut(graph, no_permutes).nodes] == ["neg", "permute", "exp"]


def test_outputs_that_need_no_work_are_aliases() -> None:
    y = node("neg", X)
    graph = Graph(
        (SPEC,),
        tuple(
            OutputSpec(n, s) for n, s in [(X, (8, 1)), (y, (8, 1)), (y, (8, 1)), (y, (1, 4)), (y, (1, 4)), (X, (1, 4))]
        ),
    )
    prepared = prepare(graph)
    assert {(slot, str(ref)) for slot, ref in prepared.aliases} == {(0, "in0"), (2, "out1"), (4, "out3")}
    assert prepared.slots == (1, 3, 5)
    assert len({o.node for o in prepared.graph.outputs}) == 3
    assert list(bits(atoms_of(prepared.graph).outputs)) == [0, 1, 2]


def test_an_output_that_simplifies_to_an_input_is_an_alias() -> None:
    prepared = prepare(graph_of([node("cast", node("cast", X, dtype=f32), dtype=bf16)], SPEC))
    assert [(slot, str(ref)) for slot, ref in prepared.aliases] == [(0, "in0")]
    assert prepared.graph.outputs == ()
    assert prepared.rewrites == ("cast-back",)
