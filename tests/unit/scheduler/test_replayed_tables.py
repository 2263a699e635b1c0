"""The search on tables of real measurements (benchmarks/data): what it finds, and that more trials never lose it."""

from itertools import pairwise
from statistics import fmean

import pytest

from benchmarks.tuner.replay import ReplayBench, Table, device, median_training, tables
from benchmarks.tuner.run import Known, chance, ours
from scheduler.segments.atom_cuts import cut
from scheduler.segments.enumeration import Candidate
from scheduler.tuning.trials import Ledger

TABLES = tables()
DEVICE = device()
some_tables = pytest.mark.parametrize("table", TABLES[::6], ids=lambda t: t.name)


def test_tables_are_of_many_schedules() -> None:
    """At least thirty segments with at least a hundred kernels each, most of which work."""
    assert len(TABLES) >= 30
    assert min(len(t.kernels()) for t in TABLES) >= 100


@some_tables
def test_schedules_of_the_tables_are_still_those_of_their_families(table: Table) -> None:
    """Otherwise the tables have to be made anew."""
    for name, family in table.families.items():
        assert family.accepts(table.graph, DEVICE) is None
        kernel = family.emit(table.graph, family.space(table.graph, DEVICE)[0], DEVICE)
        assert table.rows[table.spelling(kernel, DEVICE)].family == name


@pytest.mark.sweep(0.2)
@some_tables
def test_more_trials_are_never_worse(table: Table) -> None:
    """By what the search got to see. Differences of 1 % count as none: the earlier schedule stays."""
    for seed in range(3):
        bench = ReplayBench(table, DEVICE)
        ledger = Ledger(DEVICE, table.families, Known({}), bench, seed)
        atoms = cut(table.graph, lambda _atoms, _atom: True)
        candidate = ledger.acceptor.ask(atoms, atoms.piece((1 << len(atoms)) - 1))
        assert isinstance(candidate, Candidate)
        entry, seen = ledger.logs.open(candidate), list[float]()
        while bench.trials < 40 and (entry.pending or ledger.extend(candidate, 4)):
            ledger.measure(candidate, 4)
            assert entry.winner
            winner = table.spelling(entry.kernels[entry.winner], DEVICE)
            seen.append(median_training(table.rows[winner]))
        assert len(seen) > 5
        assert all(later <= earlier * 1.01 for earlier, later in pairwise(seen)), seen


@pytest.mark.turn("more than chance")
def test_few_trials_find_more_than_chance_does() -> None:
    """After 12 trials, on the tables where chance finds least."""
    hard = sorted(TABLES, key=lambda t: -fmean(chance(t, DEVICE, s)[32] for s in range(6)))[:4]
    found = fmean(ours(table, DEVICE, seed, Known({}))[0][12] for table in hard for seed in range(2))
    drawn = fmean(chance(table, DEVICE, seed)[12] for table in hard for seed in range(20))
    assert found < drawn
