"""Separation: open sets of tensors, whose rows a solution of the relaxation violates.

Let U be a set of tensors with an output among them. Pieces enter U that write into it and read nothing of it: every
cover takes at least one of these. U is open where a solution takes less than one of them in all. Where it takes pieces
in part, sets are open at a tensor of which more is read than written:

    half of a piece writes t, two halves of others read t and write an output u: 1 enters {u}, 1/2 enters {u, t}

Sets that are known are enlarged by such tensors, one after the other, as long as that keeps more out (what reads the
tensor) than it lets in (what writes it). Where that finds nothing, tensors count that let in as much as they keep out:

    half of a piece writes a and b, half of another reads a and writes u, half of a third reads b and writes u:
    1 enters {u}, {u, a} and {u, b}; 1/2 enters {u, a, b}

The best set is as hard to find as a cover; but where all pieces are taken whole, and are no cover, an open set is
found.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

NEAR = 1e-6  # as the solver leaves 0 and 1
MOST_SWEEPS = 50  # over columns that wait for each other
MOST_MORE = 12  # tensors by which a set is enlarged: what is far from its beginning is found from nearer sets


class Column(NamedTuple):
    """Tensors that a piece reads, as a mask (`reads`) and listed (`read`), and tensors that it writes."""

    reads: int
    read: tuple[int, ...]
    written: tuple[int, ...]


class Known(NamedTuple):
    """A set of tensors that has a row, and the columns of the solution that enter it."""

    tensors: int
    entering: Sequence[int]


@dataclass(frozen=True)
class FractionalSolution:
    """A solution of the relaxation. x: parts taken by column, in about the order of execution."""

    columns: Sequence[Column]
    x: Mapping[int, float]

    @cached_property
    def writing(self) -> dict[int, list[int]]:
        """By tensor, the columns that write it."""
        writing: dict[int, list[int]] = {}
        for j in self.x:
            for t in self.columns[j].written:
                writing.setdefault(t, []).append(j)
        return writing

    @cached_property
    def written(self) -> dict[int, float]:
        """By tensor, the sum of the parts of columns that write it."""
        return {t: sum(self.x[j] for j in writing) for t, writing in self.writing.items()}

    @cached_property
    def founded(self) -> dict[int, float]:
        """`written`, where no more of a column counts than there is of each tensor that it reads."""
        there: dict[int, float] = {}
        counted = dict.fromkeys(self.x, 0.0)
        for _ in range(MOST_SWEEPS):
            before = sum(counted.values())
            for j, part in self.x.items():
                if counted[j] < part:
                    more = min((part, *(there.get(t, 0.0) for t in self.columns[j].read))) - counted[j]
                    counted[j] += more
                    for t in self.columns[j].written:
                        there[t] = there.get(t, 0.0) + more
            if sum(counted.values()) == before:
                break
        return there

    def open_sets(self, known: Mapping[int, Known]) -> list[tuple[int, int]]:
        """Open sets, each as the number of a known set and the tensors that enlarge it. A set is left out whose
        enlarging tensors include all of another's."""
        return (
            self._open(known, partial(self._enlarged, there=self.written, alone=False), self._lacking(self.written))
            or self._open(known, self._led_on, lambda of: any(self.x[j] < 1 - NEAR for j in of.entering))
            or self._open(known, partial(self._enlarged, there=self.founded, alone=True), self._lacking(self.founded))
        )

    def _lacking(self, there: Mapping[int, float]) -> Callable[[Known], bool]:
        """A test whether columns that enter a set may read more of some tensor than there is."""
        whole = {t for t, part in there.items() if part >= 1 - NEAR / 2}  # as long as no more than 1 enters
        supplied = {j for j in self.x if whole.issuperset(self.columns[j].read)}
        return lambda of: not supplied.issuperset(of.entering) or self._part(of.entering) > 1 + NEAR / 2

    def _open(
        self, known: Mapping[int, Known], enlarged: Callable[[Known], int], may_be: Callable[[Known], bool]
    ) -> list[tuple[int, int]]:
        found: list[tuple[int, int, int]] = []
        for number, of in known.items():
            if may_be(of) and (more := enlarged(of)):
                found.append((more.bit_count(), more, -number))
        least: list[tuple[int, int]] = []  # of a tensor, the set that is known last: fewest tensors need it
        for _, more, negative in sorted(found):
            if all(fewer & ~more for _, fewer in least):
                least.append((-negative, more))
        return least

    def _enlarged(self, known: Known, there: Mapping[int, float], *, alone: bool) -> int:
        """The tensors that enlarge a set so that it is open; 0 where none do. alone: of a tensor's readers only those
        count that read more of it than there is each by itself."""
        more, entering = 0, known.entering
        while True:
            reading: dict[int, float] = {}
            for j in entering:
                for t in self.columns[j].read:
                    if not alone or self.x[j] > there.get(t, 0.0) + NEAR:
                        reading[t] = reading.get(t, 0.0) + self.x[j]
            gain, t = max(((part - there.get(t, 0.0), t) for t, part in reading.items()), default=(0.0, 0))
            if gain > NEAR and more.bit_count() == MOST_MORE:
                return 0
            if gain <= NEAR:
                return more if more and self._part(entering) < 1 - NEAR else 0
            more |= 1 << t
            entering = self._entering(entering, known.tensors | more, t)

    def _led_on(self, known: Known) -> int:
        """`_enlarged`, but also by tensors that let in as much as they keep out, for the sake of others behind them."""
        more, entering, part = 0, known.entering, self._part(known.entering)
        while more.bit_count() < MOST_MORE:
            read = {t for j in entering if self.x[j] < 1 - NEAR for t in self.columns[j].read}
            ways = {t: self._entering(entering, known.tensors | more | 1 << t, t) for t in sorted(read)}
            least, t = min(((self._part(way), t) for t, way in ways.items()), default=(math.inf, 0))
            if least > part + NEAR or (part < 1 - NEAR and least > part - NEAR):
                break
            more, entering, part = more | 1 << t, ways[t], least
        return more if more and part < 1 - NEAR else 0

    def _entering(self, entering: Sequence[int], tensors: int, t: int) -> list[int]:
        """Columns that enter a set of tensors. entering: columns that entered it before `t` was added."""
        both = dict.fromkeys((*entering, *self.writing.get(t, ())))
        return [j for j in both if not self.columns[j].reads & tensors]

    def _part(self, columns: Sequence[int]) -> float:
        """The sum of the parts of these columns."""
        return sum([self.x[j] for j in columns])
