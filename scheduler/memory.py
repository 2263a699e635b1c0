"""Bytes of temporaries that are alive at once while a cover is executed."""

from collections.abc import Iterable, Sequence

from scheduler.masks import bits
from scheduler.piece import Piece


class Memory:
    """`bytes_`: by tensor. Those in `elsewhere` take none of it: callers give room for outputs."""

    def __init__(self, bytes_: Sequence[int], elsewhere: int) -> None:
        self._bytes = bytes_
        self._elsewhere = elsewhere
        self._known: dict[int, int] = {}

    def of(self, tensors: int) -> int:
        """Of these at once."""
        tensors &= ~self._elsewhere
        if tensors not in self._known:
            self._known[tensors] = sum(self._bytes[t] for t in bits(tensors))
        return self._known[tensors]

    def peak(self, order: Iterable[tuple[Piece, int]], outputs: int) -> int:
        """Of pieces in execution order, given with what they read: while one runs, what it reads and writes is alive,
        and what was written before and is read after."""
        alive, peak = outputs, 0
        for piece, reads in reversed(list(order)):
            peak = max(peak, self.of(alive | piece.writes | reads))
            alive = alive & ~piece.writes | reads
        return peak
