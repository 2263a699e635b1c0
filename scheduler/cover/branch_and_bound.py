"""Branch and bound over covers: the relaxation with decisions, the lowest bound first.

A node is a set of decisions. Where its relaxation takes pieces in part, a decision parts it into two: a tensor is
stored or it is not, two atoms are computed together or nowhere together, a piece is taken or not.
"""

import heapq
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations, count
from typing import NamedTuple, TypeVar

from scheduler.bitset import bits
from scheduler.cover.master import Decision, Look, MasterProblem, Solution
from scheduler.cover.separation import NEAR
from scheduler.segments.segment_mask import SegmentMask

GAIN = 1e-9  # of the cost: a cover that is better by less is not sought
PRECISION = 1e-7  # of costs, with the solver's tolerances and what tells ties apart
MOST_LATE = 16  # nodes looked at when time is over and there is no cover yet
ROUNDED = 16  # of so many nodes one is rounded to a cover, which takes longer than its relaxation
MOST_MEMBERS = 40  # of a piece, of which pairs are considered


@dataclass(frozen=True)
class Cover:
    """Pieces in execution order. lower_us: lower bound on the cost of any cover by the pieces given. exact: none is
    cheaper by more than PRECISION of its cost. peak_bytes: of temporaries alive at once, where sizes are known."""

    pieces: tuple[SegmentMask, ...]
    cost_us: float
    lower_us: float
    exact: bool
    peak_bytes: int = 0


class _Node(NamedTuple):
    taken: tuple[Decision, ...] = ()
    left: tuple[Decision, ...] = ()


def search(
    covering: MasterProblem,
    most_nodes: int,
    is_late: Callable[[], bool],
    look: Look | None,
) -> Cover | None:
    """The cheapest cover at the costs that `covering` has, unless nodes or time run out; None if there is none, or none
    was found until then and `MOST_LATE` nodes later."""
    best: tuple[SegmentMask, ...] = ()
    best_price, enough = math.inf, 1 - GAIN
    tie = count()
    waiting: list[tuple[float, int, _Node]] = [(0.0, next(tie), _Node())]
    nodes, late, least = 0, 0, 0.0
    while waiting and waiting[0][0] < best_price * enough:
        late += is_late()
        if best and (nodes >= most_nodes or late):
            return Cover(best, covering.cost_us(best), waiting[0][0] * (1 - PRECISION), False)
        if late > MOST_LATE:
            return None
        lower, _, node = heapq.heappop(waiting)
        nodes += 1
        solution = covering.solve(node.taken, node.left, look, is_late)
        if solution is None:
            continue
        divided = solution.divided
        rounds = late or nodes % ROUNDED == 1
        order = rounded(covering, solution) if rounds else () if divided else covering.order(solution.x)
        if (price := covering.price_when_looked_at(order, look)) < best_price:
            best, best_price = order, price
        if order and price == math.inf and not divided:  # late: there was no time to solve it again without that piece
            heapq.heappush(waiting, (lower, next(tie), node))
            continue
        lower = max(lower, solution.value)
        least = lower if nodes == 1 else least
        if divided and lower < best_price * enough:
            if nodes == 1:
                covering.forbid_dearer(best_price - lower)
            decision = _decide(covering, solution)
            heapq.heappush(waiting, (lower, next(tie), _Node((*node.taken, decision), node.left)))
            heapq.heappush(waiting, (lower, next(tie), _Node(node.taken, (*node.left, decision))))
    if not best:
        return None
    cost_us = covering.cost_us(best)
    if is_late():  # what was no cover yet may have been left as it was
        return Cover(best, cost_us, min(least * (1 - PRECISION), cost_us), False)
    return Cover(best, cost_us, cost_us, True)


def rounded(covering: MasterProblem, solution: Solution) -> tuple[SegmentMask, ...]:
    """A cover made of the pieces that a solution takes, whole or in part. Those taken in part are left out where the
    others are a cover, the smallest parts first."""
    parts = dict(solution.x)
    order = covering.order(parts) or covering.order(covering.repaired(parts))
    for j in sorted(solution.divided, key=lambda j: (parts[j], j)):
        others = [k for k in parts if k != j]
        if smaller := covering.order(others):
            order = smaller
            del parts[j]
    return order


def _decide(covering: MasterProblem, solution: Solution) -> Decision:
    """The decision to branch on, of which the solution takes nearest to one half: whether a tensor is stored; where all
    tensors are decided, whether two atoms are computed together; else whether a column is taken."""
    stored: dict[int, float] = {}
    for j, part in solution.x.items():
        for t in bits(covering.pieces[j].writes):
            stored[t] = stored.get(t, 0.0) + part
    if (t := _undecided(stored)) is not None:
        return covering.stored(t)
    column = min(solution.divided, key=lambda j: (abs(solution.x[j] - 0.5), j))
    together: dict[tuple[int, int], float] = {}
    members = bits(covering.pieces[column].members)[:MOST_MEMBERS]
    for pair in combinations(members, 2):
        both = 1 << pair[0] | 1 << pair[1]
        together[pair] = sum(part for j, part in solution.x.items() if covering.pieces[j].members & both == both)
    if (pair := _undecided(together)) is not None:
        return covering.together(*pair)
    return covering.taking(column)


T = TypeVar("T")


def _undecided(parts: Mapping[T, float]) -> T | None:
    """The key whose part is nearest to one half; None where no part is between 0 and 1."""
    between = [key for key, part in parts.items() if NEAR < part < 1 - NEAR]
    return min(between, key=lambda key: abs(parts[key] - 0.5), default=None)
