"""A piece: which atoms one launch computes, and which of their tensors it writes."""

from typing import NamedTuple


class SegmentMask(NamedTuple):
    """Masks. members: atoms, no two of which produce the same tensor. writes: tensors that they produce; others are
    computed for the segment alone, whoever else may need them."""

    members: int
    writes: int
