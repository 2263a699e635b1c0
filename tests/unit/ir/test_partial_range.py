"""Sums and products whose partial results overflow in some orders: found by trying all orders of a few terms."""

from itertools import permutations

import numpy as np
import pytest

from fusion_ir import building as B
from fusion_ir.accuracy.partial_range import leaves_range
from fusion_ir.accuracy.tolerance import reference
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import DTYPES, f32
from fusion_ir.ops import make_input
from testing.tensors import graph_of, spec

TERMS = 4


def terms_of(kind: str, dtype: np.dtype, rng: np.random.Generator, rows: int) -> np.ndarray:
    """Rows of TERMS numbers, some of magnitudes near the ends of the dtype's range. kind: "special" adds zeros and
    infinities."""
    info = np.finfo(dtype)
    reach = int(info.maxexp) - 1
    exponents = rng.choice([-reach, -reach // 2, -1, 0, 1, reach // 2, reach - 1, reach], (rows, TERMS))
    x = (rng.choice([-1.0, 1.0], (rows, TERMS)) * np.ldexp(rng.uniform(1.1, 1.4, exponents.shape), exponents)).astype(
        dtype
    )
    if kind == "special":
        x[rng.random(x.shape) < 0.15] = 0
        x[rng.random(x.shape) < 0.1] = np.inf
    return x


def outcomes(x: np.ndarray, op: str) -> set[str]:
    """Results over all orders of the terms: infinities by sign, "nan", "0" for a product of 0, and "?" for any other
    finite result."""
    found: set[str] = set()
    for order in permutations(range(len(x))):
        made = x[order[0]]
        for k in order[1:]:
            made = made * x[k] if op == "prod" else made + x[k]
        found.add(
            str(made) if np.isinf(made) else "nan" if np.isnan(made) else "0" if made == 0 and op == "prod" else "?"
        )
    return found


def reduced(op: str, dtype: str) -> Node:
    x = make_input(0, spec((1, TERMS), DTYPES[dtype]))
    return B.prod(x, (1,)) if op == "prod" else B.sum_(x, (1,))


@pytest.mark.parametrize("kind", ["finite", "special"])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("op", ["sum", "prod"])
def test_where_orders_differ_anything_may_come_out_and_elsewhere_nothing_new(op: str, dtype: str, kind: str) -> None:
    made, differing, blamed = DTYPES[dtype].numpy, 0, 0
    node = reduced(op, dtype)
    with np.errstate(all="ignore"):
        for x in terms_of(kind, made, np.random.default_rng(0), 1500):
            found = outcomes(x, op)
            leaving = leaves_range(node, (x[None],), np.dtype(made))
            leaves = leaving is not None and bool(leaving[0])
            differing += len(found) > 1
            assert leaves or len(found) == 1, (x, found)
            blamed += leaves and len(found) == 1
    assert differing > 5
    assert blamed <= (0 if op == "sum" else 500), "products that end below the smallest normal number"


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_contractions(dtype: str) -> None:
    big = float(np.finfo(DTYPES[dtype].numpy).max) / 2
    x, w = (make_input(i, spec(s, DTYPES[dtype])) for i, s in enumerate(((3, 4), (4, 2))))
    node = B.matmul(x, w)
    rows = np.array([[big, big, -big, -big], [big, big, big, big], [1, 2, 3, 4]], DTYPES[dtype].numpy)
    ones = np.ones((4, 2), DTYPES[dtype].numpy)
    with np.errstate(all="ignore"):
        found = leaves_range(node, (rows, 2 * ones), np.dtype(DTYPES[dtype].numpy))
        assert found is not None
        np.testing.assert_array_equal(found, [[True] * 2, [False] * 2, [False] * 2])
        assert leaves_range(node, (rows[2:].repeat(3, 0), ones), np.dtype(DTYPES[dtype].numpy)) is None


def test_what_follows_from_it_may_be_anything_too() -> None:
    """A product that is 1 in one order and infinite in another, rounded down, as a search of a random graph met it: any
    result is allowed."""

    def graph(op: str) -> Graph:
        return graph_of([spec((6,), f32)], lambda x: [B.floor(B.prod(x, (0,)) if op == "prod" else B.sum_(x, (0,)))])

    up = np.array([2.0**60, 2.0**60, 2.0**60, 2.0**-60, 2.0**-60, 2.0**-60], np.float32)
    for x in (up, up[::-1].copy(), np.tile(up, 1)[[0, 3, 1, 4, 2, 5]]):
        (allowed,) = reference(graph("prod"), [x]).atol
        assert allowed is not None
        assert np.isinf(allowed).all()
    (allowed,) = reference(graph("prod"), [np.abs(np.log2(up))]).atol
    assert allowed is not None
    assert np.isfinite(allowed).all()
