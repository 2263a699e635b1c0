"""Checks of the outputs of timed runs: a kernel that was right in its checks may be wrong later, or now and then.

Runs of a race write several sets of outputs in turn, so that most sets still hold what some candidate's run gave.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from codegen.child.case import Array, Case, Verdict, judge
from codegen.child.cpu_memory import POISON, TimingMemory
from fusion_ir.accuracy.tolerance import Order
from fusion_ir.arithmetic.threads import copied, equal

MOST_BYTES = 64 << 20  # of outputs that are looked at, those of one set apart
MOST_JUDGED = 4  # runs of a candidate whose bits differ, as they may where sums are in no fixed order


class Runs:
    """The candidate that wrote each set of outputs last."""

    def __init__(self, sets: int) -> None:
        self._last = np.full(sets, -1)

    def note(self, candidate: int, first: int, runs: int) -> None:
        """The candidate wrote `runs` sets in turn, from set `first` on."""
        self._last[np.arange(first, first + runs) % len(self._last)] = candidate

    def of(self, candidate: int) -> list[int]:
        """Sets that this candidate wrote last."""
        return [int(s) for s in np.flatnonzero(self._last == candidate)]

    def forget(self) -> None:
        """Notes that no set holds any candidate's outputs any more."""
        self._last[:] = -1


def review(
    case: Case,
    memory: TimingMemory,
    runs: Runs,
    aliases: Mapping[int, Mapping[int, int]],
    orders: Mapping[int, Order],
    run: Callable[[int], None],
    judging: Callable[[int], None],
) -> dict[int, Verdict]:
    """Verdicts on the candidates whose timed runs were wrong, by candidate. aliases: by candidate, its outputs that are
    other entries of its table. orders: by candidate, the order of operations that it may use.

    Each candidate runs once more, by run(candidate) on set 0, over poisoned outputs. The outputs are compared with the
    interpreter's, or bit for bit with another candidate's that agreed with those, and then with the outputs that its
    timed runs left. judging(candidate): called before a comparison begins. Wrong outputs in a set whose inputs were
    changed count against no candidate.
    """
    wrong: dict[int, Verdict] = {}
    proven: list[Array] = []
    used = len(case.graph.inputs)

    def results(which: int, renamed: Mapping[int, int]) -> list[Array]:
        values = memory.tensors(which)
        for i, j in renamed.items():
            values[used + i] = values[j]
        return values[used:]

    def verdict(which: int, i: int) -> Verdict:
        return judge(case, 0, results(which, aliases[i]), orders[i])

    for i in (i for i in aliases if 0 in runs.of(i)):  # before somebody else runs there
        judging(i)
        if (found := verdict(0, i)).problem and memory.is_intact(0):
            wrong[i] = _late(found)
    share = max(1, MOST_BYTES // max(1, case.graph.written_bytes * max(1, len(aliases))))
    for i in (i for i in aliases if i not in wrong):
        memory.restore(0, POISON[0])
        run(i)
        runs.note(i, 0, 1)
        judging(i)
        made = results(0, aliases[i])
        if not memory.has_inputs(0):
            wrong[i] = Verdict("wrote into its inputs when it was timed", None)
            memory.restore_all(POISON[0])
            runs.forget()
            continue
        if not _same(made, proven):
            found = judge(case, 0, made, orders[i])
            if found.problem:
                wrong[i] = _late(found)
                continue
            proven = [copied(array) for array in made]
        left = [s for s in runs.of(i) if s]
        differing = [s for s in left[-share:] if not _same(results(s, aliases[i]), made)]
        for s in differing[:MOST_JUDGED]:
            if (found := verdict(s, i)).problem and memory.is_intact(s):
                wrong[i] = _late(found)
                break
    return wrong


def _late(found: Verdict) -> Verdict:
    return Verdict(f"right when checked, wrong when timed: {found.problem}", found.max_rel_error)


def _same(one: Sequence[Array], other: Sequence[Array]) -> bool:
    """Whether two lists of arrays agree bit for bit."""
    return len(one) == len(other) and all(map(_equal, one, other))


def _equal(one: Array, other: Array) -> bool:
    bits = f"u{one.dtype.itemsize}"
    return equal(one.view(bits), other.view(bits))
