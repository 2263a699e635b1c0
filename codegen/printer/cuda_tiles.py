"""Tiles on CUDA: in shared memory, filled and emptied by all threads of a block (tiles_cuda.cuh)."""

from math import prod

from codegen.hardware.architectures import ACCESS_BYTES
from codegen.lowering.index import Affine, Axis
from codegen.lowering.program import Key, Path, Tile
from codegen.lowering.transpose_tiles import BLOCK
from codegen.lowering.value import Value
from codegen.lowering.write import Write
from codegen.printer.cuda_accesses import ThreadAccesses
from codegen.printer.cuda_loops import ThreadLoops
from codegen.printer.draft import Draft
from codegen.printer.expressions import CTYPE
from codegen.printer.memory import pointer, tensor_name
from codegen.printer.shared_memory import SharedMemory, rounded_to, stored_axes, tile_dtype
from codegen.printer.tiles import TileNames, element_type

EARLY_BYTES = 64  # of a thread, read before tiles are there


class SharedTiles:
    """Prints tiles as `TileDialect` says. early: what is read before tiles are there, in registers of each vector."""

    def __init__(self, draft: Draft, loops: ThreadLoops, accesses: ThreadAccesses, shared: SharedMemory) -> None:
        self.draft, self.program, self.threads = draft, draft.program, draft.style.threads
        self.loops, self.accesses, self.shared = loops, accesses, shared
        self.names = TileNames(draft)
        self.early: dict[tuple[Key, Value], str] = {}

    def begin(self, path: Path) -> None:
        tiles = self.program.tiles_at(path)
        if any(isinstance(tile.access, Value) for tile in tiles):
            self._read_early(path)
        if tiles:
            self.draft.lines.add("block_barrier();")  # until nobody uses what was in the tiles
        for tile in tiles:
            name, dims = self.names.new(tile)
            kind, bytes_ = self._tile_type(tile)
            self.draft.lines.add(f"{kind} (&{name}){dims} = *({kind}(*){dims})(shared + {self.shared.take(bytes_)});")
            if isinstance(tile.access, Value):
                base, stride, ends = self._moved(tile, tile.access.offset)
                move = f"fill<{self._how(tile)}>({self.names.block(tile)}, {base}, {stride}, {ends});"
                self.draft.lines.add(f"{self.names.loops(tile.others)}{move}")
        if any(isinstance(tile.access, Value) for tile in tiles):
            self.draft.lines.add("filled();")

    def fetch(self, path: Path) -> None:
        """Nothing: only CPU kernels are told to (`Style.ahead`)."""

    def end(self, path: Path, *, stream: bool) -> None:
        written = [t for t in self.program.tiles_at(path) if not isinstance(t.access, Value)]
        if written:
            self.draft.lines.add("block_barrier();")
        for tile in written:
            assert not isinstance(tile.access, Value)
            base, stride, ends = self._moved(tile, tile.access.offset)
            loops = self.names.loops((*tile.repeats, *tile.others))
            move = f"empty<{self._how(tile)}>({base}, {stride}, {self.names.block(tile)}, {ends});"
            self.draft.lines.add(f"{loops}{move}")

    def load(self, v: Value, key: Key, width: int, count: str | None) -> str | None:
        if (key, v) in self.early:
            return self.early[key, v]
        tile = self.program.across.get((key, v))
        if tile is None:
            return None
        axis = self.draft.names.axis
        place = f"{axis(tile.lane)}, {axis(tile.along)}"
        if count is None and self._is_by_warp(tile, key):
            return f"{self.names.block(tile)}.down_by_warp<TX>({place})"
        return f"{self.names.block(tile)}.down<{width}>({place}, {count or width})"

    def store(self, w: Write, key: Key, value: str, width: int, count: str | None) -> str | None:
        tile = self.program.across.get((key, w))
        if tile is None:
            return None
        axis = self.draft.names.axis
        return f"{self.names.block(tile)}.put({axis(tile.along)}, {axis(tile.lane)}, {value});"

    def _read_early(self, path: Path) -> None:
        """Prints the other loads of the rows along tiles ahead of the tiles, so that both are on their way together.
        A thread reads at most EARLY_BYTES so."""
        room, axis = EARLY_BYTES, self.draft.names.axis
        for key, block in self.program.blocks.items():
            lane = key.lane
            if lane is None or key.path[:-1] != path or key.dims or not self.loops.is_even(lane):
                continue
            if self.loops.around(key.path, len(path)) != "ROWS_EVEN" or self.loops.many(key) != "_EVEN":
                continue
            width, row = self.program.widths[lane], key.path[-1].axis
            vectors = (row.extent // self.threads.y, lane.extent // (width * self.threads.x))
            for v in block.ordered():
                if v.op != "load" or (key, v) in self.program.across or v.offset.fetched or not v.offset.coef(lane):
                    continue
                found, at = pointer(self.draft, self.accesses, v, lane, width, v.dtype.bytes)
                bytes_ = prod(vectors) * width * v.dtype.bytes
                if found.kind != "vector" or bytes_ > room:
                    continue
                room -= bytes_
                name = f"e{len(self.early)}"
                self.draft.lines.add(f"Vec<{CTYPE[v.dtype.name]}, {width}> {name}[{vectors[0]}][{vectors[1]}];")
                loops = f"ROWS_EVEN({axis(row)}, {row.extent}) LANES_EVEN({axis(lane)}, {width}, {lane.extent}, "
                place = f"{name}[{axis(row)}_r][{axis(lane)}_v]"
                value = f"load_early<{width}, {found.width}>({at})"
                self.draft.lines.add(f"{loops}VECTORS({width}, {lane.extent})) {place} = {value};")
                self.early[key, v] = place

    def _moved(self, tile: Tile, offset: Affine) -> tuple[str, str, str]:
        """First element, stride of the lanes, and the ends in the order in which the tile lies in shared memory."""
        first = offset.subst({tile.along: Affine(), tile.lane: Affine()})
        ends = ", ".join(self.draft.end(a) for a in stored_axes(tile))
        at = f"{tensor_name(tile.access)} + ({self.draft.names.expr(first)})"
        return at, f"(idx_t){offset.coef(tile.lane)}", ends

    def _note(self, tensor: str, e: Affine, tile: Tile, itemsize: int) -> None:
        chunk, found = ACCESS_BYTES // itemsize, self.accesses.pattern(tensor, e, tile.along, BLOCK, itemsize)
        if tile.along.extent >= chunk:
            self.draft.note(tensor, found, {self.draft.most(found, itemsize)})
        if tile.along.extent % chunk or not self._is_whole(tile):
            left = self.accesses.masked(found, tile.along)
            self.draft.note(tensor, left, {self.draft.most(left, itemsize)})

    def _how(self, tile: Tile) -> str:
        """Template arguments of the function that moves a tile: threads along x and y, elements that one access may
        move, elements that one behind the last whole chunk may move, and whether all tiles are whole ones."""
        tensor, e, itemsize = tensor_name(tile.access), tile.access.offset, tile_dtype(tile).bytes
        self._note(tensor, e, tile, itemsize)
        found = self.accesses.pattern(tensor, e, tile.along, BLOCK, itemsize)
        whole = "true" if self._is_whole(tile) else "false"
        return f"TX, TY, {found.width}, {self.accesses.masked(found, tile.along).width}, {whole}"

    def _is_whole(self, tile: Tile) -> bool:
        """Whether every tile lies in the tensor as a whole, and no vector along lanes goes beyond the axis."""
        ends = self.program.last_tile(tile.along) or self.program.last_tile(tile.lane)
        return not ends and self._whole_vectors(tile.lane, tile) == tile.lane.extent

    def _tile_type(self, tile: Tile) -> tuple[str, int]:
        """The C++ type of a tile, and the bytes of one tile per point of `others`, as SharedTile in tiles_cuda.cuh has
        them."""
        itemsize = tile_dtype(tile).bytes
        down, chunks = stored_axes(tile)
        rows, columns = (self._whole_vectors(a, tile) for a in (down, chunks))
        row = -(-columns * itemsize // ACCESS_BYTES)
        row = rounded_to(row, 8) if row > 4 else 1 << (row - 1).bit_length()
        # Elements that a thread reads down the tile at a time.
        each = self.program.widths[tile.lane] if down is tile.lane else ACCESS_BYTES // itemsize
        kind = f"SharedTile<{element_type(tile)}, {rows}, {columns}, {each}>"
        return kind, rows * row * ACCESS_BYTES * prod(a.extent for a in tile.others)

    def _whole_vectors(self, a: Axis, tile: Tile) -> int:
        """The extent of an axis of a tile, with the rest of a last vector along lanes."""
        return rounded_to(a.extent, self.program.widths[a]) if a is tile.lane else a.extent

    def _is_by_warp(self, tile: Tile, key: Key) -> bool:
        """Whether all lanes of a warp read a tile of 2-byte elements together, four of eight lanes each for eight rows:
        the shape of ldmatrix."""
        width, (x, y) = self.program.widths[tile.lane], (self.threads.x, self.threads.y)
        return (
            tile_dtype(tile).bytes == 2
            and (width, x, y % 8) == (8, 4, 0)
            and self.loops.is_even(tile.lane)
            and any(
                row == key.path[: len(row)] and self.loops.is_even_row(row, tile) for row in self.loops.sharing.rows
            )
        )
