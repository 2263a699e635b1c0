"""Temporary buffers: tensors whose lifetimes do not meet share one."""

import math
from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush


@dataclass(frozen=True)
class Lifetime:
    """A tensor of `bytes`, written by step `first`, read for the last time by step `last`. kept: it stays for runs that
    do not write it again."""

    first: int
    last: int
    bytes: int
    kept: bool = False


def share_buffers(tensors: Sequence[Lifetime]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(buffer of each tensor, bytes of each buffer). A step's reads and writes never share; what is kept shares with
    nothing.

    In the order of writing, each tensor takes the smallest free buffer that holds it, else the largest free one, which
    grows, else a new one.
    """
    buffer_of = [0] * len(tensors)
    bytes_: list[int] = []
    busy: list[tuple[float, int]] = []  # a heap: until which step, buffer
    free: list[tuple[int, int]] = []  # in order: bytes, buffer
    for i in sorted(range(len(tensors)), key=lambda i: (tensors[i].first, -tensors[i].bytes, i)):
        tensor = tensors[i]
        while busy and busy[0][0] < tensor.first:
            b = heappop(busy)[1]
            insort(free, (bytes_[b], b))
        if not free or tensor.kept:
            b = len(bytes_)
            bytes_.append(tensor.bytes)
        else:
            at = bisect_left(free, (tensor.bytes, -1))
            if at == len(free):  # the largest, which grows
                at = bisect_left(free, (free[-1][0], -1))
            _, b = free.pop(at)
            bytes_[b] = max(bytes_[b], tensor.bytes)
        heappush(busy, (math.inf if tensor.kept else tensor.last, b))
        buffer_of[i] = b
    return tuple(buffer_of), tuple(bytes_)
