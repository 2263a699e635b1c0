"""The list of plans: what its rows show, from the columns of the database."""

from collections.abc import Sequence
from dataclasses import dataclass

from service import formatting
from service.shares import Share, share_of
from service.states import shown_state, state_help


@dataclass(frozen=True)
class ListRow:
    """One row of the list of plans."""

    plan_key: str
    short: str
    names: str
    state: str
    state_help: str
    cut_short: str  # why its search ended early, in words, "" where it did not
    device: str
    numerics: str
    steps: int
    time: str
    speedup: str
    share: Share
    hits: int
    age: str
    created: str
    date: str  # when it was stored, as people read it


def list_row(
    *,
    plan_key: str,
    graph_key: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    state: str,
    cut_short: str | None,
    target: str,
    device: str,
    numerics: str,
    steps: int,
    time_us: float | None,
    predicted_us: float | None,
    spread: float | None,
    unfused_us: float | None,
    lower_bound_us: float,
    hits: int,
    created: float,
    now: float,
) -> ListRow:
    """A row from the columns of the database; times in seconds since 1970."""
    shown = shown_state(state, target, time_us, spread)
    return ListRow(
        plan_key,
        graph_key[:10],
        signature(inputs, outputs),
        shown,
        state_help(shown, steps),
        ended_early(cut_short),
        device,
        numerics,
        steps,
        formatting.expected(time_us, predicted_us),
        formatting.times(formatting.ratio(unfused_us, time_us)),
        share_of(lower_bound_us, time_us, predicted_us),
        hits,
        formatting.age(created, now),
        formatting.moment(created),
        formatting.date(created),
    )


def signature(inputs: Sequence[str], outputs: Sequence[str], limit: int = 60) -> str:
    """ "q, k, v → out": the names of a graph on one line, control characters as spaces."""
    text = f"{', '.join(inputs)} → {', '.join(outputs)}"
    line = "".join(c if c.isprintable() else " " for c in text[: limit + 1])
    return line if len(line) <= limit else line[: limit - 1] + "…"


def ended_early(reason: str | None) -> str:
    """Why a search ended early, in words; "" where it did not."""
    return "" if reason is None else f"The search ended early: {reason}. A request with more seconds makes another one."
