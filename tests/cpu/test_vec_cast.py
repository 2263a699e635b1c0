"""Casts between all pairs of types against fusion_ir.arithmetic.conversions.round_to: every value of the types of up to
16 bits."""

import numpy as np
import pytest

from fusion_ir.arithmetic.conversions import round_to
from fusion_ir.dtype import DTYPES, DType
from testing.vec_compare import differing
from testing.vec_harness import CTYPE, Function, Library, build_functions, every_value, random_bits, specials
from tests.support.whole import one_part

TYPES = tuple(DTYPES.values())
WIDTHS = (1, 8, 32, 64, 128)
EVERY = [
    Function(f"cast_{a}_{b}_{w}", f"cast<{CTYPE[b.name]}>({{0}})", (a,), b, w)
    for a in TYPES
    for b in TYPES
    for w in WIDTHS
]
CASTS = one_part(EVERY, 40, "casts")
# bf16 in registers: back to floats, and floats that are bf16.
BF16 = DTYPES["bf16"]
EXACT = [Function(f"widen_{w}", "widen({0})", (BF16,), DTYPES["f32"], w) for w in WIDTHS]
NARROWING = [f for f in EVERY if f.name in {f"cast_f32_{t}_8" for t in TYPES if t.is_float and t.bytes <= 2}]
EXACT += [Function(f"exact_{w}", "cast_exact<bf16>(cast<float>({0}))", (BF16,), BF16, w) for w in WIDTHS]


@pytest.fixture(scope="module")
def library() -> Library:
    return build_functions({f.name: f for f in (*CASTS, *NARROWING, *EXACT)}.values())


def halfway(dtype: DType, source: DType) -> np.ndarray:
    """Values of `source` around the midpoints between neighbours of a narrow float type."""
    values = np.unique(every_value(dtype).astype(np.float64))
    values = values[np.isfinite(values)]
    middle = ((values[:-1] + values[1:]) / 2).astype(source.numpy)
    return np.concatenate(
        [np.nextafter(middle, source.numpy.type(-np.inf)), middle, np.nextafter(middle, source.numpy.type(np.inf))]
    )


def values_of(source: DType, result: DType) -> np.ndarray:
    """Every value of a small type; of a large one special values, random bits, and what rounds to even."""
    if source.bytes <= 2:
        return every_value(source)
    rng = np.random.default_rng(source.bytes)
    parts = [specials(source), random_bits(source, 50000, rng)]
    if source.is_float:
        parts.append((rng.standard_normal(20000) * 2.0 ** rng.integers(-30, 70, 20000)).astype(source.numpy))
        if result.is_float and result.bytes <= 2:
            parts.append(halfway(result, source))
    else:
        parts += [rng.integers(-300, 300, 2000).astype(source.numpy)]
        parts += [random_bits(source, 20000, rng) >> rng.integers(0, 8 * source.bytes, 20000).astype(source.numpy)]
        if source.bytes == 8:  # halves of a unit of f32 and f64
            parts += [(np.int64(1) << np.int64(e)) + np.arange(-40, 40) * (1 << max(0, e - 26)) for e in range(24, 62)]
    return np.concatenate(parts).astype(source.numpy)


@pytest.mark.parametrize("function", CASTS, ids=lambda f: f.name)
@pytest.mark.soak
def test_cast(function: Function, library: Library) -> None:
    (source,) = function.operands
    with np.errstate(all="ignore"):
        x = values_of(source, function.result)
        expected = round_to(x, function.result)
    got = library.run(function, x)
    wrong = differing(got, expected)
    assert wrong.size == 0, (wrong.size, [(x[i], "gave", got[i], "expected", expected[i]) for i in wrong[:5]])


@pytest.mark.parametrize("function", EXACT, ids=lambda f: f.name)
def test_nothing_is_rounded(function: Function, library: Library) -> None:
    x = every_value(BF16)
    assert differing(library.run(function, x), round_to(x, function.result)).size == 0


@pytest.mark.parametrize("dtype", [t for t in TYPES if t.is_float and t.bytes <= 2], ids=repr)
def test_nan_of_a_narrow_float_stays_nan(dtype: DType, library: Library) -> None:
    nan = np.array([np.nan, -np.nan], np.float32)
    (function,) = (f for f in NARROWING if f.result == dtype)
    assert np.isnan(library.run(function, nan).astype(np.float32)).all()
