"""Loop program -> text of its body: C++ over `Vec<T, W>`, which loops_cpu.h and loops_cuda.cuh both give a meaning."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from codegen.kernel import Access
from codegen.lowering.access import Pattern, pattern
from codegen.lowering.index import Affine, Axis
from codegen.lowering.program import Block, Key, Program
from codegen.lowering.value import Value
from codegen.lowering.write import Write
from codegen.text import CTYPE, Text, literal, spell
from fusion_ir.records import TargetKind

UNROLLED = 8  # longest loop over dimensions of a kept array that is unrolled


@dataclass(frozen=True)
class Style:
    """What a schedule decides about the text. stream: stores past the caches. grid_least: iterations the outermost loop
    should have (cpu: outer loops are joined until it does; cuda: all that can be joined are). threads_x: threads along
    lanes (cuda). alignments: of each input and output pointer, in bytes."""

    target: TargetKind
    alignments: Mapping[str, int]
    stream: bool = False
    grid_least: int = 1
    threads_x: int = 1
    access_bytes: int = 64


@dataclass(frozen=True)
class Body:
    """The printed body. roots: each outermost loop's iterations, and whether threads along y share them too (cuda)."""

    text: str
    roots: tuple[tuple[int, bool], ...]
    accesses: tuple[Access, ...]


def emit_body(program: Program, style: Style) -> Body:
    """Prints a loop program."""
    printer = _Printer(program, style)
    printer.nest((), depth=0)
    accesses = tuple(sorted(printer.accesses, key=lambda a: (a.tensor, a.kind, a.width)))
    return Body("\n".join(printer.lines), tuple(printer.roots), accesses)


class _Printer(Text):
    def __init__(self, program: Program, style: Style) -> None:
        super().__init__()
        self.program, self.style = program, style
        self.roots: list[tuple[int, bool]] = []
        self.accesses: set[Access] = set()

    # ---- the tree of loops
    def nest(self, path: tuple[Axis, ...], depth: int) -> None:
        for key in self.program.at(path):
            if (
                not path
                and self.program.blocks[key].writes
                and key not in self.program.kept.values()
                and (key.lane or key.dims)
            ):
                with self.braces(f"{'ONCE' if self.style.target == 'cpu' else 'ONCE FIRST_ROW'}"):
                    self.block(key, depth=2)
            else:
                self.block(key, depth)
        for child in self.program.children(path):
            if not path:
                self.root(child)
            else:
                with self.braces(f"{'ROWS' if depth == 1 else 'LOOP'}({self.axis(child)}, {child.extent})"):
                    self.nest((*path, child), depth + 1)

    def root(self, first: Axis) -> None:
        """An outermost loop, joined with those directly inside it."""
        chain = [first]
        while not self.program.at(tuple(chain)) and len(self.program.children(tuple(chain))) == 1:
            if self.style.target == "cpu" and prod(a.extent for a in chain) >= self.style.grid_least:
                break
            chain += self.program.children(tuple(chain))
        count = prod(a.extent for a in chain)
        rows = self.style.target == "cuda" and not self.program.children(tuple(chain))
        self.roots.append((count, rows))
        loop = self.axis(first) if len(chain) == 1 else f"g{len(self.roots) - 1}"
        with self.braces(f"{'GRID_ROWS' if rows else 'GRID'}({loop}, {count})"):
            if len(chain) > 1:
                self.digits(loop, chain)
            self.nest(tuple(chain), depth=2 if rows else 1)

    # ---- blocks
    def block(self, key: Key, depth: int) -> None:
        block = self.program.blocks[key]
        kept = [v for v in block.ordered() if self.program.kept.get(v) == key]
        if key.lane is None:
            self.scalars(key, block, kept, depth)
            return
        lane, width = key.lane, self.program.widths[key.lane]
        for v in kept:
            self.line(
                f"Vec<{CTYPE[v.dtype.name]}, {width}> k{self.name(v)}{_dims(key)}[VECTORS({width}, {lane.extent})];"
            )
        self.loops(key.dims, lambda: self.lane_loops(key, lane, block, kept, depth))

    def lane_loops(self, key: Key, lane: Axis, block: Block, kept: list[Value], depth: int) -> None:
        name, width, last = self.axis(lane), self.program.widths[lane], self.program.last_tile(lane)
        extent = f"{name}_n" if last else str(lane.extent)
        if last:
            whole = f"{last[1]} - {lane.extent} * {self.axis(last[0])}"
            self.line(f"const idx_t {extent} = least_index({lane.extent}, {whole});")
        arguments = f"({name}, {width}, {extent}, VECTORS({width}, {lane.extent}))"
        if lane.extent >= width:
            with self.braces(f"LANES{arguments}"):
                self.statements(key, block, kept, depth, count=None)
        if (last[1] if last else lane.extent) % width:
            with self.braces(f"TAIL{arguments}"):
                self.statements(key, block, kept, depth, count=f"{extent} - {name}")

    def scalars(self, key: Key, block: Block, kept: list[Value], depth: int) -> None:
        arrays = [v for v in kept if key.dims]
        for v in arrays:
            self.line(f"Vec<{CTYPE[v.dtype.name]}, 1> k{self.name(v)}{_dims(key)};")
        self.loops(key.dims, lambda: self.statements(key, block, arrays, depth, count=None))

    def loops(self, axes: Sequence[Axis], body: Callable[[], None]) -> None:
        if not axes:
            body()
            return
        loop = "UNROLL" if self.style.target == "cuda" and axes[0].extent <= UNROLLED else "LOOP"
        with self.braces(f"{loop}({self.axis(axes[0])}, {axes[0].extent})"):
            self.loops(axes[1:], body)

    def statements(self, key: Key, block: Block, kept: list[Value], depth: int, count: str | None) -> None:
        """Values and writes of one block. count: lanes left, for the masked last vector; None where all are there."""
        for v in block.ordered():
            keep = f" k{self.name(v)}{self.place(key, v)} = {self.name(v)};" if v in kept else ""
            self.line(f"const auto {self.name(v)} = {self.rhs(v, key, count)};{keep}")
        for w, repeats in block.writes:
            guards = ["ONCE"] if not key.path and depth == 0 else []
            if self.style.target == "cuda":
                guards += ["FIRST_ROW"] if depth < 2 else []
                guards += ["FIRST_LANE"] if key.lane is None else []
            loops = [f"LOOP({self.axis(a)}, {a.extent})" for a in repeats]
            self.line(" ".join([*guards, *loops, self.store(w, key, count)]))

    # ---- values
    def place(self, key: Key, v: Value) -> str:
        lane = f"[{self.axis(key.lane)}_v]" if key.lane else ""
        return "".join(f"[{self.axis(a)}]" for a in key.dims) + lane

    def ref(self, v: Value, at: Key) -> str:
        """How block `at` spells a value: a local, or an element of a kept array."""
        kept = self.program.kept.get(v)
        if kept and v not in self.program.blocks[at].values and (kept.lane or kept.dims):
            return f"k{self.name(v)}{self.place(kept, v)}"
        return self.name(v)

    def operand(self, v: Value, at: Key, width: int) -> str:
        if v.op == "const":
            return f"splat<{width}>({literal(v.scalar)})"
        return self.ref(v, at) if width == 1 or at.lane in v.deps else f"splat<{width}>({self.ref(v, at)})"

    def rhs(self, v: Value, key: Key, count: str | None) -> str:
        lane = key.lane if key.lane in v.deps else None
        width = self.program.widths[lane] if lane else 1
        if v.op == "load":
            return self.load(v, lane, width, count)
        if v.op == "index":
            return self.index(v.offset, lane, width, count)
        if v.op == "uniform":
            seed, offset = (f"get({self.operand(a, key, 1)}, 0)" for a in v.args[:2])
            return f"uniform_<{width}>({seed}, {offset}, {v.attr[0]}, {self.index(v.offset, lane, width, count)})"
        return spell(v.op, [self.operand(a, key, width) for a in v.args], v.dtype)

    def index(self, e: Affine, lane: Axis | None, width: int, count: str | None) -> str:
        if lane is None or pattern(e, lane, width, width).kind == "vector":
            return f"iota_<int64_t, {width}>({self.expr(e)})"
        return f"load_lanes<{width}>({self.each_lane(lane, f'(int64_t)({self.lane_expr(e, lane)})')}, {count or width})"

    def lane_expr(self, e: Affine, lane: Axis) -> str:
        return self.expr(e, (lane, "l"))

    def each_lane(self, lane: Axis, value: str) -> str:
        return f"[&](int l) {{ return {value}; }}"

    # ---- memory
    def tensor_pattern(self, tensor: str, e: Affine, lane: Axis | None, width: int, itemsize: int) -> Pattern:
        alignment = max(self.style.alignments[tensor] // itemsize, 1)
        found = pattern(e, lane, width, alignment)
        most = max(self.style.access_bytes // itemsize, 1)
        self.accesses.add(Access(tensor, found.kind, min(found.width, most)))
        return found

    def load(self, v: Value, lane: Axis | None, width: int, count: str | None) -> str:
        tensor, e = f"in{v.tensor}", v.offset
        p = self.tensor_pattern(tensor, e, lane, width, v.dtype.bytes)
        at = f"{tensor} + {self.expr(e)}"
        if p.kind == "splat":
            return f"load<1, 1>({at})"
        if p.kind == "vector":
            return (
                f"load<{width}, {p.width}>({at})"
                if count is None
                else f"load_masked<{width}, {p.width}>({at}, {count})"
            )
        if p.kind == "strided":
            return f"load_strided<{width}>({at}, {p.step}, {count or width})"
        if p.kind == "tile":
            return f"load_tile<{width}, {p.step}>({at})"
        if p.kind == "repeat" and count is None:
            return f"load_repeat<{width}, {p.step}>({at})"
        assert lane is not None
        return f"load_lanes<{width}>({self.each_lane(lane, f'{tensor}[{self.lane_expr(e, lane)}]')}, {count or width})"

    def store(self, w: Write, key: Key, count: str | None) -> str:
        width = self.program.widths[key.lane] if key.lane else 1
        tensor, value = f"out{w.out}", self.operand(w.value, key, width)
        p = self.tensor_pattern(tensor, w.offset, key.lane, width, w.itemsize)
        at = f"{tensor} + {self.expr(w.offset)}"
        if p.kind == "splat":
            return f"store<1, 1>({at}, {value});"
        if p.kind == "vector":
            if count is not None:
                return f"store_masked<{width}, {p.width}>({at}, {value}, {count});"
            return f"store{'_stream' if self.style.stream else ''}<{width}, {p.width}>({at}, {value});"
        assert p.kind == "strided", "outputs are indexed by plain axes"
        return f"store_strided<{width}>({at}, {p.step}, {value}, {count or width});"


def _dims(key: Key) -> str:
    return "".join(f"[{a.extent}]" for a in key.dims)
