"""Casts: exhaustively over 16 bits, against rules written out here and against ml_dtypes."""

import ml_dtypes
import numpy as np
import pytest

from fusion_ir.arithmetic.conversions import round_to, ulp, widen
from fusion_ir.dtype import DTYPES, DType, bf16, f16, f32, f64, i8, i32, i64
from testing.tensors import same_bits

ALL_16_BITS = np.arange(1 << 16, dtype=np.uint16)
NARROW_EDGES = [448, 464, 465, 57344, 61439.99, 61440, 65504, 65519.996, 65520, 2.0**-9, 2.0**-10, 2.0**-16, 2.0**-17]
WIDE_EDGES = [0.0, np.inf, np.nan, 1e-45, 1.1754942e-38, 3.4028235e38, 1 + 2.0**-8, 1 + 2.0**-7 + 2.0**-8]
EDGES = np.array(NARROW_EDGES + WIDE_EDGES, np.float32)


def random_f32(count: int = 200_000) -> np.ndarray:
    """Every exponent and sign, infinities, quiet NaNs."""
    bits = np.random.default_rng(0).integers(0, 1 << 32, count, dtype=np.uint32).view(np.float32)
    return np.concatenate([np.where(np.isnan(bits), np.float32(np.nan), bits), EDGES, -EDGES])


@pytest.mark.parametrize("dtype", [f16, bf16], ids=str)
def test_every_16_bit_pattern_survives_f32(dtype) -> None:
    x = ALL_16_BITS.view(dtype.numpy)
    assert same_bits(round_to(widen(x), dtype), x)


@pytest.mark.parametrize("dtype", [f16, bf16], ids=str)
@pytest.mark.parametrize("target", DTYPES.values(), ids=str)
def test_every_16_bit_pattern_to_every_dtype(dtype, target) -> None:
    """Casting from 16 bits is casting the same value from f32."""
    x = ALL_16_BITS.view(dtype.numpy)
    assert same_bits(round_to(x, target), round_to(x.astype(np.float32), target))


def test_bf16_rounds_to_nearest_even_on_the_bits() -> None:
    x = random_f32()
    u = x.view(np.uint32).astype(np.uint64)
    expected = ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16).view(ml_dtypes.bfloat16)
    got = round_to(x, bf16)
    number = ~np.isnan(x)
    assert same_bits(got[number], expected[number])
    assert np.isnan(got[~number].astype(np.float32)).all()


@pytest.mark.parametrize("name", ["f16", "f8e4m3", "f8e5m2"])
def test_narrow_floats_take_the_nearest_value(name: str) -> None:
    """Against a search over all values of the dtype; ties go to the even bit pattern."""
    dtype = DTYPES[name]
    patterns = np.arange(1 << (8 * dtype.bytes), dtype=np.uint32).astype(f"u{dtype.bytes}")
    values = patterns.view(dtype.numpy).astype(np.float64)
    finite = np.isfinite(values) & ~np.signbit(values)
    order = np.argsort(values[finite])
    grid, bits = values[finite][order], patterns[finite][order]
    step = grid[-1] - grid[-2]
    with np.errstate(all="ignore"):
        x = np.abs(random_f32(20_000)) * np.float32(1)
        scaled = np.exp2(np.random.default_rng(1).uniform(-20, 17, 20_000)).astype(np.float32)
    x = np.concatenate([x, scaled, (grid[:-1] + np.diff(grid) / 2).astype(np.float32)])
    x = x[x.astype(np.float64) < grid[-1] + step / 2]
    above = np.clip(np.searchsorted(grid, x.astype(np.float64)), 1, len(grid) - 1)
    down, up = x - grid[above - 1], grid[above] - x
    take_up = (up < down) | ((up == down) & (bits[above] % 2 == 0))
    expected = np.where(take_up, bits[above], bits[above - 1]).astype(f"u{dtype.bytes}")
    np.testing.assert_array_equal(round_to(x, dtype).view(f"u{dtype.bytes}"), expected)
    np.testing.assert_array_equal(round_to(-x, dtype).astype(np.float32), -round_to(x, dtype).astype(np.float32))


def test_overflow_of_narrow_floats() -> None:
    x = np.array([65520, 1e9, np.inf], np.float32)
    assert np.isposinf(round_to(x, f16)).all()
    assert round_to(np.concatenate([x, -x, [np.nan]]), DTYPES["f8e4m3"]).view(np.uint8).tolist() == (
        [0x7E] * 3 + [0xFE] * 3 + [0x7F]
    )
    assert np.isposinf(round_to(x, DTYPES["f8e5m2"]).astype(np.float32)).all()


def test_f64_reaches_16_bits_by_way_of_f32() -> None:
    """1 + 2^-11 + 2^-40 is above the tie in f64 but on it in f32, so it goes down to 1."""
    x = np.array([1 + 2.0**-11 + 2.0**-40])
    assert float(round_to(x, f16)[0]) == 1.0
    assert float(x.astype(np.float16)[0]) != 1.0


@pytest.mark.parametrize("source", [f32, f64], ids=str)
@pytest.mark.parametrize("target", [t for t in DTYPES.values() if t.is_integer], ids=str)
def test_float_to_integer_truncates_and_saturates(source, target) -> None:
    info = np.iinfo(target.numpy)
    edges = [float(info.max), float(info.max) + 1, float(info.min), float(info.min) - 1, -0.5, 0.999, -1.0, 1e30, -1e30]
    x = np.concatenate([random_f32(1000), np.array(edges)]).astype(source.numpy)
    got = round_to(x, target)
    for value, result in zip(x.tolist(), got.tolist(), strict=True):
        expected = (
            0 if np.isnan(value) else info.max if value > info.max else info.min if value < info.min else int(value)
        )
        assert result == min(expected, info.max), value


def test_integers_wrap_and_bool_is_not_zero() -> None:
    assert round_to(np.array([300, -129, 2**31]), i8).tolist() == [44, 127, 0]
    assert round_to(np.array([2**31, -(2**31) - 1]), i32).tolist() == [-(2**31), 2**31 - 1]
    assert round_to(np.array([0.0, -0.0, np.nan, 1e-45], np.float32), DTYPES["bool"]).tolist() == [
        False,
        False,
        True,
        True,
    ]
    assert round_to(np.array([True, False]), bf16).astype(float).tolist() == [1.0, 0.0]


def test_i64_rounds_to_f32_then_to_16_bits() -> None:
    x = np.array([2**24 + 1, 2**24 + 3, 2**62 + 1, 2049, 2051, 4098])
    assert same_bits(round_to(x, f32), np.array([float(np.float32(v)) for v in x.tolist()], np.float32))
    # 2^11 + 1 is a tie in f16 after f32 holds it exactly.
    assert round_to(x[3:5], f16).tolist() == [2048.0, 2052.0]
    assert same_bits(round_to(x, bf16), round_to(round_to(x, f32), bf16))


@pytest.mark.parametrize("name", [name for name, row in DTYPES.items() if row.is_float])
def test_ulp_is_the_distance_to_the_next_value(name: str) -> None:
    dtype = DTYPES[name]
    if dtype.bytes > 2:
        x = np.abs(random_f32(1000)).astype(dtype.numpy)
        x = x[np.isfinite(x) & (x < 1e38)]
        assert same_bits(ulp(x), np.nextafter(x, x.dtype.type(np.inf)) - x)
        return
    patterns = np.arange(1 << (8 * dtype.bytes - 1), dtype=np.uint32).astype(f"u{dtype.bytes}")
    values = patterns.view(dtype.numpy)
    wide = values.astype(np.float32)
    last = int(np.isfinite(wide).sum()) - 1
    np.testing.assert_array_equal(ulp(values)[:last], np.diff(wide[: last + 1]))
    assert (ulp(values)[~np.isfinite(wide)] == 0).all()


def test_casts_of_integers_between_each_other() -> None:
    x = np.array([-(2**63), -1, 0, 255, 2**63 - 1])
    assert same_bits(round_to(x, DTYPES["u8"]), np.array([0, 255, 0, 255, 255], np.uint8))
    assert same_bits(round_to(np.array([200], np.uint8), i64), np.array([200], np.int64))


def values_of(source: DType) -> np.ndarray:
    """Every value of a type of 8 or 16 bits; of a wider one all patterns of one run of ones or zeros."""
    if source.kind == "bool":
        return np.array([False, True])
    width = 8 * source.bytes
    if source.bytes <= 2:
        return np.arange(1 << width, dtype=f"u{source.bytes}").view(source.numpy)
    runs = {(1 << high) - (1 << low) for high in range(width + 1) for low in range(high)}
    patterns = runs | {(1 << width) - 1 - run for run in runs}
    return np.array(sorted(patterns), f"u{source.bytes}").view(source.numpy)


@pytest.mark.parametrize("source", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("target", DTYPES.values(), ids=DTYPES)
def test_a_type_holds_another_where_every_value_comes_through(source: DType, target: DType) -> None:
    x = values_of(source)
    there = round_to(x, target)
    # Python compares integers with floats by value; NumPy's own floats of 8 and 16 bits go by way of f64.
    with np.errstate(invalid="ignore"):  # signalling NaNs
        before, after = ((v if v.dtype.kind in "iub" else v.astype(np.float64)).tolist() for v in (x, there))
    kept = all(a == b or (a != a and b != b) for a, b in zip(before, after, strict=True))
    assert target.holds(source) == kept
    if kept:
        assert same_bits(round_to(there, source), round_to(x, source))
