"""Ops at special values, in every dtype, as PyTorch has them on a CPU. The reason stands beside where it differs.

What PyTorch does not define is left out: divisions of integers by 0, shifts by more than the width, floats that an
integer has no room for. That the language defines itself (`docs/ops.md`).
"""

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

from fusion_ir import building as build
from fusion_ir.arithmetic.conversions import round_to, ulp, widen
from fusion_ir.core.node import Attr, Node
from fusion_ir.dtype import DTYPES, DType, compute_dtype
from fusion_ir.ops import OPS, OpKind, RuleError, make
from fusion_ir.reference.interpreter import interpret
from fusion_ir.reference.node_value import evaluate_node
from testing.tensors import evaluate_one, tensor
from tests.support.special_values import (
    from_torch,
    special_graph,
    special_values,
    to_torch,
    unlike_reference,
)

torch: Any = pytest.importorskip("torch", reason="needs PyTorch: the extra `bench`")

THEIRS: dict[str, Callable[..., Any]] = {
    "round": torch.round, "abs": torch.abs, "clamp": torch.clamp, "where": torch.where, "lerp": torch.lerp,
    "div": lambda a, b: torch.div(a, b, rounding_mode=None if a.is_floating_point() else "trunc"),
    "floordiv": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "shift_left": torch.bitwise_left_shift, "shift_right": torch.bitwise_right_shift,
}  # fmt: skip
TABLE = [op for op in OPS.values() if op.kind is OpKind.POINTWISE and op.name not in ("cast", "shift_right_logical")]
# Zeros of the other sign: torch takes either operand of equal ones, and keeps -0 in relu on a CPU, not on CUDA.
EITHER_ZERO = ("maximum", "minimum", "clamp", "relu", "lerp")
# Its vector loops are no nearer than this, in units of the last place, beside what ours may be off by.
TORCH_ULPS = 2


def operands(op: str, arity: int, dtype: DType) -> list[np.ndarray]:
    """All special values against all; of three operands, some."""
    values = special_values(dtype)
    if arity == 1:
        return [values]
    if arity == 2:
        a, b = (x.ravel() for x in np.meshgrid(values, values))
        defined = np.ones(a.shape, bool)
        if dtype.is_integer and op in ("div", "floordiv", "fmod", "remainder"):
            defined = (b != 0) & ~((b == -1) & (a == values.min()))
        elif op.startswith("shift"):
            defined = (b >= 0) & (b < 8 * dtype.bytes)
        return [a[defined], b[defined]]
    rng = np.random.default_rng(0)
    chosen = [rng.choice(values, 3000) for _ in range(arity)]
    return [rng.random(3000) < 0.5, *chosen[1:]] if op == "where" else chosen


def value(op: str, arrays: list[np.ndarray], dtype: DType, attrs: dict[str, Attr] | None = None) -> np.ndarray:
    names = ["bool" if op == "where" and i == 0 else dtype.name for i in range(len(arrays))]
    nodes = [tensor(i, a.shape, DTYPES[n]) for i, (a, n) in enumerate(zip(arrays, names, strict=True))]
    return evaluate_node(make(op, nodes, attrs or {}), arrays)


def torchs(op: str, arrays: list[np.ndarray], dtype: DType) -> np.ndarray | None:
    """None where it has no such function; at 8 bits, where it has few, what it computes in f32, rounded once."""
    function = THEIRS.get(op) or getattr(torch, op)
    given = [to_torch(torch, a, "bool" if a.dtype == bool else dtype.name) for a in arrays]
    try:
        return from_torch(torch, function(*given))[0]
    except (RuntimeError, NotImplementedError, TypeError):
        if dtype.bytes > 1 or not dtype.is_float:
            return None
        wide = [a if a.dtype == bool else widen(a) for a in arrays]
        result = from_torch(torch, function(*(torch.from_numpy(w) for w in wide)))[0]
        return round_to(result, dtype) if result.dtype == np.float32 else result


def differing(op: str, got: np.ndarray, expected: np.ndarray, arrays: list[np.ndarray], dtype: DType) -> np.ndarray:
    """Positions at which ours is not torch's."""
    assert got.dtype == expected.dtype
    if not DTYPES[dtype.name].is_float or got.dtype == bool:
        return np.flatnonzero(got != expected)
    a, b = got.astype(np.float64), expected.astype(np.float64)
    with np.errstate(all="ignore"):
        off = np.abs(a - b) / np.where(ulp(got) == 0, 1, ulp(got)).astype(np.float64)
        ulps = OPS[op].ulps if compute_dtype(dtype) == dtype else min(OPS[op].ulps, 1)
        near = np.isfinite(a) & np.isfinite(b) & (off <= ulps + (TORCH_ULPS if ulps else 0))
        tiny = np.maximum(np.abs(a), np.abs(b)) < 2.0 ** (dtype.least_normal + 1)
        compared = np.ones(a.shape, bool)
        match op:
            case "sqrt":
                near |= off <= 1  # ours is correctly rounded, its vectors are not
            case "fmod" | "remainder":
                # its vectors give NaN where the quotient is infinite, its other loops what C does
                x, y = (widen(v) for v in arrays)
                compared = np.isfinite(x / y) | ~np.isfinite(x) | ~np.isfinite(y) | (y == 0)
            case "floordiv" if dtype.bytes == 2:
                near |= np.abs(a - b) <= np.maximum(1, 2 * ulp(got).astype(np.float64))  # it rounds in between
            case "lerp":
                near |= np.isfinite(a) & np.isfinite(b)  # its vectors fuse the product and the sum,
                large = np.max([np.abs(v.astype(np.float64)) for v in arrays[:2]], axis=0)
                compared = (large < 2.0 ** (dtype.highest - 8)) | np.isinf(large)  # and overflow elsewhere
            case "erf" | "sigmoid":
                near |= tiny  # its vectors flush, or lose, what is subnormal
            case _:
                pass
    same = (a == b) | (np.isnan(a) & np.isnan(b)) | near
    if op not in EITHER_ZERO:
        same &= ~((a == 0) & (b == 0) & (np.signbit(a) != np.signbit(b))) | (tiny & (OPS[op].ulps > 0) & (a != b))
    return np.flatnonzero(~same & compared)


@pytest.mark.parametrize("op", TABLE, ids=lambda op: op.name)
def test_pointwise_ops_at_special_values(op: Any) -> None:
    compared = 0
    for dtype in DTYPES.values():
        arrays = operands(op.name, op.arity, dtype)
        try:
            got = value(op.name, arrays, dtype)
        except RuleError:
            continue
        expected = torchs(op.name, arrays, dtype)
        if expected is None:
            continue
        wrong = differing(op.name, got, expected, arrays, dtype)
        shown = [(*(x[i] for x in arrays), "gives", got[i], "torch", expected[i]) for i in wrong[:5]]
        assert not len(wrong), (dtype, len(wrong), shown)
        compared += 1
    assert compared


@pytest.mark.parametrize("number", [0.5, -0.5, 1, -1, 2, 3, -2, 0.0, 2.5, -3, np.inf, -np.inf, np.nan, 1e30, 1 / 3])
def test_powers_of_numbers_at_special_values(number: float) -> None:
    for name, first in product(("f64", "f32", "bf16", "f16"), (False, True)):
        x = special_values(DTYPES[name])
        if name == "f16" and (abs(number) == 0.5 or abs(number) == 1e30):
            continue  # no root of -inf at 16 bits, unlike at 32; and it refuses what does not fit
        given = to_torch(torch, x, name)
        expected = from_torch(torch, torch.pow(number, given) if first else torch.pow(given, number))[0]
        node: Callable[[Node], Node] = (lambda v: build.pow_(number, v)) if first else (lambda v: build.pow_(v, number))
        got = evaluate_one(node, x)
        wrong = differing("pow", got, expected, [x], DTYPES[name])
        assert not len(wrong), (name, first, [(x[i], "gives", got[i], "torch", expected[i]) for i in wrong[:5]])


@pytest.mark.parametrize("source", DTYPES)
def test_casts_of_special_values(source: str) -> None:
    x = special_values(DTYPES[source])
    for name, target in DTYPES.items():
        got = value("cast", [x], DTYPES[source], {"dtype": target})
        expected = from_torch(
            torch, to_torch(torch, x, source).to(to_torch(torch, special_values(target), name).dtype)
        )[0]
        compared = np.ones(x.shape, bool)
        if DTYPES[source].is_float and target.is_integer:
            info, wide = np.iinfo(target.numpy), x.astype(np.float64)
            compared = (np.trunc(wide) >= info.min) & (np.trunc(wide) <= info.max) & (wide < 2.0**63)
            beyond = np.where(wide > 0, info.max, np.where(wide < 0, info.min, 0))  # NaN is 0
            assert (got[~compared] == beyond[~compared].astype(target.numpy)).all(), (name, got[~compared])
        a, b = ((v.astype(np.float64) if target.is_float else v)[compared] for v in (got, expected))
        with np.errstate(invalid="ignore"):
            same = (a == b) & (np.signbit(a) == np.signbit(b)) if target.is_float else a == b
            same |= (a != a) & (b != b)
        shown = [(x[compared][i], "gives", a[i], "torch", b[i]) for i in np.flatnonzero(~same)[:5]]
        assert same.all(), (name, shown)


REDUCTIONS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda t: t.sum(-1), "prod": lambda t: t.prod(-1), "max": lambda t: t.amax(-1), "min": lambda t: t.amin(-1),
    "mean": lambda t: t.mean(-1), "any": lambda t: t.any(-1), "all": lambda t: t.all(-1),
    "argmax": lambda t: t.argmax(-1), "argmin": lambda t: t.argmin(-1), "cumsum": lambda t: t.cumsum(-1),
    "var": lambda t: t.var(-1),
}  # fmt: skip
OURS: dict[str, Callable[[Node], Node]] = {
    "sum": lambda x: build.sum_(x, -1), "prod": lambda x: build.prod(x, -1), "max": lambda x: build.max_(x, -1),
    "min": lambda x: build.min_(x, -1), "mean": lambda x: build.mean(x, -1), "any": lambda x: build.any_(x, -1),
    "all": lambda x: build.all_(x, -1), "argmax": lambda x: build.argmax(x, -1),
    "argmin": lambda x: build.argmin(x, -1), "cumsum": lambda x: build.cumsum(x, -1), "var": lambda x: build.var(x, -1),
}  # fmt: skip


@pytest.mark.parametrize("op", REDUCTIONS)
def test_reductions_of_special_values(op: str) -> None:
    """Rows of three: what is not a number, infinite, or an index."""
    for name, dtype in DTYPES.items():
        x = np.random.default_rng(1).choice(special_values(dtype), (500, 3))
        try:
            expected = from_torch(torch, REDUCTIONS[op](to_torch(torch, x, name)))[0]
        except (RuntimeError, NotImplementedError):
            continue
        got = evaluate_one(OURS[op], x)
        if name == "u8" and op in ("any", "all"):
            expected = expected.astype(bool)  # torch's one exception
        assert got.dtype == expected.dtype, (name, got.dtype, expected.dtype)
        if not dtype.is_float or got.dtype in (bool, np.int64):
            assert (got == expected).all(), name
            continue
        a, b = got.astype(np.float64), expected.astype(np.float64)
        with np.errstate(all="ignore"):
            largest = np.abs(x.astype(np.float64)).max(-1)
            largest = largest[:, None] if op == "cumsum" else largest
            size = np.maximum(largest, np.nan_to_num(np.abs(b), nan=0, posinf=0))
            near = np.abs(a - b) <= 8 * 2.0**-dtype.digits * size + 8 * 2.0**dtype.lowest
            near |= np.isfinite(a) & np.isfinite(b) & (op == "var")  # it runs Welford's sums
            # At the edge of the range the order of a sum or product, and where it runs, decide whether it overflows.
            edge = (largest >= 2.0 ** (dtype.highest - 1)) & np.isfinite(largest) & (op not in ("max", "min"))
        same = (a == b) | (np.isnan(a) & np.isnan(b)) | near | edge
        wrong = np.flatnonzero(~same.reshape(len(x), -1).all(-1))
        assert not len(wrong), (name, [(x[i], "gives", got[i], "torch", expected[i]) for i in wrong[:5]])


def test_what_kernels_are_held_to_sees_a_nan_and_a_sign() -> None:
    graph, arrays = special_graph(DTYPES["f32"], ("pow", "maximum"))
    results = interpret(graph, arrays)
    assert not unlike_reference(graph, arrays, results)
    (nan, *_), (zero, *_) = np.flatnonzero(np.isnan(results[0])), np.flatnonzero(results[1] == 0)
    results[0][nan], results[1][zero] = 1.0, -results[1][zero]
    assert [line.partition("(")[0] for line in unlike_reference(graph, arrays, results)] == ["pow", "maximum"]
