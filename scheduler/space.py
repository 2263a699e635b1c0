"""The schedules of one family for one segment, without those that make no difference."""

from collections.abc import Iterator, Mapping
from itertools import product
from math import prod

from codegen.kernel import EmitError, Family
from codegen.schedule import Choices, schedule_text, schedule_values
from fusion_ir.graph import Graph
from fusion_ir.records import Device

Value = int | str


class Space:
    """All combinations of the values that make a difference.

    Judged around one schedule, one field at a time: values that give the same kernel there are one value. Where nothing
    is cut into tiles, for example, their size is no choice. What still comes out equal shows in `Kernel.identity`.
    """

    def __init__(self, family: Family, segment: Graph, schedule: str, device: Device) -> None:
        self.family, self.segment = family.name, segment
        given, choices = schedule_values(schedule), family.choices(segment, device)
        stands_for: dict[str, dict[str, Value]] = {}
        if choices.keys() == given.keys():
            for name, values in choices.items():
                stands_for[name] = _classes(family, segment, given, name, values, device)
        self._stands_for = stands_for

    @property
    def choices(self) -> Choices:
        """What each field may be; {} where the family has nothing to choose."""
        return {name: tuple(dict.fromkeys(values.values())) for name, values in self._stands_for.items()}

    @property
    def size(self) -> int:
        """Number of combinations; 0 where there is nothing to choose."""
        return prod(len(values) for values in self.choices.values()) if self._stands_for else 0

    def point(self, schedule: str) -> str | None:
        """The combination that gives the same kernel as this schedule; None for what is none."""
        given = schedule_values(schedule)
        if not given or given.keys() != self._stands_for.keys():
            return None
        values: dict[str, Value] = {}
        for name, text in given.items():
            if text not in self._stands_for[name]:
                return None
            values[name] = self._stands_for[name][text]
        return schedule_text(self.family, values)

    def __iter__(self) -> Iterator[str]:
        choices = self.choices
        for values in product(*choices.values()) if choices else ():
            yield schedule_text(self.family, dict(zip(choices, values, strict=True)))


def _classes(
    family: Family, segment: Graph, given: Mapping[str, str], name: str, values: tuple[Value, ...], device: Device
) -> dict[str, Value]:
    """For each value of a field, as text, the first one that gives the same kernel. Values that cannot be lowered here
    stand for themselves: with other values of other fields they may be."""
    first: dict[object, Value] = {}
    found: dict[str, Value] = {}
    for value in values:
        try:
            kernel = family.emit(segment, schedule_text(family.name, {**given, name: value}), device)
            found[str(value)] = first.setdefault(kernel.identity, value)
        except EmitError:
            found[str(value)] = value
    return found
