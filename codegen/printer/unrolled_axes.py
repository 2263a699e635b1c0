"""Text of unrolled axes: a statement stands once for each point of the axes it varies with; its names end in that."""

from collections.abc import Iterable, Iterator
from itertools import product

from codegen.lowering.index import Axis
from codegen.lowering.program import Key, Program
from codegen.lowering.value import Value
from codegen.printer.tiles import TileText


class PointText(TileText):
    """Names axes and values as the present point has them."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.point: dict[Axis, int] = {}  # of unrolled axes, in the statement being printed

    def points(self, axes: Iterable[Axis], key: Key | None = None) -> Iterator[None]:
        """Steps through the points of the unrolled axes among `axes` that block `key` has no loops over."""
        own = sorted(self.program.unrolled.intersection(axes) - set(key.dims if key else ()), key=lambda a: a.uid)
        for point in product(*(range(a.extent) for a in own)):
            self.point = dict(zip(own, point, strict=True))
            yield
        self.point = {}

    def axis(self, a: Axis) -> str:
        return str(self.point[a]) if a in self.point else super().axis(a)

    def name(self, v: Value) -> str:
        return super().name(v) + "".join(f"_{i}" for a, i in self.point.items() if a in v.deps)

    def array(self, v: Value) -> str:
        """The name of a kept value's array, one for all points."""
        return f"k{super().name(v)}"

    def looped(self, axes: Iterable[Axis]) -> list[Axis]:
        """The given axes without the unrolled ones."""
        return [a for a in axes if a not in self.program.unrolled]
