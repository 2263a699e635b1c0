"""What is said of a search that failed before and is not made again."""

from service import formatting
from service.errors import Problem, problem
from tuning_db import Failure


def problem_before(failure: Failure) -> Problem:
    """The problem that the search ended with, when, and what it takes to have another one made."""
    at = formatting.moment(failure.created)
    found = Problem.model_validate_json(failure.error)
    again = "a search with more seconds, another version, driver or compiler tries again"
    return problem(found.type.rpartition("/")[2], f"{found.detail} (found {at}; {again})", found.place)
