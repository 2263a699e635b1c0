"""Printer: a loop program as the body of a kernel, its tree of loops and their blocks, in a target's dialect."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from math import prod

from codegen.kernel import Access
from codegen.lowering.index import Axis
from codegen.lowering.program import Block, Key, Path, Program
from codegen.lowering.value import Value
from codegen.printer.definitions import Definitions
from codegen.printer.dialect import Dialect
from codegen.printer.draft import Draft, in_order
from codegen.printer.expressions import Expressions
from codegen.printer.lists import Lists
from codegen.printer.prefetch import next_row, read_once
from codegen.printer.style import Style
from codegen.printer.unrolled_axes import UnrolledAxes


@dataclass(frozen=True)
class Body:
    """The printed body. roots: each outermost loop's iterations, and whether threads along y share them too (cuda).
    shared_bytes: shared memory of a block (cuda). reach: see `Expressions`."""

    text: str
    roots: tuple[tuple[int, bool], ...]
    accesses: tuple[Access, ...]
    shared_bytes: int = 0
    reach: int = 0


class Printer:
    """Prints one body. dialect: makes the target's from the draft. Raises EmitError where threads cannot share the
    program."""

    def __init__(self, program: Program, style: Style, dialect: Callable[[Draft], Dialect]) -> None:
        self.program, self.style = program, style
        self.draft = Draft(program, style, Expressions(UnrolledAxes(program.unrolled)))
        self.lines, self.names, self.unrolled = self.draft.lines, self.draft.names, self.draft.unrolled
        self.dialect = dialect(self.draft)
        self.loops, self.tiles = self.dialect.loops, self.dialect.tiles
        self.definitions = Definitions(self.draft, self.dialect)
        self.arrays, self.memory = self.definitions.arrays, self.definitions.memory
        self.lists = Lists(self.draft)
        self.roots: list[tuple[int, bool]] = []
        self.limited: set[tuple[Path, Axis]] = set()  # where the end of a last tile has its name already

    def body(self) -> Body:
        """Prints the program."""
        self.nest((), depth=0)
        shared = self.dialect.shared
        lines = [*(shared.declarations() if shared else ()), *self.lines.text]
        shared_bytes = shared.bytes if shared else 0
        accesses = in_order(self.draft.accesses)
        return Body("\n".join(lines), tuple(self.roots), accesses, shared_bytes, self.names.reach)

    # ---- the tree of loops
    def nest(self, path: Path, depth: int) -> None:
        self.tiles.begin(path)
        if self.style.ahead:
            self.tiles.fetch(path)
        for v, kept in self.program.kept.items():
            if kept.scope == path and kept.key.path != path:
                self.arrays.declare(v, kept)
        for phase in self.program.phases(path):
            sums = [v for v in self.program.reduced_at(path, phase) if not self.program.reductions[v].is_local]
            for v in sums:
                self.arrays.begin(v)
            for key in self.program.at(path, phase):
                for v in self.program.filled_by(key):
                    self.arrays.declare(v, self.program.kept[v])
                self.block_at(key, depth)
            for child in self.program.children(path, phase):
                with self.lines.braces("") if not path and self.program.walks((child,)) else nullcontext():
                    self.child((*path, child), depth)
            for v in sums:
                self.arrays.end_sum(v)
        self.tiles.end(path, stream=self.style.stream)

    def child(self, path: Path, depth: int) -> None:
        if len(path) == 1 and self.program.is_shared(path):
            self.root(path)
            return
        if len(path) == 1 and depth == 0 and self.program.scans(path) and self.program.is_closed(path):
            with self.lines.braces("ONCE"):  # one task's alone
                self.child(path, depth=1)
            return
        axis = path[-1].axis
        if len(path) == 1:
            self.lists.declare(path)
        for v, key in self.program.scans(path):
            if axis in v.scanned:
                self.arrays.declare_carry(v, key)
        loop = f"{self.loops.around(path, depth)}({self.names.axis(axis)}, {self.draft.end(axis)})"
        with self.lines.braces(self.lists.walk(path) or loop):
            self.nest(path, depth + 1)

    def root(self, path: Path) -> None:
        """Prints an outermost loop, joined with the loops directly inside it as far as `is_enough` asks."""
        while (inner := self.program.only_loop(path)) and self.program.is_shared(inner):
            if self.loops.is_enough(path):
                break
            path = inner
        axes = [loop.axis for loop in path]
        count = prod(a.extent for a in axes)
        rows = self.loops.shares_rows(path)
        self.lists.declare(path, count)
        self.roots.append((count, rows))
        loop = self.names.axis(axes[0]) if len(axes) == 1 else f"g{len(self.roots) - 1}"
        with self.lines.braces(f"{'GRID_ROWS' if rows else 'GRID'}({loop}, {count})"):
            if len(axes) > 1:
                for digit in self.names.digits(loop, axes):
                    self.lines.add(digit)
            self.nest(path, depth=1)

    # ---- blocks
    def block_at(self, key: Key, depth: int) -> None:
        """Prints a block. One task alone runs it where no other block reads its values and no loop is around it."""
        block = self.program.blocks[key]
        read = block.updates or any(kept.key == key for kept in self.program.kept.values())
        if not key.path and block.writes and not read and (key.lane or key.dims):
            with self.lines.braces(self.loops.once()):
                self.block(key, depth=2)
        else:
            self.block(key, depth)

    def block(self, key: Key, depth: int) -> None:
        block = self.program.blocks[key]
        for v in block.ordered():
            if set(v.scanned) & set(key.dims):
                self.arrays.declare_carry(v, key)
        self.arrays.loops(
            key.dims, lambda: self.lane_loops(key, block, depth) if key.lane else self.scalars(key, block, depth)
        )

    def lane_loops(self, key: Key, block: Block, depth: int) -> None:
        assert key.lane
        lane = key.lane
        sums = [v for v in block.updates if self.program.reductions[v].is_local]
        for v in sums:
            for _ in self.unrolled.points(v.deps, key):
                self.lines.add(f"{self.arrays.accumulator_type(v)} a{self.names.name(v)} = {self.arrays.identity(v)};")
        fetched = [v for v in block.updates if self.arrays.in_array(v)]
        for v in fetched:
            self.arrays.fetch_sum(v, key)
        for v in block.ordered():
            if lane in v.scanned:
                self.arrays.declare_carry(v, key)
        name, width, last = self.names.axis(lane), self.program.widths[lane], self.program.last_tile(lane)
        extent = f"{name}_n" if last else str(lane.extent)
        if last and (key.dims or (key.path, lane) not in self.limited):
            self.limited.add((key.path, lane))
            self.lines.add(f"const idx_t {extent} = {self.draft.end(lane)};")
        arguments = f"({name}, {width}, {extent}, VECTORS({width}, {lane.extent}))"
        many = self.loops.many(key)
        ahead, rest = self.program.ahead_of_lanes(key)
        self.definitions.declare(ahead, key, count=None)
        if in_step := self.loops.in_step(key):
            with self.lines.braces(f"{in_step}{arguments}"):
                self.statements(key, rest, block, depth, count=f"{name}_left")
        elif lane.extent >= width:
            with self.lines.braces(f"LANES{many}{arguments}"):
                for f in next_row(self.program, key) if self.style.ahead else ():
                    self.lines.add(f"fetch<{width * f.itemsize}>({f.tensor} + {self.names.expr(f.offset)});")
                for f in read_once(self.program, key, self.style.fetch_bytes):
                    self.lines.add(f"fetch_once<{width * f.itemsize}>({f.tensor} + {self.names.expr(f.offset)});")
                self.statements(key, rest, block, depth, count=None)
        if not in_step and self.draft.lanes_left(lane):
            with self.lines.braces(f"TAIL{many}{arguments}"):
                self.statements(key, rest, block, depth, count=self.loops.count_left(lane, extent))
        for v in fetched:
            self.arrays.put_back(v, key)
        for v in sums:
            for _ in self.unrolled.points(v.deps, key):
                self.arrays.result(v)

    def scalars(self, key: Key, block: Block, depth: int) -> None:
        self.statements(key, block.ordered(), block, depth, count=None)

    def statements(self, key: Key, values: list[Value], block: Block, depth: int, count: str | None) -> None:
        """Prints values, updates and writes of one block. count: lanes of the masked last vector; None: all of them."""
        self.definitions.declare(values, key, count)
        for v in block.updates:
            for _ in self.unrolled.points(v.ranges, key):
                self.arrays.update(v, key, count)
        for w, repeats in block.writes:
            shared = self.program.is_shared(key.path[:1]) if key.path else depth > 0
            guards = [*([] if shared else ["ONCE"]), *self.loops.guards(key, depth)]
            loops = [f"LOOP({self.names.axis(a)}, {a.extent})" for a in repeats if (key, w) not in self.program.across]
            self.lines.add(" ".join([*guards, *loops, self.memory.store(w, key, count)]))
