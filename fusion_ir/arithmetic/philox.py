"""Philox4x32-10: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011)."""

import numpy as np

from fusion_ir.arithmetic.threads import side_by_side

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_WORD = 0xFFFFFFFF
_BLOCK = 1 << 14  # counters at a time, whose words stay in the second-level cache


def philox4x32(
    counter: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray], key: tuple[int, int]
) -> tuple[np.ndarray, ...]:
    """Four random words for every counter.

    Counter words are u64 arrays of one shape that hold 32-bit values; so are the results.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        p0, p1 = c0 * np.uint64(_MULTIPLIERS[0]), c2 * np.uint64(_MULTIPLIERS[1])
        c0, c1, c2, c3 = (
            (p1 >> np.uint64(32)) ^ c1 ^ np.uint64(k0),
            p1 & np.uint64(_WORD),
            (p0 >> np.uint64(32)) ^ c3 ^ np.uint64(k1),
            p0 & np.uint64(_WORD),
        )
        k0, k1 = (k0 + _KEY_STEPS[0]) & _WORD, (k1 + _KEY_STEPS[1]) & _WORD
    return c0, c1, c2, c3


def uniform(seed: int, offset: int, stream: int, count: int) -> np.ndarray:
    """f32 in [0, 1) for linear indices 0 ... count-1: (word >> 8) * 2^-24.

    The key is the seed's two words; the counter is {low, high} of (index // 4 + offset), then {low, high} of the
    stream; an element uses word index % 4. All of it wraps at 64 bits.
    """
    result = np.empty((-(-count // 4), 4), np.float32)
    key = seed & _WORD, (seed >> 32) & _WORD

    def draw(first: int) -> None:
        here = result[first : first + _BLOCK]
        index = np.arange(first, first + len(here), dtype=np.uint64) + np.uint64(offset % 2**64)
        ones = np.ones_like(index)
        counter = (
            index & np.uint64(_WORD),
            index >> np.uint64(32),
            ones * np.uint64(stream & _WORD),
            ones * np.uint64((stream >> 32) & _WORD),
        )
        for word, words in enumerate(philox4x32(counter, key)):
            here[:, word] = (words >> np.uint64(8)).astype(np.float32) * np.float32(2.0**-24)

    side_by_side(draw, range(0, len(result), _BLOCK))
    return result.reshape(-1)[:count]
