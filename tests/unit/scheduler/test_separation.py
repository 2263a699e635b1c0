"""Open sets: what is found is open, and where pieces are no cover something is found."""

import random

from scheduler.bitset import bits
from scheduler.cover.execution_order import reached
from scheduler.cover.separation import NEAR, Column, FractionalSolution, Known
from tests.support.cover_problems import random_problem

PROBLEMS = 1_500


class Drawn:
    """A random problem's columns, of which each is taken in part with some chance."""

    def __init__(self, seed: int, draw: random.Random, chance: float, parts: tuple[float, ...]) -> None:
        problem = random_problem(seed)
        self.hypergraph, self.pieces = problem.hypergraph, sorted(problem.costs)
        reads = [self.hypergraph.read(p.members) for p in self.pieces]
        self.columns = [
            Column(r, tuple(bits(r)), tuple(bits(p.writes))) for r, p in zip(reads, self.pieces, strict=True)
        ]
        self.x = {j: draw.choice(parts) for j in range(len(self.pieces)) if draw.random() < chance}

    def entering(self, tensors: int) -> list[int]:
        return [j for j in self.x if self.pieces[j].writes & tensors and not self.columns[j].reads & tensors]

    def known(self, tensors: int) -> dict[int, Known]:
        """For each tensor, the set of it alone with the columns that enter that set."""
        return {t: Known(1 << t, self.entering(1 << t)) for t in bits(tensors)}


def test_what_is_found_is_open() -> None:
    draw, found = random.Random(0), 0
    for seed in range(PROBLEMS):
        drawn = Drawn(seed, draw, 0.6, (0.25, 0.5, 0.75, 1.0))
        for t, more in FractionalSolution(drawn.columns, drawn.x).open_sets(drawn.known(drawn.hypergraph.everything)):
            assert sum(drawn.x[j] for j in drawn.entering(1 << t | more)) < 1 - NEAR, seed
            found += 1
    assert found > 100


def test_where_pieces_taken_whole_are_no_cover_a_set_is_found() -> None:
    draw, open_ = random.Random(1), 0
    for seed in range(PROBLEMS):
        drawn = Drawn(seed, draw, 0.5, (1.0,))
        written = reached((drawn.pieces[j], drawn.columns[j].reads) for j in drawn.x)
        # The sets that nothing enters are open as they are.
        entered = {t: of for t, of in drawn.known(drawn.hypergraph.outputs).items() if of.entering}
        lacking = any(not written >> t & 1 for t in entered)
        assert bool(FractionalSolution(drawn.columns, drawn.x).open_sets(entered)) == lacking, seed
        open_ += lacking
    assert open_ > 50


def test_tensors_that_gain_nothing_lead_to_an_open_set() -> None:
    """0: writes a and b; 1: reads a, writes u; 2: reads b, writes u. Of each half."""
    a, b, u = 0, 1, 2
    columns = [Column(0, (), (a, b)), Column(1 << a, (a,), (u,)), Column(1 << b, (b,), (u,))]
    parts = FractionalSolution(columns, {0: 0.5, 1: 0.5, 2: 0.5})
    assert parts.open_sets({7: Known(1 << u, [1, 2])}) == [(7, 1 << a | 1 << b)]
