"""Draft: a kernel's body while it is being printed, with all that the printer's helpers share."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from codegen.kernel import Access
from codegen.lowering.access import Pattern
from codegen.lowering.index import Axis
from codegen.lowering.program import Program
from codegen.printer.expressions import Expressions
from codegen.printer.lines import Lines
from codegen.printer.style import Style
from codegen.printer.unrolled_axes import UnrolledAxes


@dataclass(frozen=True)
class Draft:
    """A body while it is being printed. accesses: of the loads and stores printed, see `Access`."""

    program: Program
    style: Style
    names: Expressions
    lines: Lines = field(default_factory=Lines)
    accesses: set[Access] = field(default_factory=set[Access])

    @property
    def unrolled(self) -> UnrolledAxes:
        return self.names.unrolled

    def width(self, lane: Axis | None) -> int:
        """Elements of a vector along a lane axis; 1 for scalars."""
        return self.program.widths[lane] if lane else 1

    def end(self, axis: Axis) -> str:
        """Where a loop over `axis` ends: at the whole extent in a last tile that is not a whole one."""
        last = self.program.last_tile(axis)
        if last is None:
            return str(axis.extent)
        return f"least_index({axis.extent}, {last[1]} - {axis.extent} * {self.names.axis(last[0])})"

    def lanes_left(self, lane: Axis) -> int:
        """Elements of a lane axis behind the last whole vector."""
        last = self.program.last_tile(lane)
        return (last[1] if last else lane.extent) % self.program.widths[lane]

    def vectors_along(self, lane: Axis) -> str:
        """The arguments of a loop over the vectors along lanes."""
        return f"{self.names.axis(lane)}_v, VECTORS({self.width(lane)}, {lane.extent})"

    def most(self, found: Pattern, itemsize: int) -> int:
        """Elements that an access has at once where its address must be aligned."""
        return min(found.width, max(self.style.access_bytes // itemsize, 1))

    def note(self, tensor: str, found: Pattern, widths: Iterable[int]) -> None:
        """Remembers an access that is printed, and the elements that it moves at once."""
        self.accesses.update(Access(tensor, found.kind, width) for width in widths)


def in_order(accesses: Iterable[Access]) -> tuple[Access, ...]:
    """Accesses by tensor, kind and width."""
    return tuple(sorted(accesses, key=lambda a: (a.tensor, a.kind, a.width)))
