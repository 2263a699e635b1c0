"""Graphs in which rules that offer alternatives match, by rule, and graphs just outside of their conditions."""

from collections.abc import Callable, Sequence

from fusion_ir import building as build
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType, bf16, f16, f32, f64, i32, i64
from fusion_ir.ops import make, make_input

Compute = Callable[..., Node | tuple[Node, ...]]
Sizes = tuple[int, ...]


def weight(*sizes: int, dtype: DType = f32) -> InputSpec:
    """A constant input."""
    return InputSpec(shape_of(sizes), dtype, dense_strides(sizes), 16, "v1")


def tensor(*sizes: int, dtype: DType = f32) -> InputSpec:
    """An input whose values change from run to run."""
    return InputSpec(shape_of(sizes), dtype, dense_strides(sizes))


def graph_of(inputs: Sequence[InputSpec | Sizes], compute: Compute, dtype: DType = f32) -> Graph:
    specs = tuple(s if isinstance(s, InputSpec) else InputSpec(shape_of(s), dtype, dense_strides(s)) for s in inputs)
    found = compute(*(make_input(i, s) for i, s in enumerate(specs)))
    nodes = found if isinstance(found, tuple) else (found,)
    return Graph(specs, tuple(OutputSpec(n, dense_strides(n.sizes)) for n in nodes))


def heads(x: Node, count: int) -> Node:
    """[S, count * p] -> [count, S, p]"""
    return build.permute(build.reshape(x, [x.sizes[0], count, -1]), (1, 0, 2))


def joined(x: Node) -> Node:
    """[count, S, p] -> [S, count * p]"""
    return build.reshape(build.permute(x, (1, 0, 2)), [x.sizes[1], -1])


def along(x: Node, sizes: Sizes, *dims: int) -> Node:
    """Repeated to these sizes, its axes being `dims`."""
    return build.broadcast_in_dim(x, sizes, dims)


def power(x: Node, to: float) -> Node:
    return make("pow", [x, build.full(x.sizes, to, x.dtype)])


def tail(p: Node, y: Node, a: Node, b: Node, c: Node) -> Node:
    """The end of attention: weights [h, S, S] times the values of y, by heads, times c."""
    return build.matmul(joined(build.matmul(p, heads(build.linear(y, a, b), p.sizes[0]))), c)


mm = build.matmul
# By rule: the inputs of a graph and what it computes, whose alternatives are in golden/.
CASES: dict[str, dict[str, tuple[list[InputSpec | Sizes], Compute]]] = {
    "chain-order": {
        "three": ([(4, 60), (60, 5), (5, 70)], lambda x, y, z: mm(mm(x, y), z)),
        "heads": ([(2, 6, 6), (6, 8), (8, 8)], lambda p, v, c: mm(joined(mm(p, heads(v, 2))), c)),
        "four": ([(4, 9), (9, 5), (5, 7), (7, 3)], lambda x, y, z, w: mm(mm(mm(x, y), z), w)),
    },
    "fold-through-bias": {
        "bias": ([(4, 8), weight(8), weight(8, 3)], lambda x, b, a: mm(build.add(x, b), a)),
        "layers": ([(4, 8), weight(6, 8), weight(6), weight(6, 3)], lambda y, a, b, c: mm(build.linear(y, a, b), c)),
        "heads": ([(2, 5, 5), (5, 6), weight(8, 6), weight(8), weight(8, 7)], tail),
    },
    "horizontal-product": {
        "weights": ([(4, 8), weight(8, 3), weight(8, 5)], lambda x, y, z: (mm(x, y), mm(x, z))),
        "turned": ([(4, 8), weight(3, 8), (8, 5)], lambda x, y, z: (build.linear(x, y), mm(x, z))),
        "rows": ([(4, 8), (5, 8), weight(8, 3)], lambda x, y, z: (mm(x, z), mm(y, z))),
    },
    "factor-sum": {
        "left": ([(4, 8), weight(8, 3), weight(8, 3)], lambda x, a, b: build.add(mm(x, a), mm(x, b))),
        "right": ([(4, 8), (4, 8), (8, 3)], lambda a, b, x: build.sub(mm(a, x), mm(b, x))),
    },
    "concatenate-k": {
        "sum": ([(4, 8), (8, 3), (4, 2), (2, 3)], lambda x, y, z, w: build.add(mm(x, y), mm(z, w))),
        "turned": ([(4, 8), (8, 3), (2, 4), (3, 2)], lambda x, y, z, w: build.add(mm(x, y), build.transpose(mm(w, z)))),
        "difference": ([(4, 8), (8, 3), (4, 2), weight(2, 3)], lambda x, y, z, w: build.sub(mm(x, y), mm(z, w))),
    },
    "scale-out": {
        "rows": ([(4, 8), (4,), (8, 3)], lambda x, s, y: mm(build.mul(x, along(s, (4, 8), 0)), y)),
        "one number": ([(4, 8), (8, 3)], lambda x, y: mm(build.mul(x, 0.3), y)),
        "one number and f16": (
            [tensor(4, 8, dtype=f16), tensor(8, 3, dtype=f16)],
            lambda x, y: build.matmul(build.mul(x, 0.3), y),
        ),
        "into a constant": (
            [(4, 8), weight(8), weight(8, 3)],
            lambda x, s, y: mm(build.mul(x, along(s, (4, 8), 1)), y),
        ),
    },
    "scale-in": {
        "columns": ([(4, 8), weight(8, 3), weight(3)], lambda x, y, s: build.mul(mm(x, y), along(s, (4, 3), 1))),
        "scores": ([(2, 9, 3), (2, 9, 3)], lambda q, k: build.mul(mm(q, build.transpose(k)), 0.3)),
        "scores of bf16": (
            [tensor(2, 9, 3, dtype=bf16), tensor(2, 9, 3, dtype=bf16)],
            lambda q, k: build.mul(build.matmul(q, build.transpose(k)), 0.3),
        ),
        "16 bits by a power of two": (
            [weight(9, 3, dtype=bf16), InputSpec(shape_of((3, 9)), bf16, (9, 1))],
            lambda x, y: build.mul(build.matmul(x, y, f32), 0.25),
        ),
    },
    "scale-out-far": {
        "f16 by a small number": (
            [tensor(4, 8, dtype=f16), weight(8, 3, dtype=f16)],
            lambda x, y: build.matmul(build.mul(x, 1e-4), y),
        ),
        "f16 into a constant": (
            [tensor(4, 8, dtype=f16), weight(8, dtype=f16), weight(8, 3, dtype=f16)],
            lambda x, s, y: build.matmul(build.mul(x, along(s, (4, 8), 1)), y),
        ),
    },
    "scale-in-far": {
        "f16 columns": (
            [tensor(4, 8, dtype=f16), weight(8, 3, dtype=f16), weight(3, dtype=f16)],
            lambda x, y, s: build.mul(build.matmul(x, y), along(s, (4, 3), 1)),
        ),
        "f16 by a small number": (
            [tensor(2, 9, 3, dtype=f16), tensor(2, 9, 3, dtype=f16)],
            lambda q, k: build.mul(build.matmul(q, build.transpose(k)), 1e-4),
        ),
    },
    "view-of-product": {
        "columns": ([(4, 8), (8, 6)], lambda x, y: (build.slice_(xy := mm(x, y), [0, 1], [4, 3]), xy)),
        "a batch": ([(3, 4, 8), (3, 8, 6)], lambda x, y: build.slice_(mm(x, y), [1, 0, 0], [3, 4, 6], [1, 2, 1])),
        "transposed": ([(4, 8), (8, 6)], lambda x, y: build.transpose(mm(x, y))),
    },
    "product-of-repeats": {
        "batch": (
            [(4, 8), (8, 6)],
            lambda x, y: mm(build.expand(x, (3, 4, 8)), build.expand(y, (3, 8, 6))),
        ),
        "one side": ([(3, 4, 8), (8, 6)], lambda x, y: mm(x, build.expand(y, (3, 8, 6)))),
    },
    "product-of-parts": {
        "columns": ([(4, 8), (8, 2), (8, 3)], lambda x, y, z: mm(x, build.cat([y, z], 1))),
        "sums": ([(4, 2), (4, 3), (5, 6)], lambda x, z, y: mm(build.cat([x, z], 1), y)),
    },
    "sum-of-products": {
        "matrices": (
            [(4, 8), (8, 3)],
            lambda x, y: build.sum_(build.mul(along(x, (4, 8, 3), 0, 1), along(y, (4, 8, 3), 1, 2)), 1),
        ),
        "a vector": ([(4, 8), (8,)], lambda x, y: build.sum_(build.mul(x, along(y, (4, 8), 1)), 1)),
    },
    "same-product": {
        "turned": ([(4, 8), (8, 3)], lambda x, y: (mm(x, y), build.einsum(y, x, (1, 2), (0, 1), (2, 0)))),
    },
    "powers": {
        "square": ([(4,)], lambda x: power(x, 2.0)),
        "inverse": ([(4,)], lambda x: power(x, -1.0)),
    },
    "view-sinks": {
        "permute": ([(4, 8), (4, 8)], lambda x, y: build.transpose(build.add(x, y))),
        "slice": ([(4, 8)], lambda x: (build.slice_(e := build.exp(x), [0, 2], [4, 5]), e)),
    },
    "view-rises": {
        "permutes": ([(4, 8), (4, 8)], lambda x, y: build.mul(build.transpose(x), build.transpose(y))),
        "a repeat": ([(8,)], lambda x: build.exp(along(x, (4, 8), 1))),
    },
    "repeat-to-expand": {"cat": ([(4, 8)], lambda x: build.cat([x, x, x], 1))},
    "counted-gather": {
        "every other": ([(4, 8)], lambda x: build.index_select(x, 1, build.iota([3], start=1, step=2))),
        "one": ([(4, 8)], lambda x: build.index_select(x, 0, build.full([3], 2, i64))),
        "behind the end": ([(4, 8)], lambda x: build.index_select(x, 0, build.full([3], 9, i64))),
    },
    "repeated-gather": {
        "each twice": (
            [(4, 8), InputSpec(shape_of((3,)), i64, (1,))],
            lambda x, i: build.index_select(x, 0, build.flatten(build.broadcast_in_dim(i, [3, 2], [0]))),
        ),
        "all twice": (
            [(4, 8), InputSpec(shape_of((3,)), i64, (1,))],
            lambda x, i: build.index_select(x, 1, build.flatten(build.broadcast_in_dim(i, [2, 3], [1]))),
        ),
    },
}
# Just outside: by what it lacks, the rule that must not match.
KEPT: dict[str, tuple[str, list[InputSpec | Sizes], Compute]] = {
    "an activation between": ("chain-order", [(4, 9), (9, 5), (5, 7)], lambda x, y, z: mm(build.relu(mm(x, y)), z)),
    "heads that mix": (
        "chain-order",
        [(2, 6, 6), (6, 8), (6, 8)],
        lambda p, v, c: mm(build.reshape(mm(p, heads(v, 2)), [8, 6]), c),
    ),
    "a product that is needed anyhow": (
        "chain-order",
        [(4, 9), (9, 5), (5, 7)],
        lambda x, y, z: ((xy := mm(x, y)), mm(xy, z)),
    ),
    "a bias that changes": ("fold-through-bias", [(4, 8), (8,), weight(8, 3)], lambda x, b, a: mm(build.add(x, b), a)),
    "a weight that changes": ("fold-through-bias", [(4, 8), weight(8), (8, 3)], lambda x, b, a: mm(build.add(x, b), a)),
    "all constant": (
        "fold-through-bias",
        [weight(4, 8), weight(8), weight(8, 3)],
        lambda x, b, a: mm(build.add(x, b), a),
    ),
    "one computed from the other": (
        "horizontal-product",
        [(4, 4), (4, 4)],
        lambda x, y: mm(x, build.relu(mm(x, y))),
    ),
    "sums over other axes": (
        "horizontal-product",
        [(4, 4), (4, 3), (4, 3)],
        lambda x, y, z: (mm(x, y), build.einsum(x, z, (0, 1), (0, 2), (1, 2))),
    ),
    "other dtypes": (
        "horizontal-product",
        [(4, 4), (4, 3), (4, 3)],
        lambda x, y, z: (mm(x, y), build.matmul(x, z, f16)),
    ),
    "no factor in common": (
        "factor-sum",
        [(4, 8), (8, 3), (4, 8), (8, 3)],
        lambda x, y, z, w: build.add(mm(x, y), mm(z, w)),
    ),
    "in common but turned": (
        "factor-sum",
        [(4, 4), (4, 4), (4, 4)],
        lambda x, y, z: build.add(mm(x, y), mm(build.transpose(x), z)),
    ),
    "a product and no product": ("concatenate-k", [(4, 8), (8, 3), (4, 3)], lambda x, y, z: build.add(mm(x, y), z)),
    "what would be negative changes": (
        "concatenate-k",
        [(4, 8), (8, 3), (4, 2), (2, 3)],
        lambda x, y, z, w: build.sub(mm(x, y), mm(z, w)),
    ),
    "a scale of what is summed over that changes": (
        "scale-out",
        [(4, 8), (8,), weight(8, 3)],
        lambda x, s, y: mm(build.mul(x, along(s, (4, 8), 1)), y),
    ),
    "no scale but a tensor": ("scale-out", [(4, 8), (4, 8), (8, 3)], lambda x, s, y: mm(build.mul(x, s), y)),
    "a scale that changes": (
        "scale-in",
        [(4, 8), weight(8, 3), (3,)],
        lambda x, y, s: build.mul(mm(x, y), along(s, (4, 3), 1)),
    ),
    "16 bits by another number": (
        "scale-in",
        [weight(9, 3, dtype=bf16), InputSpec(shape_of((3, 9)), bf16, (9, 1))],
        lambda x, y: build.mul(build.matmul(x, y, f32), 0.3),
    ),
    "16 bits by another number before they are 16": (
        "scale-in",
        [weight(9, 3, dtype=bf16), InputSpec(shape_of((3, 9)), bf16, (9, 1))],
        lambda x, y: build.cast(build.mul(build.matmul(x, y, f32), 0.3), bf16),
    ),
    "f16 by numbers that may be of any size": (
        "scale-in",
        [tensor(4, 8, dtype=f16), weight(8, 3, dtype=f16), weight(3, dtype=f16)],
        lambda x, y, s: build.mul(build.matmul(x, y), along(s, (4, 3), 1)),
    ),
    "f16 by a number near one": (
        "scale-in-far",
        [tensor(2, 9, 3, dtype=f16), tensor(2, 9, 3, dtype=f16)],
        lambda q, k: build.mul(build.matmul(q, build.transpose(k)), 0.125),
    ),
    "one factor is rounded, the other is not": (
        "factor-sum",
        [tensor(4, 8, dtype=bf16), tensor(8, 3, dtype=bf16), tensor(8, 3, dtype=bf16)],
        lambda x, a, b: build.add(build.matmul(x, a, f32), build.cast(build.matmul(x, b), f32)),
    ),
    "a number for each element": (
        "scale-in",
        [(4, 8), weight(8, 3), weight(4, 3)],
        lambda x, y, s: build.mul(mm(x, y), s),
    ),
    "only merged": ("view-of-product", [(2, 4, 8), (2, 8, 3)], lambda x, y: build.reshape(mm(x, y), [8, 3])),
    "a repeat that is summed over": (
        "product-of-repeats",
        [(4, 1), (8, 6)],
        lambda x, y: mm(build.expand(x, (4, 8)), y),
    ),
    "too many parts": ("product-of-parts", [(4, 8), (8, 2)], lambda x, y: mm(x, build.cat([y] * 5, 1))),
    "rows times rows": ("sum-of-products", [(4, 8), (4, 8)], lambda x, y: build.sum_(build.mul(x, y), 1)),
    "integers": (
        "sum-of-products",
        [InputSpec(shape_of((4, 8)), i32, (8, 1)), InputSpec(shape_of((8,)), i32, (1,))],
        lambda x, y: build.sum_(build.mul(x, along(y, (4, 8), 1)), 1),
    ),
    "other sums": (
        "same-product",
        [(4, 4), (4, 4)],
        lambda x, y: (mm(x, y), build.einsum(y, x, (0, 1), (0, 2), (2, 1))),
    ),
    "a root": ("powers", [(4,)], lambda x: power(x, 0.5)),
    "only split": ("view-sinks", [(4, 8)], lambda x: build.reshape(build.exp(x), [4, 2, 4])),
    "a sum": ("view-sinks", [(4, 8, 2)], lambda x: build.transpose(build.sum_(x, 2))),
    "turned and not": ("view-rises", [(4, 4), (4, 4)], lambda x, y: build.mul(build.transpose(x), y)),
    "cheap": ("view-rises", [(8,)], lambda x: build.mul(along(x, (4, 8), 1), 2.0)),
    "a cast that loses nothing": ("view-rises", [(4, 8)], lambda x: build.cast(build.transpose(x), f64)),
    "two tensors": ("repeat-to-expand", [(4, 8), (4, 8)], lambda x, y: build.cat([x, y, x], 1)),
    "beyond the end": (
        "counted-gather",
        [(4, 8)],
        lambda x: build.index_select(x, 1, build.iota([3], start=2, step=3)),
    ),
    "before the start": ("counted-gather", [(4, 8)], lambda x: build.index_select(x, 1, build.iota([3], start=-1))),
    "indices that are only split": (
        "repeated-gather",
        [(4, 8), InputSpec(shape_of((2, 2)), i64, (2, 1))],
        lambda x, i: build.index_select(x, 0, build.flatten(i)),
    ),
}
