"""Whether a run is the long one (`make soak` sets FUSEPLAN_RANDOM_GRAPHS to thousands), and parts of sweeps for others.

Other runs draw a part of each sweep with a fresh seed, which pytest prints at its start and FUSEPLAN_TEST_SEED sets.
"""

import os
import random
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import pytest

T = TypeVar("T")
WHOLE = int(os.environ.get("FUSEPLAN_RANDOM_GRAPHS", "0")) >= 2000
SEED = "FUSEPLAN_TEST_SEED"


def seed() -> int:
    """The seed of this run."""
    return int(os.environ.get(SEED, "0"))


def some(cases: Iterable[T], count: int, name: str = "") -> list[T]:
    """`count` of the cases in their order, the first and the last among them; all of them in the long run. name: of the
    sweep: several of one run draw differently."""
    every = list(cases)
    if WHOLE or len(every) <= count:
        return every
    drawn = random.Random(f"{seed()} {name} {len(every)}").sample(range(1, len(every) - 1), max(count - 2, 0))
    return [every[i] for i in sorted({0, *drawn, len(every) - 1})]


def in_turn(cases: Iterable[T], count: int, name: str = "") -> list[T]:
    """`count` of the cases in their order, any of them; all of them in the long run. For parameters and parts of tests
    that take long, each of them: over many runs every case has its turn. A parameter that was not drawn cannot be named
    on the command line, unless FUSEPLAN_TEST_SEED is set to a seed that draws it. name: as of `some`."""
    every = list(cases)
    if WHOLE or len(every) <= count:
        return every
    drawn = random.Random(f"{seed()} {name} {len(every)}").sample(range(len(every)), count)
    return [every[i] for i in sorted(drawn)]


def one_part(cases: Iterable[T], most: int, name: str = "") -> list[T]:
    """The cases of one part, of as few parts as have `most` cases or fewer; all of them in the long run. Every run has
    the same parts, each of cases from all over: a file that is compiled for a part is kept until a later run draws that
    part, which a file for cases drawn one by one never is. name: as of `some`."""
    every = list(cases)
    parts = -(-len(every) // most)
    if WHOLE or parts <= 1:
        return every
    return every[random.Random(f"{seed()} {name} {len(every)}").randrange(parts) :: parts]


def few_or_all(few: Sequence[Any], rest: Sequence[Any]) -> list[Any]:
    """Parameters of a test marked `soak`: the first few in every run, the rest in the long one as well."""
    return [*few, *(rest if WHOLE else ())]


def drawn_parameters(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    """Parameters of the tests of the request's module that this run has: its fixtures compile what these need."""
    mine = (i for i in request.session.items if isinstance(i, pytest.Function) and i.path == request.path)
    return [i.callspec.params for i in mine if hasattr(i, "callspec")]
