"""NumPy work side by side, in threads: NumPy releases the interpreter's lock in its loops."""

import os
import threading
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from typing import TypeVar

import numpy as np

from fusion_ir.arithmetic.cache_blocks import BLOCK_ELEMENTS, blocks

THREADS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

SMALL_BYTES = 1 << 16  # compared in no time, unlike what it takes to find out that it is one piece
PIECE_BYTES = 4 << 20  # of memory that one thread copies, fills or compares at a time

T = TypeVar("T")
R = TypeVar("R")


class _Here(threading.local):
    """The state of a thread. beside: it is one of several that work side by side, so it starts no others."""

    beside = False


_here = _Here()


def side_by_side(function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """The results of a function, in order. Raises what the first item that fails raises.

    Each call sees the caller's context (`np.errstate`). Calls from within calls run one after the other.
    """
    work = list(items)
    if len(work) <= 1 or THREADS == 1 or _here.beside:
        return [function(item) for item in work]

    def call(item: T) -> R:
        _here.beside = True
        return function(item)

    with ThreadPoolExecutor(min(THREADS, len(work)), "side by side") as threads:
        futures = [threads.submit(copy_context().run, call, item) for item in work]
        try:
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()


@contextmanager
def for_all() -> Generator[None]:
    """Within the block a thread, for which those beside it wait, may start threads of its own."""
    before, _here.beside = _here.beside, False
    try:
        yield
    finally:
        _here.beside = before


def blockwise(
    function: Callable[..., np.ndarray], dtype: np.dtype, first: np.ndarray, *others: np.ndarray
) -> np.ndarray:
    """An elementwise function of arrays of one shape, with results of `dtype`: large ones block by block, so that
    temporaries stay in cache, and side by side."""
    if first.size <= BLOCK_ELEMENTS:
        return np.asarray(function(first, *others))
    result = np.empty(first.shape, dtype)

    def fill(block: tuple[slice | int, ...]) -> None:
        result[block] = function(first[block], *(x[block] for x in others))

    side_by_side(fill, blocks(first.shape))
    return result


def assign(target: np.ndarray, value: np.ndarray | int) -> None:
    """`target[...] = value`: a large array's pieces side by side. Pages that nobody touched yet take most of the time,
    and the system hands them out to several threads at once."""
    value = np.broadcast_to(np.asarray(value, target.dtype), target.shape)

    def put(piece: tuple[slice | int, ...]) -> None:
        target[piece] = value[piece]

    side_by_side(put, _pieces(target))


def copied(array: np.ndarray) -> np.ndarray:
    """A dense copy, a large array's pieces side by side."""
    result = np.empty(array.shape, array.dtype)
    assign(result, array)
    return result


def equal(a: np.ndarray, b: np.ndarray) -> bool:
    """`np.array_equal(a, b)` of arrays of one shape, a large array's pieces side by side."""
    if a.nbytes <= SMALL_BYTES:
        return bool(np.array_equal(a, b))
    return all(side_by_side(lambda piece: np.array_equal(a[piece], b[piece]), _pieces(a)))


def _pieces(array: np.ndarray) -> list[tuple[slice | int, ...]]:
    """Indices of pieces that span about `PIECE_BYTES` each, gaps between elements included."""
    span = array.itemsize + sum((n - 1) * abs(s) for n, s in zip(array.shape, array.strides, strict=True))
    return list(blocks(array.shape, max(1, PIECE_BYTES * array.size // max(span, array.nbytes, 1))))
