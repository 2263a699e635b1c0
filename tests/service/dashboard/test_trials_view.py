"""The page of trials: what the plan took stands first, and what seems faster says why it did not win."""

import pytest

from fusion_ir.records import Measurement, Plan, Status
from service.dashboard.trials_view import FEW, Tried, trials_view
from service.wording.trial_endings import beside_winner, ending
from tests.support.stored_plans import DEVICE, chain, plan_of
from tuning_db.measurements import Trial

PLAN: Plan = plan_of(chain())  # of pointwise{lanes=8}
NEVER = "never raced with the plan's"


def tried(lanes: int, *samples_us: float, race: str = "r1", **changed: object) -> Measurement:
    made = Measurement(
        segment_key=PLAN.steps[0].segment_key, device_key=DEVICE.class_key, family="pointwise",
        schedule=f"pointwise{{lanes={lanes}}}", status=Status.ok, samples_us=samples_us, race=race,
    )  # fmt: skip
    return made.model_copy(update=changed)


def shown(*rows: Measurement) -> Tried:
    [one] = trials_view(PLAN, lambda _: [Trial(m, "0", 0.0) for m in rows], 0.0)
    return one


def test_what_the_plan_took_stands_first_however_many_seem_faster() -> None:
    faster = [tried(100 + i, 5.0 + i / 10, race=f"other {i}") for i in range(FEW + 3)]
    found = shown(*faster, tried(8, 12.5, 12.5, 12.5))
    assert [row.chosen for row in found.rows] == [True, *[False] * (FEW - 1)]
    assert found.rows[0].schedule == "lanes=8"
    assert found.more == 4
    assert all(row.ending.startswith(NEVER) for row in found.rows[1:])


def test_what_was_faster_in_the_same_race_says_that_this_was_noise() -> None:
    own_row, other = tried(8, *([10.0] * 16)), tried(16, *([9.95] * 16))
    assert beside_winner([other], [own_row]).startswith("runner-up, within noise: in its last race with the plan's")
    assert "0.5 %" in beside_winner([other], [own_row])
    assert shown(own_row, other).rows[1].ending.startswith("runner-up, within noise")
    assert shown(own_row, tried(32, *([20.0] * 16))).rows[1].ending == ""


def test_the_last_race_that_both_were_in_counts() -> None:
    rows = [tried(16, *([9.0] * 16)), tried(16, *([12.0] * 16), race="r2"), tried(16, 1.0, race="r3")]
    own = [tried(8, *([10.0] * 16)), tried(8, *([10.0] * 16), race="r2")]
    assert beside_winner(rows, own) == "in its last race with the plan's 1.20× as long"
    assert "faster by 10 %: another search may take it" in beside_winner(rows[:1], own)
    assert beside_winner(rows[2:], own).startswith(NEVER)


def test_a_plan_whose_own_trials_are_elsewhere_still_stands_first() -> None:
    found = shown(tried(16, 11.0))
    assert [(row.schedule, row.time, row.chosen) for row in found.rows] == [
        ("lanes=8", "12.5 µs", True), ("lanes=16", "11.0 µs", False),
    ]  # fmt: skip
    assert found.more == 0
    assert shown().rows == []


@pytest.mark.parametrize(
    ("detail", "said"),
    [
        ("stopped, 3.2x the best", "stopped, 3.2× the best of its race, which took 10.0 µs"),
        ("screened out, 1.41x the best; cold; warm 1.891e+04 us",
         "screened out, 1.41× the best of its race, which took 10.0 µs; cold; warm 18.9 ms"),
    ],
)  # fmt: skip
def test_endings_name_the_race_and_have_units(detail: str, said: str) -> None:
    best, other = tried(8, 10.0), tried(16, 32.0, detail=detail, warm_us=18910.0)
    assert ending(other, [best, other]) == said
    assert shown(best, other).rows[1].ending == said
    wrong = tried(16, status=Status.wrong_result, detail=detail)
    assert ending(wrong, [best, wrong]) == f"wrong_result: {detail}"
