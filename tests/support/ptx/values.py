"""Types of PTX in numpy, and arithmetic that rounds once."""

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]
LANES = 32
DTYPES: dict[str, type[np.generic]] = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
    "b8": np.uint8, "u8": np.uint8, "s8": np.int8, "b16": np.uint16, "u16": np.uint16, "s16": np.int16,
    "b32": np.uint32, "u32": np.uint32, "s32": np.int32, "b64": np.uint64, "u64": np.uint64, "s64": np.int64,
    "f16x2": np.uint32, "bf16x2": np.uint32, "tf32": np.uint32,
}  # fmt: skip
UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
NAN_F32 = np.uint32(0x7FFFFFFF)  # the NaN of max.NaN, ex2.approx, ...


def flushed(x: Array) -> Array:
    """Denormals of f32 as zeros of their sign: .ftz."""
    return np.where(np.abs(x) < np.float32(2.0**-126), np.copysign(np.float32(0), x), x).astype(np.float32)


def odd(high: Array, low: Array) -> Array:
    """high + low of f64, low below half an ulp of high, rounded to odd: rounded once more, to fewer than 52 bits, it is
    what the exact sum rounds to."""
    bits = high.view(np.int64)
    inexact = (low != 0) & np.isfinite(high) & (bits & 1 == 0)
    away = (low > 0) == (high > 0)
    return np.where(inexact, np.where(away, bits + 1, bits - 1), bits).view(np.float64)


def sum_to_odd(a: Array, b: Array) -> Array:
    """a + b of f64, rounded to odd (Knuth's two-sum, Boldo and Melquiond's rounding)."""
    s = a + b
    v = s - a
    low = np.where(np.isfinite(s), (a - (s - v)) + (b - v), 0.0)
    return odd(s, low)


def fma32(a: Array, b: Array, c: Array) -> Array:
    """a b + c of f32, rounded once: the product is exact in f64."""
    return sum_to_odd(a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)).astype(np.float32)


def fma64(a: Array, b: Array, c: Array) -> Array:
    """a b + c of f64, rounded once."""
    found = a * b + c
    for i in np.flatnonzero(np.isfinite(a) & np.isfinite(b) & np.isfinite(c)):
        exact = Fraction(float(a[i])) * Fraction(float(b[i])) + Fraction(float(c[i]))
        if exact:
            try:
                found[i] = float(exact)
            except OverflowError:
                found[i] = np.inf if exact > 0 else -np.inf
    return found


def to_bf16(x: Array) -> Array:
    """f64, exact or rounded to odd, to nearest bf16, by an f32 that is rounded to odd. A NaN is 0x7fff."""
    near = x.astype(np.float32)
    bits = near.view(np.uint32)
    inexact = np.isfinite(x) & (near.astype(np.float64) != x)
    bits = np.where(inexact, (bits - (np.abs(near.astype(np.float64)) > np.abs(x))) | 1, bits).astype(np.uint32)
    upper = (bits + np.uint32(0x7FFF) + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(x), 0x7FFF, upper).astype(np.uint16)


def to_f16(x: Array) -> Array:
    """f64, exact or rounded to odd, to nearest f16. A NaN is 0x7fff."""
    return np.where(np.isnan(x), np.uint16(0x7FFF), x.astype(np.float16).view(np.uint16)).astype(np.uint16)


def from_bf16(bits: Array) -> Array:
    """Bits of bf16 as f64."""
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def to_tf32(x: Array) -> Array:
    """f32 at 10 bits of mantissa, ties away from zero, as bits: cvt.rna.tf32.f32."""
    bits = x.view(np.uint32)
    rounded = (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(x), rounded, np.where(np.isnan(x), NAN_F32, bits)).astype(np.uint32)
