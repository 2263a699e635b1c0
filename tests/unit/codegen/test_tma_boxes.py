"""Contractions as matrix products whose boxes tensor maps bring: axes found, maps and coordinates, no copies."""

from codegen.gemm.dims import Digit, Dim, contraction
from codegen.kernel import Reject
from codegen.tiled.problem import main_contraction
from codegen.tiled.tma_boxes import BoxedProduct, boxed, numbered, operand_a, operand_b, point_problem
from fusion_ir import building as build
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import bf16, f32
from fusion_ir.ops import make
from tests.support.products import dense_graph


def tensor(*sizes: int) -> InputSpec:
    return InputSpec(shape_of(sizes), bf16, dense_strides(sizes), 16)


def found(graph: Graph) -> tuple[Node, BoxedProduct]:
    node = main_contraction(graph)
    assert not isinstance(node, Reject)
    digits = [Digit(w, n, w) for w, n in zip(dense_strides(node.sizes), node.sizes, strict=True) if n > 1]
    dims = contraction(graph, node, digits)
    assert not isinstance(dims, Reject), dims
    products = boxed(graph, dims)
    assert not isinstance(products, Reject), products
    return node, products[0]


def test_rows_of_several_axes_are_one() -> None:
    graph = dense_graph([tensor(8, 32, 64), tensor(64, 48)], build.matmul)
    _, p = found(graph)
    assert (p.m.extent, p.n.extent, p.k.extent, p.batch_count, p.depths) == (256, 48, 64, 1, 1)
    assert (p.a_across, p.b_across) == (False, True)
    a, b = operand_a(graph, p, 128), operand_b(graph, p, 64)
    assert (a.map.argument, a.map.sizes, a.map.strides_bytes, a.map.box) == (0, (64, 256), (128,), (64, 128))
    assert (b.map.argument, b.map.sizes, b.map.strides_bytes, b.map.box) == (1, (48, 64), (96,), (64, 64))
    assert a.coordinates == ("depth * 64", "place")
    assert b.coordinates == ("place", "depth * 64")


def test_heads_are_batches_where_they_lie() -> None:
    def scores(q: Node, k: Node) -> Node:
        return build.matmul(build.permute(q, [0, 2, 1, 3]), build.permute(k, [0, 2, 3, 1]))

    graph = dense_graph([tensor(2, 70, 3, 64), tensor(2, 90, 3, 64)], scores)
    node, p = found(graph)
    assert (p.m.extent, p.n.extent, p.batch_count) == (70, 90, 6)
    a = operand_a(graph, p, 64)
    assert (a.map.sizes, a.map.strides_bytes) == ((64, 70, 2, 3), (384, 26880, 128))
    assert a.coordinates == ("depth * 64", "place", "batch / 3", "batch % 3")
    problem = point_problem(node, p)
    assert not isinstance(problem, Reject)
    assert problem.groups == ("batch", "batch", "row", "column", "depth")
    assert problem.weights == (3, 1, 1, 1, 1)


def test_sums_of_axes_that_do_not_merge_count_stages() -> None:
    attrs = {"a_axes": (1, -1, 0, 2), "b_axes": (-1, 2, 0, 1), "reduced": 2, "acc": f32, "out_dtype": bf16}
    graph = dense_graph([tensor(3, 72, 80), tensor(3, 80, 96)], lambda x, w: make("contract", [x, w], attrs))
    _, p = found(graph)
    assert (p.k.extent, [d.extent for d in p.sums], p.depths) == (80, [3], 6)
    a, b = operand_a(graph, p, 64), operand_b(graph, p, 64)
    assert a.coordinates == ("depth % 2 * 64", "place", "depth / 2")
    assert b.coordinates == ("place", "depth % 2 * 64", "depth / 2")
    assert a.map.sizes == (80, 72, 3)


def test_rows_of_axes_that_do_not_merge_number_tiles() -> None:
    graph = dense_graph([tensor(40, 3, 72), tensor(72, 48)], lambda x, w: build.matmul(build.permute(x, [1, 0, 2]), w))
    node, p = found(graph)
    assert (p.m.extent, p.batch_count) == (40, 3)
    b = operand_b(graph, p, 64)
    assert len(b.map.sizes) == 2, "the same columns for all batches"
    problem = point_problem(node, p)
    assert not isinstance(problem, Reject)
    assert problem.extents == (3, 40, 48)


def test_an_operand_may_begin_within_a_tensor() -> None:
    def right_half(x: Node, w: Node) -> Node:
        return build.matmul(make("slice", [x], {"start": (2, 64), "stop": (40, 128), "step": (1, 1)}), w)

    graph = dense_graph([tensor(40, 128), tensor(64, 48)], right_half)
    _, p = found(graph)
    a = operand_a(graph, p, 64)
    assert (a.map.offset_bytes, a.map.sizes, a.map.strides_bytes) == (2 * (2 * 128 + 64), (64, 38), (256,))


def test_digits_of_a_number() -> None:
    dims = [Dim(n, 0, 0, 0, False) for n in (2, 3, 5)]
    assert [text for _, text in numbered(dims, "b", 1)] == ["b / 15", "b / 5 % 3", "b % 5"]
    assert [text for _, text in numbered(dims[:1], "b", 4)] == ["b / 4"]
