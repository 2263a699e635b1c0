"""The cheapest cover of a graph's outputs by pieces: each output, and each tensor that a chosen piece reads, is written
by a chosen piece that is executed before.

Pieces may overlap (an atom computed by several), may compute a tensor by an alternative, and may write several tensors
or keep one to themselves that others read. Solved as a covering problem whose relaxation is mostly a cover already
(`covering`); what it leaves open is decided by branching (`branch`). Where temporaries have to fit into less memory
than the cheapest cover takes, states are searched (`demand`).
"""

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from scheduler.branch import PRECISION, search
from scheduler.covering import Covering, Look
from scheduler.demand import MOST_STATES, Demand, Step, Way
from scheduler.masks import bits
from scheduler.memory import Memory
from scheduler.piece import Piece
from scheduler.producers import Producers

__all__ = ["Cover", "CoverProblem", "NoRoom", "Piece", "Producers", "bits"]

MAX_NODES = 400  # of branching; each takes some milliseconds


@dataclass(frozen=True)
class Cover:
    """Pieces in execution order. lower_us: what no cover by the pieces that there were is below. exact: none is cheaper
    by more than a ten-millionth. peak_bytes: of temporaries alive at once, where their sizes are known."""

    pieces: tuple[Piece, ...]
    cost_us: float
    lower_us: float
    exact: bool
    peak_bytes: int = 0


class NoRoom(Exception):
    """No cover was found whose temporaries fit. cover: the one that needs least, of those seen; exact: none needs
    less."""

    def __init__(self, cover: Cover, limit_bytes: int, exact: bool) -> None:
        least = "the least that any needs is" if exact else "the least that was found is"
        super().__init__(f"no cover has temporaries of at most {limit_bytes:,} bytes; {least} {cover.peak_bytes:,}")
        self.cover = cover
        self.exact = exact


class CoverProblem:
    """Covers of one graph. What is learned about its pieces is kept from solve to solve, costs may differ.
    `bytes_`: by tensor."""

    def __init__(
        self,
        producers: Producers,
        bytes_: Sequence[int] = (),
        *,
        max_nodes: int = MAX_NODES,
        max_states: int = MOST_STATES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.producers = producers
        self.max_nodes = max_nodes
        self.max_states = max_states
        self.clock = clock
        self._memory = Memory(bytes_, producers.outputs if bytes_ else -1)
        self._covering = Covering(producers)
        self._ends = math.inf

    def solve(
        self,
        costs: Mapping[Piece, float],
        most_s: float = math.inf,
        look: Look | None = None,
        limit_bytes: int | None = None,
    ) -> Cover | None:
        """The cheapest cover; None where the pieces of finite cost make none.

        `costs`: microseconds by piece, not negative, infinite to forbid it. `look`: asked about pieces before they
        become part of a cover; answers what those really cost for which `costs` only has a lower bound. Exact unless
        branching takes more than `max_nodes` or `most_s` on the clock given, looks apart; then the best that was found,
        with the bound that was reached. Within `limit_bytes` of temporaries, `max_states` limits exactness, too. Raises
        NoRoom.
        """
        if not self.producers.outputs:
            return Cover((), 0.0, 0.0, True)
        self._covering.price(costs)
        self._ends = self.clock() + most_s

        def looked(pieces: Collection[Piece]) -> Mapping[Piece, float]:
            began = self.clock()
            found: Mapping[Piece, float] = look(pieces) if look else {}
            self._ends += self.clock() - began
            return found

        found = search(self._covering, self.max_nodes, self._is_late, looked)
        if not found.order:
            return None
        cheapest = Cover(*found, self._peak_bytes(found.order))
        if limit_bytes is None or cheapest.peak_bytes <= limit_bytes:
            return cheapest
        return self._within(limit_bytes, cheapest, looked)

    def _is_late(self) -> bool:
        return self.clock() > self._ends

    def _peak_bytes(self, order: Collection[Piece]) -> int:
        reads = self.producers.read
        return self._memory.peak([(p, reads(p.members)) for p in order], self.producers.outputs)

    def _within(self, limit_bytes: int, cheapest: Cover, look: Look) -> Cover:
        """The cheapest cover within the limit: the cheapest of all in another order, if one does; else by states."""
        covering = self._covering
        covering.allow()
        while True:
            covering.solve((), (), look)
            bound = covering.potential()
            steps = [Step(p, reads, price) for p, reads, price in covering.usable()]
            chosen = set(cheapest.pieces)
            ordered = self._demand([s for s in steps if s.piece in chosen], bound)
            result = ordered.cheapest(limit_bytes, self.max_states, self._is_late)
            if result.way and len(result.way.order()) == len(cheapest.pieces):  # none twice
                return self._cover(result.way, cheapest.lower_us, cheapest.exact)
            demand = self._demand(steps, bound)
            result = demand.cheapest(limit_bytes, self.max_states, self._is_late)
            way = result.way or (None if result.whole else demand.narrow(limit_bytes, self._is_late))
            if way is None:
                smallest, exact = demand.smallest(self.max_states)
                least = self._cover(smallest, 0.0, False) if smallest else cheapest
                raise NoRoom(min(least, cheapest, key=lambda c: c.peak_bytes), limit_bytes, exact)
            if not covering.dearer(look(way.order())):
                lower_us = max(result.lower * (1 - PRECISION), cheapest.lower_us)
                return self._cover(way, lower_us, result.whole)

    def _demand(self, steps: Sequence[Step], bound: Callable[[int], float]) -> Demand:
        return Demand(steps, self.producers.outputs, self._memory, bound)

    def _cover(self, way: Way, lower_us: float, exact: bool) -> Cover:
        order = way.order()
        cost_us = self._covering.cost_us(order)
        return Cover(order, cost_us, cost_us if exact else min(lower_us, cost_us), exact, self._peak_bytes(order))
