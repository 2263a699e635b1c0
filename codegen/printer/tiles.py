"""Text of tiles: the arrays by way of which a kernel reads and writes across its lanes."""

from collections.abc import Sequence

from codegen.lowering.index import Affine, Axis
from codegen.lowering.program import Path, Program, Tile
from codegen.lowering.value import Value
from codegen.printer.expressions import CTYPE, Text


class TileText(Text):
    """Prints tiles (vec_transpose_cpu.h) and the ends of loops over parts of an axis."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.program = program
        self.tile_names: dict[Tile, str] = {}

    def end(self, axis: Axis) -> str:
        """Where a loop over `axis` ends: at the whole extent in a last tile that is not a whole one."""
        last = self.program.last_tile(axis)
        if last is None:
            return str(axis.extent)
        return f"least_index({axis.extent}, {last[1]} - {axis.extent} * {self.axis(last[0])})"

    def tile_element(self, tile: Tile) -> str:
        """Where the element of the present point is in the tile."""
        return f"{self.block_of(tile)}.at[{self.axis(tile.along)}] + {self.axis(tile.lane)}"

    def begin_tiles(self, path: Path) -> None:
        """Declares the tiles that live at `path` and fills those that are read."""
        for tile in self.program.tiles_at(path):
            name = self.tile_names[tile] = f"t{len(self.tile_names)}"
            dims = "".join(f"[{a.extent}]" for a in tile.others)
            self.line(f"Tile<{element_type(tile)}, {tile.along.extent}, {tile.lane.extent}> {name}{dims};")
            if isinstance(tile.access, Value):
                moved = ", ".join(self.moved(tile, f"in{tile.access.tensor}", tile.access.offset))
                self.line(f"{self.tile_loops(tile.others)}read_across({self.block_of(tile)}, {moved});")

    def fetch_tiles(self, path: Path) -> None:
        """In the loop along a tile that was read: brings a part of the one that is read next from memory."""
        for tile in self.program.tiles_at(path[:-1]):
            if not isinstance(tile.access, Value) or not tile.scope or tile.others:
                continue
            step = tile.access.offset.coef(tile.scope[-1].axis)
            if step and tile.along is path[-1].axis:
                base, stride, _ = self.moved(tile, f"in{tile.access.tensor}", tile.access.offset + step)
                sizes = f"<{tile.along.extent}, {tile.lane.extent}>"
                self.line(f"fetch_across{sizes}({base}, {stride}, {self.axis(tile.along)});")

    def end_tiles(self, path: Path, *, stream: bool) -> None:
        """Writes the tiles that live at `path` to the tensors that they are parts of."""
        for tile in self.program.tiles_at(path):
            if not isinstance(tile.access, Value):
                tensor, offset = f"out{tile.access.out}", tile.access.offset
                base, stride, ends = self.moved(tile, tensor, offset)
                loops = self.tile_loops((*tile.repeats, *tile.others))
                past = "true" if stream else "false"
                self.line(f"{loops}write_across<{past}>({base}, {stride}, {self.block_of(tile)}, {ends});")

    def moved(self, tile: Tile, tensor: str, offset: Affine) -> tuple[str, str, str]:
        """First element, stride of the lanes, and how many elements there are both ways."""
        first = offset.subst({tile.along: Affine(), tile.lane: Affine()})
        ends = f"{self.end(tile.along)}, {self.end(tile.lane)}"
        return f"{tensor} + {self.expr(first)}", str(offset.coef(tile.lane)), ends

    def block_of(self, tile: Tile) -> str:
        return self.tile_names[tile] + "".join(f"[{self.axis(a)}]" for a in tile.others)

    def tile_loops(self, axes: Sequence[Axis]) -> str:
        return "".join(f"LOOP({self.axis(a)}, {self.end(a)}) " for a in axes)


def element_type(tile: Tile) -> str:
    """The C++ type of a tile's elements."""
    return CTYPE[tile.access.dtype.name if isinstance(tile.access, Value) else tile.access.value.dtype.name]
