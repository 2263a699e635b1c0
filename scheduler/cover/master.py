"""Covers as a covering problem: columns are pieces, and at least one column of each row is taken.

Let U be a set of tensors with an output among them. However a cover is executed, some piece writes the first tensor of
U, and reads none of U. So at least one of the pieces that write into U and read nothing of it is chosen:

    sum of x[p] over pieces p with writes & U and not reads & U  >=  1        for each U that holds an output

Pieces for which all of these hold are a cover; otherwise let U be what they cannot write in any order. This one family
of rows says that outputs are written, that reads are, and that there is an order: of two pieces that wait for each
other neither writes the first tensor. (Steiner trees have such cuts in graphs; pieces are edges from several tensors to
several.) For each tensor v that every cover computes, the set of all tensors that need v is a row from the beginning:
some piece computes v from what does not need it. Other sets become rows when a solution leaves them open (`open_sets`).
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from itertools import count
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scheduler.bitset import bits, lowest
from scheduler.cover.execution_order import in_order, reached
from scheduler.cover.lp import Optimum, Relaxation
from scheduler.cover.separation import NEAR, Column, FractionalSolution, Known
from scheduler.segments.hypergraph import Hypergraph
from scheduler.segments.segment_mask import SegmentMask

FREE = -math.inf
MOST_COMING = 50  # columns that are looked at before a solution has them
FEW = 0.08  # of a solution's columns: where no more turn out dearer, rows are added all the same
MOST_ROUNDS = 1_000  # of cuts and looks for one solution
TIE = 1e-8  # of what a tensor costs on average, for each atom computed
SCATTER = 65_537  # a prime: pieces are told apart by what remains of their numbers

Look = Callable[[Collection[SegmentMask]], Mapping[SegmentMask, float]]


class Solution(NamedTuple):
    """A solution of the relaxation: its value, and by column in it the part that is taken."""

    value: float
    x: Mapping[int, float]

    @property
    def divided(self) -> list[int]:
        """Columns that are taken in part."""
        return [j for j, part in self.x.items() if part < 1 - NEAR]


class Decision(NamedTuple):
    """Two branches: at least one column of `row` is taken, or none of `columns`, which hold all of the row."""

    row: int
    columns: NDArray[np.intp]


class MasterProblem:
    """The relaxation of one problem. Its rows, and where its last solution left it, serve all solutions to come."""

    def __init__(self, hypergraph: Hypergraph) -> None:
        self.hypergraph = hypergraph
        self.pieces: list[SegmentMask] = []
        self.reads: list[int] = []
        self._extra = np.zeros(0)  # by column, see there
        self.column: dict[SegmentMask, int] = {}
        self.cuts = dict.fromkeys((1 << t for t in bits(hypergraph.outputs)), -1)  # sets of tensors, with their rows
        self._required = tuple(bits(hypergraph.required))  # rows 0 ...
        needing = hypergraph.needing()
        self._needing = [needing[v] for v in self._required]
        self._columns: list[Column] = []
        self._writing: dict[int, list[int]] = {}  # columns, by tensor
        self._sets: list[int] = []  # of all rows that are no decisions
        self._entering: list[list[int]] = []  # columns, by set
        self._entered: list[list[int]] = []  # sets, by column
        self._decisions: dict[tuple[str, int, int], Decision] = {}
        self._demanded: frozenset[int] = frozenset()  # rows of decisions
        self.forbidden = np.zeros(0, dtype=bool)
        self.relaxation = Relaxation((), 0)
        self._last: Optimum | None = None
        self.costs: dict[int, float] = {}  # microseconds, by column that may be taken
        self._vague = np.zeros(0, dtype=bool)  # columns that were not looked at since they were priced

    def price(self, costs: Mapping[SegmentMask, float]) -> None:
        """Sets the costs of pieces (us). Pieces that are not named, or whose cost is infinite, are forbidden."""
        if not self.column.keys() >= costs.keys():
            self._extend(sorted(costs.keys() - self.column.keys()))
        self.costs = {self.column[p]: c for p, c in costs.items() if c < math.inf}
        self._vague = np.ones(len(self.pieces), dtype=bool)
        self.allow()
        self.relaxation.forbid(self.forbidden)
        columns, prices = list(self.costs), np.fromiter(self.costs.values(), np.float64, len(self.costs))
        self.relaxation.rescale(columns, prices)
        self.relaxation.price(columns, prices + TIE * self.relaxation.unit * self._extra[columns])

    def allow(self) -> None:
        """Allows all pieces of finite cost, and no others."""
        self.forbidden = np.ones(len(self.pieces), dtype=bool)
        self.forbidden[list(self.costs)] = False

    def _reprice(self, costs: Mapping[int, float]) -> None:
        each = TIE * self.relaxation.unit
        self.relaxation.price(list(costs), [c + each * self._extra[j] for j, c in costs.items()])

    def _extend(self, pieces: Iterable[SegmentMask]) -> None:
        """Builds a new relaxation that has columns for `pieces` too."""
        for piece in pieces:
            j, reads = len(self.pieces), self.hypergraph.read(piece.members)
            self.column[piece] = j
            self.pieces.append(piece)
            self.reads.append(reads)
            self._columns.append(Column(reads, tuple(bits(reads)), tuple(bits(piece.writes))))
            for t in self._columns[j].written:
                self._writing.setdefault(t, []).append(j)
        self._extra = np.array([_extra(piece) for piece in self.pieces])
        row = {v: i for i, v in enumerate(self._required)}
        self._sets, self._entered = list(self._needing), []
        self._entering = [[] for _ in self._sets]
        for j, (piece, reads) in enumerate(zip(self.pieces, self.reads, strict=True)):
            computed = self.hypergraph.made(piece.members) & self.hypergraph.required
            rows = [row[v] for v in bits(computed & ~self.hypergraph.needed_for(reads))]
            self._entered.append(rows)
            for i in rows:
                self._entering[i].append(j)
        self.relaxation = Relaxation(self._entered, len(self._required))
        known, self.cuts = self.cuts, {}
        for tensors in known:
            self._add_set(tensors, self._writing_into(tensors, tensors))
        self._decisions.clear()
        self._demanded = frozenset()

    def _add_set(self, tensors: int, entering: list[int]) -> None:
        """Adds the row of a set of tensors, with the columns that enter it."""
        self.cuts[tensors] = self.relaxation.add_row(entering)
        for j in entering:
            self._entered[j].append(len(self._sets))
        self._sets.append(tensors)
        self._entering.append(entering)

    def _writing_into(self, tensors: int, within: int) -> list[int]:
        """Columns that write some of `tensors` and read none of `within`."""
        writing = dict.fromkeys(j for t in bits(tensors) for j in self._writing.get(t, ()))
        return [j for j in writing if not self.reads[j] & within]

    def solve(
        self,
        taken: Collection[Decision],
        left: Collection[Decision],
        look: Look | None,
        is_late: Callable[[], bool] = lambda: False,
    ) -> Solution | None:
        """The relaxation's optimum where each decision in `taken` has a column of its row, and each in `left` none of
        its columns; None if there is no solution. Its columns, taken whole, are a cover, unless it is late, or unless
        some are taken in part after MOST_ROUNDS rounds of cuts and looks.

        `look`: real costs of pieces that come into a solution. Where it is late, the value returned does not count
        what the last look showed.
        """
        forbidden = self.forbidden.copy()
        for decision in left:
            forbidden[decision.columns] = True
        self.relaxation.forbid(forbidden)
        demanded = frozenset(d.row for d in taken)
        for row in demanded ^ self._demanded:
            self.relaxation.demand(row, 1.0 if row in demanded else FREE)
        self._demanded = demanded
        for rounds in count():
            self._last = optimum = self.relaxation.solve()
            if optimum is None:
                return None
            x = {int(j): float(optimum.x[j]) for j in np.flatnonzero(optimum.x > NEAR)}
            late = is_late()
            dearer = self.dearer(look([self.pieces[j] for j in x])) if look else 0
            if late:
                return Solution(optimum.value, x)
            if dearer and look:
                self.dearer(look([self.pieces[j] for j in self._coming(optimum)]))
            if dearer > FEW * len(x):
                continue
            solution = Solution(optimum.value, x)
            if not dearer and rounds >= MOST_ROUNDS and solution.divided:
                return solution
            if not self._violated(x) and not dearer:
                return solution
        raise AssertionError

    def _coming(self, optimum: Optimum) -> list[int]:
        """Columns that were not looked at and that may be in other solutions of this value, as their reduced costs say:
        to look at several at a time takes fewer solutions."""
        reduced = self.relaxation.reduced(optimum.duals)
        coming = np.flatnonzero(self._vague & ~self.relaxation.forbidden & (reduced <= 0))[:MOST_COMING]
        self._vague[coming] = False
        return coming.tolist()

    def forbid_dearer(self, gap: float) -> None:
        """Forbids pieces that are in no cover which costs at most `gap` more than the last optimum."""
        if self._last:
            self.forbidden |= self.relaxation.reduced(self._last.duals) > gap

    def order(self, columns: Iterable[int]) -> tuple[SegmentMask, ...]:
        """Pieces of these columns in an order of execution, without those not needed; () if they are no cover."""
        return in_order(((self.pieces[j], self.reads[j]) for j in columns), self.hypergraph.outputs) or ()

    def repaired(self, columns: Iterable[int]) -> list[int]:
        """These columns, and others that write what is lacking: one by one the cheapest that reads only what is
        written; where there is none, the cheapest of all, and what it reads is lacking then too. [] where no column
        writes what is lacking."""
        chosen, prices = list(columns), self.relaxation.costs
        while True:
            written = reached((self.pieces[j], self.reads[j]) for j in chosen)
            lacking = self.hypergraph.outputs & ~written
            if not lacking:
                return chosen
            for j in chosen:
                lacking |= self.reads[j] & ~written
            taken = set(chosen)
            others = [j for j in self.costs if self.pieces[j].writes & lacking and j not in taken]
            writing = [j for j in others if not self.reads[j] & ~written] or others
            if not writing:
                return []
            chosen.append(min(writing, key=lambda j: (prices[j], j)))

    def usable(self) -> list[SegmentMask]:
        """Pieces that may be taken."""
        return [self.pieces[j] for j in self.costs]

    def cost_us(self, pieces: Collection[SegmentMask]) -> float:
        """Cost of a cover in microseconds; infinite for no pieces."""
        return math.fsum(self.costs[self.column[p]] for p in pieces) if pieces else math.inf

    def price_of(self, pieces: Collection[SegmentMask]) -> float:
        """`cost_us` with the extras that tell ties apart, to be compared with values of solutions."""
        costs = self.relaxation.costs
        return math.fsum(costs[self.column[p]] for p in pieces) if pieces else math.inf

    def price_when_looked_at(self, pieces: Collection[SegmentMask], look: Look | None) -> float:
        """`price_of` by real costs; infinite where a look forbids a piece."""
        if look and pieces:
            self.dearer(look(pieces))
        return self.price_of(pieces) if all(self.column[p] in self.costs for p in pieces) else math.inf

    def potential(self) -> Callable[[int], float]:
        """Lower bound on the price of making a set of tensors from the graph's inputs, by the last optimum's dual: the
        sum of the duals of the rows whose sets hold any of them. A piece that writes all of them that are in a set, and
        reads nothing of the set, is in its row; so no piece lowers the sum by more than it costs."""
        assert self._last, "solved before"
        duals = self.relaxation.packed(self._last.duals)
        of_tensors = np.zeros(self.hypergraph.everything.bit_length())
        of_tensors[list(self._required)] = duals[: len(self._required)]
        of_cuts = [(cut, float(duals[row])) for cut, row in self.cuts.items() if duals[row] > 0]
        size = (len(of_tensors) + 7) // 8

        @cache
        def potential(tensors: int) -> float:
            needed = np.frombuffer(self.hypergraph.needed_for(tensors).to_bytes(size, "little"), np.uint8)
            computed = np.unpackbits(needed, count=len(of_tensors), bitorder="little")
            return float(computed @ of_tensors) + sum(dual for cut, dual in of_cuts if cut & tensors)

        return potential

    def dearer(self, costs: Mapping[SegmentMask, float]) -> int:
        """Takes over the costs that looks showed. Returns how many differ from what pieces cost before."""
        finite = {self.column[p]: c for p, c in costs.items() if c < math.inf}
        changed = {j: c for j, c in finite.items() if c != self.costs[j]}
        self.costs |= changed
        self._reprice(changed)
        for piece in costs.keys() - {self.pieces[j] for j in finite}:
            self.forbidden[self.column[piece]] = True
            self.costs.pop(self.column[piece], None)
            self.relaxation.forbid(self.forbidden | self.relaxation.forbidden)
        return len(changed) + len(costs) - len(finite)

    def _violated(self, x: Mapping[int, float]) -> bool:
        """Adds rows for sets that a solution leaves open. Returns whether there are any."""
        parts = FractionalSolution(
            self._columns, {j: x[j] for j in sorted(x, key=lambda j: lowest(self.pieces[j].members))}
        )
        taken: dict[int, list[int]] = {}
        for j in parts.x:
            for k in self._entered[j]:
                taken.setdefault(k, []).append(j)
        new = False
        for k, more in parts.open_sets({k: Known(self._sets[k], of) for k, of in taken.items()}):
            tensors = self._sets[k] | more
            if tensors not in self.cuts:
                kept = [j for j in self._entering[k] if not self.reads[j] & more]
                self._add_set(tensors, list(dict.fromkeys((*kept, *self._writing_into(more, tensors)))))
                new = True
        return new or self._unreached(x)

    def _unreached(self, x: Iterable[int]) -> bool:
        """Where columns, taken whole, cannot write all outputs in any order, adds a row for the set of all tensors that
        they cannot write. Returns whether it did."""
        written = reached((self.pieces[j], self.reads[j]) for j in x)
        if not self.hypergraph.outputs & ~written:
            return False
        tensors = self.hypergraph.everything & ~written
        self._add_set(tensors, self._writing_into(tensors, tensors))
        return True

    def stored(self, tensor: int) -> Decision:
        """The decision whether a tensor is written, and may be read."""
        if known := self._decisions.get(("stored", tensor, 0)):
            return known
        bit = 1 << tensor
        reading = [j for j, reads in enumerate(self.reads) if reads & bit]
        return self._decision(("stored", tensor, 0), self._writing.get(tensor, []), reading)

    def together(self, a: int, b: int) -> Decision:
        """The decision whether some piece computes both atoms."""
        both = 1 << a | 1 << b
        return self._decision(("together", a, b), [j for j, p in enumerate(self.pieces) if p.members & both == both])

    def taking(self, column: int) -> Decision:
        """The decision whether one piece is taken."""
        return self._decision(("taking", column, 0), [column])

    def _decision(self, key: tuple[str, int, int], some: list[int], others: Collection[int] = ()) -> Decision:
        if key not in self._decisions:
            row = self.relaxation.add_row(some)
            self.relaxation.demand(row, FREE)
            self._decisions[key] = Decision(row, np.array([*some, *others], dtype=np.intp))
        return self._decisions[key]


def _extra(piece: SegmentMask) -> float:
    """Addition to a piece's price, in units of TIE, that tells covers of equal cost apart: those that compute fewer
    atoms come first, and among these a hash decides, so that every search takes the same one however the solver came
    there."""
    return piece.members.bit_count() + (7919 * piece.members + 104_729 * piece.writes) % SCATTER / SCATTER
