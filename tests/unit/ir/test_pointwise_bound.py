"""Error bounds of pointwise ops: what is quicker where all is finite gives what is found element by element."""

import numpy as np
import pytest

from fusion_ir.accuracy.erring_value import EVEN, erring_dtype, error_dtype
from fusion_ir.accuracy.pointwise_bound import normalized_bound, pointwise_bound
from fusion_ir.arithmetic.conversions import round_to
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import InputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import DTYPES, DType
from fusion_ir.ops import OPS, OpKind, make, make_input

ELEMENTS = 600
OF_FLOATS = [
    name
    for name, row in OPS.items()
    if row.kind is OpKind.POINTWISE and row.arity and not row.attrs and name not in ("select", "logical_not")
]


def erring(rng: np.random.Generator, dtype: DType, low: float, high: float) -> np.ndarray:
    """Values with errors, a third of them exact."""
    made = np.empty(ELEMENTS, erring_dtype(dtype))
    made["value"] = round_to(rng.uniform(low, high, ELEMENTS).astype(np.float32), dtype)
    off = 10.0 ** rng.uniform(-8, -1, ELEMENTS) * (rng.random(ELEMENTS) < 0.7)
    made["error"] = off
    made["spread"] = off * rng.uniform(0.1, EVEN, ELEMENTS)
    return made


def node_of(op: str, dtype: DType) -> Node | None:
    """The op over inputs of a dtype; None where the op does not take that dtype."""
    sizes = shape_of((ELEMENTS,))
    args = tuple(make_input(i, InputSpec(sizes, dtype, dense_strides((ELEMENTS,)))) for i in range(OPS[op].arity))
    try:
        return make(op, args)
    except Exception:
        return None


def odd_neighbour(x: np.ndarray, odd: tuple[float, float]) -> np.ndarray:
    """A copy of x with `odd` as the last element's value and error, at least one of which is not finite."""
    found = x.copy()
    found["value"][-1], found["error"][-1] = odd
    return found


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("odd", [(np.nan, 0.0), (np.inf, 1.0), (1.0, np.inf)])
@pytest.mark.parametrize("errs", [False, True])
@pytest.mark.parametrize("name", ["f32", "bf16", "f16", "f64"])
def test_a_neighbour_that_is_not_finite_changes_nothing(name: str, errs: bool, odd: tuple[float, float]) -> None:
    """One element that is not finite sends its whole block down the path that tests conditions for each element."""
    dtype, rng, seen = DTYPES[name], np.random.default_rng(3), 0
    for op in OF_FLOATS:
        node = node_of(op, dtype)
        if node is None or (errs and not node.dtype.is_float):
            continue
        seen += 1
        operands = [erring(rng, dtype, *OPS[op].domain) for _ in range(OPS[op].arity)]
        plain = pointwise_bound(node, operands, errs)
        beside = pointwise_bound(node, [odd_neighbour(x, odd) for x in operands], errs)
        for field in ("error", "spread"):
            np.testing.assert_allclose(plain[field][:-1], beside[field][:-1], rtol=1e-5, atol=1e-37, err_msg=op)
    assert seen > 20


@pytest.mark.parametrize("name", ["f32", "bf16", "f64"])
def test_no_corner_is_beyond_the_bound(name: str) -> None:
    """An op at any of its operands' corners is no farther off than the bound, found one corner after the other."""
    dtype, rng = DTYPES[name], np.random.default_rng(5)
    for op in ("add", "sub", "mul", "div", "maximum", "minimum", "exp", "tanh", "sqrt", "log"):
        node = node_of(op, dtype)
        assert node is not None
        operands = [erring(rng, dtype, *OPS[op].domain) for _ in range(OPS[op].arity)]
        made = pointwise_bound(node, operands, False)
        for corner in range(2 ** len(operands)):
            ends = []
            for k, x in enumerate(operands):
                wide = x["value"].astype(error_dtype(dtype))
                end = wide + (x["error"] if corner >> k & 1 else -x["error"])
                low, high = OPS[op].domain
                ends.append(np.clip(end, low, high) if op in ("sqrt", "log") else end)
            with np.errstate(all="ignore"):
                there = round_to(np.asarray(OPS[op].reference(node, *ends)), dtype).astype(np.float64)
            apart = np.abs(there - made["value"].astype(np.float64))
            known = np.isfinite(apart)
            assert (apart[known] <= made["error"][known] * (1 + 1e-6) + 1e-37).all(), op


def test_shares_of_a_row_are_bounded_alike_in_one_block_and_in_many() -> None:
    """Whether all terms of a row are positive is a matter of the row, not of a block of it."""
    rng, rows, columns = np.random.default_rng(1), 2, 1 << 17
    x = np.empty((rows, columns), erring_dtype(DTYPES["f32"]))
    x["value"] = rng.uniform(0.5, 1, (rows, columns))
    x["value"][0, :5] = -3e4  # the row's sum is near 0, and any quotient with it may be anything
    x["error"], x["spread"] = 1e-3, 1e-4
    total = np.empty((rows, 1), x.dtype)
    total["value"][:, 0] = x["value"].sum(axis=1)
    total["error"], total["spread"] = 1e6, 1e5
    spec = InputSpec(shape_of((rows, columns)), DTYPES["f32"], dense_strides((rows, columns)))
    node = make("div", (make_input(0, spec), make_input(1, spec)))
    made = normalized_bound(node, x, np.broadcast_to(total, x.shape))
    assert np.isinf(made["error"]).all()
