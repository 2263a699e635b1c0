"""Schedules: dataclasses of integers and words whose text reads back: `gemv{rows=8,few=4,lanes=16,tile=1024}`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Self, TypeVar

S = TypeVar("S", bound="Schedule")
Choices = Mapping[str, tuple[int | str, ...]]  # what every field of a schedule may be, in order
Variant = tuple[str, str]  # one way to compute a segment: a family's name, and a schedule of it as text


@dataclass(frozen=True)
class Schedule:
    """Base of every family's schedules. Fields are int or str; `FAMILY` names the family in the text."""

    FAMILY = ""

    def __str__(self) -> str:
        return schedule_text(self.FAMILY, {f.name: getattr(self, f.name) for f in fields(self)})

    def replaced(self, **changes: int | str) -> Self:
        """The schedule with other values of some fields."""
        return replace(self, **changes)


def schedule_text(family: str, values: Mapping[str, int | str]) -> str:
    """The text of a schedule with these fields."""
    return f"{family}{{{','.join(f'{name}={value}' for name, value in values.items())}}}"


def schedule_values(text: str) -> dict[str, str]:
    """The fields of a schedule of any family by name, their values as text."""
    return dict(item.split("=", 1) for item in text.partition("{")[2].rstrip("}").split(",") if "=" in item)


def parse_schedule(text: str, kind: type[S]) -> S:
    """The schedule of class `kind` that `str` writes as `text`. Raises ValueError naming what was expected."""
    match = re.fullmatch(r"(\w+)\{([^{}]*)\}", text)
    if not match or match[1] != kind.FAMILY:
        raise ValueError(f"expected a schedule {kind.FAMILY}{{...}}, got {text!r}")
    given = schedule_values(text)
    expected = {f.name: f.type for f in fields(kind)}
    if given.keys() != expected.keys():
        raise ValueError(f"{kind.FAMILY} takes {', '.join(expected)}; got {text!r}")
    return kind(**{name: int(value) if expected[name] in (int, "int") else value for name, value in given.items()})
