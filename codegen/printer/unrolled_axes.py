"""Unrolled axes: a statement stands once for each point of the axes it varies with; its names end in that."""

from collections.abc import Iterable, Iterator
from itertools import product

from codegen.lowering.index import Axis
from codegen.lowering.program import Key
from codegen.lowering.value import Value


class UnrolledAxes:
    """The unrolled axes of a program, and the point of them that is being printed."""

    def __init__(self, axes: frozenset[Axis] = frozenset()) -> None:
        self.axes = axes
        self.point: dict[Axis, int] = {}

    def points(self, axes: Iterable[Axis], key: Key | None = None) -> Iterator[None]:
        """Steps through the points of the unrolled axes among `axes` that block `key` has no loops over."""
        own = sorted(self.axes.intersection(axes) - set(key.dims if key else ()), key=lambda a: a.uid)
        for point in product(*(range(a.extent) for a in own)):
            self.point = dict(zip(own, point, strict=True))
            yield
        self.point = {}

    def ending(self, v: Value) -> str:
        """The ending of a value's name at the present point."""
        return "".join(f"_{i}" for a, i in self.point.items() if a in v.deps)

    def looped(self, axes: Iterable[Axis]) -> list[Axis]:
        """The given axes without the unrolled ones."""
        return [a for a in axes if a not in self.axes]
