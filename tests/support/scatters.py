"""Scatters with sums in many forms: what places are computed of, what leads to slices, and what follows their sums."""

from collections.abc import Callable

from fusion_ir import building as B
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import DTYPES, f32
from testing.tensors import graph_of, spec

Build = Callable[..., Node | list[Node]]


def messages(x: Node, source: Node, index: Node, weight: Node, base: Node) -> list[Node]:
    """Along edges, times weights, added to what is there: in two outputs."""
    wide = B.mul(B.index_select(x, 0, source), B.broadcast_in_dim(weight, (300, 33), [0]))
    total = B.scatter_sum(wide, 0, index, 40)
    return [B.add(base, B.mul(total, 0.5)), B.cast(total, DTYPES["bf16"])]


FORMS: dict[str, tuple[list[tuple[tuple[int, ...], str]], Build]] = {
    "messages": (
        [((50, 33), "f32"), ((300,), "i64"), ((300,), "i64"), ((300,), "f32"), ((40, 33), "f32")],
        messages,
    ),
    "places computed of two tensors": (
        [((60, 40), "f32"), ((60,), "i64"), ((60,), "i64")],
        lambda x, i, j: B.scatter_sum(x, 0, B.add(B.mul(i, 5), B.remainder(j, 5)), 50),
    ),
    "places that are masked": (
        [((60, 40), "f16"), ((60,), "i64")],
        lambda x, i: B.scatter_sum(x, 0, B.where(B.eq(i, 3), -1, i), 12),
    ),
    "places joined of two": (
        [((60, 40), "f32"), ((20,), "i64"), ((40,), "i64")],
        lambda x, i, j: B.scatter_sum(x, 0, B.cat([i, j], 0), 12),
    ),
    "places gathered": (
        [((60, 40), "f32"), ((9,), "i64"), ((60,), "i64")],
        lambda x, i, j: B.scatter_sum(x, 0, B.index_select(i, 0, j), 12),
    ),
    "two with one index": (
        [((60, 40), "f32"), ((60, 8), "f32"), ((60,), "i64")],
        lambda x, y, i: [B.scatter_sum(x, 0, i, 12), B.scatter_sum(y, 0, i, 12)],
    ),
    "the sum of two": (
        [((60, 40), "f32"), ((30, 40), "f32"), ((60,), "i64"), ((30,), "i64")],
        lambda x, y, i, j: B.add(B.scatter_sum(x, 0, i, 12), B.scatter_sum(y, 0, j, 12)),
    ),
    "turned": (
        [((60, 40), "f32"), ((60,), "i64")],
        lambda x, i: B.transpose(B.scatter_sum(B.permute(B.exp(B.permute(x, [1, 0])), [1, 0]), 0, i, 12), 0, 1),
    ),
    "reshaped": (
        [((3, 20, 8, 5), "f32"), ((60,), "i64")],
        lambda x, i: B.reshape(B.scatter_sum(B.reshape(x, [60, 40]), 0, i, 12), [4, 3, 8, 5]),
    ),
    "slices joined and padded": (
        [((20, 30), "f32"), ((40, 30), "f32"), ((64,), "i64")],
        lambda x, y, i: B.scatter_sum(B.pad(B.cat([x, y], 0), [1, 2], [3, 0], 1.0), 0, i, 12),
    ),
    "some of the sums": (
        [((60, 40), "f32"), ((60,), "i64")],
        lambda x, i: B.slice_(B.scatter_sum(x, 0, i, 12), [3, 0], [11, 40], [2, 1]),
    ),
    "beside what is scattered": (
        [((60, 40), "f32"), ((60,), "i64")],
        lambda x, i: [B.exp(x), B.scatter_sum(B.exp(x), 0, i, 12)],
    ),
    "one number for all slices": (
        [((16, 8), "i64"), ((3,), "i32")],
        lambda x, i: B.add(x, B.scatter_sum(B.iota([3, 8], 0, 1, 0), 0, i, 16)),
    ),
    "numbers that all rows have, walked within their places": (
        [((65, 2), "i64"), ((31,), "i64")],
        lambda x, i: B.add(x, B.scatter_sum(B.iota([65, 31], 1), 1, i, 2)),
    ),
    "softmax": ([((60, 40), "f32"), ((60,), "i64")], lambda x, i: B.softmax(B.scatter_sum(x, 0, i, 12), 1)),
    "normalised": (
        [((60, 300), "bf16"), ((60,), "i64"), ((300,), "bf16")],
        lambda x, i, w: B.layer_norm(B.relu(B.scatter_sum(x, 0, i, 12)), -1, w),
    ),
    "the largest of each row beside it": (
        [((60, 40), "f32"), ((60,), "i64")],
        lambda x, i: [(total := B.scatter_sum(B.exp(x), 0, i, 12)), B.argmax(total, 1)],
    ),
    "rows along the first axis": (
        [((40, 60), "f32"), ((60,), "i64")],
        lambda x, i: B.softmax(B.scatter_sum(x, 1, i, 12), 0),
    ),
    "the sum of two along different axes": (
        [((60, 40), "f32"), ((12, 50), "f32"), ((60,), "i64"), ((50,), "i64")],
        lambda x, y, i, j: B.add(B.scatter_sum(x, 0, i, 12), B.scatter_sum(y, 1, j, 40)),
    ),
    "a constant for each slice": (
        [((60,), "i64")],
        lambda i: B.scatter_sum(B.full((60,), 1.0, f32), 0, i, 12),
    ),
}

SCATTERS: dict[str, Graph] = {
    name: graph_of([spec(sizes, DTYPES[dtype]) for sizes, dtype in inputs], build)
    for name, (inputs, build) in FORMS.items()
}
