"""How long races will take."""

import pytest

from codegen.pace import Pace


def test_what_every_race_takes_is_not_counted_for_each_candidate() -> None:
    pace = Pace(0.8)
    pace.note("a", 2, seconds=1.4, once=0.0)
    assert pace.seconds("a", 1) == pytest.approx(0.8 + 0.3)
    assert pace.seconds("a", 8) == pytest.approx(0.8 + 2.4)
    pace.note("a", 4, seconds=0.6, once=0.0)
    assert pace.seconds("a", 8) == pytest.approx(0.8), "its finals ended early"


def test_what_the_first_race_took_once_is_not_counted_again() -> None:
    pace = Pace(0.8)
    pace.note("a", 1, seconds=4.0, once=3.0)
    assert pace.seconds("a", 2) == pytest.approx(0.8 + 0.4)


def test_an_unknown_segment_takes_as_long_as_the_slowest_did_at_first() -> None:
    pace = Pace(0.8)
    assert pace.seconds("b", 8) == 0.0, "nothing is known"
    pace.note("a", 1, seconds=4.0, once=3.0)
    pace.note("a", 2, seconds=1.2, once=0.0)
    pace.note("c", 1, seconds=1.0, once=0.1)
    assert pace.seconds("b", 2) == pytest.approx(0.8 + 3.0 + 0.4)
