"""Open sets: what is found is open, and where pieces are no cover something is found."""

import random

from scheduler.masks import bits
from scheduler.open_sets import NEAR, Column, Known, Parts
from scheduler.piece import Piece
from scheduler.producers import Producers, reached
from tests.support.cover_problems import random_problem

PROBLEMS = 400


def columns_of(producers: Producers, pieces: list[Piece]) -> list[Column]:
    reads = [producers.read(p.members) for p in pieces]
    return [Column(r, tuple(bits(r)), tuple(bits(p.writes))) for r, p in zip(reads, pieces, strict=True)]


def entering(pieces: list[Piece], columns: list[Column], x: dict[int, float], tensors: int) -> list[int]:
    return [j for j in x if pieces[j].writes & tensors and not columns[j].reads & tensors]


def test_what_is_found_is_open() -> None:
    draw, found = random.Random(0), 0
    for seed in range(PROBLEMS):
        problem = random_problem(seed)
        producers, pieces = problem.producers, sorted(problem.costs)
        columns = columns_of(producers, pieces)
        x = {j: draw.choice((0.25, 0.5, 0.75, 1.0)) for j in range(len(pieces)) if draw.random() < 0.6}
        tensors = bits(producers.everything)
        known = {t: Known(1 << t, entering(pieces, columns, x, 1 << t)) for t in tensors}
        for t, more in Parts(columns, x).open_sets(known):
            inside = 1 << t | more
            assert sum(x[j] for j in entering(pieces, columns, x, inside)) < 1 - NEAR, seed
            found += 1
    assert found > 100


def test_where_pieces_taken_whole_are_no_cover_a_set_is_found() -> None:
    draw, open_ = random.Random(1), 0
    for seed in range(PROBLEMS):
        problem = random_problem(seed)
        producers, pieces = problem.producers, sorted(problem.costs)
        columns = columns_of(producers, pieces)
        x = {j: 1.0 for j in range(len(pieces)) if draw.random() < 0.5}
        written = reached((pieces[j], columns[j].reads) for j in x)
        known = {t: Known(1 << t, entering(pieces, columns, x, 1 << t)) for t in bits(producers.outputs)}
        closed = {t: of for t, of in known.items() if of.entering}  # the others are open as they are
        lacking = any(not written >> t & 1 for t in closed)
        assert bool(Parts(columns, x).open_sets(closed)) == lacking, seed
        open_ += lacking
    assert open_ > 50
