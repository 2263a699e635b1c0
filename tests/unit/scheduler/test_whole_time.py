"""Plans that take far more or less than their steps are timed again, and say so where it stays."""

from collections.abc import Sequence

import pytest

from fusion_ir.core.graph import Graph
from fusion_ir.records import Plan, Reason
from fusion_ir.units import duration
from scheduler.plans.step_sum import FAR
from scheduler.plans.whole_time import Whole, measure_whole, retold, told
from tests.support.stored_plans import chain, plan_of
from tests.unit.scheduler.fakes import FakeBench, Timing

STEPS_US = 100.0


class Races(FakeBench):
    """Races that take a second each, in which the plans take these times."""

    times: tuple[Sequence[float], ...] = ()
    left_s = 0.0

    def measure_plans(self, graph: Graph, plans: Sequence[Plan], *, seed: int = 0, seconds: float) -> list[Timing]:
        (race, *later), self.left_s = self.times, self.left_s - 1.0
        self.times = tuple(later)
        return [Timing((us,) * 20) for us in race]


def plan(time_us: float | None = STEPS_US) -> Plan:
    made = plan_of(chain())
    steps = tuple(s.model_copy(update={"time_us": STEPS_US / len(made.steps)}) for s in made.steps)
    return made.model_copy(update={"steps": steps, "time_us": time_us, "spread": 0.01})


def races(left_s: float, *times: Sequence[float]) -> tuple[Whole, int]:
    bench = Races()
    bench.times, bench.left_s = times, left_s
    plans = [plan() for _ in times[0]]
    found = measure_whole(bench, chain(), plans, seed=0, seconds=1.0, left=lambda: bench.left_s)
    return found, len(times) - len(bench.times)


@pytest.mark.parametrize("us", [STEPS_US, STEPS_US * 0.99 * FAR, STEPS_US / FAR * 1.01])
def test_a_plan_about_as_long_as_its_steps_is_timed_once(us: float) -> None:
    found, made = races(10.0, [STEPS_US, us], [1.0, 1.0])
    assert (made, found.again, found.results[1].samples_us[0]) == (1, False, us)
    assert told(plan(us), found.again, 0.5) is None


@pytest.mark.parametrize("us", [STEPS_US * 1.3, STEPS_US / 1.3, STEPS_US * 20])
def test_a_plan_far_from_its_steps_is_timed_again(us: float) -> None:
    found, made = races(10.0, [STEPS_US, us], [98.0, 102.0])
    assert (made, found.again) == (2, True)
    assert [r.samples_us[0] for r in found.results] == [98.0, 102.0], "all of one race"
    stays, made = races(10.0, [STEPS_US, us], [STEPS_US, 30 * us])
    assert (made, stays.again) == (2, True)
    assert [r.samples_us[0] for r in stays.results] == [STEPS_US, us], "of both, what is nearer"
    reason = told(plan(us), stays.again, 0.37)
    assert reason is not None and reason.kind == "note"
    assert f"{us / STEPS_US:.2f}x the 100 µs of its steps timed one by one, timed twice" in reason.text
    assert "others had the CPUs during 37% of that" in reason.text


def test_no_time_is_taken_that_is_not_there() -> None:
    found, made = races(1.5, [2 * STEPS_US], [STEPS_US])
    assert (made, found.again) == (1, False)
    reason = told(plan(2 * STEPS_US), found.again, None)
    assert reason is not None and reason.text.endswith(", timed once")


def test_what_was_not_timed_says_nothing() -> None:
    assert told(plan(None), False, None) is None
    assert told(plan(500.0).model_copy(update={"spread": None}), False, None) is None


def test_a_plan_timed_anew_says_of_its_steps_what_is_so_now() -> None:
    cap = Reason(kind="cap", text="covers: branching ran out of time")
    before = told(plan(2 * STEPS_US), True, 0.3)
    assert before is not None
    again = retold(plan(STEPS_US).model_copy(update={"reasons": (before, cap)}), None)
    assert again == (cap,)
    far = retold(plan(3 * STEPS_US).model_copy(update={"reasons": (before, cap)}), None)
    assert [r.text.partition("x the")[0] for r in far] == [f"takes {duration(3 * STEPS_US)} as a whole, 3.00", cap.text]
