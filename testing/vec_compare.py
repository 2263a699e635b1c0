"""How far results are off: in bits, and in units of the last place of exact values."""

import math
from collections.abc import Callable

import numpy as np

from fusion_ir.arithmetic.conversions import dtype_of, ulp
from fusion_ir.ops import Op

Extended = np.longdouble


def differing(got: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Positions at which two arrays differ in bits, all NaNs being equal."""
    assert got.dtype == expected.dtype and got.shape == expected.shape
    bits = np.dtype(f"u{got.dtype.itemsize}")
    different = np.ascontiguousarray(got).view(bits) != np.ascontiguousarray(expected).view(bits)
    if dtype_of(got).is_float:
        with np.errstate(all="ignore"):
            different &= ~(np.isnan(got.astype(np.float64)) & np.isnan(expected.astype(np.float64)))
    return np.flatnonzero(different)


def _power(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """C's pow. The extended function of some C libraries is wrong for infinite x and large y."""
    return np.where(np.isinf(x), np.power(x.astype(np.float64), y.astype(np.float64)), np.power(x, y))


def _each(function: Callable[[float], float]) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: np.array([function(v) for v in x.astype(np.float64).tolist()], Extended)


# Functions of numpy under another name, and those that it lacks (math's are within 1 ulp of f64).
_EXTENDED: dict[str, Callable[..., np.ndarray]] = {
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "atan2": np.arctan2,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "pow": _power, "erf": _each(math.erf), "erfc": _each(math.erfc),
}  # fmt: skip


def exact(op: Op, *arrays: np.ndarray) -> np.ndarray:
    """The op's value in more precision than its operands have: f64 for f32, extended for f64."""
    with np.errstate(all="ignore"):
        if arrays[0].dtype == np.float32:
            return op.reference(None, *(a.astype(np.float64) for a in arrays))  # type: ignore[arg-type]
        function = _EXTENDED.get(op.name) or getattr(np, op.name)
        return function(*(a.astype(Extended) for a in arrays))


def ulps_off(got: np.ndarray, value: np.ndarray) -> np.ndarray:
    """|got - value| in units of the last place of got's type at `value`; infinite where a NaN or a sign is wrong.

    An infinity counts as the number that would follow the largest one.
    """
    with np.errstate(all="ignore"):
        rounded = value.astype(got.dtype)
        most = np.finfo(got.dtype).max
        unit = ulp(np.clip(np.where(np.isnan(rounded), 0, rounded), -most, most).astype(got.dtype)).astype(value.dtype)
        beyond = value.dtype.type(most) + ulp(np.array([most])).astype(value.dtype)[0]
        off = np.abs(np.clip(got.astype(value.dtype), -beyond, beyond) - np.clip(value, -beyond, beyond)) / unit
        off = np.where(np.isnan(value) | np.isnan(got), np.where(np.isnan(value) & np.isnan(got), 0, np.inf), off)
        sign_wrong = (np.signbit(got) != np.signbit(rounded)) & ~np.isnan(value)
        return np.where(sign_wrong, np.inf, off).astype(np.float64)
