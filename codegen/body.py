"""The body of a kernel as text: the tree of loops, its blocks, and what they read from memory and write to it."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from codegen.fetches import next_row, read_once
from codegen.kernel import Access
from codegen.lowering.access import Pattern, pattern
from codegen.lowering.across import BLOCK
from codegen.lowering.index import Affine, Axis
from codegen.lowering.program import Block, Key, Path, Program, Tile
from codegen.lowering.value import Value, Values, is_representable, is_value
from codegen.lowering.write import Write
from codegen.pairs import paired_lanes
from codegen.text import CTYPE, spell
from codegen.text_kept import KeptText
from codegen.threads import ONE_THREAD, Threads
from fusion_ir.dtype import bf16, f32
from fusion_ir.records import TargetKind
from fusion_ir.scalar import Scalar

NARROW = ("add", "sub", "mul")  # of two bf16, rounded to bf16: one instruction for two lanes (cuda)


@dataclass(frozen=True)
class Style:
    """What a schedule decides about the text. stream: stores past the caches. grid_least: iterations the outermost loop
    should have (cpu: outer loops are joined until it does; cuda: all that can be joined are). ahead: while a row or a
    tile is gone over, the next one is brought from memory (cpu). fetch_bytes: how far ahead what is read once is
    brought from memory (cpu); 0: not. threads: of a block (cuda). shared_rows: what is kept of a row lies in shared
    memory, not in registers (cuda). alignments: of each input and output pointer, in bytes."""

    target: TargetKind
    alignments: Mapping[str, int]
    stream: bool = False
    grid_least: int = 1
    ahead: bool = False
    fetch_bytes: int = 0
    access_bytes: int = 64
    threads: Threads = ONE_THREAD
    shared_rows: bool = False


@dataclass(frozen=True)
class Body:
    """The printed body. roots: each outermost loop's iterations, and whether threads along y share them too (cuda).
    shared_bytes: of shared memory that it uses (cuda). reach: see `Text`."""

    text: str
    roots: tuple[tuple[int, bool], ...]
    accesses: tuple[Access, ...]
    shared_bytes: int = 0
    reach: int = 0


class BodyText(KeptText):
    """Prints a body for the CPU: one task's share of the outermost loops."""

    def __init__(self, program: Program, style: Style) -> None:
        super().__init__(program)
        self.style = style
        self.paired = paired_lanes(program) if style.target == "cpu" else frozenset[Axis]()
        self.shared_bytes = 0
        self.roots: list[tuple[int, bool]] = []
        self.accesses: set[Access] = set()
        self.limited: set[tuple[Path, Axis]] = set()  # where the end of a last tile has its name already

    def finish(self) -> None:
        """Called once the body is there."""

    # ---- the tree of loops
    def nest(self, path: Path, depth: int) -> None:
        self.begin_tiles(path)
        if self.style.ahead:
            self.fetch_tiles(path)
        for v, kept in self.program.kept.items():
            if kept.scope == path and kept.key.path != path:
                self.declare(v, kept)
        for phase in self.program.phases(path):
            sums = [v for v in self.program.reduced_at(path, phase) if not self.program.reductions[v].is_local]
            for v in sums:
                self.begin(v)
            for key in self.program.at(path, phase):
                for v in self.program.filled_by(key):
                    self.declare(v, self.program.kept[v])
                self.block_at(key, depth)
            for child in self.program.children(path, phase):
                self.child((*path, child), depth)
            for v in sums:
                self.end_sum(v)
        self.end_tiles(path, stream=self.style.stream)

    def child(self, path: Path, depth: int) -> None:
        if len(path) == 1 and self.program.is_shared(path):
            self.root(path)
            return
        if len(path) == 1 and depth == 0 and self.program.scans(path) and self.program.is_closed(path):
            with self.braces("ONCE"):  # one task's alone
                self.child(path, depth=1)
            return
        axis = path[-1].axis
        for v, key in self.program.scans(path):
            if axis in v.scanned:
                self.declare_carry(v, key)
        with self.braces(f"{self.loop_around(path, depth)}({self.axis(axis)}, {self.end(axis)})"):
            self.nest(path, depth + 1)

    def loop_around(self, path: Path, depth: int) -> str:
        """The macro of a serial loop."""
        return "ROWS" if depth == 1 else "LOOP"

    def root(self, path: Path) -> None:
        """An outermost loop, joined with those directly inside it."""
        while (inner := self.program.only_loop(path)) and self.program.is_shared(inner):
            if self.is_enough(path):
                break
            path = inner
        axes = [loop.axis for loop in path]
        count = prod(a.extent for a in axes)
        rows = self.shares_rows(path)
        self.roots.append((count, rows))
        loop = self.axis(axes[0]) if len(axes) == 1 else f"g{len(self.roots) - 1}"
        with self.braces(f"{'GRID_ROWS' if rows else 'GRID'}({loop}, {count})"):
            if len(axes) > 1:
                self.digits(loop, axes)
            self.nest(path, depth=1)

    def is_enough(self, path: Path) -> bool:
        """Whether outermost loops have iterations enough for all tasks, so that no more are joined."""
        return prod(loop.axis.extent for loop in path) >= self.style.grid_least

    def shares_rows(self, path: Path) -> bool:
        """Whether threads of one block share the iterations of an outermost loop."""
        return False

    # ---- blocks
    def block_at(self, key: Key, depth: int) -> None:
        """A block; where nothing else reads what it computes and no loop is shared around it, one task's alone."""
        block = self.program.blocks[key]
        read = block.updates or any(kept.key == key for kept in self.program.kept.values())
        if not key.path and block.writes and not read and (key.lane or key.dims):
            with self.braces(self.once()):
                self.block(key, depth=2)
        else:
            self.block(key, depth)

    def once(self) -> str:
        """The head of what one task does for all."""
        return "ONCE"

    def block(self, key: Key, depth: int) -> None:
        block = self.program.blocks[key]
        for v in block.ordered():
            if set(v.scanned) & set(key.dims):
                self.declare_carry(v, key)
        self.loops(
            key.dims, lambda: self.lane_loops(key, block, depth) if key.lane else self.scalars(key, block, depth)
        )

    def lane_loops(self, key: Key, block: Block, depth: int) -> None:
        assert key.lane
        lane = key.lane
        sums = [v for v in block.updates if self.program.reductions[v].is_local]
        for v in sums:
            for _ in self.points(v.deps, key):
                self.line(f"{self.accumulator_type(v)} a{self.name(v)} = {self.identity(v)};")
        fetched = [v for v in block.updates if self.in_array(v)]
        for v in fetched:
            self.fetch_sum(v, key)
        for v in block.ordered():
            if lane in v.scanned:
                self.declare_carry(v, key)
        name, width, last = self.axis(lane), self.program.widths[lane], self.program.last_tile(lane)
        extent = f"{name}_n" if last else str(lane.extent)
        if last and (key.dims or (key.path, lane) not in self.limited):
            self.limited.add((key.path, lane))
            self.line(f"const idx_t {extent} = {self.end(lane)};")
        arguments = f"({name}, {width}, {extent}, VECTORS({width}, {lane.extent}))"
        many = self.many(key)
        ahead, rest = self.program.ahead_of_lanes(key)
        self.values(ahead, key, count=None)
        if lane.extent >= width:
            with self.braces(f"LANES{many}{arguments}"):
                for f in next_row(self.program, key) if self.style.ahead else ():
                    self.line(f"fetch<{width * f.itemsize}>({f.tensor} + {self.expr(f.offset)});")
                for f in read_once(self.program, key, self.style.fetch_bytes):
                    self.line(f"fetch_once<{width * f.itemsize}>({f.tensor} + {self.expr(f.offset)});")
                self.statements(key, rest, block, depth, count=None)
        if (last[1] if last else lane.extent) % width:
            with self.braces(f"TAIL{many}{arguments}"):
                self.statements(key, rest, block, depth, count=f"{extent} - {name}")
        for v in fetched:
            self.put_back(v, key)
        for v in sums:
            for _ in self.points(v.deps, key):
                self.result(v)

    def many(self, key: Key) -> str:
        """The ending of the macros of a loop over lanes."""
        return ""

    def scalars(self, key: Key, block: Block, depth: int) -> None:
        self.statements(key, block.ordered(), block, depth, count=None)

    def statements(self, key: Key, values: list[Value], block: Block, depth: int, count: str | None) -> None:
        """Values, updates and writes of one block. count: lanes left, for the masked last vector; None where all do."""
        self.values(values, key, count)
        for v in block.updates:
            for _ in self.points(v.deps.union(v.bound), key):
                self.update(v, key, count)
        for w, repeats in block.writes:
            shared = self.program.is_shared(key.path[:1]) if key.path else depth > 0
            guards = [*([] if shared else ["ONCE"]), *self.guards(key, depth)]
            loops = [f"LOOP({self.axis(a)}, {a.extent})" for a in repeats if (key, w) not in self.program.across]
            self.line(" ".join([*guards, *loops, self.store(w, key, count)]))

    def guards(self, key: Key, depth: int) -> list[str]:
        """What keeps all threads but one from writing what all of them have."""
        return []

    # ---- values
    def values(self, values: list[Value], key: Key, count: str | None) -> None:
        """Declares those that no open brace has declared."""
        self.here = key
        for v in values:
            if self.is_declared(v):
                continue
            self.scopes[-1].add(v)
            kept = self.program.kept.get(v)
            for _ in self.points(v.deps, key):
                keep = f" {self.fill(v, kept, self.name(v))}" if kept and kept.key == key else ""
                value = self.scan(v, key) if v.op == "scan" else self.rhs(v, key, count)
                self.line(f"const auto {self.name(v)} = {value};{keep}")

    def rhs(self, v: Value, key: Key, count: str | None) -> str:
        lane = key.lane if key.lane in v.deps else None
        width = self.program.widths[lane] if lane else 1
        if v.op == "load":
            return self.load(v, key, lane, width, count)
        if v.op == "index":
            return self.index(v.offset, lane, width, count, CTYPE[v.dtype.name])
        if v.op == "uniform":
            seed, offset = (f"get({self.operand(a, key, 1)}, 0)" for a in v.args[:2])
            p = pattern(v.offset, lane, width, width)
            if p.kind == "vector" and p.width % 4 == 0:  # whole counters, of four elements each
                return f"uniform_run<{width}>({seed}, {offset}, {v.attr[0]}, {self.expr(v.offset)})"
            return f"uniform_<{width}>({seed}, {offset}, {v.attr[0]}, {self.index(v.offset, lane, width, count)})"
        kinds = (v.args[0].dtype, v.dtype) if v.op == "cast" else ()
        if kinds == (f32, bf16) and (operands := self.narrow_operands(v.args[0])):
            return f"narrow_{v.args[0].op}_({', '.join(self.operand(a, key, width) for a in operands)})"
        if kinds == (f32, bf16) and is_representable(v.args[0], bf16):
            exact = "exact_pairs" if lane in self.paired else "cast_exact<bf16>"
            return f"{exact}({self.operand(v.args[0], key, width)})"
        if kinds == (f32, bf16) and lane in self.paired:
            return f"round_pairs({self.operand(v.args[0], key, width)})"
        if kinds == (bf16, f32) and v.args[0].op != "load":
            return f"widen({self.operand(v.args[0], key, width)})"
        if v.op == "div" and v.dtype == f32 and width > 1 and self.is_shared(v.args[1], key):
            return f"divided_({self.operand(v.args[0], key, width)}, {self.operand(v.args[1], key, 1)})"
        return spell(v.op, [self.operand(a, key, width) for a in v.args], v.dtype)

    def narrow_operands(self, v: Value) -> list[Value]:
        """The operands of v as bf16, where CUDA rounds v of two lanes in one instruction, and they are declared."""
        if self.style.target != "cuda" or v.op not in NARROW or not self.is_declared(v):
            return []
        found: list[Value] = []
        for a in v.args:
            if a.op == "const" and is_value(a.scalar, bf16):
                found.append(Values().const(Scalar.of(a.scalar.value, bf16)))
            elif a.op == "cast" and a.args[0].dtype == bf16 and self.is_declared(a.args[0]):
                found.append(a.args[0])
        return found if len(found) == len(v.args) else []

    def is_declared(self, v: Value) -> bool:
        return any(v in scope for scope in self.scopes)

    def is_shared(self, v: Value, key: Key) -> bool:
        """Whether all lanes of a block have one value, but not one that compilers turn into a product: a power of 2."""
        if v.op == "const":
            return v.scalar.bits & 0x7FFFFF != 0
        return key.lane not in v.deps

    def index(self, e: Affine, lane: Axis | None, width: int, count: str | None, ctype: str = "int64_t") -> str:
        if lane is None or pattern(e, lane, width, width).kind == "vector":
            return f"{'iota_pairs' if lane in self.paired else 'iota_'}<{ctype}, {width}>({self.expr(e)})"
        return f"load_lanes<{width}>({self.each_lane(lane, f'({ctype})({self.lane_expr(e, lane)})')}, {count or width})"

    def lane_expr(self, e: Affine, lane: Axis) -> str:
        return self.expr(e, (lane, "l"))

    def each_lane(self, lane: Axis, value: str) -> str:
        return f"[&](int l) {{ return {value}; }}"

    # ---- memory
    def tensor_pattern(self, tensor: str, e: Affine, lane: Axis | None, width: int, itemsize: int) -> Pattern:
        """How an offset in a tensor runs along a lane axis, from how its pointer is aligned."""
        return pattern(e, lane, width, max(self.style.alignments[tensor] // itemsize, 1))

    def note(self, tensor: str, found: Pattern, itemsize: int) -> None:
        """Remembers an access that is printed."""
        most = max(self.style.access_bytes // itemsize, 1)
        self.accesses.add(Access(tensor, found.kind, min(found.width, most)))

    def note_tile(self, tensor: str, e: Affine, tile: Tile, itemsize: int) -> None:
        """Remembers how a tile is moved."""
        self.note(tensor, self.tensor_pattern(tensor, e, tile.along, BLOCK, itemsize), itemsize)

    def masked(self, found: Pattern, lane: Axis) -> Pattern:
        """The same where not all lanes are there: as many elements at once as divide whatever number there is."""
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
        self.note(tensor, found, itemsize)
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
        return self.load_apart(p, tensor, self.lane_expr(e, lane), lane, width, count)

    def load_apart(self, p: Pattern, tensor: str, offset: str, lane: Axis, width: int, count: str | None) -> str:
        """What is read by an address for each lane: that of lane `l`."""
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
