"""The cheapest cover whose temporaries fit into memory.

A piece that reads and writes more than the limit by itself is in no such cover. The cheapest cover by the others often
fits, in some order; where it does not, covers are searched by states.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from scheduler.cover.branch_and_bound import PRECISION, Cover, search
from scheduler.cover.execution_order import reached
from scheduler.cover.live_set_search import LiveSetSearch, PricedPiece, Way
from scheduler.cover.master import Look, MasterProblem
from scheduler.cover.peak_memory import PeakMemory
from scheduler.segments.segment_mask import SegmentMask

SHARES = (0.0, 0.25, 0.5)  # of the way from a bound to a cover: what a cover of the least peak is sought within


class NoRoom(Exception):
    """No cover was found whose temporaries fit. cover: of those seen, the one that needs least. exact: whether no cover
    needs less."""

    def __init__(self, cover: Cover, limit_bytes: int, exact: bool) -> None:
        least = "the least that any needs is" if exact else "the least that was found is"
        super().__init__(f"no cover has temporaries of at most {limit_bytes:,} bytes; {least} {cover.peak_bytes:,}")
        self.cover = cover
        self.exact = exact


class MemoryLimit:
    """Covers of one problem at given costs."""

    def __init__(
        self,
        covering: MasterProblem,
        memory: PeakMemory,
        max_nodes: int,
        max_states: int,
        is_late: Callable[[], bool],
        look: Look,
    ) -> None:
        self._covering, self._memory = covering, memory
        self._max_nodes, self._max_states, self._is_late, self._look = max_nodes, max_states, is_late, look

    def cheapest(self, costs: Mapping[SegmentMask, float], limit_bytes: int) -> Cover | None:
        """The cheapest cover within the limit; None where the pieces of finite cost make no cover at all, or none was
        found in time. Raises NoRoom where none that was found fits."""
        small = {p: c for p, c in costs.items() if self._memory.least(p) <= limit_bytes}
        self._covering.price(small)
        cover = search(self._covering, self._max_nodes, self._is_late, self._look)
        if cover is not None:
            cover = self._fitting(cover, limit_bytes)
        if cover is None:
            least = self._least(costs)
            if least is not None:
                raise NoRoom(least[0], limit_bytes, least[1])
        return cover

    def _fitting(self, cheapest: Cover, limit_bytes: int) -> Cover | None:
        """The cheapest cover within the limit: `cheapest` as it is or in another order, if that fits; else the one that
        a search of states finds. None if none was found."""
        peak_bytes = self._memory.peak(cheapest.pieces)
        if peak_bytes <= limit_bytes:
            return replace(cheapest, peak_bytes=peak_bytes)
        covering = self._covering
        covering.allow()
        while True:
            covering.solve((), (), self._look)
            ordered = self._demand(cheapest.pieces).cheapest(limit_bytes, self._max_states, self._is_late)
            if ordered.way and len(ordered.way.order()) == len(cheapest.pieces):  # none twice
                return self._cover(ordered.way, cheapest.lower_us, cheapest.exact)
            demand = self._demand(covering.usable())
            result = demand.cheapest(limit_bytes, self._max_states, self._is_late)
            way = result.way or (None if result.whole else demand.narrow(limit_bytes, self._is_late))
            if way is None:
                return None
            if not covering.dearer(self._look(way.order())):
                lower_us = max(result.lower * (1 - PRECISION), cheapest.lower_us)
                return self._cover(way, lower_us, result.whole)

    def _least(self, costs: Mapping[SegmentMask, float]) -> tuple[Cover, bool] | None:
        """A cover of small peak memory, and whether none has a smaller peak; None if no cover was found."""
        least_bytes = self._covering_from(costs)
        if least_bytes is None:
            return None
        self._covering.price({p: c for p, c in costs.items() if self._memory.least(p) <= least_bytes})
        cover = search(self._covering, 1, self._is_late, self._look)
        if cover is None:  # none that was found in time: the pieces make one
            return None
        self._covering.price(costs)
        self._covering.solve((), (), self._look)
        all_ = self._demand(self._covering.usable())
        if way := all_.smallest(self._max_states, self._is_late):
            return self._cover(way, 0.0, False), True
        cover = replace(cover, peak_bytes=self._memory.peak(cover.pieces))
        ordered = self._demand(cover.pieces)
        for share in SHARES:
            limit_bytes = round(least_bytes + share * (cover.peak_bytes - least_bytes))
            way = ordered.cheapest(limit_bytes, self._max_states, self._is_late).way
            if way := way or all_.narrow(limit_bytes, self._is_late):
                cover = self._cover(way, 0.0, False)
                break
        return cover, cover.peak_bytes == least_bytes

    def _covering_from(self, costs: Mapping[SegmentMask, float]) -> int | None:
        """The least number of bytes such that pieces which take no more by themselves make a cover; None where all
        pieces make none."""
        hypergraph = self._covering.hypergraph
        by_bytes = sorted((self._memory.least(p), p) for p, c in costs.items() if c < float("inf"))
        reads = [(p, hypergraph.read(p.members)) for _, p in by_bytes]
        low, high = 0, len(reads)  # pieces
        if hypergraph.outputs & ~reached(reads):
            return None
        while high - low > 1:
            middle = (low + high) // 2
            if hypergraph.outputs & ~reached(reads[:middle]):
                low = middle
            else:
                high = middle
        return by_bytes[high - 1][0]

    def _demand(self, pieces: Iterable[SegmentMask]) -> LiveSetSearch:
        """The search of states by these pieces, bounded by the last solution of the relaxation."""
        covering = self._covering
        hypergraph = covering.hypergraph
        steps = [PricedPiece(p, hypergraph.read(p.members), covering.price_of([p])) for p in pieces]
        return LiveSetSearch(steps, hypergraph.outputs, self._memory, covering.potential())

    def _cover(self, way: Way, lower_us: float, exact: bool) -> Cover:
        order = way.order()
        cost_us = self._covering.cost_us(order)
        return Cover(order, cost_us, cost_us if exact else min(lower_us, cost_us), exact, self._memory.peak(order))
