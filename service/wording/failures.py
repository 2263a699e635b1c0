"""Problems of a search that failed, now or before, in words."""

from typing import TYPE_CHECKING

from pydantic import ValidationError

from service.errors import Problem, problem
from service.wording import formatting
from tuning_db.requests import Conditions, RequestKey

if TYPE_CHECKING:
    from tuning_db.failures import Failure
    from tuning_db.store import Store


def problem_in(error: str | None) -> Problem:
    """The problem in the stored error of a failed search: the one that its worker wrote, else the queue's own words."""
    try:
        return Problem.model_validate_json(error or "")
    except ValidationError:
        return problem("tuning-failed", error or "The worker gave no reason.")


def failed_before(store: "Store", request: RequestKey, now: Conditions, seconds: float) -> Problem | None:
    """The problem that a search for a request ended with, where it is not made again. None where one may be made, and
    where there is a plan: if that was a miss, it answers again once its graph is stored. Raises DatabaseError."""
    failure = store.failures.failure(request, now, seconds)
    if failure is None or store.plans.answer(request, now, seconds) is not None:
        return None
    return problem_before(failure)


def problem_before(failure: "Failure") -> Problem:
    """The problem for a request whose search is not made again: how that search ended, when, and what it takes to have
    another one made."""
    at = formatting.moment(failure.created)
    found = problem_in(failure.error)
    again = (
        "a search with more seconds, another version, driver or compiler tries again, and so does "
        "Cache-Control: no-cache, or fuseplan plans forget"
    )
    return problem(found.type.rpartition("/")[2], f"{found.detail} (found {at}; {again})", found.place)
