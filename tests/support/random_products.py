"""Random contractions with something before and behind them: any axes in any order, odd sizes, strides, alignments."""

from math import prod

from fusion_ir import building as build
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType, bf16, f16, f32, f64, i8, i32
from fusion_ir.ops import make_input
from testing.random_graphs import Chooser

EXTENTS = (1, 2, 3, 4, 5, 7, 8, 12, 16, 24, 31, 40)
DTYPES = (bf16, bf16, f16, f32, f64, i8, i32)
MOST_PRODUCTS, MOST_ELEMENTS = 300, 6000


class _Maker:
    def __init__(self, choose: Chooser) -> None:
        self.choose = choose
        self.inputs: list[InputSpec] = []

    def chance(self, percent: int) -> bool:
        return self.choose.below(100) < percent

    def order(self, n: int) -> list[int]:
        """A permutation of 0..n-1."""
        left = list(range(n))
        return [left.pop(self.choose.below(len(left))) for _ in range(n)]

    def extents(self, count: int, most: int) -> list[int]:
        """Random extents of `count` axes, whose product is at most `most`."""
        found: list[int] = []
        for _ in range(count):
            fitting = [n for n in EXTENTS if n * prod(found) <= most]
            found.append(fitting[self.choose.below(len(fitting))])
        return found

    def input(self, sizes: list[int], dtype: DType) -> Node:
        """An input with its axes in some order in memory, now and then with gaps, aligned to some power of two."""
        strides, step = [1] * len(sizes), 1
        order = range(len(sizes)) if self.chance(60) else self.order(len(sizes))
        for d in reversed(list(order)):
            strides[d] = step
            step *= sizes[d]
            if self.chance(15):
                step += 1 + self.choose.below(8)
        alignment = max(dtype.bytes, 1 << self.choose.below(5))
        self.inputs.append(InputSpec(shape_of(tuple(sizes)), dtype, tuple(strides), alignment))
        return make_input(len(self.inputs) - 1, self.inputs[-1])

    def operand(self, sizes: list[int], dtype: DType) -> Node:
        """An input, or something pointwise of one or two."""
        if dtype.is_float and self.chance(20):
            return build.cast(self.input(sizes, f32 if self.chance(50) else i8), dtype)
        x = self.input(sizes, dtype)
        if self.chance(20):
            x = build.relu(x)
        if self.chance(15):
            x = build.mul(x, self.input([n if self.chance(50) else 1 for n in sizes], dtype))
        return x

    def behind(self, x: Node) -> Node:
        """A step of the epilogue."""
        kind = self.choose.below(7)
        if kind == 0:
            return build.add(x, self.input([n if self.chance(60) else 1 for n in x.sizes], x.dtype))
        if kind == 1:
            return build.tanh(x) if x.dtype.is_float else build.relu(x)
        if kind == 2:
            return build.mul(x, 0.5) if x.dtype.is_float else build.mul(x, 3)
        if kind == 3:
            return build.cast(x, f32 if x.dtype.is_float else i32)
        if kind == 4 and x.rank > 1:
            return build.permute(x, self.order(x.rank))
        if kind == 5 and x.rank > 1:
            return build.reshape(x, [x.sizes[0] * x.sizes[1], *x.sizes[2:]])
        return build.relu(x)


def product_graph(choose: Chooser) -> Graph:
    """One contraction; every output depends on it."""
    maker = _Maker(choose)
    dtype = DTYPES[choose.below(len(DTYPES))]
    counts = [choose.below(2), 1 + choose.below(2), 1 + choose.below(2), 1 + choose.below(2)]
    depths = maker.extents(counts[3], MOST_PRODUCTS)
    others = maker.extents(sum(counts[:3]), MOST_ELEMENTS)
    batch = list(range(counts[0]))
    rows = list(range(counts[0], counts[0] + counts[1]))
    columns = list(range(counts[0] + counts[1], sum(counts[:3])))
    summed = list(range(len(others), len(others) + len(depths)))
    extents = [*others, *depths]

    def shuffled(axes: list[int]) -> list[int]:
        return [axes[i] for i in (maker.order(len(axes)) if maker.chance(70) else range(len(axes)))]

    left, right, result = (
        shuffled([*batch, *rows, *summed]),
        shuffled([*batch, *summed, *columns]),
        shuffled([*batch, *rows, *columns]),
    )
    a, b = (maker.operand([extents[axis] for axis in axes], dtype) for axes in (left, right))
    x = build.einsum(a, b, left, right, result)
    found = [x] if maker.chance(20) else []
    for _ in range(choose.below(5)):
        x = maker.behind(x)
    found.append(x)
    return Graph(tuple(maker.inputs), tuple(OutputSpec(n, dense_strides(n.sizes)) for n in dict.fromkeys(found)))
