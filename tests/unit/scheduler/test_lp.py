"""The relaxation's solver: what it does where its way to the optimum does not end."""

import ctypes
import random

import numpy as np
import pytest

from scheduler.cover import lp as relaxation_
from scheduler.cover.lp import Relaxation

ROWS, COLUMNS = 40, 120


def _solved(seed: int) -> float:
    """The value of a random problem, in which a column is in five rows."""
    draw = random.Random(seed)
    relaxation = Relaxation([sorted(draw.sample(range(ROWS), 5)) for _ in range(COLUMNS)], ROWS)
    costs = np.array([draw.uniform(1.0, 9.0) for _ in range(COLUMNS)])
    relaxation.price(range(COLUMNS), costs)
    optimum = relaxation.solve()
    assert optimum is not None
    rows = np.zeros(ROWS)
    np.add.at(rows, relaxation._entries, optimum.x[relaxation._column_of])  # pyright: ignore[reportPrivateUsage]
    assert (rows >= 1 - 1e-6).all()
    assert optimum.value == pytest.approx(optimum.duals.sum()), "rows ask for 1 each"
    return optimum.value


def test_a_way_without_end_is_left_for_a_safe_one(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [_solved(seed) for seed in range(10)]
    monkeypatch.setitem(relaxation_.QUICK, "simplex_iteration_limit", 2)
    assert [_solved(seed) for seed in range(10)] == pytest.approx(expected)
    monkeypatch.setitem(relaxation_.SAFE, "simplex_iteration_limit", 2)
    with pytest.raises(RuntimeError, match="IterationLimit"):
        _solved(0)


def test_the_solver_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    _solved(0)
    ctypes.CDLL(None).fflush(None)
    assert capfd.readouterr() == ("", "")
