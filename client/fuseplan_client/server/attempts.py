"""Attempts of a request: a hedge beside a slow one, others after failures, with random pauses between them."""

import asyncio
import email.utils
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime

from fuseplan_client.server.errors import AnswerCutOff, PlanServerError, ServerAbsent, ServerSlow
from fuseplan_client.server.limits import Limits
from fuseplan_client.server.transport import Received

RETRIED_STATUSES = (429, 502, 503, 504)
RETRIED_ERRORS = (ServerAbsent, ServerSlow, AnswerCutOff)
MOST_HEDGES = 10.0  # in a row
HEDGE_SHARE = 0.1  # of requests, in the long run

Attempt = Callable[[], Awaitable[Received]]


class HedgeAllowance:
    """Hedges are for the few slow answers: where most are slow, the server has too much to do, and second requests
    would add to it. Every request earns a tenth of a hedge, up to ten."""

    def __init__(self) -> None:
        self._left = MOST_HEDGES

    def earn(self) -> None:
        """Counts a request."""
        self._left = min(self._left + HEDGE_SHARE, MOST_HEDGES)

    def take(self) -> bool:
        """Whether a hedge may be sent now."""
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


async def attempts(
    attempt: Attempt,
    limits: Limits,
    allowance: HedgeAllowance,
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    clock: Callable[[], float] = time.monotonic,
    draw: Callable[[float, float], float] = random.uniform,
) -> Received:
    """The first answer that is no reason to ask again, or the last one. An attempt that failed is made again after a
    random pause (full jitter), no shorter than the server's `Retry-After`. Raises the error of the last attempt."""
    allowance.earn()
    deadline = clock() + limits.deadline_s
    for number in range(1, limits.attempts + 1):
        error: PlanServerError | None = None
        received: Received | None = None
        try:
            received = await hedged(attempt, limits.hedge_s, allowance)
        except RETRIED_ERRORS as e:
            error = e
        if received is not None and received.status not in RETRIED_STATUSES:
            return received
        pause = draw(0.0, min(limits.most_backoff_s, limits.backoff_s * 2**number))
        asked = None if received is None else retry_after_s(received)
        pause = pause if asked is None else max(pause, asked)
        is_too_long = asked is not None and asked > limits.most_retry_after_s
        if number == limits.attempts or is_too_long or clock() + pause >= deadline:
            if error is not None:
                raise error
            assert received is not None
            return received
        await sleep(pause)
    raise AssertionError("there is at least one attempt")


async def hedged(attempt: Attempt, hedge_s: float, allowance: HedgeAllowance) -> Received:
    """An attempt, with a second one beside it where it has not ended after `hedge_s` seconds. The first good answer is
    taken and the other attempt is cancelled. Raises the error of the first attempt where both failed."""
    first = asyncio.ensure_future(attempt())
    tasks = [first]
    try:
        done, _ = await asyncio.wait(tasks, timeout=hedge_s)
        if done or not allowance.take():
            return await first
        tasks.append(asyncio.ensure_future(attempt()))
        left = set(tasks)
        while left:
            done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if task.exception() is None and task.result().status not in RETRIED_STATUSES:
                    return task.result()
        answered = [task for task in tasks if task.exception() is None]
        return (answered or tasks)[0].result()
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(PlanServerError, asyncio.CancelledError):  # nobody waits for the outcome of this one any more
                await task


def retry_after_s(received: Received) -> float | None:
    """Seconds of the answer's `Retry-After`, which is a number or a date (RFC 9110, 10.2.3); None where there is none
    that can be read."""
    text = received.headers.get("retry-after", "").strip()
    if text.isdecimal() and len(text) < 10:
        return float(text)
    try:
        when = email.utils.parsedate_to_datetime(text)
    except ValueError:
        return None
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return max(0.0, (when - datetime.now(UTC)).total_seconds())
