"""Attempts, hedges and pauses, with a clock and a sleep of the test's own: nothing here waits."""

import asyncio
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from fuseplan_client.server.attempts import MOST_HEDGES, HedgeAllowance, attempts, hedged, retry_after_s
from fuseplan_client.server.errors import AnswerCutOff, BadAnswer, PlanServerError, ServerAbsent, ServerSlow
from fuseplan_client.server.limits import Limits
from fuseplan_client.server.transport import Received

OK = Received(200, {}, b"{}")
Outcome = Received | PlanServerError


def busy(status: int = 503, wait: str = "") -> Received:
    return Received(status, {"retry-after": wait} if wait else {}, b"")


class Script:
    """Attempts that end with these outcomes, one after another; the pauses between them; a clock that pauses alone
    move."""

    def __init__(self, *outcomes: Outcome) -> None:
        self.outcomes, self.made, self.pauses, self.now = list(outcomes), 0, list[float](), 0.0

    async def attempt(self) -> Received:
        outcome = self.outcomes[min(self.made, len(self.outcomes) - 1)]
        self.made += 1
        if isinstance(outcome, PlanServerError):
            raise outcome
        return outcome

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def run(self, limits: Limits, draw: Callable[[float, float], float] = lambda low, high: high) -> Received:
        return asyncio.run(
            attempts(self.attempt, limits, HedgeAllowance(), sleep=self.sleep, clock=lambda: self.now, draw=draw)
        )


@pytest.mark.parametrize(
    "first", [ServerAbsent("x"), ServerSlow("x"), AnswerCutOff("x"), *map(busy, (429, 502, 503, 504))], ids=repr
)
def test_what_may_pass_is_asked_again(first: Outcome) -> None:
    script = Script(first, OK)
    assert script.run(Limits()) == OK
    assert script.made == 2


@pytest.mark.parametrize("status", [200, 202, 400, 404, 409, 422, 500, 501])
def test_what_will_not_pass_is_asked_once(status: int) -> None:
    script = Script(Received(status, {}, b""), OK)
    assert script.run(Limits()).status == status
    assert script.made == 1


def test_a_wrong_answer_is_not_asked_for_again() -> None:
    script = Script(BadAnswer("no JSON"), OK)
    with pytest.raises(BadAnswer):
        script.run(Limits())
    assert script.made == 1


@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_last_failure_is_told_after_so_many_attempts(count: int) -> None:
    script = Script(*(ServerAbsent(str(i)) for i in range(9)))
    with pytest.raises(ServerAbsent, match=f"^{count - 1}$"):
        script.run(Limits(attempts=count, deadline_s=1e9))
    assert script.made == count
    answers = Script(busy())
    assert answers.run(Limits(attempts=count, deadline_s=1e9)).status == 503
    assert answers.made == count


def test_pauses_are_drawn_from_nought_to_twice_the_last_most() -> None:
    drawn: list[tuple[float, float]] = []

    def draw(low: float, high: float) -> float:
        drawn.append((low, high))
        return high

    script = Script(busy())
    script.run(Limits(attempts=6, backoff_s=0.1, most_backoff_s=1.0, deadline_s=1e9), draw)
    assert [low for low, _ in drawn] == [0.0] * 6
    assert [high for _, high in drawn] == pytest.approx([0.2, 0.4, 0.8, 1.0, 1.0, 1.0])
    assert script.pauses == [high for _, high in drawn][:5]


def test_a_retry_after_within_the_limit_is_waited_for_and_a_longer_one_ends_the_request() -> None:
    script = Script(busy(503, "2"), OK)
    assert script.run(Limits(most_retry_after_s=2.0)) == OK
    assert script.pauses == [2.0]
    longer = Script(busy(503, "3"), OK)
    assert longer.run(Limits(most_retry_after_s=2.0)).status == 503
    assert (longer.made, longer.pauses) == (1, [])


def test_no_attempt_begins_behind_the_deadline() -> None:
    script = Script(busy(503, "2"))
    assert script.run(Limits(attempts=100, most_retry_after_s=2.0, deadline_s=5.0)).status == 503
    assert script.pauses == [2.0, 2.0]


@pytest.mark.parametrize("text", ["", "soon", "-1", "1e3", "99999999999", "Wed, 99 Foo", "\x00"])
def test_a_retry_after_that_says_nothing_counts_as_none(text: str) -> None:
    assert retry_after_s(busy(503, text)) is None


def test_a_retry_after_may_be_a_date() -> None:
    later = retry_after_s(busy(503, format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)))
    assert later is not None
    assert 3000 < later <= 3600
    assert retry_after_s(busy(503, format_datetime(datetime.now(UTC) - timedelta(hours=1)))) == 0.0


class Two:
    """A first attempt and a second one, which end when the test says so. `cancelled`: those that were."""

    def __init__(self) -> None:
        self.futures: list[asyncio.Future[Received]] = []
        self.cancelled: list[int] = []
        self.begun = asyncio.Event()

    async def attempt(self) -> Received:
        number = len(self.futures)
        self.futures.append(asyncio.get_running_loop().create_future())
        if number == 1:
            self.begun.set()
        try:
            return await self.futures[number]
        except asyncio.CancelledError:
            self.cancelled.append(number)
            raise


@pytest.mark.parametrize("winner", [0, 1])
def test_the_first_good_answer_of_two_is_taken_and_the_other_attempt_cancelled(winner: int) -> None:
    async def both() -> tuple[Received, list[int]]:
        two = Two()
        task = asyncio.ensure_future(hedged(two.attempt, 0.0, HedgeAllowance()))
        await two.begun.wait()
        two.futures[winner].set_result(OK)
        return await task, two.cancelled

    assert asyncio.run(both()) == (OK, [1 - winner])


@pytest.mark.parametrize("bad", [busy(), ServerAbsent("x")], ids=repr)
@pytest.mark.parametrize("first", [0, 1])
def test_a_bad_answer_of_two_waits_for_the_other(first: int, bad: Outcome) -> None:
    async def both() -> Received:
        two = Two()
        task = asyncio.ensure_future(hedged(two.attempt, 0.0, HedgeAllowance()))
        await two.begun.wait()
        end(two.futures[first], bad)
        for _ in range(3):
            await asyncio.sleep(0)
        assert not task.done()
        two.futures[1 - first].set_result(OK)
        return await task

    assert asyncio.run(both()) == OK


def end(future: "asyncio.Future[Received]", outcome: Outcome) -> None:
    if isinstance(outcome, PlanServerError):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


def test_of_two_failures_an_answer_is_told_rather_than_none() -> None:
    async def both(one: Outcome, other: Outcome) -> Received:
        two = Two()
        task = asyncio.ensure_future(hedged(two.attempt, 0.0, HedgeAllowance()))
        await two.begun.wait()
        end(two.futures[0], one)
        end(two.futures[1], other)
        return await task

    assert asyncio.run(both(ServerSlow("x"), busy())) == busy()
    assert asyncio.run(both(busy(), ServerSlow("x"))) == busy()
    with pytest.raises(ServerSlow):
        asyncio.run(both(ServerSlow("x"), ServerAbsent("y")))


def test_hedges_are_few_where_most_answers_are_slow() -> None:
    allowance = HedgeAllowance()
    assert [allowance.take() for _ in range(int(MOST_HEDGES) + 3)] == [True] * int(MOST_HEDGES) + [False] * 3
    taken = 0
    for _ in range(1000):
        allowance.earn()
        taken += allowance.take()
    assert 90 <= taken <= 101
    for _ in range(1000):
        allowance.earn()
    assert [allowance.take() for _ in range(int(MOST_HEDGES) + 1)] == [True] * int(MOST_HEDGES) + [False]


def test_random_outcomes_give_the_first_good_answer_or_the_last_failure() -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    makers: list[Callable[[], Outcome]] = [
        lambda: busy(rng.choice((429, 502, 503, 504)), rng.choice(("", "0", "1"))),
        lambda: ServerAbsent("x"),
        lambda: ServerSlow("x"),
        lambda: AnswerCutOff("x"),
        lambda: Received(rng.choice((200, 202, 404, 422)), {}, b""),
    ]
    for _ in range(500):
        outcomes = [rng.choice(makers)() for _ in range(4)]
        limits = Limits(attempts=4, deadline_s=1e9)
        script = Script(*outcomes)
        final = [o for o in outcomes if isinstance(o, Received) and o.status not in (429, 502, 503, 504)]
        expected = final[0] if final else outcomes[-1]
        try:
            found: Outcome = script.run(limits, rng.uniform)
        except PlanServerError as error:
            found = error
        assert found is expected
        assert script.made == (outcomes.index(expected) + 1 if final else 4)
