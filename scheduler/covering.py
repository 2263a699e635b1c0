"""Covers as a covering problem: pieces are columns, and of each row one is taken at least.

Let U be a set of tensors with an output among them. However a cover is executed, some piece writes the first tensor of
U, and reads none. So of the pieces that write into U and read nothing of it one is chosen:

    sum of x[p] over pieces p with writes & U and not reads & U  >=  1        for each U that holds an output

Pieces for which all of these hold are a cover; otherwise let U be what they cannot write in any order. This one family
of rows says that outputs are written, that reads are, and that there is an order: of two pieces that wait for each
other neither writes the first tensor. (Steiner trees have such cuts in graphs; pieces are edges from several tensors to
several.) Of each tensor v that is computed in every cover the set of all that need v is a row from the beginning: some
piece computes v from what does not need it. Others become rows when a solution violates them.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from itertools import count
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scheduler.masks import bits
from scheduler.piece import Piece
from scheduler.producers import Producers, in_order, reached
from scheduler.relaxation import Optimum, Relaxation

NEAR = 1e-6  # 0 or 1, as the solver leaves it
FREE = -math.inf
MOST_CUTS = 20  # added at once
MANY_CUTS = 500  # from so many on one at a time: most of them are not needed, and rows cost time
MOST_ROUNDS = 1_000  # of cuts and looks for one solution
TIE = 1e-8  # of what a tensor costs on average, by atom computed: of covers that cost the same, those that compute less

Look = Callable[[Collection[Piece]], Mapping[Piece, float]]


class Solution(NamedTuple):
    """Of the relaxation: its value, and the columns in it with their parts."""

    value: float
    x: Mapping[int, float]

    @property
    def divided(self) -> list[int]:
        """Columns that are taken in part."""
        return [j for j, part in self.x.items() if part < 1 - NEAR]


class Decision(NamedTuple):
    """Either at least one column of a row is taken, or none of `columns`, those of the row among them."""

    row: int
    columns: NDArray[np.intp]


class Covering:
    """The relaxation of one problem. Its rows, and where its last solution left it, serve all solutions to come."""

    def __init__(self, producers: Producers) -> None:
        self.producers = producers
        self.pieces: list[Piece] = []
        self.reads: list[int] = []
        self.writing: dict[int, list[int]] = {}  # by tensor, the columns of the pieces that write it
        self.column: dict[Piece, int] = {}
        self.cuts: dict[int, int] = {}  # sets of tensors, with their rows
        self._required = tuple(bits(producers.required))  # rows 0 ...
        self._decisions: dict[tuple[str, int, int], Decision] = {}
        self._demanded: frozenset[int] = frozenset()  # rows of decisions
        self.forbidden = np.zeros(0, dtype=bool)
        self.relaxation = Relaxation((), 0)
        self._last: Optimum | None = None
        self.costs: dict[int, float] = {}  # microseconds, by column that may be taken

    def price(self, costs: Mapping[Piece, float]) -> None:
        """What pieces cost, all others being forbidden; infinite: that one, too."""
        if not self.column.keys() >= costs.keys():
            self._extend(sorted(costs.keys() - self.column.keys()))
        self.costs = {self.column[p]: c for p, c in costs.items() if c < math.inf}
        self.allow()
        self.relaxation.forbid(self.forbidden)
        self.relaxation.price(list(self.costs), list(self.costs.values()))
        self.relaxation.rescale()
        self._reprice(self.costs)

    def allow(self) -> None:
        """All pieces that cost something finite."""
        self.forbidden = np.ones(len(self.pieces), dtype=bool)
        self.forbidden[list(self.costs)] = False

    def _reprice(self, costs: Mapping[int, float]) -> None:
        each = TIE * self.relaxation.unit
        prices = [c + each * self.pieces[j].members.bit_count() for j, c in costs.items()]
        self.relaxation.price(list(costs), prices)

    def _extend(self, pieces: Iterable[Piece]) -> None:
        """A new relaxation, with further columns."""
        row = {v: i for i, v in enumerate(self._required)}
        for piece in pieces:
            for t in bits(piece.writes):
                self.writing.setdefault(t, []).append(len(self.pieces))
            self.column[piece] = len(self.pieces)
            self.pieces.append(piece)
            self.reads.append(self.producers.read(piece.members))
        rows_of: list[list[int]] = []
        for piece, reads in zip(self.pieces, self.reads, strict=True):
            computed = self.producers.made(piece.members) & self.producers.required
            rows_of.append([row[v] for v in bits(computed & ~self.producers.needed_for(reads))])
        self.relaxation = Relaxation(rows_of, len(self._required))
        self.cuts = {cut: self.relaxation.add_row(self._crossing(cut)) for cut in self.cuts}
        self._decisions.clear()
        self._demanded = frozenset()

    def _crossing(self, cut: int) -> list[int]:
        """Columns of the pieces that may write the first tensor of a set."""
        writing = {j for t in bits(cut) for j in self.writing.get(t, ())}
        return sorted(j for j in writing if not self.reads[j] & cut)

    def solve(
        self,
        taken: Collection[Decision],
        left: Collection[Decision],
        look: Look | None,
        is_late: Callable[[], bool] = lambda: False,
    ) -> Solution | None:
        """The relaxation's optimum where some column of each decision is `taken`, or all are `left`; None if there is
        none. What is in it, taken whole, is a cover, unless that would take too many rounds of cuts and looks, or too
        long; where nothing in it is taken in part, it is one.

        `look`: what pieces that come into it really cost.
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
            if look and self.dearer(look([self.pieces[j] for j in x])):
                continue
            solution = Solution(optimum.value, x)
            if (rounds >= MOST_ROUNDS or is_late()) and solution.divided:
                return solution
            if not (self._violated(x, NEAR) or self._violated(x, 0.5)):
                return solution
        raise AssertionError

    def forbid_dearer(self, gap: float) -> None:
        """Pieces that are in no cover which costs less than the last optimum and as much more."""
        if self._last:
            self.forbidden |= self.relaxation.reduced(self._last.duals) > gap

    def order(self, columns: Iterable[int]) -> tuple[Piece, ...]:
        """An order in which these can be executed, without those that are not needed; () if they are no cover."""
        return in_order(((self.pieces[j], self.reads[j]) for j in columns), self.producers.outputs) or ()

    def repaired(self, columns: Iterable[int]) -> list[int]:
        """These, with others that write what they lack, the cheapest of those that read nothing else that is
        lacking."""
        chosen, prices = list(columns), self.relaxation.costs
        while True:
            written = reached((self.pieces[j], self.reads[j]) for j in chosen)
            lacking = self.producers.outputs & ~written
            if not lacking:
                return chosen
            for j in chosen:
                lacking |= self.reads[j] & ~written
            writing = [j for j in self.costs if self.pieces[j].writes & lacking and not self.reads[j] & ~written]
            if not writing:
                return []
            chosen.append(min(writing, key=lambda j: (prices[j], j)))

    def usable(self) -> list[Piece]:
        """Pieces that may be taken."""
        return [self.pieces[j] for j in self.costs]

    def cost_us(self, pieces: Collection[Piece]) -> float:
        """Of a cover; infinite of none."""
        return math.fsum(self.costs[self.column[p]] for p in pieces) if pieces else math.inf

    def price_of(self, pieces: Collection[Piece]) -> float:
        """The same, ties apart: what solutions' values compare with."""
        costs = self.relaxation.costs
        return math.fsum(costs[self.column[p]] for p in pieces) if pieces else math.inf

    def potential(self) -> Callable[[int], float]:
        """What making tensors costs at the least, whatever there is not yet, by the last optimum's dual: what the rows
        bear whose sets hold any of them. Once a piece has written all of these that are in a set, and reads none of it,
        it is in the row; so no piece lowers that by more than it costs."""
        assert self._last, "solved before"
        duals = self.relaxation.packed(self._last.duals)
        of_tensors = np.zeros(self.producers.everything.bit_length())
        of_tensors[list(self._required)] = duals[: len(self._required)]
        of_cuts = [(cut, float(duals[row])) for cut, row in self.cuts.items() if duals[row] > 0]
        size = (len(of_tensors) + 7) // 8

        @cache
        def potential(tensors: int) -> float:
            needed = np.frombuffer(self.producers.needed_for(tensors).to_bytes(size, "little"), np.uint8)
            computed = np.unpackbits(needed, count=len(of_tensors), bitorder="little")
            return float(computed @ of_tensors) + sum(dual for cut, dual in of_cuts if cut & tensors)

        return potential

    def dearer(self, costs: Mapping[Piece, float]) -> bool:
        """Takes over what looks showed. Whether that is another cost than before."""
        finite = {self.column[p]: c for p, c in costs.items() if c < math.inf}
        changed = {j: c for j, c in finite.items() if c != self.costs[j]}
        self.costs |= changed
        self._reprice(changed)
        for piece in costs.keys() - {self.pieces[j] for j in finite}:
            self.forbidden[self.column[piece]] = True
            self.costs.pop(self.column[piece], None)
            self.relaxation.forbid(self.forbidden | self.relaxation.forbidden)
        return bool(changed) or len(finite) < len(costs)

    def _violated(self, x: Mapping[int, float], least: float) -> bool:
        """Adds cuts that columns with so large a part leave open, if all of them together do."""
        columns = [j for j, part in x.items() if part >= least]
        written = reached((self.pieces[j], self.reads[j]) for j in columns)
        missing = self.producers.outputs & ~written
        if not missing:
            return False
        waiting = [j for j in columns if self.reads[j] & ~written]
        roots = self._roots(waiting, written)
        writing: dict[int, list[int]] = {}
        for j in waiting:
            for t in bits(self.pieces[j].writes & ~written):
                writing.setdefault(1 << t, []).append(j)
        output = missing & -missing
        of_output = roots.get(output, 0)  # none where columns wait for each other alone
        cuts = {self._open_set(writing, written, output, roots, 1 << r) for r in bits(of_output)}
        if not cuts:
            cuts = {self._open_set(writing, written, output, roots, 0)}
        new = [cut for cut in sorted(cuts) if cut not in self.cuts]
        violated = [cut for cut in new if sum(x[j] for j in x if self._crosses(j, cut)) < 1 - NEAR]
        for cut in violated[: MOST_CUTS if len(self.cuts) < MANY_CUTS else 1]:
            self.cuts[cut] = self.relaxation.add_row(self._crossing(cut))
        return bool(violated)

    def _roots(self, waiting: Sequence[int], written: int) -> dict[int, int]:
        """By tensor (as a bit) that waiting columns would write or read: tensors that it waits for in the end. Those
        that none of them writes."""
        roots: dict[int, int] = {}
        offered = written
        for j in waiting:
            offered |= self.pieces[j].writes
        for j in waiting:
            for t in bits(self.reads[j] & ~offered):
                roots[1 << t] = 1 << t
        changed = True
        while changed:
            changed = False
            for j in waiting:
                waits_for = 0
                for t in bits(self.reads[j] & ~written):
                    waits_for |= roots.get(1 << t, 0)
                if not waits_for:
                    continue
                for t in bits(self.pieces[j].writes & ~written):
                    known = roots.get(1 << t, 0)
                    if waits_for & ~known:
                        roots[1 << t] = known | waits_for
                        changed = True
        return roots

    def _open_set(
        self, writing: Mapping[int, Sequence[int]], written: int, output: int, roots: Mapping[int, int], root: int
    ) -> int:
        """A set that no column enters, of few tensors: the output, and of each column that would write into the set
        (`writing`: by tensor) one tensor that it waits for, best because of that root."""
        cut, stack = output, [output]
        while stack:
            for j in writing.get(stack.pop(), ()):
                if not self.reads[j] & cut:
                    lacking = [1 << t for t in bits(self.reads[j] & ~written)]
                    added = next((t for t in lacking if roots.get(t, 0) & root), lacking[0])
                    cut |= added
                    stack.append(added)
        return cut

    def _crosses(self, j: int, cut: int) -> bool:
        return bool(self.pieces[j].writes & cut) and not self.reads[j] & cut

    def stored(self, tensor: int) -> Decision:
        """Whether a tensor is written, and may be read."""
        if known := self._decisions.get(("stored", tensor, 0)):
            return known
        bit = 1 << tensor
        reading = [j for j, reads in enumerate(self.reads) if reads & bit]
        return self._decision(("stored", tensor, 0), self.writing.get(tensor, []), reading)

    def together(self, a: int, b: int) -> Decision:
        """Whether some piece computes both atoms."""
        both = 1 << a | 1 << b
        return self._decision(("together", a, b), [j for j, p in enumerate(self.pieces) if p.members & both == both])

    def taking(self, column: int) -> Decision:
        """Whether one piece is taken."""
        return self._decision(("taking", column, 0), [column])

    def _decision(self, key: tuple[str, int, int], some: list[int], others: Collection[int] = ()) -> Decision:
        if key not in self._decisions:
            row = self.relaxation.add_row(some)
            self.relaxation.demand(row, FREE)
            self._decisions[key] = Decision(row, np.array([*some, *others], dtype=np.intp))
        return self._decisions[key]
