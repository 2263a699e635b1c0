"""Pieces of a tensor that are computed one at a time, so that what lies in between stays in cache."""

from collections.abc import Iterator, Sequence
from math import prod

import numpy as np

# Operands and temporaries of a pointwise op over so many elements stay in the second-level cache.
BLOCK_ELEMENTS = 1 << 17


def blocks(shape: Sequence[int], elements: int = BLOCK_ELEMENTS) -> Iterator[tuple[slice | int, ...]]:
    """Indices that cut a tensor into pieces of at most about so many elements, each contiguous if the tensor is."""
    axis = next((a for a in range(len(shape)) if prod(shape[a + 1 :]) <= elements), None)
    if axis is None or prod(shape) <= elements:
        yield (...,)  # type: ignore[misc]
        return
    step = max(1, elements // max(prod(shape[axis + 1 :]), 1))
    for outer in np.ndindex(*shape[:axis]):
        for start in range(0, shape[axis], step):
            yield (*outer, slice(start, start + step))
