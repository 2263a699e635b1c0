"""The sentence about how far a plan is from the best: it says what was proved, and never more."""

import pytest

from service.wording.how_far import how_far
from tests.support.stored_plans import chain, plan_of

PLAN = plan_of(chain())
BEST = "64 % of what no kernel here can beat, 82 % as fast as a copy of its bytes"


def told(time_us: float | None, bound_us: float, gap: float | None, *, complete: bool = False, **more: object) -> str:
    search = PLAN.search.model_copy(update={"complete": complete})
    update = {
        "time_us": time_us,
        "lower_bound_us": bound_us,
        "search_gap": gap,
        "search": search,
        "copy_us": 8.2,
        **more,
    }
    return how_far(PLAN.model_copy(update=update))


NO_OTHER = "by the times of the kernels tried, no other cut is faster"


@pytest.mark.parametrize(
    ("time_us", "bound_us", "gap", "complete", "sentence"),
    [
        (10.0, 6.4, 1.4, False, f"{BEST}; by the times of the kernels tried, no other cut is more than 1.40× faster"),
        (10.0, 6.4, 1.4, True, f"{BEST}; by the times of the kernels tried, no other cut is faster"),
        (10.0, 6.4, 1.0, False, f"{BEST}; by the times of the kernels tried, no other cut is faster"),
        (10.0, 6.4, 1 / 0.64, False, f"{BEST}; that another cut comes nearer was not excluded"),
        (10.0, 6.4, None, False, f"{BEST}; what another cut could gain was not proved"),
        (10.0, 10.2, None, False,
         "100 % of what no kernel here can beat, 82 % as fast as a copy of its bytes; what another cut could gain was "
         "not proved"),
    ],
)  # fmt: skip
def test_share_of_the_bound_and_what_another_cut_could_gain(
    time_us: float, bound_us: float, gap: float | None, complete: bool, sentence: str
) -> None:
    assert told(time_us, bound_us, gap, complete=complete) == sentence


def test_a_plan_faster_than_its_bound_says_that_the_bound_is_not_credible() -> None:
    assert told(10.0, 10.7, None).startswith("not credible: 1.07× as fast as its bound")


@pytest.mark.parametrize("bound_us", [6.4, 10.7])
def test_of_a_noisy_time_it_says_nothing_but_that(bound_us: float) -> None:
    words = told(10.0, bound_us, 1.4, spread=0.61)
    assert words.startswith("too noisy to say how far it is from the best: its runs differ by ± 61 %")
    assert words.endswith("time it again while it is quiet (fuseplan tune --continue)")
    assert "beat" not in words and "copy" not in words
    assert "too noisy" not in told(10.0, 6.4, 1.4, spread=0.0999)
    assert "too noisy" not in told(None, 6.4, None, predicted_us=10.0, spread=0.61), "that is of no time"


def test_of_what_was_not_timed_it_says_so() -> None:
    assert told(None, 6.4, None, predicted_us=10.0) == f"predicted to reach {BEST}"
    absent = PLAN.device.model_copy(update={"origin": "specified"})
    assert "no kernel there can beat" in told(None, 6.4, None, predicted_us=10.0, device=absent)
    assert "is not known" in told(None, 0.0, None)


def test_nothing_to_run() -> None:
    assert told(0.0, 0.0, None, steps=()) == "nothing to run: no plan is faster"


@pytest.mark.parametrize(
    ("copy_us", "words"),
    [
        (
            9.8,
            f"64 % of what no kernel here can beat, as fast as a copy of its bytes; {NO_OTHER}",
        ),
        (
            10.2,
            f"64 % of what no kernel here can beat, as fast as a copy of its bytes; {NO_OTHER}",
        ),
        (
            11.0,
            f"64 % of what no kernel here can beat, faster than a copy of its bytes; {NO_OTHER}",
        ),
        (None, f"64 % of what no kernel here can beat; {NO_OTHER}"),
        (0.0, f"64 % of what no kernel here can beat; {NO_OTHER}"),
    ],
)
def test_beside_a_copy_of_its_bytes(copy_us: float | None, words: str) -> None:
    assert told(10.0, 6.4, 1.0, copy_us=copy_us) == words
