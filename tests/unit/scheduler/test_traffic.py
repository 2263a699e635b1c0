"""Distinct bytes and operations: exact where that is easy to see, and never too many."""

import numpy as np
import pytest

from fusion_ir import building as build
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import bf16, f32, i8, i32, i64
from fusion_ir.ops import make, make_input
from fusion_ir.reference.interpreter import interpret
from scheduler.cost.lower_bound import copy_us, lower_bound_us
from scheduler.cost.traffic import Traffic, traffic_of
from testing.random_graphs import Maker, Seeded
from tests.unit.scheduler.fakes import DEVICE


def graph_of(*outputs: Node, specs: tuple[InputSpec, ...]) -> Graph:
    return Graph(specs, tuple(OutputSpec(o, dense_strides(o.sizes)) for o in outputs))


def dense(*sizes: int, dtype: object = f32) -> InputSpec:
    return InputSpec(shape_of(sizes), dtype, dense_strides(sizes))  # type: ignore[arg-type]


def node(op: str, *args: Node, **attrs: object) -> Node:
    return make(op, args, attrs)  # type: ignore[arg-type]


X = make_input(0, dense(64, 128))


def test_pointwise_reads_and_writes_once() -> None:
    y = node("add", node("exp", X), X)
    assert traffic_of(graph_of(y, specs=(dense(64, 128),))) == Traffic(
        64 * 128 * 4,
        64 * 128 * 4,
        9.0 * 8192,
        9.0 * 8192,
        11.0 * 8192,
        elements=8192,
        longest=11.0,
        made_operations=9.0 * 8192,
    )


def test_only_the_slice_counts() -> None:
    part = node("slice", X, start=(0, 0), stop=(64, 32), step=(1, 1))
    assert traffic_of(graph_of(node("exp", part), specs=(dense(64, 128),))).read_bytes == 64 * 32 * 4
    late = node("slice", node("exp", X), start=(0, 0), stop=(64, 32), step=(1, 1))
    cost = traffic_of(graph_of(late, specs=(dense(64, 128),)))
    assert cost.read_bytes == 64 * 32 * 4
    assert cost.operations == 8.0 * 64 * 32, "exp of what nobody needs is not counted"


def test_broadcasts_add_no_bytes_and_no_work() -> None:
    row = make_input(0, dense(128))
    wide = node("broadcast_in_dim", row, shape=shape_of((64, 128)), dims=(1,))
    cost = traffic_of(graph_of(node("exp", wide), specs=(dense(128),)))
    assert (cost.read_bytes, cost.written_bytes, cost.operations) == (128 * 4, 64 * 128 * 4, 8.0 * 128)
    strided = InputSpec(shape_of((64, 128)), f32, (0, 1))
    assert traffic_of(graph_of(node("exp", make_input(0, strided)), specs=(strided,))).read_bytes == 128 * 4


def test_the_same_work_seen_through_views_counts_once() -> None:
    twice = node("cat", node("exp", X), node("exp", node("reshape", X, shape=shape_of((64, 128)))), axis=0)
    assert traffic_of(graph_of(twice, specs=(dense(64, 128),))).operations == 8.0 * 8192


def test_contractions() -> None:
    a, b = make_input(0, dense(8, 16)), make_input(1, dense(16, 32))
    attrs = {"a_axes": (0, -1, 1), "b_axes": (-1, 1, 0), "reduced": 1, "acc": f32, "out_dtype": f32}
    cost = traffic_of(graph_of(node("contract", a, b, **attrs), specs=(dense(8, 16), dense(16, 32))))
    assert cost.operations == cost.vector_operations == 2.0 * 8 * 32 * 16
    narrow = [dense(8, 16, dtype=bf16), dense(16, 32, dtype=bf16)]
    c, d = (make_input(i, s) for i, s in enumerate(narrow))
    cost = traffic_of(graph_of(node("contract", c, d, **attrs), specs=tuple(narrow)))
    assert (cost.operations, cost.vector_operations) == (2.0 * 8 * 32 * 16, 0.0), (
        "matrix units may be faster than the bound"
    )


def test_a_cast_hides_no_narrow_operand() -> None:
    """Kernels multiply bf16 as it is where the graph casts it first: f32's arithmetic bounds none of them."""
    attrs = {"a_axes": (0, -1, 1), "b_axes": (-1, 1, 0), "reduced": 1, "acc": f32, "out_dtype": f32}
    made = 2.0 * 8 * 32 * 16
    for left, right, moved, expected in (
        (bf16, bf16, False, (("bf16", made),)),
        (bf16, bf16, True, (("bf16", made),)),
        (i8, bf16, True, (("bf16", made),)),
        (bf16, f32, False, ()),  # a product with f32 is one of f32
    ):
        specs = (dense(8, 16, dtype=left), dense(32, 16, dtype=right))
        a, b = (make_input(i, spec) for i, spec in enumerate(specs))
        a, b = (x if x.dtype is f32 else node("cast", x, dtype=f32) for x in (a, b))
        if moved:  # through views
            a, b = build.permute(build.permute(a, (1, 0)), (1, 0)), build.slice_(b, (0, 0), (32, 16))
        b = build.permute(b, (1, 0))
        cost = traffic_of(graph_of(node("contract", a, b, **attrs), specs=specs))
        assert (cost.products, cost.vector_operations) == (expected, 0.0 if expected else made)
    rounded = node("cast", node("cast", make_input(0, dense(8, 16)), dtype=bf16), dtype=f32)
    again = node("contract", rounded, make_input(1, dense(16, 32)), **attrs)
    assert traffic_of(graph_of(again, specs=(dense(8, 16), dense(16, 32)))).vector_operations >= made


def test_gathers_count_the_index_and_one_row() -> None:
    index = make_input(1, dense(5, dtype=i64))
    cost = traffic_of(graph_of(node("index_select", X, index, axis=0), specs=(dense(64, 128), dense(5, dtype=i64))))
    assert 8 * 5 <= cost.read_bytes <= 8 * 5 + 4 * 128, "all indices may be the same"


def test_scatters_count_each_slice_once_and_every_place() -> None:
    specs = (dense(64, 128), dense(64, dtype=i64))
    x, index = (make_input(i, spec) for i, spec in enumerate(specs))
    cost = traffic_of(graph_of(node("scatter_sum", build.exp(x), index, axis=0, extent=1000), specs=specs))
    assert (cost.read_bytes, cost.written_bytes) == (4 * 64 * 128 + 8 * 64, 4 * 1000 * 128)
    assert cost.operations == (8 + 1) * 64 * 128, "no slice is added to another one for certain, but most are"
    assert cost.vector_operations == 8 * 64 * 128
    assert cost.pulled_operations == 1000 * 128 * 64 * (1 + 8 + 1 + 1), "every place looks at every slice"
    some = build.slice_(build.scatter_sum(x, 0, index, 1000), (0, 0), (10, 128))
    assert traffic_of(graph_of(some, specs=specs)).read_bytes <= 8 * 64 + 4 * 128, "no slice may go to these places"


def test_what_a_gather_of_labels_leaves_out_is_needed_by_the_sum() -> None:
    spec, labels = dense(64, 100), dense(64, 1, dtype=i64)
    x = make_input(0, spec)
    loss = build.sub(build.log(build.sum_(build.exp(x), 1, keepdims=True)), build.gather(x, 1, make_input(1, labels)))
    assert traffic_of(graph_of(loss, specs=(spec, labels))).read_bytes == 4 * 6400 + 8 * 64


def test_slices_that_share_nothing_are_needed_together() -> None:
    spec = dense(8, 96)
    x = make_input(0, spec)
    parts = [build.slice_(x, (0, at), (8, at + 32)) for at in (0, 32, 64)]
    assert traffic_of(graph_of(build.add(*parts[:2]), specs=(spec,))).read_bytes == 4 * 8 * 64
    overlapping = build.add(parts[0], build.slice_(x, (0, 16), (8, 48)))
    assert traffic_of(graph_of(overlapping, specs=(spec,))).read_bytes == 4 * 8 * 32, "32 of 48 columns are certain"


@pytest.mark.parametrize("seed", range(150))
def test_never_more_bytes_than_a_graph_of_views_moves(seed: int) -> None:
    """Elements numbered, moved through random views: as many as come out had to be read."""
    maker = Maker(Seeded(seed), exact=True)
    maker.nodes.append(maker.input(maker.sizes(1 + seed % 3), i32))
    for _ in range(6):
        maker.step([maker.view])
    maker.inputs = [InputSpec(s.shape, s.dtype, dense_strides(s.sizes)) for s in maker.inputs]
    moved = maker.nodes[-1]
    graph = maker.graph(1)
    spec = graph.inputs[0]
    numbers = np.arange(1, 1 + int(np.prod(spec.sizes)), dtype=np.int32).reshape(spec.sizes) + 1_000_000
    others = [np.zeros(s.sizes, s.dtype.numpy) for s in graph.inputs[1:]]
    values = interpret(graph, [numbers, *others])
    read = {int(v) for value in values if value.dtype == np.int32 for v in value.reshape(-1) if v > 1_000_000}
    more = sum(int(np.prod(s.sizes)) * s.dtype.bytes for s in graph.inputs[1:])
    assert moved is not None
    assert traffic_of(graph).read_bytes <= 4 * len(read) + more


def test_bound_is_the_largest_of_its_parts() -> None:
    # 50 GB/s copies, 60 GB/s reads, 2 us a launch, 100 GFLOP/s
    assert lower_bound_us(Traffic(10, 10, 0, 0), DEVICE) == 2.0
    assert lower_bound_us(Traffic(30_000_000, 30_000_000, 0, 0), DEVICE) == pytest.approx(1000.0)
    assert lower_bound_us(Traffic(10, 10, 1e9, 1e8), DEVICE) == pytest.approx(1000.0)
    assert copy_us(Traffic(25_000_000, 25_000_000, 0, 0), DEVICE) == pytest.approx(1000.0)
    assert lower_bound_us(Traffic(10, 10, 0, 0), DEVICE.model_copy(update={"ceilings": None})) == 0.0


def test_pulled_work_is_done_again_for_every_reader() -> None:
    """exp(x) - max over the row of exp(x): each of the 128 elements of a row computes the row's 128 exponentials
    again."""
    e = node("exp", X)
    wide = node("broadcast_in_dim", node("max", e, axes=(1,)), shape=shape_of((64, 128)), dims=(0,))
    cost = traffic_of(graph_of(node("sub", e, wide), specs=(dense(64, 128),)))
    elements = 64 * 128
    assert cost.operations == (8 + 1 + 1) * elements - 64
    assert cost.pulled_operations == elements * (1 + 8 + 1 + 128 * (8 + 1 + 1))


def test_of_a_product_only_the_slice_counts_but_whole_sums() -> None:
    """Operations of a slice of a product, as one part of several products computed at once: those of its own elements,
    each a whole sum."""
    y = make_input(1, dense(128, 96))
    part = node("slice", build.matmul(X, y), start=(0, 0), stop=(64, 32), step=(1, 1))
    cost = traffic_of(graph_of(part, specs=(dense(64, 128), dense(128, 96))))
    assert cost.operations == cost.made_operations == 2.0 * 64 * 32 * 128


def test_products_with_repeated_operands_bound_little_and_take_their_time() -> None:
    row = make_input(0, dense(128))
    wide = node("broadcast_in_dim", row, shape=shape_of((64, 128)), dims=(1,))
    cost = traffic_of(graph_of(build.matmul(wide, make_input(1, dense(128, 96))), specs=(dense(128), dense(128, 96))))
    assert cost.operations < 2.0 * 64 * 96 * 128 == cost.made_operations
