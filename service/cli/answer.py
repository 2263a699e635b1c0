"""A plan as the command line got it: made here, or asked of a server."""

from dataclasses import dataclass
from typing import Any

from fusion_ir.records import Plan
from service.cli.plan_view import as_json
from service.wording.continued_search import Continued
from service.wording.formatting import duration


@dataclass(frozen=True)
class Answer:
    """A plan as both ways of asking give it. `kept`: where it is stored; `address`: that of its page, from a server;
    `cut_short`: why the last search for it ended early; `refining`: the server makes another search for it;
    `continued`: the outcome of a search that was made here for a graph with a measured plan."""

    plan: Plan
    target: str
    state: str
    cache: str
    kept: str
    address: str | None = None
    cut_short: str | None = None
    refining: bool = False
    continued: Continued | None = None


def origin(answer: Answer) -> str:
    """Where the plan is from, in words: found, or made by a search, or found and not beaten by one."""
    if answer.cache == "hit":
        return "found in the database"
    if answer.continued is not None and answer.continued.outcome in ("kept", "same"):
        seconds = duration(1e6 * answer.continued.search.seconds)
        return f"found in the database, and not beaten by a search of {seconds} more"
    return f"made by a search of {duration(1e6 * answer.plan.search.seconds)}"


def answer_json(answer: Answer) -> dict[str, Any]:
    """The JSON fields that `fuseplan tune --json` prints."""
    fields = as_json(answer.plan, answer.target, answer.state, answer.cache)
    more = answer.continued and {"outcome": answer.continued.outcome, "speed_up": answer.continued.speed_up}
    return fields | {"cut_short": answer.cut_short, "refining": answer.refining, "continued": more}
