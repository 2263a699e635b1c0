"""Text of loads and stores of tensors, and a record of how many elements their machine code moves at once."""

from collections.abc import Iterable

from codegen.kernel import Access
from codegen.lowering.access import Pattern, pattern, within
from codegen.lowering.index import Affine, Axis
from codegen.lowering.program import Key, Program, Tile
from codegen.lowering.value import Value
from codegen.lowering.write import Write
from codegen.printer.arrays import KeptText
from codegen.printer.bf16_pairs import paired_lanes
from codegen.printer.machine_moves import moved, moved_across, streamed
from codegen.printer.style import Style


class MemoryText(KeptText):
    """Prints a body's loads and stores of tensors, and records them in `accesses`."""

    def __init__(self, program: Program, style: Style) -> None:
        super().__init__(program)
        self.style = style
        self.paired = paired_lanes(program) if style.target == "cpu" else frozenset[Axis]()
        self.accesses: set[Access] = set()

    def lane_expr(self, e: Affine, lane: Axis) -> str:
        return self.expr(e, (lane, "l"))

    def each_lane(self, lane: Axis, value: str) -> str:
        return f"[&](int l) {{ return {value}; }}"

    def lanes_left(self, lane: Axis) -> int:
        """Elements of a lane axis behind the last whole vector."""
        last = self.program.last_tile(lane)
        return (last[1] if last else lane.extent) % self.program.widths[lane]

    def tensor_pattern(self, tensor: str, e: Affine, lane: Axis | None, width: int, itemsize: int) -> Pattern:
        """How an offset in a tensor runs along a lane axis, from how its pointer is aligned."""
        return pattern(e, lane, width, max(self.style.alignments[tensor] // itemsize, 1))

    def note(self, tensor: str, found: Pattern, widths: Iterable[int]) -> None:
        """Remembers an access that is printed, and the elements that it moves at once."""
        self.accesses |= {Access(tensor, found.kind, width) for width in widths}

    def note_tile(self, tensor: str, e: Affine, tile: Tile, itemsize: int) -> None:
        """Remembers how a tile is moved."""
        cut = bool(self.program.last_tile(tile.along) or self.program.last_tile(tile.lane))
        widths = moved_across(tile.along.extent, tile.lane.extent, itemsize, self.style.register_bytes, cut=cut)
        self.note(tensor, Pattern("vector", max(widths)), widths)

    def most(self, found: Pattern, itemsize: int) -> int:
        """Elements that an access has at once where its address must be aligned."""
        return min(found.width, max(self.style.access_bytes // itemsize, 1))

    def widths_of(
        self, access: Value | Write, found: Pattern, lane: Axis | None, width: int, itemsize: int, *, masked: bool
    ) -> set[int]:
        """How many elements of a tensor the instructions of an access have at once."""
        if self.style.target == "cuda":
            return {self.most(found, itemsize)}
        stored = access.value if isinstance(access, Write) else None
        paired = lane in self.paired and (stored is None or lane in stored.deps)
        left = self.lanes_left(lane) if masked and lane else 0
        most = self.style.register_bytes
        widths = moved(found, width, itemsize, most, paired=paired, left=left, stored=stored is not None)
        if stored and stored.dtype.kind != "bool" and self.style.stream and found.kind == "vector" and not masked:
            widths |= streamed(width, itemsize, most)
        return widths

    def masked(self, found: Pattern, lane: Axis) -> Pattern:
        """The pattern in a masked vector, of which only the first lanes are there: `repeat` becomes single lanes."""
        return Pattern("lanes", 1) if found.kind == "repeat" else found

    def together(self, found: Pattern) -> str:
        """The template arguments of a masked access that say how many elements are moved at once."""
        return str(found.width)

    def pointer(
        self, access: Value | Write, key: Key, lane: Axis | None, width: int, itemsize: int, *, masked: bool = False
    ) -> tuple[Pattern, str]:
        """How a load or write of block `key` moves a vector, and its address: in the tensor, or in a tile of it.
        masked: only the first lanes of the vector."""
        tensor = f"in{access.tensor}" if isinstance(access, Value) else f"out{access.out}"
        tile = self.program.across.get((key, access))
        if tile:
            self.note_tile(tensor, access.offset, tile, itemsize)
            return Pattern("vector", 1), self.tile_element(tile)
        found = self.tensor_pattern(tensor, access.offset, lane, width, itemsize)
        if masked and lane is not None:
            found = self.masked(found, lane)
        self.note(tensor, found, self.widths_of(access, found, lane, width, itemsize, masked=masked))
        return found, f"{tensor} + {self.expr(access.offset)}"

    def load(self, v: Value, key: Key, lane: Axis | None, width: int, count: str | None) -> str:
        tensor, e = f"in{v.tensor}", v.offset
        p, at = self.pointer(v, key, lane, width, v.dtype.bytes, masked=count is not None)
        if p.kind == "splat":
            return f"load<1, 1>({at})"
        if p.kind == "vector" and lane in self.paired:
            return f"load_pairs<{width}, {p.width}>({at})"
        if p.kind == "vector":
            return (
                f"load<{width}, {p.width}>({at})"
                if count is None
                else f"load_masked<{width}, {self.together(p)}>({at}, {count})"
            )
        if p.kind == "strided":
            return f"load_strided<{width}>({at}, {p.step}, {count or width})"
        if p.kind == "tile":
            return f"load_tile<{width}, {p.step}, {p.width}>({at})"
        if p.kind == "repeat":
            return f"load_repeat<{width}, {p.step}, {p.width}>({at})"
        assert lane is not None
        if self.style.target == "cpu" and (inside := within(e, lane)):
            term, k, rest = inside
            at = f"{tensor} + {self.expr(rest)}"
            return f"load_within<{width}>({at}, {k}, {self.expr(term.of)}, {term.extent}, {count or width})"
        return self.load_apart(p, tensor, self.lane_expr(e, lane), lane, width, count)

    def load_apart(self, p: Pattern, tensor: str, offset: str, lane: Axis, width: int, count: str | None) -> str:
        """Text of a load with an address for each lane. offset: of lane `l` in the tensor."""
        return f"load_lanes<{width}>({self.each_lane(lane, f'{tensor}[{offset}]')}, {count or width})"

    def store(self, w: Write, key: Key, count: str | None) -> str:
        width = self.program.widths[key.lane] if key.lane else 1
        value = self.operand(w.value, key, width)
        p, at = self.pointer(w, key, key.lane, width, w.itemsize, masked=count is not None)
        stream = self.style.stream and (key, w) not in self.program.across
        if p.kind == "splat":
            return f"store<1, 1>({at}, {value});"
        if p.kind == "vector":
            if count is not None:
                return f"store_masked<{width}, {self.together(p)}>({at}, {value}, {count});"
            return f"store{'_stream' if stream else ''}<{width}, {p.width}>({at}, {value});"
        assert p.kind == "strided", "outputs are indexed by plain axes"
        return f"store_strided<{width}>({at}, {p.step}, {value}, {count or width});"
