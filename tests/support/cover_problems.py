"""Small problems of covering, and their answers by enumeration."""

import heapq
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from scheduler.bitset import bits
from scheduler.segments.hypergraph import Hypergraph
from scheduler.segments.segment_mask import SegmentMask


class Problem(NamedTuple):
    hypergraph: Hypergraph
    costs: Mapping[SegmentMask, float]


def random_problem(seed: int) -> Problem:
    """Three to eight tensors, some with alternatives; pieces of any atoms, that write any of what they compute."""
    rng = random.Random(seed)
    count = rng.randint(3, 8)
    reads = [_some(rng, range(t), rng.choice((1, 1, 2, 2, 3))) for t in range(count)]
    stands = list(range(count))
    for t in range(1, count):
        if rng.random() < 0.2:
            reads.append(_some(rng, range(t), rng.randint(0, 2)))
            stands.append(t)
    outputs = 1 << count - 1 | (1 << rng.randrange(count) if rng.random() < 0.3 else 0)
    hypergraph = Hypergraph(reads, stands, outputs)
    costs: dict[SegmentMask, float] = {}
    for a in range(len(reads)):
        costs[SegmentMask(1 << a, 1 << stands[a])] = float(rng.randint(5, 40)) if rng.random() < 0.9 else math.inf
    for _ in range(rng.randint(0, 60)):
        members = _some(rng, range(len(reads)), rng.randint(2, 4))
        made = hypergraph.made(members)
        writes = made & rng.getrandbits(count) or made
        if made.bit_count() == members.bit_count():
            costs[SegmentMask(members, writes)] = float(rng.randint(5, 60) + 12 * members.bit_count())
    return Problem(hypergraph, costs)


def _some(rng: random.Random, of: range, most: int) -> int:
    return sum(1 << i for i in rng.sample(of, min(most, len(of))))


def cheapest(problem: Problem) -> float:
    """Cost of the cheapest cover, infinite where there is none: Dijkstra over sets of written tensors, where a piece
    follows once all that it reads is written."""
    hypergraph, costs = problem
    pieces = [(p.writes, hypergraph.read(p.members), c) for p, c in costs.items() if c < math.inf]
    best, heap = {0: 0.0}, [(0.0, 0)]
    while heap:
        cost, written = heapq.heappop(heap)
        if not hypergraph.outputs & ~written:
            return cost
        if cost > best[written]:
            continue
        for writes, reads, c in pieces:
            there = written | writes
            if not reads & ~written and cost + c < best.get(there, math.inf):
                best[there] = cost + c
                heapq.heappush(heap, (cost + c, there))
    return math.inf


def cheapest_in_no_order(problem: Problem) -> float:
    """`cheapest` where pieces may wait for each other in a cycle: Dijkstra over pairs of the tensors still demanded and
    the tensors written."""
    hypergraph, costs = problem
    pieces = [(p.writes, hypergraph.read(p.members), c) for p, c in costs.items() if c < math.inf]
    start = (hypergraph.outputs, 0)
    best, heap = {start: 0.0}, [(0.0, start)]
    while heap:
        cost, state = heapq.heappop(heap)
        demanded, written = state
        if not demanded:
            return cost
        if cost > best[state]:
            continue
        for writes, reads, c in pieces:
            if writes & demanded & -demanded:
                there = ((demanded | reads) & ~(written | writes), written | writes)
                if cost + c < best.get(there, math.inf):
                    best[there] = cost + c
                    heapq.heappush(heap, (cost + c, there))
    return math.inf


def check_order(problem: Problem, pieces: tuple[SegmentMask, ...]) -> None:
    """Every piece is executed after what it reads was written, and the outputs are."""
    written = 0
    for piece in pieces:
        assert not problem.hypergraph.read(piece.members) & ~written, "a piece is executed before what it reads"
        written |= piece.writes
    assert not problem.hypergraph.outputs & ~written
    assert not any(b >= len(problem.hypergraph.stands) for b in bits(written))


def cheapest_within(problem: Problem, bytes_: Sequence[int], limit_bytes: float) -> tuple[float, int]:
    """(the least cost of pieces executed one after the other whose temporaries never take more than the limit, the
    least peak of any).

    Forward, by which tensors hold room: a piece adds what it writes, and before the next one any are given up. So what
    is kept for longer than it is needed takes room, too: the best giving up is among all.
    """
    hypergraph, costs = problem
    room = [0 if hypergraph.outputs >> t & 1 else b for t, b in enumerate(bytes_)]

    def of(tensors: int) -> int:
        return sum(room[t] for t in bits(tensors))

    pieces = [(p.writes, hypergraph.read(p.members), c) for p, c in costs.items() if c < math.inf]
    found: list[float] = []
    for measure in ("cost", "peak"):
        best, heap = {0: 0.0}, [(0.0, 0)]
        answer = math.inf
        while heap:
            value, held = heapq.heappop(heap)
            if not hypergraph.outputs & ~held:
                answer = value
                break
            if value > best[held]:
                continue
            for writes, reads, c in pieces:
                there = held | writes
                if reads & ~held:
                    continue
                bytes_now = of(there)
                if measure == "cost" and bytes_now > limit_bytes:
                    continue
                reached = value + c if measure == "cost" else max(value, float(bytes_now))
                for given_up in _subsets(there & ~hypergraph.outputs):
                    if reached < best.get(there & ~given_up, math.inf):
                        best[there & ~given_up] = reached
                        heapq.heappush(heap, (reached, there & ~given_up))
        found.append(answer)
    return found[0], int(found[1]) if found[1] < math.inf else -1


def _subsets(mask: int) -> Iterator[int]:
    part = mask
    while part:
        yield part
        part = (part - 1) & mask
    yield 0
