"""Tiles on the CPU: arrays in the cache (vec_transpose_cpu.h)."""

from codegen.lowering.access import Pattern
from codegen.lowering.index import Affine
from codegen.lowering.program import Key, Path, Tile
from codegen.lowering.value import Value
from codegen.lowering.write import Write
from codegen.printer.draft import Draft
from codegen.printer.machine_moves import moved_across
from codegen.printer.memory import tensor_name
from codegen.printer.tiles import TileNames, element_type


class CpuTiles:
    """Prints tiles as `TileDialect` says."""

    def __init__(self, draft: Draft) -> None:
        self.draft, self.program, self.names = draft, draft.program, TileNames(draft)

    def begin(self, path: Path) -> None:
        for tile in self.program.tiles_at(path):
            name, dims = self.names.new(tile)
            kind = f"Tile<{element_type(tile)}, {tile.along.extent}, {tile.lane.extent}>"
            self.draft.lines.add(f"{kind} {name}{dims};")
            if isinstance(tile.access, Value):
                moved = ", ".join(self._moved(tile, tile.access.offset))
                loops = self.names.loops(tile.others)
                self.draft.lines.add(f"{loops}read_across({self.names.block(tile)}, {moved});")

    def fetch(self, path: Path) -> None:
        for tile in self.program.tiles_at(path[:-1]):
            if not isinstance(tile.access, Value) or not tile.scope or tile.others:
                continue
            step = tile.access.offset.coef(tile.scope[-1].axis)
            if step and tile.along is path[-1].axis:
                base, stride, _ = self._moved(tile, tile.access.offset + step)
                sizes = f"<{tile.along.extent}, {tile.lane.extent}>"
                at = self.draft.names.axis(tile.along)
                self.draft.lines.add(f"fetch_across{sizes}({base}, {stride}, {at});")

    def end(self, path: Path, *, stream: bool) -> None:
        for tile in self.program.tiles_at(path):
            if not isinstance(tile.access, Value):
                base, stride, ends = self._moved(tile, tile.access.offset)
                loops = self.names.loops((*tile.repeats, *tile.others))
                past, block = "true" if stream else "false", self.names.block(tile)
                self.draft.lines.add(f"{loops}write_across<{past}>({base}, {stride}, {block}, {ends});")

    def load(self, v: Value, key: Key, width: int, count: str | None) -> str | None:
        tile = self.program.across.get((key, v))
        if tile is None:
            return None
        self._note(tile, v.dtype.bytes)
        at = self._element(tile)
        return f"load<{width}, 1>({at})" if count is None else f"load_masked<{width}, 1>({at}, {count})"

    def store(self, w: Write, key: Key, value: str, width: int, count: str | None) -> str | None:
        tile = self.program.across.get((key, w))
        if tile is None:
            return None
        self._note(tile, w.itemsize)
        at = self._element(tile)
        if count is None:
            return f"store<{width}, 1>({at}, {value});"
        return f"store_masked<{width}, 1>({at}, {value}, {count});"

    def _element(self, tile: Tile) -> str:
        """The address of the present point's element in a tile."""
        axis = self.draft.names.axis
        return f"{self.names.block(tile)}.at[{axis(tile.along)}] + {axis(tile.lane)}"

    def _moved(self, tile: Tile, offset: Affine) -> tuple[str, str, str]:
        """First element, stride of the lanes, and how many elements there are both ways."""
        first = offset.subst({tile.along: Affine(), tile.lane: Affine()})
        ends = f"{self.draft.end(tile.along)}, {self.draft.end(tile.lane)}"
        at = f"{tensor_name(tile.access)} + {self.draft.names.expr(first)}"
        return at, str(offset.coef(tile.lane)), ends

    def _note(self, tile: Tile, itemsize: int) -> None:
        """Remembers how a tile is moved."""
        cut = bool(self.program.last_tile(tile.along) or self.program.last_tile(tile.lane))
        register_bytes = self.draft.style.register_bytes
        widths = moved_across(tile.along.extent, tile.lane.extent, itemsize, register_bytes, cut=cut)
        self.draft.note(tensor_name(tile.access), Pattern("vector", max(widths)), widths)
