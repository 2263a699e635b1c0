"""erf of many elements: the f32 that one call of the math library per element gives."""

import math

import numpy as np

from fusion_ir.arithmetic.erf import erf_f32


def test_rounds_to_the_f32_of_the_math_library() -> None:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, 100_000, dtype=np.uint32).view(np.float32)
    halves = (np.arange(1 << 16, dtype=np.uint32) << 16).view(np.float32)
    normal = rng.standard_normal(100_000).astype(np.float32)
    edges = np.array([0.0, -0.0, np.inf, -np.inf, 5.999, 6.0, 7.0, 1e-45, -1e-45], np.float32)
    with np.errstate(all="ignore"):
        x = np.concatenate([bits, halves, normal, edges]).astype(np.float64)
        expected = np.array([math.erf(v) for v in x.tolist()])
        got = erf_f32(x)
    number = ~np.isnan(x)
    assert np.isnan(got[~number]).all()
    np.testing.assert_array_equal(got[number].astype(np.float32), expected[number].astype(np.float32))
    np.testing.assert_array_equal(np.signbit(got[number]), np.signbit(expected[number]))
    np.testing.assert_allclose(got[number], expected[number], rtol=2.0**-50, atol=0)


def test_arrays_of_any_shape() -> None:
    assert erf_f32(np.array(0.5)).shape == ()
    assert erf_f32(np.ones((3, 0))).shape == (3, 0)
