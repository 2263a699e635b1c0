"""`divided_`, a division of many by one, gives the bits of `div_`: CUDA's header and that of a CPU."""

from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest

from fusion_ir.dtype import f32
from testing.vec_compare import differing
from testing.vec_harness import (
    SPELLINGS,
    Function,
    Library,
    Spelling,
    build_functions,
    random_bits,
    specials,
)
from tests.support.whole import WHOLE, in_turn, seed

NAMES = ("g++ native", "g++ AVX2", "clang native", "CUDA on the host")
SPELLED = in_turn((s for s in SPELLINGS if s.name in NAMES), 1, "divided")


@dataclass(frozen=True)
class Division:
    """Two functions that divide `width` numbers at once by one: `short` by `divided_`, `long` by `div_`."""

    library: Library
    short: Function
    long: Function
    width: int


@pytest.fixture(scope="module", params=SPELLED, ids=lambda s: s.name)
def division(request: pytest.FixtureRequest) -> Division:
    spelling: Spelling = request.param
    if not spelling.available():
        pytest.skip(f"no {spelling.compiler[0]}")
    width = 2 if spelling.header == "vec_cuda.cuh" else 64
    by = "splat<1>(get({1}, 0))"
    short = Function("short_way", f"divided_({{0}}, {by})", (f32, f32), f32, width)
    long = Function("long_way", f"div_({{0}}, splat<{width}>({by}))", (f32, f32), f32, width)
    return Division(build_functions([short, long], spelling), short, long, width)


def check(division: Division, a: np.ndarray, b: np.ndarray) -> None:
    """Fails where `divided_` and `div_` differ in a bit. a: dividends. b: divisors, one for every `width` dividends."""
    assert a.dtype == b.dtype == np.float32
    assert len(a) % division.width == 0
    b = np.repeat(b[: len(a) // division.width], division.width)
    got, expected = (division.library.run(way, a, b) for way in (division.short, division.long))
    wrong = differing(got, expected)
    assert wrong.size == 0, [(a[i], b[i], got[i], expected[i]) for i in wrong[:5]]


@pytest.mark.soak
def test_special_values(division: Division) -> None:
    edges = np.array([2.0**-20, 2.0**20, 2.0**60, 2.0**-100], np.float32)
    beside = np.concatenate([np.nextafter(edges, np.float32(s)) for s in (0.0, np.inf)])
    values = np.concatenate([specials(f32), edges, beside, -edges])
    pairs = np.array(list(product(values, values)), np.float32)
    for other in (np.float32(1.5), np.float32(-0.0), np.float32(np.nan)):
        beside_it = [np.full(len(pairs), other)] * (division.width - 1)
        check(division, np.stack([pairs[:, 0], *beside_it], 1).reshape(-1), pairs[:, 1])


@pytest.mark.soak
def test_any_bits(division: Division) -> None:
    rng = np.random.default_rng(1)
    check(division, random_bits(f32, 400_000, rng), random_bits(f32, 200_000, rng))


@pytest.mark.soak
@pytest.mark.parametrize("low", [-100.0, -3.0])
def test_ordinary_numbers(low: float, division: Division) -> None:
    """All mantissas, where the short way is taken; sums of so many numbers that are near 1 among the divisors."""
    rng = np.random.default_rng(2)
    size = 2_000_000 if WHOLE else 500_032  # a multiple of every width
    a = (rng.choice([-1, 1], size) * np.exp2(rng.uniform(low, min(-low, 60.0), size))).astype(np.float32)
    b = np.exp2(rng.uniform(max(low, -20.0), 20.0, size // division.width)).astype(np.float32)
    check(division, a, b)


@pytest.mark.soak
def test_quotients_beside_the_middle_of_two_floats(division: Division) -> None:
    """b odd, of 24 bits, and m odd, of 25 bits, with a 2^k = b m +- 1: a / b is as close to the middle m as any."""
    rng = np.random.default_rng(3)
    divisors = np.concatenate([rng.integers(1 << 23, 1 << 24, 200_000), np.arange((1 << 24) - 100_000, 1 << 24)]) | 1
    inverse = divisors.copy()  # mod 2^25, by Newton's iteration: each doubles the number of right bits, from 3 on
    for _ in range(4):
        inverse = inverse * (2 - divisors * inverse) % (1 << 25)
    a_parts: list[np.ndarray] = []
    b_parts: list[np.ndarray] = []
    for sign in (1, -1):
        for middle in (inverse * sign % (1 << 25), inverse * sign % (1 << 24) + (1 << 24)):
            product_ = divisors * middle - sign
            for bits in (24, 25):
                a = product_ >> bits
                fits = (product_ % (1 << bits) == 0) & (a >= 1 << 23) & (a < 1 << 24) & (middle >= 1 << 24)
                a_parts.append(a[fits])
                b_parts.append(divisors[fits])
    a, b = (np.concatenate(parts).astype(np.float32) * np.float32(2.0**-23) for parts in (a_parts, b_parts))
    assert len(a) > 100_000
    if not WHOLE:
        a, b = (values[seed() % 8 :: 8] for values in (a, b))
    check(division, np.repeat(a, division.width), b)
