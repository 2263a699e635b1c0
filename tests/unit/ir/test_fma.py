"""The emulated fma against exact rational arithmetic."""

from fractions import Fraction

import numpy as np
import pytest

from fusion_ir.arithmetic.fma import fma


def exact(a: float, b: float, c: float, dtype: np.dtype) -> float:
    """a b + c rounded once: the two neighbours of the f64 result in `dtype` are compared with the exact value."""
    value = Fraction(a) * Fraction(b) + Fraction(c)
    if value == 0:
        return float(dtype.type(a) * dtype.type(b) + dtype.type(c))
    if dtype == np.float64:
        return float(value)  # Fraction to float rounds correctly
    near = np.float32(float(value))
    candidates = [near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(-np.inf))]
    best = min(abs(Fraction(float(n)) - value) for n in candidates)
    ties = [n for n in candidates if abs(Fraction(float(n)) - value) == best]
    return float(ties[0] if len(ties) == 1 else next(n for n in ties if int(n.view(np.uint32)) % 2 == 0))


def check(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    got = fma(a, b, c)
    for x, y, z, r in zip(a.tolist(), b.tolist(), c.tolist(), got.tolist(), strict=True):
        assert r == exact(x, y, z, a.dtype), (x, y, z)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_random_operands(dtype: type) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(4000).astype(dtype) for _ in range(2))
    c = (rng.standard_normal(4000) * np.exp2(rng.integers(-60, 60, 4000))).astype(dtype)
    check(a, b, c)
    check(a, b, (-(a * b)).astype(dtype))  # what is left is the rounding error of the product


def test_f32_halfway_cases_that_rounding_twice_gets_wrong() -> None:
    """a b = 2^-24 (1 - 2^-36) brings c just below the middle of two f32; f64 rounds that onto the middle, then up."""
    c = (1 + 2.0**-23 * np.random.default_rng(1).integers(0, 1 << 22, 2000)).astype(np.float32)
    a = np.full(c.shape, 2.0**-12 * (1 - 2.0**-18), np.float32)
    b = np.full(c.shape, 2.0**-12 * (1 + 2.0**-18), np.float32)
    for sign in (np.float32(1), np.float32(-1)):
        check(sign * a, b, sign * c)
        np.testing.assert_array_equal(fma(sign * a, b, sign * c), sign * c)
        twice = (sign * a.astype(np.float64) * b + sign * c).astype(np.float32)
        assert (twice != sign * c).mean() > 0.4  # the odd ones


def test_f32_denormals_and_extremes() -> None:
    rng = np.random.default_rng(2)
    scale = np.exp2(rng.integers(-80, -60, 2000)).astype(np.float32)
    a, b = (rng.standard_normal(2000).astype(np.float32) * scale for _ in range(2))
    check(a, b, (rng.standard_normal(2000) * 1e-41).astype(np.float32))


def test_f64_denormals_and_large_operands() -> None:
    rng = np.random.default_rng(3)
    a = rng.standard_normal(300) * np.exp2(rng.integers(-540, -500, 300))
    b = rng.standard_normal(300) * np.exp2(rng.integers(-540, -500, 300))
    check(a, b, rng.standard_normal(300) * 1e-310)
    big = rng.standard_normal(300) * 2.0**1000
    check(big, np.full(300, 2.0**-30), big)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_not_finite(dtype: type) -> None:
    inf, nan = np.inf, np.nan
    a, b, c = (
        np.array(v, dtype)
        for v in ([inf, inf, 0, nan, 1, -0.0, 0.0], [1, 0, inf, 1, 1, 1, -1], [1, 1, 1, 1, -inf, -0.0, -0.0])
    )
    with np.errstate(invalid="ignore"):
        expected = a.astype(np.float64) * b + c
    np.testing.assert_array_equal(fma(a, b, c), expected.astype(dtype))
    assert np.signbit(fma(a, b, c)[-2:]).all()
    most = np.array([np.finfo(dtype).max], dtype)
    assert np.isposinf(fma(most, most, most)).all()
    assert fma(most, np.array([2], dtype), -most)[0] == most[0]
