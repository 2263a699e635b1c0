"""Sets of tensors into which a solution of the relaxation enters with less than it has to.

Let U be a set of tensors with an output among them. Pieces enter U that write into it and read nothing of it: of these
one at least is taken in every cover. Where a solution takes pieces in part, such sets are open at a tensor of which
more is read than written:

    half of a piece writes t, two halves of others read t and write an output u: 1 enters {u}, 1/2 enters {u, t}

Sets that are known are enlarged by such tensors, one after the other, as long as that keeps more out (what reads the
tensor) than it lets in (what writes it). The best set is as hard to find as a cover; but where all pieces are taken
whole, and are no cover, an open set is found.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

NEAR = 1e-6  # as the solver leaves 0 and 1
MOST_SWEEPS = 50  # over columns that wait for each other
MOST_MORE = 12  # tensors by which a set is enlarged: what is far from its beginning is found from nearer sets


class Column(NamedTuple):
    """What a piece reads, as a mask and listed, and what it writes."""

    reads: int
    read: tuple[int, ...]
    written: tuple[int, ...]


class Known(NamedTuple):
    """A set, and the columns that enter it of those that are taken."""

    tensors: int
    entering: Sequence[int]


@dataclass(frozen=True)
class Parts:
    """What a solution takes: by column, in about the order of execution, its part."""

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
        """Of each tensor, how much is written."""
        return {t: sum(self.x[j] for j in writing) for t, writing in self.writing.items()}

    @cached_property
    def founded(self) -> dict[int, float]:
        """The same where no more of a column counts than there is of all that it reads."""
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
        """Open sets, each as the number of one that is known and the tensors that it was enlarged by; of several that
        were enlarged by the same tensors, or more, one."""
        return (
            self._open(known, self.written, together=True)
            or self._open(known, self.founded, together=True)
            or self._open(known, self.founded, together=False)
        )

    def _open(self, known: Mapping[int, Known], there: Mapping[int, float], *, together: bool) -> list[tuple[int, int]]:
        found: list[tuple[int, int, int]] = []
        whole = {t for t, part in there.items() if part >= 1 - NEAR / 2}
        supplied = {j for j in self.x if whole.issuperset(self.columns[j].read)}
        for number, of in known.items():
            if supplied.issuperset(of.entering) and sum([self.x[j] for j in of.entering]) <= 1 + NEAR / 2:
                continue  # nor is more read of any tensor
            if more := self._enlarged(of, there, together):
                found.append((more.bit_count(), more, -number))
        least: list[tuple[int, int]] = []  # of a tensor, the set that is known last: fewest tensors need it
        for _, more, negative in sorted(found):
            if all(fewer & ~more for _, fewer in least):
                least.append((-negative, more))
        return least

    def _enlarged(self, known: Known, there: Mapping[int, float], together: bool) -> int:
        """The tensors by which a set is enlarged; none where that does not leave it open. together: columns count that
        read more of a tensor than there is only with others."""
        more, entering = 0, known.entering
        while True:
            reading: dict[int, float] = {}
            for j in entering:
                for t in self.columns[j].read:
                    if together or self.x[j] > there.get(t, 0.0) + NEAR:
                        reading[t] = reading.get(t, 0.0) + self.x[j]
            gain, t = max(((part - there.get(t, 0.0), t) for t, part in reading.items()), default=(0.0, 0))
            if gain > NEAR and more.bit_count() == MOST_MORE:
                return 0
            if gain <= NEAR:
                return more if more and sum(self.x[j] for j in entering) < 1 - NEAR else 0
            more |= 1 << t
            both = dict.fromkeys((*entering, *self.writing.get(t, ())))
            entering = [j for j in both if not self.columns[j].reads & (known.tensors | more)]
