"""The body of a kernel for CUDA: loops shared by blocks and threads (`codegen.printer.threads`), and joined results."""

from collections.abc import Sequence
from functools import cached_property
from math import gcd, prod

from codegen.hardware.architectures import ACCESS_BYTES
from codegen.kernel import EmitError
from codegen.lowering.access import Pattern, in_groups
from codegen.lowering.index import Affine, Axis
from codegen.lowering.program import Kept, Key, Path, Program, Tile
from codegen.lowering.transpose_tiles import BLOCK
from codegen.lowering.value import Value
from codegen.lowering.write import Write
from codegen.printer.arrays import combination, is_max
from codegen.printer.body import BodyText
from codegen.printer.expressions import CTYPE
from codegen.printer.shared_memory import accumulator_bytes, rounded, rounded_to, stored_axes, tile_dtype
from codegen.printer.style import Style
from codegen.printer.threads import Sharing
from codegen.printer.tiles import element_type

WARP = 32  # threads
ROW_BARRIERS = 15  # of a block's 16, besides the one that all its threads meet at
MOST_ROWS = 16  # of a thread, what is kept of which is in registers
EARLY_BYTES = 64  # of a thread, read before tiles are there
UNROLLED = 8  # longest loop over a dimension of an array that is always unrolled
MOST_UNROLLED = 64  # vectors of a thread along lanes: arrays in registers are indexed by constants only


class CudaBodyText(BodyText):
    """Prints a body for CUDA: one thread's share of it. Raises EmitError where threads cannot share the program."""

    def __init__(self, program: Program, style: Style) -> None:
        super().__init__(program, style)
        self.threads = style.threads
        self.sharing = Sharing(program)
        self.sharing.check(self.threads)
        # Bytes of shared memory: for what threads along x join, for what those along y do, and for everything else.
        self.x_bytes = self.y_bytes = self.taken = 0
        self.places: dict[Value, str] = {}  # of arrays in shared memory
        self.early: dict[tuple[Key, Value], str] = {}  # what is read before tiles are there: registers of each vector

    # ---- loops
    def is_enough(self, path: Path) -> bool:
        return False

    def shares_rows(self, path: Path) -> bool:
        return path in self.sharing.rows

    def loop_around(self, path: Path, depth: int) -> str:
        if path not in self.sharing.rows:
            return "LOOP"
        if any(self.is_even_row(path, t) for t in self.program.across.values()):
            return "ROWS_EVEN"
        axis = path[-1].axis
        if axis not in self.kept_rows and any(r.home.path == path for r in self.program.reductions.values()):
            return "ROWS_APART"
        whole = axis.extent % self.threads.y == 0 and not self.program.last_tile(axis)
        return f"ROWS{'_KEPT' if axis in self.kept_rows else ''}{'_WHOLE' if whole else ''}"

    @cached_property
    def kept_rows(self) -> frozenset[Axis]:
        """`Sharing.kept_rows`. Arrays over these axes are in registers: raises EmitError above MOST_ROWS per thread."""
        for a in self.sharing.kept_rows:
            if (rows := -(-a.extent // self.threads.y)) > MOST_ROWS:
                raise EmitError(f"a thread would keep what is of {rows} rows (at most {MOST_ROWS})")
        return self.sharing.kept_rows

    def is_own_row(self, a: Axis, v: Value) -> bool:
        """Whether a thread has only the part of an array of `v` for its own rows along `a`."""
        return a in self.kept_rows and a in self.sharing.own_rows(v)

    def indices(self, dims: Sequence[Axis], v: Value) -> str:
        return "".join(f"[{self.axis(a)}{'_r' if self.is_own_row(a, v) else ''}]" for a in dims)

    def dimensions(self, dims: Sequence[Axis], v: Value) -> str:
        return "".join(f"[ROWS_OF({a.extent})]" if self.is_own_row(a, v) else f"[{a.extent}]" for a in dims)

    def once(self) -> str:
        return "ONCE FIRST_ROW"

    def guards(self, key: Key, depth: int) -> list[str]:
        rows = [] if self.sharing.is_in_row(key.path) or (not key.path and depth == 2) else ["FIRST_ROW"]
        return rows + (["FIRST_LANE"] if key.lane is None else [])

    def loop_within(self, axis: Axis | None) -> str:
        return "UNROLL" if axis is None or axis.extent <= UNROLLED else "LOOP"

    def many(self, key: Key) -> str:
        """Loops over lanes are unrolled where arrays in registers are indexed by their vectors."""
        assert key.lane
        vectors, last = self.program.vectors(key.lane), self.program.last_tile(key.lane)
        together = self.threads.x * self.program.widths[key.lane]
        whole = "_WHOLE" if key.lane.extent % together == 0 and not last else ""
        if self.indexes_registers(key):
            if vectors > MOST_UNROLLED:
                raise EmitError(
                    f"a thread would keep {vectors} vectors of a row in registers (at most {MOST_UNROLLED})"
                )
            return "_MANY" if last else whole
        if any(t.lane is key.lane and self.is_even(t.lane) for t in self.program.across.values()):
            return "_EVEN"
        return whole if vectors == 1 else f"_LOOP{whole}"

    def indexes_registers(self, key: Key) -> bool:
        """Whether a block fills or reads an array over its lanes that registers hold."""
        block = self.program.blocks[key]
        used = {a for v in (*block.values, *block.updates) for a in v.args} | {w.value for w, _ in block.writes}
        filled = {v for v in (*block.values, *block.updates) if (k := self.program.kept.get(v)) and k.key == key}
        kept = {v: self.program.kept[v] for v in used | filled | set(block.updates) if v in self.program.kept}
        return any(k.key.lane is key.lane and not self.is_in_shared(v) for v, k in kept.items())

    # ---- results of threads
    def end_sum(self, v: Value) -> None:
        reduction, kept = self.program.reductions[v], self.program.kept.get(v)
        if kept and not reduction.joins_lanes and self.sharing.is_sum_of_rows(v):
            lane = reduction.home.lane
            over = f"UNROLL({self.vectors_along(lane)}) " if lane else ""
            for _ in self.points(v.deps):
                self.loops(self.looped(reduction.home.dims), lambda: self.line(f"{over}{self.whole_column(v)}"))
            return
        super().end_sum(v)

    def whole_column(self, v: Value) -> str:
        """The statement that sets an accumulator in an array to the combined accumulators of all rows."""
        return f"{self.accumulator(v)} = {self.across_rows(v, self.accumulator(v))};"

    def joined(self, v: Value) -> str:
        text = self.accumulator(v)
        reduction = self.program.reductions[v]
        if reduction.joins_lanes:
            text = self.along_lanes(v, text)
        if self.sharing.is_sum_of_rows(v):
            text = self.across_rows(v, text)
        return f"position({text})" if v.op == "argreduce" else text

    def along_lanes(self, v: Value, text: str) -> str:
        """The lanes of an accumulator combined, and those of all threads of a row."""
        f = combination(v)
        own = f"join_best<{is_max(v)}>({text})" if v.op == "argreduce" else f"join_lanes({f}, {text})"
        if self.threads.x == 1:
            return own
        if self.threads.x > WARP:
            if self.threads.y > ROW_BARRIERS:
                raise EmitError(f"{self.threads.y} rows of several warps, barriers for {ROW_BARRIERS} of them")
            self.x_bytes = max(self.x_bytes, self.threads.y * (self.threads.x // WARP) * accumulator_bytes(v, 1))
            return f"join_x<TX, TY>(shared, {f}, {own})"
        return f"join_x<TX, TY>(nullptr, {f}, {own})"

    def across_rows(self, v: Value, text: str) -> str:
        """The accumulators of all rows combined, thread by thread."""
        if self.threads.y == 1:
            return text
        reduction = self.program.reductions[v]
        width = 1 if reduction.joins_lanes else self.width(reduction.site.lane)
        self.y_bytes = max(self.y_bytes, self.threads.count * accumulator_bytes(v, width))
        return f"join_y<TX, TY>(shared + JOINED_X, {combination(v)}, {text})"

    # ---- arrays in shared memory, each thread's for itself
    def is_in_shared(self, v: Value) -> bool:
        """Whether an array along lanes lies in shared memory."""
        kept = self.program.kept.get(v)
        return self.style.shared_rows and bool(kept and kept.key.lane) and v not in self.program.reductions

    def declare(self, v: Value, kept: Kept) -> None:
        if not self.is_in_shared(v):
            super().declare(v, kept)
            return
        width, vectors = self.width(kept.key.lane), self.vectors_of_thread(v, kept)
        if v not in self.places:
            self.places[v] = self.take(rounded(width * v.dtype.bytes) * vectors * self.threads.count)
        kind = f"OwnRows<{CTYPE[v.dtype.name]}, {width}, TX * TY>"
        self.line(f"const {kind} {self.array(v)}{{shared + {self.places[v]}}};")

    def vectors_of_thread(self, v: Value, kept: Kept) -> int:
        """Vectors that a thread has of an array along lanes."""
        assert kept.key.lane
        rows = (-(-a.extent // (self.threads.y if self.is_own_row(a, v) else 1)) for a in kept.dims)
        return prod(rows) * self.program.vectors(kept.key.lane)

    def element_of(self, v: Value, kept: Kept) -> str:
        if not self.is_in_shared(v):
            return super().element_of(v, kept)
        return f"{self.array(v)}.get({self.position_of(v, kept)})"

    def fill(self, v: Value, kept: Kept, value: str) -> str:
        if not self.is_in_shared(v):
            return super().fill(v, kept, value)
        return f"{self.array(v)}.put({self.position_of(v, kept)}, {value});"

    def position_of(self, v: Value, kept: Kept) -> str:
        """The number of the present vector among those of one thread."""
        assert kept.key.lane
        at, lane = "", kept.key.lane
        for a in kept.dims:
            own = self.is_own_row(a, v)
            name, extent = (f"{self.axis(a)}_r", f"ROWS_OF({a.extent})") if own else (self.axis(a), a.extent)
            at = f"({at}) * {extent} + {name}" if at else name
        vector = f"{self.axis(lane)}_v"
        return f"({at}) * VECTORS({self.width(lane)}, {lane.extent}) + {vector}" if at else vector

    def take(self, bytes_: int) -> str:
        """Takes room in shared memory, behind that for joining results; returns its offset as C++ text."""
        at = self.taken
        self.taken += rounded(bytes_)
        return f"JOINED + {at}"

    # ---- tiles in shared memory, which all threads of a block fill and empty
    def begin_tiles(self, path: Path) -> None:
        tiles = self.program.tiles_at(path)
        if any(isinstance(tile.access, Value) for tile in tiles):
            self.read_early(path)
        if tiles:
            self.line("block_barrier();")  # until nobody uses what was in the tiles
        for tile in tiles:
            name = self.tile_names[tile] = f"t{len(self.tile_names)}"
            dims = "".join(f"[{a.extent}]" for a in tile.others)
            kind, bytes_ = self.tile_type(tile)
            self.line(f"{kind} (&{name}){dims} = *({kind}(*){dims})(shared + {self.take(bytes_)});")
            if isinstance(tile.access, Value):
                base, stride, ends = self.moved(tile, f"in{tile.access.tensor}", tile.access.offset)
                move = f"fill<{self.how(tile)}>({self.block_of(tile)}, {base}, {stride}, {ends});"
                self.line(f"{self.tile_loops(tile.others)}{move}")
        if any(isinstance(tile.access, Value) for tile in tiles):
            self.line("filled();")

    def read_early(self, path: Path) -> None:
        """Prints the other loads of the rows along tiles ahead of the tiles, so that both are on their way together.
        A thread reads at most EARLY_BYTES so."""
        room = EARLY_BYTES
        for key, block in self.program.blocks.items():
            lane = key.lane
            if lane is None or key.path[:-1] != path or key.dims or not self.is_even(lane):
                continue
            if self.loop_around(key.path, len(path)) != "ROWS_EVEN" or self.many(key) != "_EVEN":
                continue
            width, row = self.program.widths[lane], key.path[-1].axis
            vectors = (row.extent // self.threads.y, lane.extent // (width * self.threads.x))
            for v in block.ordered():
                if v.op != "load" or (key, v) in self.program.across or v.offset.fetched or not v.offset.coef(lane):
                    continue
                found, at = self.pointer(v, key, lane, width, v.dtype.bytes)
                bytes_ = prod(vectors) * width * v.dtype.bytes
                if found.kind != "vector" or bytes_ > room:
                    continue
                room -= bytes_
                name = f"e{len(self.early)}"
                self.line(f"Vec<{CTYPE[v.dtype.name]}, {width}> {name}[{vectors[0]}][{vectors[1]}];")
                loops = (
                    f"ROWS_EVEN({self.axis(row)}, {row.extent}) LANES_EVEN({self.axis(lane)}, {width}, {lane.extent}, "
                )
                place = f"{name}[{self.axis(row)}_r][{self.axis(lane)}_v]"
                value = f"load_early<{width}, {found.width}>({at})"
                self.line(f"{loops}VECTORS({width}, {lane.extent})) {place} = {value};")
                self.early[key, v] = place

    def end_tiles(self, path: Path, *, stream: bool) -> None:
        written = [t for t in self.program.tiles_at(path) if not isinstance(t.access, Value)]
        if written:
            self.line("block_barrier();")
        for tile in written:
            assert not isinstance(tile.access, Value)
            base, stride, ends = self.moved(tile, f"out{tile.access.out}", tile.access.offset)
            loops = self.tile_loops((*tile.repeats, *tile.others))
            self.line(f"{loops}empty<{self.how(tile)}>({base}, {stride}, {self.block_of(tile)}, {ends});")

    def moved(self, tile: Tile, tensor: str, offset: Affine) -> tuple[str, str, str]:
        """First element, stride of the lanes, and the ends in the order in which the tile lies in shared memory."""
        first = offset.subst({tile.along: Affine(), tile.lane: Affine()})
        ends = ", ".join(self.end(a) for a in stored_axes(tile))
        return f"{tensor} + ({self.expr(first)})", f"(idx_t){offset.coef(tile.lane)}", ends

    def pointer(
        self, access: Value | Write, key: Key, lane: Axis | None, width: int, itemsize: int, *, masked: bool = False
    ) -> tuple[Pattern, str]:
        """Around tiles addresses are sums of 32 bits, and made 64 bits wide once."""
        found, at = super().pointer(access, key, lane, width, itemsize, masked=masked)
        tensor, plus, offset = at.partition(" + ")
        return found, f"{tensor} + ({offset})" if plus and self.program.across else at

    def masked(self, found: Pattern, lane: Axis) -> Pattern:
        """The pattern in a masked vector: as many elements at once as divide its width, the axis and, where the last
        tile is cut off, the whole extent. The number of lanes left is a multiple of that."""
        last = self.program.last_tile(lane)
        left = gcd(lane.extent, last[1] if last else 0)
        if found.kind == "lanes":
            return Pattern("lanes", gcd(found.width, left), gcd(found.step, left))
        return Pattern("vector", gcd(found.width, left)) if found.kind == "vector" else super().masked(found, lane)

    def count_left(self, lane: Axis, extent: str) -> str:
        return f"{extent} - {self.axis(lane)}"

    def together(self, found: Pattern) -> str:
        return f"{found.width}, {found.width}"

    def note_tile(self, tensor: str, e: Affine, tile: Tile, itemsize: int) -> None:
        chunk, found = ACCESS_BYTES // itemsize, self.tensor_pattern(tensor, e, tile.along, BLOCK, itemsize)
        if tile.along.extent >= chunk:
            self.note(tensor, found, {self.most(found, itemsize)})
        if tile.along.extent % chunk or not self.is_whole(tile):
            left = self.masked(found, tile.along)
            self.note(tensor, left, {self.most(left, itemsize)})

    def how(self, tile: Tile) -> str:
        """Template arguments of the function that moves a tile: threads along x and y, elements that one access may
        move, elements that one behind the last whole chunk may move, and whether all tiles are whole ones."""
        tensor, e, itemsize = self.tensor_of(tile), tile.access.offset, tile_dtype(tile).bytes
        self.note_tile(tensor, e, tile, itemsize)
        found = self.tensor_pattern(tensor, e, tile.along, BLOCK, itemsize)
        whole = "true" if self.is_whole(tile) else "false"
        return f"TX, TY, {found.width}, {self.masked(found, tile.along).width}, {whole}"

    def tensor_of(self, tile: Tile) -> str:
        return f"in{tile.access.tensor}" if isinstance(tile.access, Value) else f"out{tile.access.out}"

    def is_whole(self, tile: Tile) -> bool:
        """Whether every tile lies in the tensor as a whole, and no vector along lanes goes beyond the axis."""
        ends = self.program.last_tile(tile.along) or self.program.last_tile(tile.lane)
        return not ends and self.whole_vectors(tile.lane, tile) == tile.lane.extent

    def tile_type(self, tile: Tile) -> tuple[str, int]:
        """The C++ type of a tile, and the bytes of one tile per point of `others`, as SharedTile in tiles_cuda.cuh has
        them."""
        itemsize = tile_dtype(tile).bytes
        down, chunks = stored_axes(tile)
        rows, columns = (self.whole_vectors(a, tile) for a in (down, chunks))
        row = -(-columns * itemsize // ACCESS_BYTES)
        row = rounded_to(row, 8) if row > 4 else 1 << (row - 1).bit_length()
        # Elements that a thread reads down the tile at a time.
        each = self.program.widths[tile.lane] if down is tile.lane else ACCESS_BYTES // itemsize
        kind = f"SharedTile<{element_type(tile)}, {rows}, {columns}, {each}>"
        return kind, rows * row * ACCESS_BYTES * prod(a.extent for a in tile.others)

    def whole_vectors(self, a: Axis, tile: Tile) -> int:
        """The extent of an axis of a tile, with the rest of a last vector along lanes."""
        return rounded_to(a.extent, self.program.widths[a]) if a is tile.lane else a.extent

    def is_by_warp(self, tile: Tile, key: Key) -> bool:
        """Whether all lanes of a warp read a tile of 2-byte elements together, four of eight lanes each for eight rows:
        the shape of ldmatrix."""
        width, (x, y) = self.program.widths[tile.lane], (self.threads.x, self.threads.y)
        return (
            tile_dtype(tile).bytes == 2
            and (width, x, y % 8) == (8, 4, 0)
            and self.is_even(tile.lane)
            and any(row == key.path[: len(row)] and self.is_even_row(row, tile) for row in self.sharing.rows)
        )

    def is_even_row(self, path: Path, tile: Tile) -> bool:
        """Whether `path` is a loop along a tile whose rows all threads along y share evenly, at most UNROLLED each."""
        a = tile.along
        own, rest = divmod(a.extent, self.threads.y)
        return path[-1].axis is a and len(path) > 1 and not self.program.last_tile(a) and not rest and own <= UNROLLED

    def is_even(self, lane: Axis) -> bool:
        """Whether all threads along x share the whole vectors along a lane axis evenly, at most UNROLLED each."""
        own, rest = divmod(lane.extent, self.program.widths[lane] * self.threads.x)
        return not self.program.last_tile(lane) and not rest and own <= UNROLLED

    def load(self, v: Value, key: Key, lane: Axis | None, width: int, count: str | None) -> str:
        if (key, v) in self.early:
            return self.early[key, v]
        tile = self.program.across.get((key, v))
        if tile is None:
            return super().load(v, key, lane, width, count)
        place = f"{self.axis(tile.lane)}, {self.axis(tile.along)}"
        if count is None and self.is_by_warp(tile, key):
            return f"{self.block_of(tile)}.down_by_warp<TX>({place})"
        return f"{self.block_of(tile)}.down<{width}>({place}, {count or width})"

    def tensor_pattern(self, tensor: str, e: Affine, lane: Axis | None, width: int, itemsize: int) -> Pattern:
        found = super().tensor_pattern(tensor, e, lane, width, itemsize)
        if found.kind != "lanes" or lane is None:
            return found
        return in_groups(e, lane, width, max(min(self.style.alignments[tensor], ACCESS_BYTES) // itemsize, 1))

    def load_apart(self, p: Pattern, tensor: str, offset: str, lane: Axis, width: int, count: str | None) -> str:
        if p.width * p.step > 1:
            at = self.each_lane(lane, f"{tensor} + ({offset})")
            return f"load_groups<{width}, {p.width}, {p.step}>({at}, {count or width})"
        return f"load_lanes<{width}>({self.each_lane(lane, f'read({tensor} + {offset})')}, {count or width})"

    def store(self, w: Write, key: Key, count: str | None) -> str:
        tile = self.program.across.get((key, w))
        if tile is None:
            return super().store(w, key, count)
        value = self.operand(w.value, key, self.width(key.lane))
        return f"{self.block_of(tile)}.put({self.axis(tile.along)}, {self.axis(tile.lane)}, {value});"

    # ---- the whole
    def finish(self) -> None:
        """Declares shared memory ahead of everything, where there is any."""
        self.shared_bytes = self.x_bytes + self.y_bytes + self.taken
        if self.shared_bytes:
            places = f"JOINED_X = {self.x_bytes}, JOINED = {self.x_bytes + self.y_bytes}"
            self.lines[:0] = ["  SHARED_MEMORY(shared);", f"  constexpr int {places};"]
