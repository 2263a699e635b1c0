"""Search for covers backward from the outputs, in the opposite order of execution, within a limit of memory. The state
is the set of tensors alive between two steps: nothing else of the steps after matters to those before.

    demanded before = demanded after - writes + reads      while the piece runs: demanded after + writes + reads

A piece can be next where it writes something that is demanded. Whatever order comes out can be executed, and a piece
may be executed twice where keeping a tensor would take too much. States are visited by cost so far plus a lower
bound on the rest (A*): the duals of the covering problem's relaxation, for the rows whose tensors are demanded. Orders
of independent pieces are told apart, since their peaks differ: where that makes too many states, a beam keeps the best
of each number of steps.
"""

import heapq
import math
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import NamedTuple

from scheduler.bitset import bits
from scheduler.cover.peak_memory import PeakMemory
from scheduler.segments.segment_mask import SegmentMask

MOST_STATES = 5_000
BEAM = 32
MOST_STEPS = 4  # times as many as there are tensors
TIE = 1e-9  # of the bound: costs that differ by less count as equal


class PricedPiece(NamedTuple):
    """A piece that may be chosen, the tensors that it reads, and its price."""

    piece: SegmentMask
    reads: int
    price: float


class Way(NamedTuple):
    """How the search came to a state. Its last step is the first one in execution order."""

    price: float
    peak: int
    demanded: int
    step: PricedPiece | None
    after: "Way | None"

    def order(self) -> tuple[SegmentMask, ...]:
        """All its pieces, in execution order."""
        return tuple(way.step.piece for way in self._ways() if way.step)

    def _ways(self) -> Iterator["Way"]:
        way: Way | None = self
        while way:
            yield way
            way = way.after


class Result(NamedTuple):
    """The best way found, if any. lower: bound below any way's price. whole: no state that could be better is left."""

    way: Way | None
    lower: float
    whole: bool


class LiveSetSearch:
    """`bound`: lower bound on the price of making a set of tensors."""

    def __init__(
        self, steps: Iterable[PricedPiece], outputs: int, memory: PeakMemory, bound: Callable[[int], float]
    ) -> None:
        self._memory = memory
        self._bound = bound
        self._start = Way(0.0, 0, outputs, None, None)
        self._steps = tuple(steps)
        self._writing: dict[int, int] = {}  # by tensor, steps as a mask
        for i, step in enumerate(self._steps):
            for t in bits(step.piece.writes):
                self._writing[t] = self._writing.get(t, 0) | 1 << i

    def cheapest(self, limit_bytes: int, most_states: int, is_late: Callable[[], bool]) -> Result:
        """The cheapest cover within a limit, unless there are more than `most_states` states, or it gets late."""
        tie, least = count(), self._bound(self._start.demanded)
        unit = TIE * least or TIE
        heap = [(round(least / unit), least, next(tie), self._start)]
        best = {self._start.demanded: 0.0}
        for states in count():
            if not heap:
                return Result(None, math.inf, True)
            total, _, _, way = heapq.heappop(heap)
            if not way.demanded:
                return Result(way, way.price, True)
            if states > most_states or is_late():
                return Result(None, total * unit, False)
            if way.price > best[way.demanded]:
                continue
            for before in self._before(way, limit_bytes):
                if before.price < best.get(before.demanded, math.inf):
                    best[before.demanded] = before.price
                    left = self._bound(before.demanded)
                    heapq.heappush(heap, (round((before.price + left) / unit), left, next(tie), before))
        raise AssertionError

    def narrow(self, limit_bytes: int, is_late: Callable[[], bool]) -> Way | None:
        """The cheapest cover within a limit that a beam finds; where it gets late, the first."""
        best, level = None, [self._start]
        for _ in range(MOST_STEPS * (1 + max(self._writing, default=0))):
            reached: dict[int, Way] = {}
            for way in level:
                for before in self._before(way, limit_bytes):
                    known = reached.get(before.demanded)
                    if (not known or before.price < known.price) and (not best or before.price < best.price):
                        reached[before.demanded] = before
            best = reached.pop(0, best)
            if not reached or (is_late() and best):
                break
            level = heapq.nsmallest(BEAM, reached.values(), key=self._promise)
        return best

    def _promise(self, way: Way) -> tuple[float, int]:
        return way.price + self._bound(way.demanded), way.demanded

    def smallest(self, most_states: int, is_late: Callable[[], bool]) -> Way | None:
        """A cover of the least peak, unless there are more than `most_states` states, or it gets late."""
        tie = count()
        heap = [(0, self._bound(self._start.demanded), next(tie), self._start)]
        best = {self._start.demanded: 0}
        for _ in range(most_states):
            if not heap or is_late():
                return None
            peak, _, _, way = heapq.heappop(heap)
            if not way.demanded:
                return way
            if peak > best[way.demanded]:
                continue
            for before in self._before(way, math.inf):
                if before.peak < best.get(before.demanded, math.inf):
                    best[before.demanded] = before.peak
                    heapq.heappush(heap, (before.peak, self._bound(before.demanded), next(tie), before))
        return None

    def _before(self, after: Way, limit_bytes: float) -> Iterator[Way]:
        """Ways with one step more in front, during which no more than `limit_bytes` are alive."""
        demanded = after.demanded
        possible = 0
        for t in bits(demanded):
            possible |= self._writing.get(t, 0)
        for i in bits(possible):
            step = self._steps[i]
            writes = step.piece.writes
            bytes_ = self._memory.of(demanded | writes | step.reads)
            if bytes_ <= limit_bytes:
                before = demanded & ~writes | step.reads
                yield Way(after.price + step.price, max(after.peak, bytes_), before, step, after)
