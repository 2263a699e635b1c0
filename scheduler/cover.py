"""The cheapest cover of a graph's outputs by pieces: each output, and each tensor that a chosen piece reads, is written
by a chosen piece that is executed before.

Pieces may overlap (an atom computed by several), may compute a tensor by an alternative, and may write several tensors
or keep one to themselves that others read. Solved as a covering problem whose relaxation is mostly a cover already
(`covering`); what it leaves open is decided by branching (`branch`).
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from scheduler.branch import search
from scheduler.covering import Covering, Look
from scheduler.masks import bits
from scheduler.piece import Piece
from scheduler.producers import Producers

__all__ = ["Cover", "CoverProblem", "Piece", "Producers", "bits"]

MAX_NODES = 400  # of branching; each takes some milliseconds


@dataclass(frozen=True)
class Cover:
    """Pieces in execution order. lower_us: what no cover by the pieces that there were is below. exact: none is
    cheaper by more than a ten-millionth."""

    pieces: tuple[Piece, ...]
    cost_us: float
    lower_us: float
    exact: bool


class CoverProblem:
    """Covers of one graph. What is learned about its pieces is kept from solve to solve, costs may differ."""

    def __init__(
        self, producers: Producers, *, max_nodes: int = MAX_NODES, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.producers = producers
        self.max_nodes = max_nodes
        self.clock = clock
        self._covering = Covering(producers)

    def solve(self, costs: Mapping[Piece, float], deadline: float = math.inf, look: Look | None = None) -> Cover | None:
        """The cheapest cover; None where the pieces of finite cost make none.

        `costs`: microseconds by piece, not negative, infinite to forbid it. `look`: asked about pieces before they
        become part of a cover; answers what those really cost for which `costs` only has a lower bound. Exact unless
        branching takes more than `max_nodes` or the time until `deadline` on the clock given; then the best that was
        found, with the bound that was reached.
        """
        if not self.producers.outputs:
            return Cover((), 0.0, 0.0, True)
        self._covering.price(costs)
        found = search(self._covering, self.max_nodes, lambda: self.clock() > deadline, look)
        return Cover(*found) if found.order else None
