"""Graphs around matrix products, in one line each."""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from random import Random

from fusion_ir import building as build
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType, bf16, f32
from fusion_ir.ops import make_input


def spec(sizes: Sequence[int], strides: Sequence[int] | None = None, dtype: DType = f32) -> InputSpec:
    """An input with no more alignment than its elements have."""
    return InputSpec(shape_of(tuple(sizes)), dtype, tuple(strides or dense_strides(tuple(sizes))), dtype.bytes)


def dense_graph(
    inputs: Sequence[InputSpec | Sequence[int]], compute: Callable[..., Node | tuple[Node, ...]], dtype: DType = f32
) -> Graph:
    """`compute` of the inputs, given by their sizes (dense, of `dtype`) or whole; outputs are dense."""
    specs = tuple(s if isinstance(s, InputSpec) else spec(s, None, dtype) for s in inputs)
    found = compute(*(make_input(i, s) for i, s in enumerate(specs)))
    nodes = found if isinstance(found, tuple) else (found,)
    return Graph(specs, tuple(OutputSpec(n, dense_strides(n.sizes)) for n in nodes))


def mlp(x: Node, w: Node, bias: Node, residual: Node) -> Node:
    """gelu(x w + bias) + residual"""
    return build.add(build.gelu(build.add(build.matmul(x, w), bias)), residual)


def einsum_graph(a: str, b: str, out: str, extents: Mapping[str, int], dtype: DType = f32) -> Graph:
    """einsum("ab,bc->ac") of dense inputs: an axis per letter."""
    left, right, result = ([ord(x) for x in text] for text in (a, b, out))
    return dense_graph(
        [[extents[x] for x in a], [extents[x] for x in b]], lambda x, y: build.einsum(x, y, left, right, result), dtype
    )


def spread_product(
    random: Random, stored: DType, dtype: DType, out: DType, behind: Callable[[Node], Node] = lambda product: product
) -> Graph:
    """A product with rows, columns, steps of the sum and a batch in several axes each, which lie in any order in the
    operands; every second or third element along some. stored: type in memory; dtype: in which it is multiplied."""
    extents = {x: random.choice((1, 2, 3, 5, 7, 8, 16, 23)) for x in "zmpnqklj"}
    while prod(extents.values()) < 1_200_000:
        letter = random.choice("mpnqklj")
        extents[letter] += random.randint(1, 1 + extents[letter])
    a, b = ("".join(random.sample(axes, len(axes))) for axes in ("zmpklj", "zklnqj"))
    steps = {x: random.choice((1, 1, 1, 2, 3)) for x in extents}

    def view(node: Node, axes: str) -> Node:
        node = build.slice_(node, [0] * len(axes), [extents[x] * steps[x] for x in axes], [steps[x] for x in axes])
        return build.cast(node, dtype) if node.dtype != dtype else node

    def multiplied(x: Node, w: Node) -> Node:
        left, right, result = ([ord(c) for c in text] for text in (a, b, "zmpnq"))
        return behind(build.einsum(view(x, a), view(w, b), left, right, result, out))

    return dense_graph([[extents[x] * steps[x] for x in axes] for axes in (a, b)], multiplied, stored)


def statistics(rows: int, columns: int, dtype: DType, outputs: str, axis: int) -> Graph:
    """A product, and what is computed of all of it along an axis, as by a norm behind a layer: 0 for statistics of each
    column, 1 of each row. outputs: of y, the product; d, without the mean; m, mean; v, variance; n, normalized; q, a
    softmax."""

    def compute(x: Node, w: Node) -> tuple[Node, ...]:
        y = build.matmul(x, build.transpose(w))
        z = build.cast(y, f32)
        m = build.mean(z, [axis], keepdims=True)
        d = build.sub(z, m)
        v = build.mean(build.mul(d, d), [axis], keepdims=True)
        n = build.mul(d, build.rsqrt(build.add(v, 1e-5)))
        p = build.exp(build.sub(z, build.max_(z, [axis], keepdims=True)))
        q = build.div(p, build.sum_(p, [axis], keepdims=True))
        return tuple({"y": y, "d": d, "m": m, "v": v, "n": n, "q": q}[name] for name in outputs)

    return dense_graph([(rows, 32), (columns, 32)], compute, dtype)


STATISTICS = {
    f"{outputs} {dtype} {rows} x {columns} along {axis}": statistics(rows, columns, dtype, outputs, axis)
    for outputs in ("n", "d", "yv", "ymn", "q", "yq")
    for dtype in (f32, bf16)
    for rows, columns in ((9, 48), (48, 9), (70, 16))
    for axis in (0, 1)
}
