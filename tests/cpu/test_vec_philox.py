"""Random numbers of the headers are those of `fusion_ir.arithmetic.philox`, one by one and by whole counters."""

import ctypes

import numpy as np
import pytest

from fusion_ir.arithmetic.philox import uniform
from testing.vec_harness import SPELLINGS, Library, build
from tests.support.whole import in_turn, one_part

WIDTHS = one_part((1, 2, 4, 8, 16, 32, 64, 128), 2, "philox")
RUNS = [w for w in WIDTHS if w >= 4]
LARGEST = (1 << 63) - 1
COUNT = 3 * 128  # of every width a multiple
KEYS = (
    (0, 0, 0),
    (7, -1, 3),  # the counter starts over
    (-1, -2, -3),
    (0x123456789ABCDEF0, (1 << 32) - 5, 0x0FEDCBA987654321),  # a carry from its low word
    (-LARGEST - 1, LARGEST, LARGEST),
    (1 << 32, -(1 << 32) - 1, 1 << 32),
)
STARTS = (0, 4, 2560, (1 << 34) - 64, (1 << 62) - 4, LARGEST - 3 - COUNT)


def source() -> str:
    """Per width: elements start + step * i one by one, elements start + i by whole counters."""
    parameters = "(int64_t seed, int64_t offset, int64_t stream, int64_t start, int64_t step, long n, float* out)"
    each = "add_(mul_(iota_<int64_t, {w}>(i), splat<{w}>(step)), splat<{w}>(start))"
    body = "for (long i = 0; i < n; i += {w}) store<{w}, 1>(out + i, {value});"
    lines: list[str] = []
    for w in WIDTHS:
        value = f"uniform_<{w}>(seed, offset, stream, {each.format(w=w)})"
        lines.append(f'extern "C" void each_{w}{parameters} {{ {body.format(w=w, value=value)} }}')
    for w in RUNS:
        value = f"uniform_run<{w}>(seed, offset, stream, start + i)"
        lines.append(f'extern "C" void run_{w}{parameters} {{ (void)step; {body.format(w=w, value=value)} }}')
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module", params=in_turn(SPELLINGS, 2, "philox"), ids=lambda s: s.name)
def library(request: pytest.FixtureRequest) -> Library:
    if not request.param.available():
        pytest.skip(f"no {request.param.compiler[0]}")
    return build(source(), request.param)


def drawn(library: Library, name: str, key: tuple[int, int, int], start: int, step: int = 1) -> np.ndarray:
    out = np.full(COUNT, np.nan, np.float32)
    numbers = [ctypes.c_int64(x) for x in (*key, start, step)]
    library.symbol(name)(*numbers, ctypes.c_long(COUNT), ctypes.c_void_p(out.ctypes.data))
    return out


def expected(key: tuple[int, int, int], start: int, step: int = 1) -> np.ndarray:
    seed, offset, stream = key
    last = (start % 4) + step * (COUNT - 1)
    return uniform(seed, offset + start // 4, stream, last + 1)[start % 4 :: step]


@pytest.mark.parametrize("width", RUNS)
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.soak
def test_whole_counters(key: tuple[int, int, int], width: int, library: Library) -> None:
    for start in STARTS:
        got = drawn(library, f"run_{width}", key, start)
        np.testing.assert_array_equal(got, expected(key, start), f"from {start}")


@pytest.mark.soak
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("key", KEYS)
def test_one_by_one(key: tuple[int, int, int], width: int, library: Library) -> None:
    for start in STARTS[:-1]:
        for first, step in ((start, 1), (start + 1, 1), (start + 3, 5)):
            got = drawn(library, f"each_{width}", key, first, step)
            np.testing.assert_array_equal(got, expected(key, first, step), f"from {first} by {step}")


def test_starts_cross_the_low_word_of_the_counter() -> None:
    """The cases above hold what they are there for."""
    first = [(start // 4 + offset) % 2**64 for _, offset, _ in KEYS for start in STARTS]
    last = [(a + COUNT // 4 - 1) % 2**64 for a in first]
    assert any(a >> 32 != b >> 32 for a, b in zip(first, last, strict=True))
    assert any(b < a for a, b in zip(first, last, strict=True))
