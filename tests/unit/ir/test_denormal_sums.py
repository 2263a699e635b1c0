"""Sums whose terms or results are denormal where they are accumulated: roundings there are as large whatever the value,
and kernels that multiply and add in another order are right all the same. Zeros and values twice as large are wrong."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from fusion_ir import building as build
from fusion_ir.accuracy.comparison import compare
from fusion_ir.accuracy.tolerance import reference
from fusion_ir.arithmetic.conversions import accumulate, round_to
from fusion_ir.arithmetic.fma import fma
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType, bf16, f32, f64
from fusion_ir.reference.interpreter import interpret
from fusion_ir.reference.sample_inputs import sample_inputs
from testing.tensors import graph_of, spec
from tests.support.whole import in_turn

Array = np.ndarray
Sum = Callable[[Array], Array]  # along the first axis

COLUMNS = 16  # of the second operand of contractions
CLEAR = 64  # times what roundings make, from which on a value is far above it


def reversed_sum(x: Array) -> Array:
    return np.add.accumulate(x[::-1], axis=0)[-1]


def pairwise_sum(x: Array) -> Array:
    while len(x) > 1:
        half = len(x) // 2
        x = np.concatenate([x[:half] + x[half : 2 * half], x[2 * half :]])
    return x[0]


def lanes_sum(x: Array) -> Array:
    padded = np.concatenate([x, np.zeros((-len(x) % 8, *x.shape[1:]), x.dtype)])
    return pairwise_sum(np.add.accumulate(padded.reshape(-1, 8, *x.shape[1:]), axis=0)[-1])


def mean_of(x: Array, add: Sum) -> Array:
    return add(x) / x.dtype.type(len(x))


def var_of(x: Array, add: Sum, correction: int = 1) -> Array:
    return add(np.square(x - mean_of(x, add))) / x.dtype.type(len(x) - correction)


def layer_norm_of(x: Array, add: Sum) -> Array:
    return (x - mean_of(x, add)) * (x.dtype.type(1) / np.sqrt(var_of(x, add, 0)))


def scan_of(x: Array, add: Sum) -> Array:
    """Running sums of seven blocks, each added to the sum of the blocks before it."""
    parts, before = [], np.zeros(x.shape[1:], x.dtype)
    for block in np.array_split(x, 7):
        parts.append(before + np.add.accumulate(block, axis=0))
        before = before + add(block)
    return np.concatenate(parts)


def product_of(x: Array, y: Array, add: Sum) -> Array:
    if add is wide_sum:
        wide = np.longdouble if x.dtype == np.float64 else np.float64
        return (x.T.astype(wide) @ y.astype(wide)).astype(x.dtype)
    if add is not fused_sum:
        return add(x[:, :, None] * y[:, None, :])
    total = np.zeros((x.shape[1], y.shape[1]), x.dtype)
    for a, b in zip(x[::-1], y[::-1], strict=True):
        total = fma(np.broadcast_to(a[:, None], total.shape), np.broadcast_to(b, total.shape), total)
    return total


def fused_sum(x: Array) -> Array:
    """`reversed_sum`; `product_of` takes it as a sum of products by FMA, which rounds partial sums and no product."""
    return reversed_sum(x)


def wide_sum(x: Array) -> Array:
    """`reversed_sum`; `product_of` takes it as a sum of products in a wider dtype, rounded once, at the end."""
    return reversed_sum(x)


SUMS: dict[str, Sum] = {
    "reversed": reversed_sum,
    "pairwise": pairwise_sum,
    "lanes": lanes_sum,
    "fused": fused_sum,
    "wide": wide_sum,
}

# What graphs read of scaled operands, and another kernel's arithmetic over them.
CASES: dict[str, tuple[Callable[[Node, Node], Node], Callable[[Array, Array, Sum], Array]]] = {
    "sum": (lambda x, y: build.sum_(x, 0), lambda x, y, add: add(x)),
    "mean": (lambda x, y: build.mean(x, 0), lambda x, y, add: mean_of(x, add)),
    "var": (lambda x, y: build.var(x, 0), lambda x, y, add: var_of(x, add)),
    "std": (lambda x, y: build.std(x, 0), lambda x, y, add: np.sqrt(var_of(x, add))),
    "layer_norm": (lambda x, y: build.layer_norm(x, 0, eps=0.0), lambda x, y, add: layer_norm_of(x, add)),
    "cumsum": (lambda x, y: build.cumsum(x, 0), lambda x, y, add: scan_of(x, add)),
    "matmul": (lambda x, y: build.matmul(build.transpose(x, 0, 1), y), product_of),
    "root of matmul": (
        lambda x, y: build.sqrt(build.abs_(build.matmul(build.transpose(x, 0, 1), y, f64 if x.dtype == f64 else f32))),
        lambda x, y, add: np.sqrt(np.abs(product_of(x, y, add))),
    ),
    "sum of roots": (
        lambda x, y: build.sum_(build.std(x, 0)),
        lambda x, y, add: add(round_to(np.sqrt(var_of(x, add)), f64 if x.dtype == np.float64 else f32)),
    ),
}
SCALES = {f32: (1e-19, 1e-20, 1e-22, 3e-38, 1e-40), bf16: (1e-19, 1e-20, 1e-22, 1e-40), f64: (1e-160, 1e-162, 1e-308)}


def prepared(name: str, sizes: tuple[int, int], dtype: DType, scale: float) -> Graph:
    read = CASES[name][0]
    specs = [spec(sizes, dtype), spec((sizes[0], COLUMNS), dtype)]
    return graph_of(specs, lambda x, y: read(build.mul(x, scale), build.mul(y, scale)))


def scaled(graph: Graph, inputs: list[Array], scale: float) -> list[Array]:
    small = graph_of(graph.inputs, lambda x, y: [build.mul(x, scale), build.mul(y, scale)])
    return [accumulate(x) for x in interpret(small, inputs)]


def is_clear(name: str, expected: Array, x: Array, y: Array) -> bool:
    """Whether the output is far above what roundings of half the least number make."""
    least = float(np.finfo(x.dtype).smallest_subnormal)
    if name in ("std", "layer_norm", "sum of roots"):
        return bool(np.median(var_of(x, pairwise_sum)) > CLEAR * least)
    if name in ("matmul", "root of matmul"):
        return bool(np.median(np.abs(product_of(x, y, pairwise_sum))) > CLEAR * len(x) * least)
    narrow = float(round_to(np.full(1, 2.0**-133), bf16)[0]) if expected.dtype == bf16.numpy else least
    return bool(np.median(np.abs(expected.astype(np.float64))) > CLEAR * narrow)


def cases() -> Iterator[tuple[str, tuple[int, int], DType, float]]:
    for name in CASES:
        for dtype, scales in SCALES.items():
            for scale in scales:
                for sizes in ((40, 300), (300, 257)) if dtype == f32 else ((40, 300),):
                    if dtype != bf16 or name != "sum of roots":  # whose terms are rounded in between
                        yield name, sizes, dtype, scale


@pytest.mark.parametrize(("name", "sizes", "dtype", "scale"), list(cases()), ids=str)
@pytest.mark.sweep(0.1)
def test_other_orders_agree_and_wrong_values_do_not(
    name: str, sizes: tuple[int, int], dtype: DType, scale: float
) -> None:
    graph = prepared(name, sizes, dtype, scale)
    (output,) = graph.outputs
    for seed in in_turn(range(2), 1):
        inputs = sample_inputs(graph, seed)
        x, y = scaled(graph, inputs, scale)
        expected = reference(graph, inputs)
        for how, add in SUMS.items():
            with np.errstate(all="ignore"):
                got = round_to(np.asarray(CASES[name][1](x, y, add)), output.node.dtype)
            result = compare([got], expected)
            assert result.ok, f"{how}: {result.detail}"
        (right,) = expected.outputs
        if is_clear(name, right, x, y):
            assert not compare([np.zeros_like(right)], expected).ok
            assert not compare([(2 * right).astype(right.dtype)], expected).ok


@pytest.mark.parametrize("dtype", [f32, bf16], ids=str)
def test_products_that_are_zero_are_exact(dtype: DType) -> None:
    """Lines of zeros beside denormal products, seen through a large factor."""
    graph = graph_of(
        [spec((40, 300), dtype), spec((300, 20), dtype)], lambda x, y: build.mul(build.matmul(x, y, f32), 1e30)
    )
    x, y = sample_inputs(graph, 0)
    x[:20] = round_to(x[:20].astype(np.float32) * np.float32(1e-20), dtype)
    y[:, :10] = round_to(y[:, :10].astype(np.float32) * np.float32(1e-20), dtype)
    x[7] = 0
    y[:, 3] = 0
    (atol,) = reference(graph, [x, y]).atol
    assert atol is not None
    least = float(np.finfo(np.float32).smallest_subnormal)
    assert (atol[7] <= least).all()
    assert (atol[:, 3] <= least).all()
    assert (atol[8, :3] > 1e30 * 100 * least).all()


def test_a_mean_and_a_variance_of_zeros_are_exact() -> None:
    graph = graph_of(
        [spec((5, 300), f32)], lambda x: [build.mul(build.mean(x, 1), 1e30), build.mul(build.var(x, 1), 1e30)]
    )
    (x,) = sample_inputs(graph, 0)
    x[2] = 0
    for atol in reference(graph, [x]).atol:
        assert atol is not None
        assert atol[2] <= float(np.finfo(np.float32).smallest_subnormal)
