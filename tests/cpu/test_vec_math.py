"""Transcendental functions stay within the ulps that their rows in OPS state, special values included."""

import numpy as np
import pytest

from fusion_ir.dtype import DType
from fusion_ir.ops import OPS, Op
from testing.vec_compare import Extended, exact, ulps_off
from testing.vec_harness import FLOATS, Function, Library, build_functions
from testing.vec_ops import INEXACT, functions, math_operands

FUNCTIONS: dict[str, tuple[Op, Function]] = {f.name: (op, f) for w in (1, 2, 16) for op, f in functions(INEXACT, w)}
REFERENCE_ULPS = {("erf", "f64"): 1.0, ("erfc", "f64"): 1.0}  # where the reference itself is not exact


@pytest.fixture(scope="module")
def library() -> Library:
    return build_functions(f for _, f in FUNCTIONS.values())


@pytest.mark.skipif(np.finfo(Extended).nmant < 60, reason="no reference beyond f64 on this machine")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_within_its_ulps(name: str, library: Library) -> None:
    op, function = FUNCTIONS[name]
    dtype: DType = function.operands[0]
    arrays = math_operands(op, dtype, seed=len(name), count=4000)
    got, value = library.run(function, *arrays), exact(op, *arrays)
    off = ulps_off(got, value)
    worst = np.argsort(-off)[:5]
    bound = op.ulps + REFERENCE_ULPS.get((op.name, dtype.name), 0.0)
    assert off[worst[0]] <= bound, [(*(a[i] for a in arrays), "gave", got[i], "exact", value[i], off[i]) for i in worst]


@pytest.mark.parametrize("dtype", FLOATS, ids=repr)
@pytest.mark.parametrize(
    "name", ["sin", "tan", "asin", "atan", "sinh", "tanh", "asinh", "atanh", "expm1", "log1p", "erf"]
)
def test_odd_functions_keep_the_sign_of_zero_and_tiny_numbers(name: str, dtype: DType, library: Library) -> None:
    tiny = np.array([0.0, -0.0, np.finfo(dtype.numpy).smallest_subnormal, -np.finfo(dtype.numpy).tiny], dtype.numpy)
    got = library.run(FUNCTIONS[f"{name}_{dtype}_16"][1], tiny)
    assert (np.signbit(got) == np.signbit(tiny)).all()
    np.testing.assert_allclose(got, tiny, rtol=0.13, atol=0)  # erf x ~ 1.128 x


@pytest.mark.parametrize("dtype", FLOATS, ids=repr)
def test_reduction_of_huge_angles(dtype: DType, library: Library) -> None:
    """Values whose distance to a multiple of pi/2 is the least of their type (Muller et al., Handbook of Floating-Point
    Arithmetic): sin of the first, cos of the second."""
    x = np.array([16367173.0 * 2.0**72 if dtype.name == "f32" else 6381956970095103.0 * 2.0**797], dtype.numpy)
    for name in ("sin", "cos", "tan"):
        got = library.run(FUNCTIONS[f"{name}_{dtype}_16"][1], x)
        assert ulps_off(got, exact(OPS[name], x))[0] <= OPS[name].ulps


def test_powers_follow_c(library: Library) -> None:
    special = np.array(
        [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0, np.inf, -np.inf, np.nan, 2.0**60, -(2.0**60)]
    )
    x, y = (a.ravel() for a in np.meshgrid(special, special))
    for name, c in (("pow", np.power), ("atan2", np.arctan2)):
        with np.errstate(all="ignore"):
            expected = c(x, y)
        got = library.run(FUNCTIONS[f"{name}_f64_16"][1], x, y)
        np.testing.assert_allclose(got, expected, rtol=1e-15)
        same_sign = (np.signbit(got) == np.signbit(expected)) | np.isnan(expected)
        assert same_sign.all(), (name, x[~same_sign], y[~same_sign])
