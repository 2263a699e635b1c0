"""Names and loops of tiles: the arrays by way of which a kernel reads and writes across its lanes."""

from collections.abc import Sequence

from codegen.lowering.index import Axis
from codegen.lowering.program import Tile
from codegen.lowering.value import Value
from codegen.printer.draft import Draft
from codegen.printer.expressions import CTYPE


class TileNames:
    """The names of tiles, in order of appearance."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.given: dict[Tile, str] = {}

    def new(self, tile: Tile) -> tuple[str, str]:
        """The name of a tile that is declared now, and the dimensions of its array."""
        name = self.given[tile] = f"t{len(self.given)}"
        return name, "".join(f"[{a.extent}]" for a in tile.others)

    def block(self, tile: Tile) -> str:
        """The tile of the present point of `others`."""
        return self.given[tile] + "".join(f"[{self.draft.names.axis(a)}]" for a in tile.others)

    def loops(self, axes: Sequence[Axis]) -> str:
        return "".join(f"LOOP({self.draft.names.axis(a)}, {self.draft.end(a)}) " for a in axes)


def element_type(tile: Tile) -> str:
    """The C++ type of a tile's elements."""
    return CTYPE[tile.access.dtype.name if isinstance(tile.access, Value) else tile.access.value.dtype.name]
