"""When a graph is searched again: after a search that was cut short, with more time; not after one that failed."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from codegen.sandbox.object_cache import ObjectCache
from codegen.workbench.workbench import PlanTiming
from fusion_ir.core.named import NamedGraph
from fusion_ir.records import Ceilings, Measurement, Plan, Reason, Status
from scheduler.budget import INTERRUPTED, Budget, RequestError
from scheduler.no_plan import MemoryExceeded, NoPlan
from service.planning import planner
from service.planning import search as searching
from service.planning.planner import FailedBefore, PlanAnswer
from service.version import VERSION
from service.wording.continued_search import Continued
from tests.support.stored_plans import BINARY, DEVICE, chain, plan_of
from tuning_db.store import Store

NAMED = NamedGraph(chain(), ("x",), ("y",))
FASTER = Ceilings(copy_gbps=((0, 40.0),), read_gbps=((0, 48.0),), launch_us=1.5, fma_gflops=100.0)
Made = Callable[[], Plan]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path / 'plans.db'}") as opened:
        yield opened


@pytest.fixture
def cache(tmp_path: Path) -> ObjectCache:
    found = ObjectCache(tmp_path / "cache")
    found.put(BINARY)
    return found


class Searches:
    """`tune`, replaced: what each search in turn gives, a plan or an exception; how many there were."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, store: Store, cache: ObjectCache) -> None:
        self._store, self._cache = store, cache
        self.next: list[Plan | BaseException] = []
        self.made = 0
        self.budgets: list[float] = []
        monkeypatch.setattr(planner, "detect", lambda _target, _cache, **_: DEVICE)
        monkeypatch.setattr(searching, "tune", self._tune)

    def _tune(self, _graph: Any, _device: Any, budget: Budget, *_: Any, **__: Any) -> Plan:
        self.made += 1
        self.budgets.append(budget.seconds)
        found = self.next.pop(0)
        if isinstance(found, BaseException):
            raise found
        return found

    def ask(self, seconds: float, numerics: Any = "reassociate", *, again: bool = False) -> PlanAnswer:
        budget = Budget(seconds)
        return planner.plan_graph(NAMED, "cpu", budget, self._store, self._cache, numerics=numerics, again=again)


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch, store: Store, cache: ObjectCache) -> Searches:
    return Searches(monkeypatch, store, cache)


def plan(time_us: float | None, seconds: float, *, interrupted: bool = False, **search: object) -> Plan:
    found = plan_of(chain(), reasons=[Reason(kind="cap", text=INTERRUPTED)] if interrupted else [])
    spent = found.search.model_copy(update={"seconds": seconds} | search)
    return found.model_copy(update={"time_us": time_us, "search": spent, "lower_bound_us": 1.0, "steps": ()})


def test_a_search_ended_by_ctrl_c_is_made_again_by_whoever_has_more_time(searches: Searches) -> None:
    searches.next = [plan(20.0, 4.0, interrupted=True), plan(15.0, 29.9)]
    first = searches.ask(30.0)
    assert (first.cache, first.state, first.cut_short) == ("miss", "measured", INTERRUPTED)
    assert (searches.ask(3.0).cache, searches.made) == ("hit", 1)
    again = searches.ask(30.0)
    assert (again.cache, again.plan.time_us, again.cut_short) == ("miss", 15.0, None)
    assert (searches.ask(3600.0).cache, searches.made) == ("hit", 2)


def test_a_search_whose_budget_ended_is_made_again_with_a_larger_one(searches: Searches) -> None:
    why = "30 of 40 segments were measured in 1 s"
    searches.next = [
        plan(20.0, 0.93, budget_s=1.0, cut_short=why),
        plan(22.0, 4.8, budget_s=5.0, cut_short=why),
        plan(15.0, 20.0),
    ]
    assert [searches.ask(s).cache for s in (1.0, 1.0)] == ["miss", "hit"]
    kept = searches.ask(5.0)
    assert (kept.cache, kept.plan.time_us, kept.cut_short) == ("miss", 20.0, why)
    assert (searches.ask(5.0).cache, searches.ask(30.0).plan.time_us, searches.made) == ("hit", 15.0, 3)


def test_a_plan_of_which_nothing_was_timed_is_no_answer_to_who_gives_time(searches: Searches) -> None:
    searches.next = [plan(None, 0.1), plan(15.0, 5.0)]
    assert [(searches.ask(s).state, searches.made) for s in (0.0, 0.0, 5.0)] == [
        ("predicted", 1),
        ("predicted", 1),
        ("measured", 2),
    ]


@pytest.mark.parametrize(
    ("seconds", "spent", "second"),
    [(30.0, 2.0, searching.AGAIN_SECONDS), (12.0, 5.0, 7.0), (12.0, 11.0, None), (5.0, 5.3, None), (1.0, 0.1, None)],
)
@pytest.mark.parametrize("found", ["plan", "none", "untimed"])
def test_a_second_search_for_a_bound_that_was_beaten_has_what_is_left_of_the_budget(
    searches: Searches, monkeypatch: pytest.MonkeyPatch, seconds: float, spent: float, second: float | None, found: str
) -> None:
    """Where too little of the budget is left, ceilings are raised to the rates reached, without measuring them."""
    measured: list[bool] = []

    def raised(device: Any, _cache: Any, reached: Any, *, measured: bool, told: list[bool] = measured) -> Any:
        told.append(measured)
        assert reached
        return device.model_copy(update={"ceilings": FASTER})

    monkeypatch.setattr(searching, "with_raised_ceilings", raised)
    monkeypatch.setattr(searching.time, "monotonic", lambda: 100.0)
    whole = plan_of(chain())
    (step,) = whole.steps
    beaten = plan(5.0, spent).model_copy(
        update={"lower_bound_us": 9.0, "steps": (step.model_copy(update={"time_us": 4.0, "bound_us": 8.0}),)}
    )
    better = beaten.model_copy(update={"lower_bound_us": 3.0, "time_us": 4.5})
    others = {"plan": better, "none": NoPlan("nothing agrees"), "untimed": plan(None, 0.1)}
    searches.next = [beaten, others[found]]
    answer = searches.ask(seconds).plan
    assert measured == [second is not None]
    assert searches.budgets == [seconds] if second is None else [seconds, pytest.approx(second)]
    if second is not None and found == "plan":
        assert answer.time_us == 4.5
        assert answer.search.seconds == 2 * spent
    else:
        assert (answer.time_us, answer.lower_bound_us, answer.search_gap) == (5.0, 5.0, None)
        assert [s.bound_us for s in answer.steps] == [4.0]
        assert answer.device.ceilings == FASTER


def test_a_search_that_finds_nothing_better_keeps_what_is_there(searches: Searches, store: Store) -> None:
    strict = plan(10.0, 5.0).model_copy(update={"numerics": "exact"})
    searches.next = [strict, plan(12.0, 5.0)]
    assert searches.ask(5.0, "exact").plan == strict
    answer = searches.ask(5.0)
    assert (answer.cache, answer.plan, answer.plan_key) == ("miss", strict, strict.plan_key)
    assert searches.ask(5.0).cache == "hit"
    assert [p.plan_key for p in store.plans.plans().items] == [strict.plan_key]


@pytest.mark.parametrize(
    ("error", "slug", "words"),
    [
        (NoPlan("no kernel agrees at node 3"), "tuning-failed", "no kernel agrees at node 3"),
        (MemoryExceeded("the least needs 3 MiB"), "memory-exceeded", "the least needs 3 MiB"),
        (KeyError("secret"), "tuning-failed", "a fault of its own (KeyError)"),
        (ZeroDivisionError(), "tuning-failed", "a fault of its own (ZeroDivisionError)"),
    ],
)
def test_a_failed_search_is_not_made_again(
    searches: Searches, monkeypatch: pytest.MonkeyPatch, error: Exception, slug: str, words: str
) -> None:
    searches.next = [error, error, plan(15.0, 20.0), error]
    with pytest.raises(type(error)):
        searches.ask(5.0)
    for _ in range(2):
        with pytest.raises(FailedBefore) as caught:
            searches.ask(5.0)
        assert (caught.value.problem.type, searches.made) == (f"/errors/{slug}", 1)
        assert words in caught.value.problem.detail
        assert "secret" not in caught.value.problem.detail
    with pytest.raises(type(error)):  # with more time
        searches.ask(6.0)
    newer = DEVICE.model_copy(update={"toolchain": "g++ 99"})
    monkeypatch.setattr(planner, "detect", lambda _target, _cache, **_: newer)
    searches.next[0] = plan(15.0, 20.0).model_copy(update={"device": newer})
    assert searches.ask(5.0).cache == "miss"


@pytest.mark.parametrize("error", [OSError("no space"), MemoryError(), RequestError("seconds"), SystemExit(0)])
def test_what_may_go_away_is_tried_again(searches: Searches, error: BaseException) -> None:
    searches.next = [error, plan(15.0, 5.0)]
    with pytest.raises(type(error)):
        searches.ask(5.0)
    assert searches.ask(5.0).plan.time_us == 15.0


def test_a_search_interrupted_before_there_was_a_plan_did_not_fail(
    searches: Searches, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> Plan:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            raise NoPlan("nothing was measured")  # noqa: B904

    with monkeypatch.context() as patch:
        patch.setattr(searching, "tune", interrupted)
        with pytest.raises(NoPlan):
            searches.ask(5.0)
    searches.next = [plan(15.0, 5.0)]
    assert searches.ask(5.0).plan.time_us == 15.0


def test_a_search_that_is_to_go_on_is_made_whatever_is_stored(searches: Searches) -> None:
    """`again` searches even where a plan of a search as long is stored, and after a failed search; the answer is the
    better one of the stored plan and the new plan."""
    searches.next = [plan(20.0, 4.0), plan(15.0, 3.9), plan(30.0, 3.8), NoPlan("none"), plan(9.0, 1.0)]
    assert (searches.ask(4.0).plan.time_us, searches.ask(4.0).cache, searches.made) == (20.0, "hit", 1)
    better = searches.ask(4.0, again=True)
    assert (better.cache, better.plan.time_us, searches.made) == ("miss", 15.0, 2)
    worse = searches.ask(4.0, again=True)
    assert (worse.plan_key, worse.plan.time_us, searches.made) == (better.plan_key, 15.0, 3)
    with pytest.raises(NoPlan):
        searches.ask(4.0, again=True)
    assert (searches.ask(4.0, again=True).plan.time_us, searches.made) == (9.0, 5)


def test_a_search_that_goes_on_says_what_it_came_to(searches: Searches) -> None:
    """The words of `fuseplan tune` about a stored and a new plan, compared by their records: no race timed both."""
    searches.next = [plan(20.0, 4.0), plan(15.0, 3.9), plan(15.1, 3.8), plan(30.0, 3.7)]
    assert searches.ask(4.0).continued is None
    words: list[str] = []
    for _ in range(3):
        continued = searches.ask(4.0, again=True).continued
        assert continued is not None
        words.append(continued.words)
    assert words == [
        "searched 3.90 s more: 2 kernels timed; 1.33× faster than the stored plan",
        "searched 3.80 s more: 2 kernels timed; what it found is as fast as the stored plan, as far as noise lets one "
        "say, and takes its place",
        "searched 3.70 s more: 2 kernels timed; nothing beat the stored plan",
    ]
    assert searches.ask(4.0).continued is None, "a hit searches nothing"


def test_a_lucky_time_does_not_stay(searches: Searches, monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    """A stored plan at 1.24 ms that takes 7.89 ms now loses to one of 4 ms; part of the budget is kept for that."""
    lucky, found = two_plans()
    searches.next = [lucky, found]
    searches.ask(30.0)
    race(monkeypatch, now={lucky.steps[0].schedule: 7890.0, found.steps[0].schedule: 4000.0})
    answer = searches.ask(30.0, again=True)
    assert searches.budgets == [30.0, 28.0]
    assert (answer.plan.steps, answer.plan.time_us, answer.cut_short) == (found.steps, 4000.0, None)
    assert answer.plan.search.budget_s == 30.0
    assert answer.continued is not None
    assert answer.continued.words.endswith("; 1.97× faster than the stored plan")
    hit = searches.ask(30.0)
    assert (hit.cache, hit.plan_key) == ("hit", answer.plan_key)


def test_a_stored_plan_that_stays_is_stored_with_its_times_of_now(
    searches: Searches, monkeypatch: pytest.MonkeyPatch, store: Store
) -> None:
    """A stored plan that wins gets the times of the new race, for its kernels too, which the search timed; the reason
    that spoke of its first time is dropped."""
    lucky, found = two_plans()
    searches.next = [lucky, found]
    first = searches.ask(30.0)
    assert first.cut_short is not None
    (step,) = lucky.steps
    row = Measurement(
        segment_key=step.segment_key, device_key=DEVICE.class_key, family=step.family, schedule=step.schedule,
        status=Status.ok, samples_us=(3100.0,), race="r",
    )  # fmt: skip
    store.trials.record([row], version=VERSION)
    race(monkeypatch, now={step.schedule: 3000.0, found.steps[0].schedule: 4000.0})
    answer = searches.ask(30.0, again=True)
    assert (answer.plan.time_us, [s.time_us for s in answer.plan.steps]) == (3000.0, [3100.0])
    assert (answer.cut_short, answer.plan.search.measured) == (None, found.search.measured)
    assert not [r for r in answer.plan.reasons if "as a whole" in r.text]
    assert answer.continued is not None
    assert answer.continued.words.endswith("; nothing beat the stored plan")
    assert searches.ask(30.0).plan_key == answer.plan_key != first.plan_key


def test_where_the_same_kernels_win_again_their_record_is_the_new_one(
    searches: Searches, monkeypatch: pytest.MonkeyPatch
) -> None:
    lucky, _ = two_plans()
    (step,) = lucky.steps
    measured = lucky.model_copy(
        update={"time_us": 9000.0, "spread": 0.01, "steps": (step.model_copy(update={"time_us": 7890.0}),)}
    )
    searches.next = [lucky, measured]
    searches.ask(30.0)
    race(monkeypatch, now={})
    answer = searches.ask(30.0, again=True)
    assert (answer.plan.time_us, answer.plan.steps[0].time_us) == (9000.0, 7890.0)
    assert answer.continued is not None
    assert "nothing beat the stored plan's kernels" in answer.continued.words
    for cut_short, why in ((None, "nothing was left to try"), ("its 4 s were over", "there was no time for others")):
        none = Continued(measured.search.model_copy(update={"measured": 0, "cut_short": cut_short}), "same")
        assert f"0 kernels timed; {why}; the times of the stored plan's kernels are" in none.words


def test_a_noisy_time_of_the_same_kernels_does_not_take_the_place_of_a_quiet_one(searches: Searches) -> None:
    quiet = plan_of(chain())
    searches.next = [quiet, quiet.model_copy(update={"time_us": 30.0, "spread": 0.61})]
    first = searches.ask(30.0)
    answer = searches.ask(30.0, again=True)
    assert (answer.plan_key, answer.plan.time_us) == (first.plan_key, 12.5)


def two_plans() -> tuple[Plan, Plan]:
    """A plan of a search that was cut short, timed as a whole in a lucky moment, its kernel not timed; and the plan
    that a later search finds, at 4 ms."""
    one, other = plan_of(chain()), plan_of(chain())
    cut = one.search.model_copy(update={"budget_s": 30.0, "cut_short": "the budget ended"})
    (step,) = one.steps
    untimed = step.model_copy(update={"time_us": None, "predicted_us": 3030.0, "schedule": "pointwise{lanes=4}"})
    note = Reason(kind="note", text="takes 1.24 ms as a whole, 0.41x the 3.03 ms of its steps timed one by one, once")
    lucky = {"time_us": 1240.0, "spread": 0.61, "steps": (untimed,), "search": cut, "reasons": (note,)}
    found = {"time_us": 4000.0, "search": other.search.model_copy(update={"budget_s": 28.0})}
    return one.model_copy(update=lucky), other.model_copy(update=found)


def race(monkeypatch: pytest.MonkeyPatch, now: dict[str, float]) -> None:
    """`Workbench.measure_plans`, replaced: what plans take now, by the schedule of their only kernel."""

    def measure_plans(_: Any, _graph: Any, plans: Sequence[Plan], **__: Any) -> list[PlanTiming]:
        return [PlanTiming((now[p.steps[0].schedule],) * 20, 0.0, Status.ok) for p in plans]

    monkeypatch.setattr(searching.Workbench, "measure_plans", measure_plans)


def test_a_search_that_others_left_no_cpu_goes_on_when_it_is_asked_for_again(searches: Searches) -> None:
    """It counts as the seconds of a CPU that it got, and at least as a third of its budget, so that a machine that is
    always busy does not search for ever. It used to count as all of them: a plan that came out as a kernel for each op
    beside eight busy processes stayed."""
    late = "the budget ended before each of its kernels was timed"
    shares = (0.5, 0.45, 1.0)
    searches.next = [plan(20.0 - i, 60.0, cut_short=late, budget_s=60.0, cpu_share=s) for i, s in enumerate(shares)]
    assert searches.ask(60.0).cache == "miss"
    assert searches.ask(30.0).cache == "hit"
    assert searches.ask(60.0).cache == "miss"
    assert searches.ask(57.0).cache == "hit", "30 s and 27 s"
    assert searches.ask(60.0).cache == "miss"
    assert searches.ask(60.0).cache == "hit"
    assert searches.made == 3


@pytest.mark.parametrize(("share", "searched"), [(0.01, 3), (0.55, 2), (0.65, 1), (None, 1)])
def test_searches_until_a_busy_machine_has_given_the_seconds(
    searches: Searches, share: float | None, searched: int
) -> None:
    late = "the budget ended before each of its kernels was timed"
    searches.next = [plan(20.0 - i, 60.0, cut_short=late, budget_s=60.0, cpu_share=share) for i in range(6)]
    answers = [searches.ask(60.0).cache for _ in range(6)]
    assert answers == ["miss"] * searched + ["hit"] * (6 - searched)


def test_starved_searches_that_ended_or_were_short_are_not_made_again(searches: Searches) -> None:
    late = "the budget ended before each of its kernels was timed"
    searches.next = [plan(20.0, 5.0, cut_short=late, budget_s=5.0, cpu_share=0.1), plan(19.0, 60.0, cpu_share=0.1)]
    assert [searches.ask(s).cache for s in (5.0, 5.0, 60.0, 60.0)] == ["miss", "hit", "miss", "hit"]
