"""The CPU's dialect: a task goes through its share of the outermost loops, one loop after another."""

from math import prod

from codegen.lowering.access import Pattern, pattern, within
from codegen.lowering.index import Affine, Axis
from codegen.lowering.program import Key, Path
from codegen.lowering.value import Value
from codegen.lowering.write import Write
from codegen.printer.bf16_pairs import paired_lanes
from codegen.printer.cpu_tiles import CpuTiles
from codegen.printer.dialect import Dialect
from codegen.printer.draft import Draft
from codegen.printer.joining import join_lanes
from codegen.printer.machine_moves import moved, streamed
from codegen.printer.memory import single_lanes, tensor_name


def cpu_dialect(draft: Draft) -> Dialect:
    return Dialect(SerialLoops(draft), StackArrays(draft), CpuAccesses(draft), CpuTiles(draft))


class SerialLoops:
    """Loops of one task, as `LoopDialect` says."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft

    def is_enough(self, path: Path) -> bool:
        return prod(loop.axis.extent for loop in path) >= self.draft.style.grid_least

    def shares_rows(self, path: Path) -> bool:
        return False

    def around(self, path: Path, depth: int) -> str:
        return "ROWS" if depth == 1 else "LOOP"

    def within(self, axis: Axis | None) -> str:
        return "LOOP"

    def many(self, key: Key) -> str:
        return ""

    def in_step(self, key: Key) -> str:
        return ""

    def count_left(self, lane: Axis, extent: str) -> str:
        return str(self.draft.lanes_left(lane))

    def once(self) -> str:
        return "ONCE"

    def guards(self, key: Key, depth: int) -> list[str]:
        return []


class StackArrays:
    """Whole arrays, each one task's or thread's for itself, as `ArrayDialect` says."""

    shared_rows = None

    def __init__(self, draft: Draft) -> None:
        self.draft = draft

    def index(self, a: Axis, v: Value) -> str:
        return f"[{self.draft.names.axis(a)}]"

    def extent(self, a: Axis, v: Value) -> str:
        return f"[{a.extent}]"

    def scanned(self, v: Value, f: str, carry: str, operand: str) -> str:
        return f"scan_lanes({f}, {carry}, {operand})"

    def joined(self, v: Value, accumulator: str) -> str:
        return join_lanes(v, accumulator) if self.draft.program.reductions[v].joins_lanes else accumulator

    def is_joined_in_array(self, v: Value) -> bool:
        return False


class CpuAccesses:
    """Loads and stores of whole registers, as `AccessDialect` says."""

    narrows = False

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.paired = paired_lanes(draft.program)

    def pattern(self, tensor: str, e: Affine, lane: Axis | None, width: int, itemsize: int) -> Pattern:
        return pattern(e, lane, width, max(self.draft.style.alignments[tensor] // itemsize, 1))

    def masked(self, found: Pattern, lane: Axis) -> Pattern:
        return single_lanes(found)

    def together(self, found: Pattern) -> str:
        return str(found.width)

    def widths(
        self, access: Value | Write, found: Pattern, lane: Axis | None, width: int, itemsize: int, *, masked: bool
    ) -> set[int]:
        stored = access.value if isinstance(access, Write) else None
        paired = lane in self.paired and (stored is None or lane in stored.deps)
        left = self.draft.lanes_left(lane) if masked and lane else 0
        most = self.draft.style.register_bytes
        widths = moved(found, width, itemsize, most, paired=paired, left=left, stored=stored is not None)
        past_caches = isinstance(access, Write) and self.draft.style.streams(access.out)
        if stored and stored.dtype.kind != "bool" and past_caches and found.kind == "vector" and not masked:
            widths |= streamed(width, itemsize, most)
        return widths

    def address(self, tensor: str, offset: str) -> str:
        return f"{tensor} + {offset}"

    def load_lanes(self, v: Value, found: Pattern, lane: Axis, width: int, count: str | None) -> str:
        tensor, names = tensor_name(v), self.draft.names
        if inside := within(v.offset, lane):
            term, k, rest = inside
            at = f"{tensor} + {names.expr(rest)}"
            return f"load_within<{width}>({at}, {k}, {names.expr(term.of)}, {term.extent}, {count or width})"
        return f"load_lanes<{width}>({names.each_lane(lane, v.offset, f'{tensor}[', ']')}, {count or width})"
