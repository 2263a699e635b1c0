"""How many candidates there is time for."""

from scheduler.watch import Watch
from tests.unit.scheduler.fakes import Clock


def test_batches_are_cut_to_the_time_left() -> None:
    clock = Clock()
    watch = Watch(10.0, 2.0, None, clock)
    assert watch.affordable("a", 8) == 8, "nothing is known of it"
    clock.now = 3.0
    watch.paced("a", 2, 0.0)
    assert watch.affordable("a", 8) == 3, "5 seconds are left, 1.5 for each"
    assert watch.affordable("a", 2) == 2
    assert watch.affordable("b", 8) == 8
    clock.now = 9.0
    assert watch.affordable("a", 8) == 1
