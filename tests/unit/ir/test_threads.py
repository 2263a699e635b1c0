"""Copies, fills and comparisons in pieces are those of whole arrays, whatever lies between their elements."""

import numpy as np
import pytest

from fusion_ir.arithmetic import threads
from fusion_ir.arithmetic.threads import assign, copied, equal

SHAPES = [(), (0,), (7,), (3, 0, 5), (1000,), (300, 40), (5, 60, 70), (2, 3, 4, 500)]


def laid(shape: tuple[int, ...], how: str, rng: np.random.Generator) -> np.ndarray:
    """An array of that shape, in memory as named."""
    if how == "turned":
        return rng.integers(0, 200, shape[::-1]).astype(np.int16).transpose()
    if how == "gaps":
        return rng.integers(0, 200, (*shape, 3)).astype(np.int16)[..., 1]
    if how == "repeats":
        return np.broadcast_to(rng.integers(0, 200, (*shape[:-1], 1)[: len(shape)]).astype(np.int16), shape)
    return rng.integers(0, 200, shape).astype(np.int16)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("how", ["dense", "turned", "gaps", "repeats"])
def test_pieces_make_the_whole(shape: tuple[int, ...], how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "PIECE_BYTES", 256)  # so that small arrays have many
    monkeypatch.setattr(threads, "THREADS", 3)
    rng = np.random.default_rng(5)
    source = laid(shape, how, rng)
    target = laid(shape, "gaps", rng)
    around = np.array(target.base, copy=True) if target.base is not None else None
    assign(target, source)
    assert np.array_equal(target, source)
    assert equal(target, source)
    if around is not None and target.base is not None and shape:
        assert np.array_equal(target.base[..., (0, 2)], around[..., (0, 2)]), "what lies between is left alone"
    copy = copied(source)
    assert copy.flags.c_contiguous
    assert np.array_equal(copy, source)
    for at in rng.integers(0, max(source.size, 1), 5 if source.size else 0):
        copy.flat[at] += 1
        assert not equal(copy, source)
        copy.flat[at] -= 1
    assign(copy, 9)
    assert (copy == 9).all()


def test_nan_equals_nothing() -> None:
    assert not equal(np.array([np.nan]), np.array([np.nan]))
