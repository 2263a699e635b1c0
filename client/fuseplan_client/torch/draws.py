"""Masks of dropout: PyTorch's own bits, drawn from its generator a block at a time where the executor is there.

PyTorch's kernel draws element by element in one thread: 2.7 ms for half a million, which took as long as the rest of a
layer with dropout; in blocks it takes 0.3 ms. A mask depends on no tensor, so that what is before the dropout and what
is behind it are one group.

Numbers are drawn from a copy of the generator's state, which takes the place of the state if that is still what it was:
a thread that draws in the microseconds between gets some of the same numbers.
"""

import math
from collections.abc import Sequence
from functools import lru_cache, partial

import torch
from torch import Tensor

from fuseplan_client.cpu.executor import Executor, the_executor

STATE_BYTES = 5056  # of PyTorch's generator for CPUs: seed, place, 624 words, and normal numbers kept for later
LEAST_ELEMENTS = 4096  # below, PyTorch takes no more than 20 us
PROBED_ELEMENTS = 1500  # more than two blocks


def drawn_mask(sizes: Sequence[int], strides: Sequence[int], kept: float) -> Tensor:
    """A mask of bool that is true with a probability of `kept`: the bits of `bernoulli_`, in whose state the default
    generator is left."""
    return _drawn(torch.empty_strided(sizes, strides, dtype=torch.bool, device="cpu"), kept)


def drawn_mask_like(x: Tensor, kept: float) -> Tensor:
    """`drawn_mask` with the sizes and layout of a tensor."""
    return _drawn(torch.empty_like(x, dtype=torch.bool), kept)


DRAWS = frozenset((drawn_mask, drawn_mask_like))


def _drawn(mask: Tensor, kept: float) -> Tensor:
    executor = the_executor()
    is_dense = mask.untyped_storage().nbytes() == mask.numel()  # drawn in the order of its memory
    if executor is not None and is_dense and mask.numel() >= LEAST_ELEMENTS and _agrees(executor):
        generator = torch.default_generator
        before = generator.get_state()
        after = before.clone()
        executor.draw_below(after.data_ptr(), mask.data_ptr(), mask.numel(), _limit(kept))
        if torch.equal(generator.get_state(), before):  # else another thread drew meanwhile, and these are its numbers
            generator.set_state(after)
            return mask
    return mask.bernoulli_(kept)


def _limit(kept: float) -> int:
    """Numbers below it, of 53 bits, are those that PyTorch takes for true: x 2^-53 < kept."""
    return math.ceil(math.ldexp(kept, 53))


@lru_cache(maxsize=1)
def _agrees(executor: Executor) -> bool:
    """Whether the executor gives the bits of this PyTorch, and leaves its generator as that does."""
    if not executor.draws:
        return False
    generator = torch.Generator()
    bools = partial(torch.empty, dtype=torch.bool, device="cpu")  # whatever the program's default device is
    for kept in (0.1, 0.75):
        generator.manual_seed(5)
        bools(7).bernoulli_(0.5, generator=generator)
        state = generator.get_state()
        if state.numel() != STATE_BYTES:
            return False
        found, expected = (bools(PROBED_ELEMENTS) for _ in range(2))
        executor.draw_below(state.data_ptr(), found.data_ptr(), PROBED_ELEMENTS, _limit(kept))
        expected.bernoulli_(kept, generator=generator)
        if not (torch.equal(found, expected) and torch.equal(state, generator.get_state())):
            return False
    return True
