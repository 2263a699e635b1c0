"""Temporary buffers: tensors whose lifetimes do not meet share one."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Lifetime:
    """A tensor of `bytes`, written by step `first`, read for the last time by step `last`."""

    first: int
    last: int
    bytes: int


def share_buffers(tensors: Sequence[Lifetime]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(buffer of each tensor, bytes of each buffer). A step's reads and writes never share.

    In the order of writing, each tensor takes the smallest free buffer that holds it, else the largest free one, which
    grows, else a new one.
    """
    buffer_of = [0] * len(tensors)
    bytes_: list[int] = []
    busy_until: list[int] = []
    for i in sorted(range(len(tensors)), key=lambda i: (tensors[i].first, -tensors[i].bytes, i)):
        tensor = tensors[i]
        free = [b for b, last in enumerate(busy_until) if last < tensor.first]
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
        busy_until[b] = tensor.last
        buffer_of[i] = b
    return tuple(buffer_of), tuple(bytes_)
