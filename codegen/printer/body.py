"""The body of a kernel as text: the tree of loops, its blocks, and their loads and stores."""

from dataclasses import dataclass
from math import prod

from codegen.kernel import Access
from codegen.lowering.access import pattern
from codegen.lowering.index import Affine, Axis
from codegen.lowering.program import Block, Key, Path, Program
from codegen.lowering.value import Value, Values, is_representable, is_value
from codegen.printer.expressions import CTYPE, spell
from codegen.printer.memory import MemoryText
from codegen.printer.prefetch import next_row, read_once
from codegen.printer.style import Style
from fusion_ir.core.scalar import Scalar
from fusion_ir.dtype import bf16, f32

NARROW = ("add", "sub", "mul")  # of two bf16, rounded to bf16: one instruction for two lanes (cuda)


@dataclass(frozen=True)
class Body:
    """The printed body. roots: each outermost loop's iterations, and whether threads along y share them too (cuda).
    shared_bytes: shared memory of a block (cuda). reach: see `Text`."""

    text: str
    roots: tuple[tuple[int, bool], ...]
    accesses: tuple[Access, ...]
    shared_bytes: int = 0
    reach: int = 0


class BodyText(MemoryText):
    """Prints a body for the CPU: one task's share of the outermost loops."""

    def __init__(self, program: Program, style: Style) -> None:
        super().__init__(program, style)
        self.shared_bytes = 0
        self.roots: list[tuple[int, bool]] = []
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
        """Prints an outermost loop, joined with the loops directly inside it as far as `is_enough` asks."""
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
        """Prints a block. One task alone runs it where no other block reads its values and no loop is around it."""
        block = self.program.blocks[key]
        read = block.updates or any(kept.key == key for kept in self.program.kept.values())
        if not key.path and block.writes and not read and (key.lane or key.dims):
            with self.braces(self.once()):
                self.block(key, depth=2)
        else:
            self.block(key, depth)

    def once(self) -> str:
        """The head of code that one task runs for all."""
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
        if self.lanes_left(lane):
            with self.braces(f"TAIL{many}{arguments}"):
                self.statements(key, rest, block, depth, count=self.count_left(lane, extent))
        for v in fetched:
            self.put_back(v, key)
        for v in sums:
            for _ in self.points(v.deps, key):
                self.result(v)

    def count_left(self, lane: Axis, extent: str) -> str:
        """How many lanes there are of the masked vector: of tiles, only the last one has any."""
        return str(self.lanes_left(lane))

    def many(self, key: Key) -> str:
        """The ending of the macros of a loop over lanes."""
        return ""

    def scalars(self, key: Key, block: Block, depth: int) -> None:
        self.statements(key, block.ordered(), block, depth, count=None)

    def statements(self, key: Key, values: list[Value], block: Block, depth: int, count: str | None) -> None:
        """Prints values, updates and writes of one block. count: lanes of the masked last vector; None: all of them."""
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
        """Macros in front of a write, so that one thread alone writes a value that several threads have."""
        return []

    # ---- values
    def values(self, values: list[Value], key: Key, count: str | None) -> None:
        """Declares the values that no open brace has declared."""
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
