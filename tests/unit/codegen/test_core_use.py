"""Share of a search's core-seconds in which its cores were idle."""

from codegen.timing.core_use import CoreUse


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_search_alone_keeps_one_core_busy() -> None:
    clock = Clock()
    occupancy = CoreUse(2, clock)
    clock.now = 10.0
    assert occupancy.idle_share(10.0) == 0.5
    assert CoreUse(1, clock).idle_share(0.0) == 0.0


def test_who_waits_for_two_compilers_wastes_nothing() -> None:
    clock = Clock()
    occupancy = CoreUse(2, clock)
    with occupancy.waiting():
        with occupancy.working():
            with occupancy.working():
                clock.now = 4.0
            clock.now = 6.0  # one has ended before the other: half of two seconds
        clock.now = 7.0  # nobody works
    assert occupancy.core_seconds() == 2 * 4 + 2
    assert occupancy.idle_share(7.0) == 1 - 10 / 14


def test_more_than_the_cores_can_do_counts_as_all_of_them() -> None:
    clock = Clock()
    occupancy = CoreUse(2, clock)
    with occupancy.working(5):
        clock.now = 3.0
    assert occupancy.idle_share(3.0) == 0.0


def test_what_was_before_the_restart_does_not_count() -> None:
    clock = Clock()
    occupancy = CoreUse(2, clock)
    clock.now = 100.0
    occupancy.restart()
    with occupancy.working():
        clock.now = 104.0
    assert occupancy.idle_share(4.0) == 0.0
    assert occupancy.core_seconds() == 8.0


def test_a_process_keeps_as_many_cores_busy_as_it_uses_and_one_at_least() -> None:
    clock, used = Clock(), Clock()
    occupancy = CoreUse(4, clock)
    with occupancy.waiting():
        with occupancy.working_by(used):
            clock.now, used.now = 10.0, 25.0
        assert occupancy.core_seconds() == 25.0
        with occupancy.working_by(used):
            clock.now, used.now = 20.0, 27.0  # it waited for a core that others had
        assert occupancy.core_seconds() == 35.0
        with occupancy.working_by(used), occupancy.working(3):
            clock.now, used.now = 21.0, 29.0  # of four cores no more than four
        assert occupancy.core_seconds() == 39.0
        with occupancy.working_by(used):
            clock.now, used.now = 22.0, 0.0  # another process, whose clock began anew
        assert occupancy.core_seconds() == 40.0
