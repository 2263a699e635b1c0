"""How long races will take."""

import pytest

from codegen.timing.race_time import RaceTime


def test_what_every_race_takes_is_not_counted_for_each_candidate() -> None:
    pace = RaceTime(0.8)
    pace.note("a", 2, compiled=0.0, seconds=1.4, once=0.0)
    assert pace.seconds("a", 1) == pytest.approx(0.8 + 0.3)
    assert pace.seconds("a", 8) == pytest.approx(0.8 + 2.4)
    pace.note("a", 4, compiled=0.0, seconds=0.6, once=0.0)
    assert pace.seconds("a", 8) == pytest.approx(0.6), "its finals ended early"


def test_what_the_first_race_took_once_is_not_counted_again() -> None:
    pace = RaceTime(0.8)
    pace.note("a", 1, compiled=0.0, seconds=4.0, once=3.0)
    assert pace.seconds("a", 2) == pytest.approx(0.8 + 0.4)


def test_compilers_work_side_by_side() -> None:
    pace = RaceTime(0.8, at_once=4)
    pace.note("a", 1, compiled=1.5, seconds=1.0, once=0.0)
    assert pace.seconds("a", 4) == pytest.approx(1.5 + 0.8 + 4 * 0.2)
    assert pace.seconds("a", 5) == pytest.approx(3.0 + 0.8 + 5 * 0.2)
    pace.note("a", 8, compiled=4.0, seconds=0.8, once=0.0)
    assert pace.seconds("a", 1) == pytest.approx(2.0 + 0.8)


def test_one_race_that_waited_for_others_says_little_of_the_rest() -> None:
    pace = RaceTime(0.8)
    for key, compiled in zip("abcd", (0.1, 0.2, 0.3, 5.0), strict=True):
        pace.note(key, 1, compiled=compiled, seconds=0.0, once=0.0)
    assert pace.first_seconds(frozenset("abcd"), 1) == pytest.approx(0.3)
    assert pace.first_seconds(frozenset("ad"), 1) == pytest.approx(5.0)


def test_an_unknown_segment_takes_as_long_as_the_slower_of_two_did_at_first() -> None:
    pace = RaceTime(0.8)
    assert pace.seconds("b", 8) == pace.first_seconds(frozenset("a"), 8) == 0.0, "nothing is known"
    pace.note("a", 1, compiled=0.0, seconds=4.0, once=3.0)
    pace.note("a", 2, compiled=0.0, seconds=1.2, once=0.0)
    pace.note("c", 1, compiled=0.0, seconds=1.0, once=0.1)
    assert pace.seconds("b", 2) == 0.0
    assert pace.first_seconds(frozenset("ac"), 2) == pytest.approx(0.8 + 3.0 + 0.4)
    assert pace.first_seconds(frozenset("c"), 1) == pytest.approx(0.1 + 0.9)


def test_the_start_of_children_says_nothing_of_other_segments() -> None:
    pace = RaceTime(0.8)
    pace.note("a", 1, compiled=3.0, seconds=1.0, once=2.0, cold=True)
    assert pace.first_seconds(frozenset("a"), 1) >= 5.0, "as long as nothing else is known"
    pace.note("b", 1, compiled=0.5, seconds=0.4, once=0.0)
    assert pace.first_seconds(frozenset("ab"), 1) == pytest.approx(0.9)
    pace.note("a", 1, compiled=0.6, seconds=0.4, once=0.0)
    assert pace.first_seconds(frozenset("ab"), 1) == pytest.approx(2.0 + 1.0)


def test_of_a_smaller_segment_less_is_done_once() -> None:
    pace = RaceTime(0.8)
    pace.note("a", 1, compiled=0.0, seconds=4.0, once=3.0, work=1000.0)
    pace.note("b", 1, compiled=0.0, seconds=1.5, once=1.0, work=10.0)
    assert pace.first_seconds(frozenset("a"), 1, work=100.0) == pytest.approx(0.3 + 1.0)
    assert pace.first_seconds(frozenset("a"), 1, work=1e6) == pytest.approx(3.0 + 1.0), "no more than is known"
    assert pace.first_seconds(frozenset("ab"), 1, work=100.0) == pytest.approx(1.0 + 0.5), "as long as a smaller one"
