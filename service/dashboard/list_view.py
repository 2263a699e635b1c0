"""The list of plans: what its rows show, from the columns of the database."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from service.wording import formatting
from service.wording.shares import Share, share_of
from service.wording.states import shown_state, state_help

MOST_INPUTS = 16  # whose types a row could have room for
_INPUT = re.compile(r"in[0-9]+: ([a-z0-9_]+\[[^\]]*\])")


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
    types: Sequence[str] = (),
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
    """A row from the columns of the database; times in seconds since 1970. types: of the inputs."""
    shown = shown_state(state, target, time_us, spread)
    return ListRow(
        plan_key,
        graph_key[:10],
        typed_signature(inputs, types, outputs),
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


def typed_signature(inputs: Sequence[str], types: Sequence[str], outputs: Sequence[str], limit: int = 90) -> str:
    """ "x f32[128, 512], w f32[512], … → y": as many inputs as there is room for, then the outputs. types: of the
    inputs, in order, as far as they are known."""
    end = signature((), outputs, limit // 2)
    shown: list[str] = []
    for position, name in enumerate(inputs):
        word = f"{name} {types[position]}" if position < len(types) else name
        if shown and len(", ".join([*shown, word, "…"])) + len(end) > limit:
            shown.append("…")
            break
        shown.append(word)
    words = ", ".join(shown)
    if len(words) + len(end) > limit:  # one name that leaves no room
        words = f"{words[: limit - len(end) - 1]}…"
    return "".join(c if c.isprintable() else " " for c in f"{words}{end}")


def input_types(text: str) -> list[str]:
    """ "f32[128, 512]" of each input, by the first lines of a graph's canonical text."""
    found: list[str] = []
    for line in islice(text.splitlines(), 1, MOST_INPUTS + 1):
        match = _INPUT.match(line)
        if match is None:
            break
        found.append(match[1])
    return found


def ended_early(reason: str | None) -> str:
    """Why a search ended early, in words; "" where it did not."""
    return "" if reason is None else f"The search ended early: {reason}. A request with more seconds makes another one."
