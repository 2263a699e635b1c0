"""The cheapest exact partition of the atoms into candidate segments, without cycles between them.

Decided in depth-first order: the next segment is always one whose lowest atom is the lowest uncovered one, so that
orders of independent decisions are not enumerated. The state is what is covered. That order admits cycles (a reads what
b writes, b reads what a writes; on a butterfly the cheapest partition has one), and they are excluded by cuts: when an
optimum is cyclic, the atoms that close the cycle become a cut, the state learns to follow it, and the programme runs
again, until its optimum is acyclic. The optimum of a relaxation that is feasible is the optimum.

States are visited cheapest first. With `share[a] = min over candidates c containing a of cost(c) / |c|`, the shares of
the uncovered atoms never exceed what covering them will cost, so `cost(c) - shares of c` is a non-negative edge length
(A*). Where steps or time run out, a beam over sets closed under predecessors, which is acyclic by construction, answers
instead.
"""

import heapq
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import rustworkx as rx

MAX_STEPS = 4_000_000  # transitions of one run of the programme (a microsecond each) before the beam takes over
MAX_CUTS = 400
BEAM = 48


@dataclass(frozen=True)
class Cover:
    """Segments (masks over atoms) in execution order. `exact`: no cover by these candidates is cheaper."""

    segments: tuple[int, ...]
    cost_us: float
    exact: bool


@dataclass(frozen=True)
class _Cut:
    """A cycle among atoms: an edge leads from every pair to the next one. Not allowed: each pair within one segment,
    and not all of them within the same. A pair of equal atoms is one bit."""

    pairs: tuple[int, ...]
    atoms: int

    def splits(self, segment: int) -> bool:
        """Whether choosing the segment rules this cycle out: it parts a pair, or holds them all."""
        if segment & self.atoms == self.atoms:
            return True
        return any(p & segment and p & ~segment for p in self.pairs)


def bits(mask: int) -> Iterator[int]:
    """Positions of the bits that are set, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def execution_order(preds: Sequence[int], segments: Sequence[int]) -> tuple[int, ...] | None:
    """Segments so that each comes after what it reads, lowest atom first where free; None if they form a cycle."""
    condensed = _condensed(preds, segments)
    if not rx.is_directed_acyclic_graph(condensed):
        return None
    width = len(str(len(preds)))
    order = rx.lexicographical_topological_sort(condensed, lambda s: f"{(s & -s).bit_length():0{width + 1}d}")
    return tuple(order)


class CoverProblem:
    """Atoms 0..n-1 in topological order; `preds[a]`: mask of the atoms that a reads. Cuts found are kept from solve to
    solve."""

    def __init__(
        self,
        preds: Sequence[int],
        *,
        max_steps: int = MAX_STEPS,
        beam: int = BEAM,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.preds = tuple(preds)
        self.full = (1 << len(preds)) - 1
        self.max_steps = max_steps
        self.beam = beam
        self.clock = clock
        self.cuts: list[_Cut] = []
        self._atoms: dict[int, tuple[int, ...]] = {}  # of candidates

    def solve(self, costs: Mapping[int, float], deadline: float = math.inf) -> Cover | None:
        """The cheapest acyclic partition; None where the candidates of finite cost cannot make one.

        `costs`: microseconds per candidate, infinite to forbid it. Exact unless steps, cuts or time (`deadline` on the
        clock given) run out; then the best that the beam finds.
        """
        if not self.full:
            return Cover((), 0.0, True)
        usable = {s: c for s, c in sorted(costs.items()) if c < math.inf}
        covered = 0
        for s in usable:
            covered |= s
        if covered != self.full:
            return None
        lengths = self._reduced(usable)
        while len(self.cuts) <= MAX_CUTS:
            chosen = self._cheapest(lengths, deadline)
            if chosen is None:
                break
            if not chosen:
                return None
            order = execution_order(self.preds, chosen)
            if order is not None:
                return Cover(order, math.fsum(usable[s] for s in order), True)
            self.cuts += _cycles(self.preds, chosen)
        order = self._beam(lengths)
        return None if order is None else Cover(order, math.fsum(usable[s] for s in order), False)

    def _cheapest(self, lengths: Mapping[int, float], deadline: float) -> list[int] | None:
        """Cheapest partition that respects the cuts; [] if there is none, None if steps or time ran out."""
        by_lowest: dict[int, list[tuple[int, float, int, tuple[int, ...]]]] = {}
        unions = [cut.atoms for cut in self.cuts]
        for s, length in lengths.items():
            ruled_out, followed = 0, ()
            if unions:
                ruled_out = sum(1 << i for i, cut in enumerate(self.cuts) if cut.splits(s))
                followed = tuple(i for i, u in enumerate(unions) if u & s and not ruled_out >> i & 1)
            by_lowest.setdefault(s & -s, []).append((s, length, ruled_out, followed))
        for choices in by_lowest.values():
            choices.sort(key=lambda choice: choice[1])
        least = math.inf  # of the partitions that were reached
        start = (0, 0)
        best: dict[tuple[int, int], float] = {start: 0.0}
        parent: dict[tuple[int, int], tuple[tuple[int, int], int]] = {}
        heap: list[tuple[float, int, tuple[int, int]]] = [(0.0, self.full, start)]
        visited = steps = 0
        while heap:
            distance, free, state = heapq.heappop(heap)
            if distance > best[state]:
                continue
            if not free:
                chosen: list[int] = []
                while state != start:
                    state, s = parent[state]
                    chosen.append(s)
                return chosen
            visited += 1
            choices = by_lowest.get(free & -free, ())
            steps += len(choices)
            if steps > self.max_steps or (visited % 512 == 0 and self.clock() > deadline):
                return None
            covered, dead = state
            for s, length, ruled_out, followed in choices:
                total = distance + length
                if total > least:
                    break
                if s & covered:
                    continue
                reached = covered | s
                if followed and any(unions[i] & ~reached == 0 and not dead >> i & 1 for i in followed):
                    continue
                if reached == self.full:
                    least = total
                there = (reached, dead | ruled_out)
                if total < best.get(there, math.inf):
                    best[there] = total
                    parent[there] = (state, s)
                    heapq.heappush(heap, (total, self.full & ~reached, there))
        return []

    def relaxed_us(self, costs: Mapping[int, float]) -> float:
        """What no partition is below: the sum of every atom's cheapest share of a candidate's cost."""
        return math.fsum(self._shares(costs))

    def _reduced(self, costs: Mapping[int, float]) -> dict[int, float]:
        """Costs less the shares of their atoms: non-negative, and least for the same partition."""
        share = self._shares(costs)
        return {s: max(0.0, c - math.fsum([share[a] for a in self._atoms[s]])) for s, c in costs.items()}

    def _shares(self, costs: Mapping[int, float]) -> list[float]:
        """Of each atom: the least that it has to bear of the cost of any candidate that it is in, all atoms of one
        bearing the same."""
        for s in costs:
            if s not in self._atoms:
                self._atoms[s] = tuple(bits(s))
        share = [math.inf] * len(self.preds)
        for s, c in costs.items():
            atoms = self._atoms[s]
            each = c / len(atoms)
            for a in atoms:
                if each < share[a]:
                    share[a] = each
        return share

    def _beam(self, lengths: Mapping[int, float]) -> tuple[int, ...] | None:
        """Sets closed under predecessors, by number of atoms, the best few of each number kept."""
        by_lowest: dict[int, list[tuple[int, int, float]]] = {}
        for s, length in lengths.items():
            reads = 0
            for a in bits(s):
                reads |= self.preds[a]
            by_lowest.setdefault(s & -s, []).append((s, reads & ~s, length))
        levels: list[dict[int, tuple[float, int, int]]] = [{} for _ in range(len(self.preds) + 1)]
        levels[0][0] = (0.0, 0, 0)
        readers = _readers(self.preds)
        ready = {0: sum(1 << a for a, reads in enumerate(self.preds) if not reads)}  # of the sets that were kept
        for level in levels:
            states = ((distance, covered, before, last) for covered, (distance, before, last) in level.items())
            for distance, covered, before, last in heapq.nsmallest(self.beam, states):
                if last:
                    ready[covered] = ready[before] & ~last
                    for a in {r for b in self._atoms[last] for r in readers[b]}:
                        if not covered >> a & 1 and not self.preds[a] & ~covered:
                            ready[covered] |= 1 << a
                for a in bits(ready[covered]):
                    for s, reads, length in by_lowest.get(1 << a, ()):
                        if s & covered or reads & ~covered:
                            continue
                        following = levels[(covered | s).bit_count()]
                        known = following.get(covered | s)
                        if known is None or distance + length < known[0]:
                            following[covered | s] = (distance + length, covered, s)
        covered, order = self.full, list[int]()
        if covered not in levels[-1]:
            return None
        while covered:
            _, before, s = levels[covered.bit_count()][covered]
            order.append(s)
            covered = before
        return tuple(reversed(order))


def _readers(preds: Sequence[int]) -> list[list[int]]:
    """Of each atom."""
    readers: list[list[int]] = [[] for _ in preds]
    for a, reads in enumerate(preds):
        for p in bits(reads):
            readers[p].append(a)
    return readers


def _condensed(preds: Sequence[int], segments: Sequence[int]) -> "rx.PyDiGraph[int, None]":
    """One node per segment; an edge where one reads what the other writes."""
    owner = {a: i for i, s in enumerate(segments) for a in bits(s)}
    graph: rx.PyDiGraph[int, None] = rx.PyDiGraph(multigraph=False)
    graph.add_nodes_from(list(segments))
    edges = {(owner[p], owner[a]) for a in owner for p in bits(preds[a]) if owner[p] != owner[a]}
    graph.add_edges_from_no_data(sorted(edges))
    return graph


def _cycles(preds: Sequence[int], segments: Sequence[int]) -> list[_Cut]:
    """A shortest cycle of every strongly connected component of the segments, as a cut."""
    condensed = _condensed(preds, segments)
    cuts: list[_Cut] = []
    for component in rx.strongly_connected_components(condensed):
        if len(component) > 1:
            cuts.append(_cut(preds, [segments[i] for i in _shortest_cycle(condensed, set(component))]))
    return cuts


def _shortest_cycle(condensed: "rx.PyDiGraph[int, None]", component: set[int]) -> list[int]:
    """Nodes of a shortest cycle within a strongly connected component, in order."""
    shortest: list[int] = []
    for root in sorted(component):
        came_from, queue, found = {root: root}, [root], False
        for node in queue:
            if found:
                break
            for following in sorted(condensed.successor_indices(node)):
                if following == root:
                    path = [node]
                    while path[-1] != root:
                        path.append(came_from[path[-1]])
                    if not shortest or len(path) < len(shortest):
                        shortest = path[::-1]
                    found = True
                    break
                if following in component and following not in came_from:
                    came_from[following] = node
                    queue.append(following)
    return shortest


def _cut(preds: Sequence[int], cycle: Sequence[int]) -> _Cut:
    """The cut of a cycle of segments: where it enters and where it leaves each of them."""
    enters: list[int] = []
    leaves: list[int] = []
    for s, following in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
        reader = next(a for a in bits(following) if preds[a] & s)
        enters.append(1 << reader)
        writers = preds[reader] & s
        leaves.append(writers & -writers)
    entered = [enters[-1], *enters[:-1]]
    pairs = tuple(e | w for e, w in zip(entered, leaves, strict=True))
    atoms = 0
    for p in pairs:
        atoms |= p
    return _Cut(pairs, atoms)
