"""Where a search's seconds went, and what others did to its races."""

from fusion_ir.records import Moment, Surroundings
from scheduler.deadline import Deadline
from scheduler.spending import spending


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def race(seconds: float, disturbed: float | None = None, repeated: int | None = None) -> Surroundings:
    return Surroundings(start=Moment(), end=Moment(), seconds=seconds, disturbed=disturbed, repeated=repeated)


def test_phases_add_up() -> None:
    clock = Clock()
    deadline = Deadline(60.0, 0.0, None, clock)
    for phase, seconds in (("candidates", 2.0), ("segments", 4.0), ("plans", 1.0), ("segments", 0.5), ("done", 3.0)):
        deadline.tell(phase, 0)
        clock.now += seconds
    found = spending(deadline, [])
    assert (found.finding_s, found.kernels_s, found.plans_s) == (2.0, 4.5, 1.0)
    deadline.tell("plans", 0)
    clock.now += 0.25
    assert spending(deadline, []).plans_s == 1.25, "a phase that goes on counts, too"


def test_others_count_by_the_time_of_races() -> None:
    deadline = Deadline(60.0, 0.0, None, Clock())
    found = spending(deadline, [race(1.0, 0.5, 3), race(3.0, 0.1), race(4.0)])
    assert (found.racing_s, found.repeated) == (8.0, 3)
    assert found.disturbed is not None and abs(found.disturbed - 0.2) < 1e-12
    assert spending(deadline, [race(1.0)]).disturbed is None, "the machine does not say"
