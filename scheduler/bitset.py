"""Sets of small numbers as bits of an int."""


def bits(mask: int) -> list[int]:
    """Positions of the bits that are set, lowest first."""
    found: list[int] = []
    position = -1
    while mask:
        step = (mask & -mask).bit_length()
        position += step
        mask >>= step
        found.append(position)
    return found


def lowest(mask: int) -> int:
    """The lowest bit that is set, as a mask."""
    return mask & -mask


def first(mask: int) -> int:
    """The position of that bit."""
    return lowest(mask).bit_length() - 1
