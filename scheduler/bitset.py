"""Sets of small numbers as bits of an int."""

from collections.abc import Iterable
from functools import lru_cache


@lru_cache(maxsize=1 << 16)
def bits(mask: int) -> tuple[int, ...]:
    """Positions of the bits that are set, lowest first. Cached: a search asks about each set a dozen times."""
    found: list[int] = []
    position = -1
    while mask:
        step = (mask & -mask).bit_length()
        position += step
        mask >>= step
        found.append(position)
    return tuple(found)


def lowest(mask: int) -> int:
    """The lowest bit that is set, as a mask."""
    return mask & -mask


def first(mask: int) -> int:
    """The position of that bit."""
    return lowest(mask).bit_length() - 1


def union(masks: Iterable[int]) -> int:
    """The members of any of the sets."""
    found = 0
    for mask in masks:
        found |= mask
    return found
