"""How many candidates there is time for."""

from scheduler.deadline import Deadline
from tests.unit.scheduler.fakes import Clock


def test_races_are_cut_to_the_time_left() -> None:
    clock = Clock()
    deadline = Deadline(10.0, 2.0, None, clock)
    assert deadline.affordable(lambda n: 0.0, 8) == 8, "nothing is known of them"
    clock.now = 3.0
    assert deadline.affordable(lambda n: 1.5 * n, 8) == 3, "5 seconds are left"
    assert deadline.affordable(lambda n: 1.5 * n, 2) == 2
    assert deadline.affordable(lambda n: 2.0 + n, 8) == 3
    assert not deadline.is_over()
    clock.now = 7.0
    assert deadline.affordable(lambda n: 1.5 * n, 8) == 0
    assert not deadline.is_over(), "something else may take less"
    deadline.finish()
    assert deadline.is_over(), "a second is left, and nothing to do in it"


def test_what_is_kept_is_no_more_than_what_it_takes() -> None:
    clock = Clock()
    deadline = Deadline(10.0, 3.0, None, clock, play_off_s=2.0)
    clock.now = 6.0
    assert deadline.is_over() and not deadline.is_time_for_plans()
    deadline.keep(play_off_s=0.5)
    assert not deadline.is_over()
    assert deadline.affordable(lambda n: 0.25 * n, 8) == 2
    deadline.finish()
    deadline.keep(plans_s=1.0)
    assert not deadline.is_over(), "there is time again"
    clock.now = 8.0
    assert not deadline.is_time_for_plans()
    assert deadline.affordable(lambda n: 0.25 * n, 8) == 2
    deadline.keep(plans_s=5.0, play_off_s=5.0)
    assert deadline.affordable(lambda n: 0.25 * n, 8) == 2, "never more than at first"


def test_what_is_kept_is_as_much_as_the_first_plans_took() -> None:
    clock = Clock()
    deadline = Deadline(10.0, 2.0, None, clock, play_off_s=1.0)
    deadline.keep(plans_s=12.0, least_plans_s=3.0)
    clock.now = 5.9
    assert not deadline.is_over()
    clock.now = 6.1
    assert deadline.is_over()
    clock.now = 7.1
    assert deadline.is_time_for_plans()


def test_measuring_has_half_of_what_is_left_whatever_the_first_plans_took() -> None:
    """Tensors of 100 MB take seconds to check, of a budget of six."""
    clock = Clock()
    deadline = Deadline(6.0, 0.5, None, clock)
    clock.now = 4.0
    deadline.keep(plans_s=14.0, least_plans_s=3.5)
    clock.now = 4.9
    assert not deadline.is_over()
    clock.now = 5.1
    assert deadline.is_over()
