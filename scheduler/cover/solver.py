"""The cheapest cover of a graph's outputs by pieces: each output, and each tensor that a chosen piece reads, is written
by a chosen piece that is executed before.

Pieces may overlap (an atom computed by several), may compute a tensor by an alternative, and may write several tensors
or keep one to themselves that others read. Solved as a covering problem whose relaxation is mostly a cover already
(`master`); what it leaves open is decided by branching (`branch_and_bound`). Where temporaries have to fit into less
memory than the cheapest cover takes, states are searched (`live_set_search`).
"""

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from scheduler.bitset import bits
from scheduler.cover.branch_and_bound import Cover, search
from scheduler.cover.live_set_search import MOST_STATES
from scheduler.cover.master import Look, MasterProblem
from scheduler.cover.memory_limit import MemoryLimit, NoRoom
from scheduler.cover.peak_memory import PeakMemory
from scheduler.segments.hypergraph import Hypergraph
from scheduler.segments.segment_mask import SegmentMask

__all__ = ["Cover", "CoverProblem", "NoRoom", "bits"]

MAX_NODES = 400  # of branching; each takes some milliseconds


class CoverProblem:
    """Covers of one graph. What is learned about its pieces is kept from solve to solve, costs may differ.
    `bytes_`: by tensor, where memory is to be limited. beat: called now and then while covers are sought."""

    def __init__(
        self,
        hypergraph: Hypergraph,
        bytes_: Sequence[int] = (),
        *,
        max_nodes: int = MAX_NODES,
        max_states: int = MOST_STATES,
        clock: Callable[[], float] = time.monotonic,
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        self.hypergraph = hypergraph
        self.max_nodes = max_nodes
        self.max_states = max_states
        self.clock = clock
        self.beat = beat
        self._memory = PeakMemory(hypergraph, bytes_)
        self._covering = MasterProblem(hypergraph)

    def solve(
        self,
        costs: Mapping[SegmentMask, float],
        most_s: float = math.inf,
        look: Look | None = None,
        limit_bytes: int | None = None,
        until: float = math.inf,
    ) -> Cover | None:
        """The cheapest cover; None where the pieces of finite cost make none, or none was found in time.

        `costs`: microseconds by piece, not negative, infinite to forbid it. `look`: asked about pieces before they
        become part of a cover; answers what those really cost for which `costs` only has a lower bound. Exact unless
        branching takes more than `max_nodes` or `most_s` on the clock given, looks apart, or goes on beyond `until` on
        it; then the best that was found, with the bound that was reached. Within `limit_bytes` of temporaries,
        `max_states` limits exactness, too. Raises NoRoom where no cover that was found fits.
        """
        if not self.hypergraph.outputs:
            return Cover((), 0.0, 0.0, True)
        ends = self.clock() + most_s

        def looked(pieces: Collection[SegmentMask]) -> Mapping[SegmentMask, float]:
            nonlocal ends
            self.beat()
            began = self.clock()
            found: Mapping[SegmentMask, float] = look(pieces) if look else {}
            ends += self.clock() - began
            return found

        def is_late() -> bool:
            self.beat()
            return self.clock() > min(ends, until)

        if limit_bytes is None:
            self._covering.price(costs)
            cover = search(self._covering, self.max_nodes, is_late, looked)
            return cover and replace(cover, peak_bytes=self._memory.peak(cover.pieces))
        limited = MemoryLimit(self._covering, self._memory, self.max_nodes, self.max_states, is_late, looked)
        return limited.cheapest(costs, limit_bytes)
