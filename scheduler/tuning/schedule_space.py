"""The schedules of one family for one segment, without those that make no difference."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from math import prod

from codegen.kernel import EmitError, Family
from codegen.schedule import Choices, schedule_text, schedule_values
from fusion_ir.core.graph import Graph
from fusion_ir.records import Device

Value = int | str


class ScheduleSpace:
    """All combinations of the values that make a difference.

    Values are judged around one schedule, one field at a time: those that give one kernel there count as one value.
    Where nothing is cut into tiles, for example, their size is no choice. Combinations that still give equal kernels
    show in `Kernel.identity`. Kernels of large segments take long to emit: once `is_late` is true, no more values are
    judged, and there is nothing to choose (`whole`: whether all were judged).
    """

    def __init__(
        self,
        family: Family,
        segment: Graph,
        schedule: str,
        device: Device,
        is_late: Callable[[], bool] = lambda: False,
    ) -> None:
        self.family, self.segment = family.name, segment
        given, choices = schedule_values(schedule), family.choices(segment, device)
        stands_for: dict[str, dict[str, Value]] = {}
        self._stands_for: dict[str, dict[str, Value]] = {}
        self.whole = False
        if choices.keys() == given.keys():
            for name, values in choices.items():
                classes = _Classes()
                for value in values:
                    if is_late():
                        return
                    classes.add(value, _identity(family, segment, {**given, name: value}, device))
                stands_for[name] = classes.stands_for
        self._stands_for, self.whole = stands_for, True

    @property
    def choices(self) -> Choices:
        """Values of each field, by its name; {} where there is nothing to choose."""
        return {name: tuple(dict.fromkeys(values.values())) for name, values in self._stands_for.items()}

    @property
    def size(self) -> int:
        """Number of combinations; 0 where there is nothing to choose."""
        return prod(len(values) for values in self.choices.values()) if self._stands_for else 0

    def point(self, schedule: str) -> str | None:
        """The combination that stands for this schedule, field by field; None for a schedule outside the space."""
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


@dataclass
class _Classes:
    """For each value of a field, as text, the first value that gives an identical kernel."""

    stands_for: dict[str, Value] = field(default_factory=dict[str, Value])
    _first: dict[object, Value] = field(default_factory=dict[object, Value])

    def add(self, value: Value, identity: object) -> None:
        """Adds a value. identity: of its kernel, None where there is none; then the value stands for itself, since with
        other values of other fields there may be one."""
        self.stands_for[str(value)] = value if identity is None else self._first.setdefault(identity, value)


def _identity(family: Family, segment: Graph, values: Mapping[str, Value], device: Device) -> object:
    try:
        return family.emit(segment, schedule_text(family.name, values), device).identity
    except EmitError:
        return None
