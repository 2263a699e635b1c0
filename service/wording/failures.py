"""What is said of a search that failed, now or before."""

from pydantic import ValidationError

from service.errors import Problem, problem
from service.wording import formatting
from tuning_db import Conditions, Failure, RequestKey, Store


def problem_in(error: str | None) -> Problem:
    """What is kept of a search that failed: the problem that its worker wrote, or the queue's own words."""
    try:
        return Problem.model_validate_json(error or "")
    except ValidationError:
        return problem("tuning-failed", error or "The worker gave no reason.")


def failed_before(store: Store, request: RequestKey, now: Conditions, seconds: float) -> Problem | None:
    """The problem that a search for a request ended with, where it is not made again. None where one may be made, and
    where there is a plan: if that was a miss, it answers again once its graph is stored. Raises DatabaseError."""
    failure = store.failure(request, now, seconds)
    if failure is None or store.answer(request, now, seconds) is not None:
        return None
    return problem_before(failure)


def problem_before(failure: Failure) -> Problem:
    """Of a search that is not made again: the problem that it ended with, when, and what it takes to have another one
    made."""
    at = formatting.moment(failure.created)
    found = problem_in(failure.error)
    again = (
        "a search with more seconds, another version, driver or compiler tries again, and so does "
        "Cache-Control: no-cache, or fuseplan plans forget"
    )
    return problem(found.type.rpartition("/")[2], f"{found.detail} (found {at}; {again})", found.place)
