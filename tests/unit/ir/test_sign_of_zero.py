"""Zeros of sums, which may have either sign, before what depends on it: found by giving them each."""

from collections.abc import Callable

import numpy as np
import pytest

from fusion_ir import building as B
from fusion_ir.accuracy.comparison import compare
from fusion_ir.accuracy.tolerance import reference
from fusion_ir.arithmetic.conversions import round_to
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import DTYPES, DType
from fusion_ir.ops import OPS, OpKind, make, make_input
from fusion_ir.reference.interpreter import interpret
from testing.tensors import graph_of, spec

FLOATS = ("f64", "f32", "f16", "bf16")
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 2.0, -3.0, 0.5, np.inf, -np.inf, np.nan], np.float32)

# A zero of either sign of x, computed in each of the ways that leave its sign open; and what its other elements are.
SUMS: dict[str, Callable[[Node], Node]] = {
    "sum": lambda x: B.sum_(x, 1),
    "sum of one": lambda x: B.sum_(B.slice_(x, (0, 0), (x.sizes[0], 1)), 1),
    "mean": lambda x: B.mean(x, 1),
    "prod": lambda x: B.prod(x, 1),
    "cumsum": lambda x: B.reshape(B.slice_(B.cumsum(x, 1), (0, 3), (x.sizes[0], 4)), (x.sizes[0],)),
    "contraction": lambda x: B.reshape(B.matmul(x, B.full((x.sizes[1], 1), 1.0, x.dtype)), (x.sizes[0],)),
    "rounded": lambda x: B.cast(B.cast(B.sum_(x, 1), DTYPES["bf16"]), x.dtype),
    "negated": lambda x: B.neg(B.sum_(x, 1)),
    "scaled": lambda x: B.mul(B.sum_(x, 1), B.full((x.sizes[0],), -2.0, x.dtype)),
    "sum of sums": lambda x: B.add(B.sum_(x, 1), B.sum_(B.neg(x), 1)),
}
READERS: dict[str, Callable[[Node], Node]] = {
    "reciprocal": B.reciprocal,
    "div": lambda x: B.div(B.full(x.sizes, 3.0, x.dtype), x),
    "floordiv": lambda x: B.floordiv(B.full(x.sizes, 3.0, x.dtype), x),
    "rsqrt": B.rsqrt,
    "signbit": B.signbit,
    "atan2 first": lambda x: B.atan2(x, B.full(x.sizes, -1.0, x.dtype)),
    "atan2 second": lambda x: B.atan2(B.full(x.sizes, 0.0, x.dtype), x),
    "pow": lambda x: B.pow_(x, B.full(x.sizes, -3.0, x.dtype)),
    "behind others": lambda x: B.tanh(B.reciprocal(x)),
    "beyond a domain": lambda x: B.sqrt(B.reciprocal(x)),
    "in a mask": lambda x: B.where(B.gt(B.reciprocal(x), B.full(x.sizes, 0.0, x.dtype)), x, B.exp(x)),
    "in a sum": lambda x: B.sum_(B.reciprocal(x), 0),
}


def test_the_table_says_where_a_zeros_sign_makes_a_difference() -> None:
    """Every op of floats, every operand, beside all special values of the others."""
    for name, row in OPS.items():
        if row.kind is not OpKind.POINTWISE or row.attrs or not isinstance(row.arity, int):
            continue
        node = _over(name, DTYPES["f32"])
        if node is None:
            continue
        grids = [g.ravel() for g in np.meshgrid(*[SPECIAL] * row.arity, indexing="ij")]
        found = []
        for k in range(row.arity):
            plus, minus = ([np.full_like(g, zero) if i == k else g for i, g in enumerate(grids)] for zero in (0, -0.0))
            with np.errstate(all="ignore"):
                values = [np.asarray(row.reference(node, *operands)) for operands in (plus, minus)]
            same = (values[0] == values[1]) | ((values[0] != values[0]) & (values[1] != values[1]))
            if not same.all():
                found.append(k)
        assert row.zero_signs == tuple(found), name


def _over(op: str, dtype: DType) -> Node | None:
    """The op over inputs of that dtype; None where the op does not take the dtype."""
    sizes = (len(SPECIAL) ** OPS[op].arity,)  # type: ignore[operator]
    args = tuple(
        make_input(i, InputSpec(shape_of(sizes), dtype, dense_strides(sizes)))
        for i in range(OPS[op].arity)  # type: ignore[arg-type]
    )
    try:
        return make(op, args)
    except Exception:
        return None


def data(dtype: DType, rng: np.random.Generator) -> np.ndarray:
    """Rows of numbers, and rows of zeros: of either sign, and of both."""
    x = rng.choice([0.5, 1.0, 2.0, -1.5], (40, 20)).astype(np.float32)
    x[::4], x[1::4] = 0.0, -0.0
    x[2::8] = np.where(rng.random((5, 20)) < 0.5, 0.0, -0.0)
    return round_to(x, dtype)


def with_either_zero(graph_from_sum: Graph, total: np.ndarray) -> list[list[np.ndarray]]:
    """Results of the graph behind a sum for five choices of the signs of the sum's zeros: all +0, all -0, and three
    random ones."""
    rng = np.random.default_rng(5)
    zeros = total == 0
    signs = [np.ones(total.shape), -np.ones(total.shape), *(rng.choice([-1.0, 1.0], total.shape) for _ in range(3))]
    kept = np.asarray(total, np.float64)
    return [interpret(graph_from_sum, [np.where(zeros, np.copysign(0.0, s), kept).astype(total.dtype)]) for s in signs]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("total", SUMS)
@pytest.mark.sweep(0.3)
def test_a_sums_zero_may_have_either_sign(total: str, reader: str, dtype: str) -> None:
    x = data(DTYPES[dtype], np.random.default_rng(1))
    graph = graph_of([spec(x.shape, DTYPES[dtype])], lambda node: READERS[reader](SUMS[total](node)))
    sums = graph_of([spec(x.shape, DTYPES[dtype])], lambda node: SUMS[total](node))
    behind = graph_of([spec((40,), DTYPES[dtype])], READERS[reader])
    with np.errstate(all="ignore"):
        (expected_sum,) = interpret(sums, [x])
        assert (expected_sum == 0).any()
        expected = reference(graph, [x])
        for got in with_either_zero(behind, expected_sum):
            compared = compare(got, expected)
            assert compared.ok, compared.detail


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("reader", [r for r in READERS if r not in ("in a sum", "behind others", "signbit")])
@pytest.mark.parametrize("total", [s for s in SUMS if s != "sum of sums"])
@pytest.mark.sweep(0.3)
def test_what_is_wrong_beside_such_zeros_is_found(total: str, reader: str, dtype: str) -> None:
    x = data(DTYPES[dtype], np.random.default_rng(2))
    x[3::4] = np.abs(x[3::4])
    graph = graph_of([spec(x.shape, DTYPES[dtype])], lambda node: READERS[reader](SUMS[total](node)))
    with np.errstate(all="ignore"):
        expected = reference(graph, [x])
        (value,) = interpret(graph, [x])
    wrong = value.copy()
    number = np.nan_to_num(np.float64(value[3])) * 1.5 + 1
    wrong[3] = round_to(np.asarray(number), DTYPES[dtype])
    assert not compare([wrong], expected).ok


def test_a_given_zero_has_its_sign() -> None:
    """Nothing is forgiven where the language says which zero it is: in an input, in what is exact, in few products."""
    for make_zero in (B.neg, lambda x: B.mul(x, x), lambda x: B.sum_(B.cast(B.exp(x), DTYPES["f32"]), 1)):
        graph = graph_of([spec((4, 4), DTYPES["f32"])], lambda x, f=make_zero: B.reciprocal(f(x)))
        x = np.zeros((4, 4), np.float32)
        expected, got = reference(graph, [x]), interpret(graph, [x])
        got[0] = -got[0]
        assert not compare(got, expected).ok
