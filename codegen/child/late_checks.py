"""Checks of the outputs of timed runs: a kernel that was right in its checks may be wrong later, or now and then.

Runs of a race write several sets of outputs in turn, so that each set still holds what some candidate's run gave. Where
these are fewer than sets of inputs, what each visit to a candidate left is looked at when the visit ends, and copied
where it differs from what the candidate wrote before. Finalists of few runs run some more, untimed.
"""

import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from codegen.child.case import Array, Case, Verdict, judge
from codegen.child.cpu_memory import POISON, TimingMemory
from fusion_ir.accuracy.tolerance import Order
from fusion_ir.arithmetic.threads import copied, equal

MOST_BYTES = 64 << 20  # of outputs that are looked at, those of one set apart
MOST_JUDGED = 4  # runs of a candidate whose bits differ, as they may where sums are in no fixed order
VISIT_BYTES = 1 << 20  # of outputs that are looked at after one visit, those of one run in any case
# Runs of a finalist that are looked at, as far as MORE_SECONDS reach: a kernel that is wrong once in 16 runs is right
# in so many by one chance in 4,000.
LEAST_RUNS = 128
MORE_SECONDS = 0.005


class Runs:
    """The candidate that wrote each set of outputs last, and copies of different outputs that candidates wrote.
    candidates: number of those that are timed."""

    def __init__(self, memory: TimingMemory, written_bytes: int, candidates: int) -> None:
        self._memory = memory
        self._last = np.full(memory.output_sets, -1)
        self._all_stay = memory.output_sets == memory.sets
        self._of_visit = max(1, VISIT_BYTES // max(1, written_bytes))
        self.share = max(1, MOST_BYTES // max(1, written_bytes * max(1, candidates)))
        self.copies: dict[int, deque[list[Array]]] = defaultdict(lambda: deque(maxlen=min(self.share, 1 + MOST_JUDGED)))
        self._seen: Counter[int] = Counter()  # runs that were looked at, by candidate

    def note(self, candidate: int, first: int, runs: int) -> None:
        """The candidate wrote `runs` sets in turn, from set `first` on."""
        self._last[np.arange(first, first + runs) % len(self._last)] = candidate

    def look(self, candidate: int, first: int, runs: int, aliases: Mapping[int, int]) -> None:
        """Looks at what the last of `runs` runs wrote, from run `first` on, where others soon write over it."""
        if self._all_stay:
            return
        left = min(runs, self._memory.output_sets, self._of_visit)
        for run in range(first + runs - left, first + runs):
            found = outputs(self._memory, run % self._memory.output_sets, aliases)
            if not any(same(found, copy) for copy in self.copies[candidate]):
                self.copies[candidate].append([copied(array) for array in found])
        self._seen[candidate] += left

    def lacks(self, candidate: int) -> bool:
        """Whether few runs of a candidate were looked at, of those that others write over."""
        return not self._all_stay and self._seen[candidate] < LEAST_RUNS

    def of(self, candidate: int) -> list[int]:
        """Sets that this candidate wrote last."""
        return [int(s) for s in np.flatnonzero(self._last == candidate)]

    def forget(self) -> None:
        """Notes that no set holds any candidate's outputs any more."""
        self._last[:] = -1
        self.copies.clear()
        self._seen.clear()


def outputs(memory: TimingMemory, which: int, aliases: Mapping[int, int]) -> list[Array]:
    """One set of outputs. aliases: those that are other entries of a candidate's table."""
    values = memory.tensors(which)
    for i, j in aliases.items():
        values[memory.inputs + i] = values[j]
    return values[memory.inputs :]


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
    timed runs left and, where few were looked at, that more runs leave. judging(candidate): called before a comparison
    begins. Wrong outputs in a set whose inputs were changed count against no candidate.
    """
    wrong: dict[int, Verdict] = {}
    proven: list[Array] = []

    def results(which: int, i: int) -> list[Array]:
        return outputs(memory, which, aliases[i])

    def verdict(which: int, i: int) -> Verdict:
        return judge(case, 0, results(which, i), orders[i])

    for i in (i for i in aliases if 0 in runs.of(i)):  # before somebody else runs there
        judging(i)
        if (found := verdict(0, i)).problem and memory.is_intact(0):
            wrong[i] = _late(found)
    for i in (i for i in aliases if i not in wrong):
        memory.restore(0, POISON[0])
        run(i)
        runs.note(i, 0, 1)
        judging(i)
        made = [copied(array) for array in results(0, i)]
        if not memory.has_inputs(0):
            wrong[i] = Verdict("wrote into its inputs when it was timed", None)
            memory.restore_all(POISON[0])
            runs.forget()
            continue
        if not same(made, proven):
            found = judge(case, 0, made, orders[i])
            if found.problem:
                wrong[i] = _late(found)
                continue
            proven = made
        left = [s for s in runs.of(i) if s]
        differing = [s for s in left[-runs.share :] if not same(results(s, i), made)]
        for s in differing[:MOST_JUDGED]:
            if (found := verdict(s, i)).problem and memory.is_intact(s):
                wrong[i] = _late(found)
                break
        if i in wrong:
            continue
        end = time.monotonic() + MORE_SECONDS
        while runs.lacks(i) and time.monotonic() < end:
            run(i)
            runs.look(i, 0, 1, aliases[i])
        judging(i)
        for copy in [c for c in runs.copies[i] if not same(c, made)][-MOST_JUDGED:]:
            found = judge(case, 0, copy, orders[i])
            if found.problem and all(map(memory.has_inputs, range(memory.sets))):
                wrong[i] = _late(found)
                break
    return wrong


def _late(found: Verdict) -> Verdict:
    return Verdict(f"right when checked, wrong when timed: {found.problem}", found.max_rel_error)


def same(one: Sequence[Array], other: Sequence[Array]) -> bool:
    """Whether two lists of arrays agree bit for bit."""
    return len(one) == len(other) and all(map(_equal, one, other))


def _equal(one: Array, other: Array) -> bool:
    bits = f"u{one.dtype.itemsize}"
    return equal(one.view(bits), other.view(bits))
