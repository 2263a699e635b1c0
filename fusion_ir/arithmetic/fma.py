"""Fused multiply-add on NumPy arrays: a * b + c rounded once, which NumPy lacks and every target has."""

from fractions import Fraction
from math import copysign

import numpy as np

_SPLIT = np.float64(2**27 + 1)  # Veltkamp's constant for 53 bits


def fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a * b + c with one rounding; operands broadcast and are all f32 or all f64.

    f32: the product is exact in f64, and the sum is rounded there. Rounding that to f32 goes wrong only where it lies
    halfway between two f32 and is not exact; there it is moved to the side of the exact value (rounding to odd).
    f64: Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums" (IEEE Trans. Computers, 2008).
    """
    with np.errstate(all="ignore"):
        if a.dtype == np.float32:
            return _fma32(a, b, c)
        return _fma64(*np.broadcast_arrays(a, b, c))


def _two_sum(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """a + b rounded, and its error (Knuth)."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def _to_odd(s: np.ndarray, error: np.ndarray) -> np.ndarray:
    """s + error rounded to odd, where s is s + error rounded to nearest."""
    even = (s.view(np.uint64) & np.uint64(1)) == 0
    move = even & (error != 0) & np.isfinite(s) & np.isfinite(error)
    return np.where(move, np.nextafter(s, np.copysign(np.inf, error)), s)


def _fma32(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    product = np.asarray(a.astype(np.float64) * b)
    total = np.asarray(product + c)
    low = total.view(np.uint64) & np.uint64(0x1FFFFFFF)  # the bits that f32 drops
    halfway = (low == 0x10000000) | (np.abs(total) < 2.0**-126)
    if halfway.any():
        wide = np.broadcast_to(c, total.shape)[halfway].astype(np.float64)
        total[halfway] = _to_odd(*_two_sum(np.broadcast_to(product, total.shape)[halfway], wide))
    return total.astype(np.float32)


def _fma64(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    high, low = _two_product(a, b)
    total, rest = _two_sum(c, low)
    top, left = _two_sum(high, total)
    result = top + _to_odd(*_two_sum(rest, left))
    # Where the splitting could overflow or an error term underflow, exactly; where something is not finite, plainly.
    finite = np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
    zero = (a == 0) | (b == 0)
    sizes = [np.abs(a), np.abs(b), np.abs(a * b), np.maximum(np.abs(c), np.abs(a * b))]
    safe = np.logical_and.reduce([(s > 2.0**-900) & (s < 2.0**900) for s in sizes])
    plain = ~finite | zero
    result = np.where(plain, a * b + c, result)
    for index in zip(*np.nonzero(~safe & ~plain), strict=True):
        exact = Fraction(float(a[index])) * Fraction(float(b[index])) + Fraction(float(c[index]))
        result[index] = _rounded(exact, float(a[index] * b[index] + c[index]))
    return result


def _rounded(exact: Fraction, plain: float) -> float:
    """`exact` in f64, to nearest even; an exact zero has the sign that plain arithmetic gives."""
    if exact == 0:
        return copysign(0.0, plain)
    try:
        return float(exact)
    except OverflowError:
        return float("inf") if exact > 0 else float("-inf")


def _two_product(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """a * b rounded, and its error (Dekker)."""
    product = a * b
    (a1, a0), (b1, b0) = _split(a), _split(b)
    return product, a0 * b0 - (((product - a1 * b1) - a0 * b1) - a1 * b0)


def _split(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """a as a sum of two 26-bit halves (Veltkamp)."""
    scaled = _SPLIT * a
    high = scaled - (scaled - a)
    return high, a - high
