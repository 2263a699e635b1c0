"""Philox4x32-10 against the vectors that its authors published, and the shape of `uniform`."""

import numpy as np
import pytest

from fusion_ir.arithmetic.philox import philox4x32, uniform
from fusion_ir.core.extent import shape_of
from fusion_ir.dtype import i64
from fusion_ir.ops import make
from testing.tensors import evaluate_one

ONES = 0xFFFFFFFF
PUBLISHED = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ONES,) * 4, (ONES,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def words(counter: tuple[int, ...], key: tuple[int, int]) -> tuple[int, ...]:
    a, b, c, d = (np.array([w], np.uint64) for w in counter)
    return tuple(int(w[0]) for w in philox4x32((a, b, c, d), key))


@pytest.mark.parametrize(("counter", "key", "expected"), PUBLISHED)
def test_published_vectors(counter, key, expected) -> None:
    assert words(counter, key) == expected


def test_uniform_places_seed_offset_stream_and_index() -> None:
    seed, offset, stream = 0x299F31D0_A4093822, 0x85A308D3_243F6A88 - 5, 0x03707344_13198A2E
    got = uniform(seed, offset, stream, 24)
    expected = [(w >> 8) * 2.0**-24 for w in PUBLISHED[2][2]]
    assert got[20:24].tolist() == expected  # block 5
    assert got.dtype == np.float32
    assert got.min() >= 0
    assert got.max() < 1


def test_uniform_is_a_function_of_the_linear_index() -> None:
    assert uniform(1, 2, 3, 1000)[:17].tolist() == uniform(1, 2, 3, 17).tolist()
    assert uniform(1, 2, 3, 1000)[4:].tolist() == uniform(1, 3, 3, 996).tolist()
    for other in ((2, 2, 3), (1, 2, 4), (2**32 + 1, 2, 3), (1, 2, 2**32 + 3), (-1, 2, 3)):
        assert uniform(*other, 1000).tolist() != uniform(1, 2, 3, 1000).tolist()


def test_offsets_wrap_at_64_bits() -> None:
    assert uniform(7, -1, 0, 8)[4:].tolist() == uniform(7, 0, 0, 4).tolist()


def test_uniform_is_uniform() -> None:
    x = uniform(3, 0, 0, 100_000)
    counts = np.histogram(x, bins=16, range=(0, 1))[0]
    assert abs(float(x.mean()) - 0.5) < 0.005
    assert counts.min() > 5_900
    assert counts.max() < 6_600


def test_the_op_reads_seed_and_offset_from_tensors() -> None:
    attrs = {"shape": shape_of([3, 5]), "stream": 9}
    got = evaluate_one(lambda s, o: make("uniform", [s, o], attrs), np.array(4, np.int64), np.array(6, np.int64))
    assert got.tolist() == uniform(4, 6, 9, 15).reshape(3, 5).tolist()
    assert i64.numpy == np.int64


def test_many_numbers_are_drawn_in_blocks_of_their_own() -> None:
    """Elements next to where blocks of counters meet, and the last ones, are what they are by themselves."""
    count = 4 * 40_000 + 3
    x = uniform(11, 2**64 - 7, 5, count)
    assert x.shape == (count,)
    for first in (4 * (1 << 14) - 4, 4 * (1 << 15) - 4, count - 7):
        alone = uniform(11, 2**64 - 7 + first // 4, 5, min(8, count - first + first % 4))
        assert x[first - first % 4 :][:8].tolist() == alone.tolist()
