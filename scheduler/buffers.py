"""Temporary buffers: tensors whose lifetimes do not meet share one."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


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
    busy_until: list[float] = []
    for i in sorted(range(len(tensors)), key=lambda i: (tensors[i].first, -tensors[i].bytes, i)):
        tensor = tensors[i]
        free = [b for b, last in enumerate(busy_until) if last < tensor.first and not tensor.kept]
        holding = [b for b in free if bytes_[b] >= tensor.bytes]
        if holding:
            b = min(holding, key=lambda b: (bytes_[b], b))
        elif free:
            b = max(free, key=lambda b: (bytes_[b], -b))
            bytes_[b] = tensor.bytes
        else:
            b = len(bytes_)
            bytes_.append(tensor.bytes)
            busy_until.append(0)
        busy_until[b] = math.inf if tensor.kept else tensor.last
        buffer_of[i] = b
    return tuple(buffer_of), tuple(bytes_)
