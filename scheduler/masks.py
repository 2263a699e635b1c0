"""Sets of small numbers as bits of an int."""

from collections.abc import Iterator


def bits(mask: int) -> Iterator[int]:
    """Positions of the bits that are set, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def lowest(mask: int) -> int:
    """The lowest bit that is set, as a mask."""
    return mask & -mask
