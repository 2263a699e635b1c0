"""Refusals of plans in words, for terminal and pages."""

from collections.abc import Sequence
from dataclasses import dataclass

from service.wording.formatting import count, duration, moment, times, visible
from tuning_db.refusals import Refusal

MEANINGS = {
    "wrong": "its outputs disagreed with what they should be",
    "slower": "it took longer than what it is to replace",
    "unusable": "it could not be loaded",
}


@dataclass(frozen=True)
class RefusalRow:
    """A refusal as a line: its kind, what that means with its times, what the client said, when."""

    why: str
    meaning: str
    text: str
    when: str


def rows(refusals: Sequence[Refusal]) -> list[RefusalRow]:
    """A line for each refusal."""
    return [RefusalRow(r.why, _meaning(r), visible(r.detail), moment(r.created)) for r in refusals]


def summary(refusals: Sequence[Refusal]) -> str:
    """How often clients refused a plan, by kind: "refused 3 times: 2 wrong, 1 slower"; "" for never."""
    if not refusals:
        return ""
    kinds = [r.why for r in refusals]
    by_kind = ", ".join(f"{kinds.count(why)} {why}" for why in MEANINGS if why in kinds)
    return f"refused {count(len(kinds), 'time')}: {by_kind}"


def _meaning(refusal: Refusal) -> str:
    meaning = MEANINGS[refusal.why]
    if refusal.took_us is None or refusal.instead_us is None:
        return meaning
    ratio = times(refusal.took_us / refusal.instead_us) if refusal.instead_us else ""
    return f"{meaning}: {duration(refusal.took_us)}, not {duration(refusal.instead_us)}{f' ({ratio})' if ratio else ''}"
