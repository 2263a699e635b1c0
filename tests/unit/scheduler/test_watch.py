"""How many candidates there is time for."""

from scheduler.watch import Watch
from tests.unit.scheduler.fakes import Clock


def test_races_are_cut_to_the_time_left() -> None:
    clock = Clock()
    watch = Watch(10.0, 2.0, None, clock)
    assert watch.affordable(lambda n: 0.0, 8) == 8, "nothing is known of them"
    clock.now = 3.0
    assert watch.affordable(lambda n: 1.5 * n, 8) == 3, "5 seconds are left"
    assert watch.affordable(lambda n: 1.5 * n, 2) == 2
    assert watch.affordable(lambda n: 2.0 + n, 8) == 3
    assert not watch.is_over()
    clock.now = 7.0
    assert watch.affordable(lambda n: 1.5 * n, 8) == 0
    assert watch.is_over(), "a second is left, and nothing to do in it"
