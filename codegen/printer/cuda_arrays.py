"""Arrays on CUDA: in registers, each thread its part, or in shared memory; accumulators that threads join."""

from math import prod

from codegen.kernel import EmitError
from codegen.lowering.index import Axis
from codegen.lowering.program import Kept
from codegen.lowering.value import Value
from codegen.printer.cuda_loops import WARP, ThreadLoops
from codegen.printer.draft import Draft
from codegen.printer.expressions import CTYPE
from codegen.printer.joining import combination, join_lanes
from codegen.printer.shared_memory import SharedMemory, accumulator_bytes, is_in_shared, rounded

ROW_BARRIERS = 15  # of a block's 16, besides the one that all its threads meet at


class ThreadArrays:
    """Arrays of one thread, as `ArrayDialect` says."""

    def __init__(self, draft: Draft, loops: ThreadLoops, shared: SharedMemory) -> None:
        self.draft, self.program, self.threads = draft, draft.program, draft.style.threads
        self.loops, self.shared = loops, shared
        self.shared_rows = OwnRows(draft, loops, shared)

    def index(self, a: Axis, v: Value) -> str:
        return f"[{self.draft.names.axis(a)}{'_r' if self.loops.is_own_row(a, v) else ''}]"

    def extent(self, a: Axis, v: Value) -> str:
        return f"[ROWS_OF({a.extent})]" if self.loops.is_own_row(a, v) else f"[{a.extent}]"

    def is_joined_in_array(self, v: Value) -> bool:
        joins_lanes = self.program.reductions[v].joins_lanes
        return v in self.program.kept and not joins_lanes and self.loops.sharing.is_sum_of_rows(v)

    def joined(self, v: Value, accumulator: str) -> str:
        text = accumulator
        if self.program.reductions[v].joins_lanes:
            text = self._along_lanes(v, text)
        return self._across_rows(v, text) if self.loops.sharing.is_sum_of_rows(v) else text

    def scanned(self, v: Value, f: str, carry: str, operand: str) -> str:
        if self.threads.x <= WARP:
            return f"scan_x<TX, TY>(nullptr, {f}, {carry}, {operand})"
        self._check_barriers()
        warps = self.threads.y * (self.threads.x // WARP)
        place = self.shared.take(2 * warps * accumulator_bytes(v, 1))
        return f"scan_x<TX, TY>(shared + {place}, {f}, {carry}, {operand})"

    def _check_barriers(self) -> None:
        """Raises EmitError where rows of several warps have no barriers of their own."""
        if self.threads.y > ROW_BARRIERS:
            raise EmitError(f"{self.threads.y} rows of several warps, barriers for {ROW_BARRIERS} of them")

    def _along_lanes(self, v: Value, text: str) -> str:
        """The lanes of an accumulator combined, and those of all threads of a row."""
        f = combination(v)
        own = join_lanes(v, text)
        if self.threads.x == 1:
            return own
        if self.threads.x > WARP:
            self._check_barriers()
            warps = self.threads.y * (self.threads.x // WARP)
            self.shared.x_bytes = max(self.shared.x_bytes, warps * accumulator_bytes(v, 1))
            return f"join_x<TX, TY>(shared, {f}, {own})"
        return f"join_x<TX, TY>(nullptr, {f}, {own})"

    def _across_rows(self, v: Value, text: str) -> str:
        """The accumulators of all rows combined, thread by thread."""
        if self.threads.y == 1:
            return text
        reduction = self.program.reductions[v]
        width = 1 if reduction.joins_lanes else self.draft.width(reduction.site.lane)
        self.shared.y_bytes = max(self.shared.y_bytes, self.threads.count * accumulator_bytes(v, width))
        return f"join_y<TX, TY>(shared + JOINED_X, {combination(v)}, {text})"


class OwnRows:
    """Arrays along lanes in shared memory, each thread's for itself, as `SharedRows` says."""

    def __init__(self, draft: Draft, loops: ThreadLoops, shared: SharedMemory) -> None:
        self.draft, self.loops, self.shared = draft, loops, shared
        self.places: dict[Value, str] = {}

    def holds(self, v: Value) -> bool:
        return is_in_shared(self.draft.program, self.draft.style, v)

    def declaration(self, v: Value, kept: Kept) -> str:
        width, vectors = self.draft.width(kept.key.lane), self._vectors_of_thread(v, kept)
        if v not in self.places:
            bytes_ = rounded(width * v.dtype.bytes) * vectors * self.draft.style.threads.count
            self.places[v] = self.shared.take(bytes_)
        kind = f"OwnRows<{CTYPE[v.dtype.name]}, {width}, TX * TY>"
        return f"const {kind} {self.draft.names.array(v)}{{shared + {self.places[v]}}};"

    def element(self, v: Value, kept: Kept) -> str:
        return f"{self.draft.names.array(v)}.get({self._position(v, kept)})"

    def fill(self, v: Value, kept: Kept, value: str) -> str:
        return f"{self.draft.names.array(v)}.put({self._position(v, kept)}, {value});"

    def _vectors_of_thread(self, v: Value, kept: Kept) -> int:
        """Vectors that a thread has of an array along lanes."""
        assert kept.key.lane
        rows = (-(-a.extent // (self.draft.style.threads.y if self.loops.is_own_row(a, v) else 1)) for a in kept.dims)
        return prod(rows) * self.draft.program.vectors(kept.key.lane)

    def _position(self, v: Value, kept: Kept) -> str:
        """The number of the present vector among those of one thread."""
        assert kept.key.lane
        at, lane, axis = "", kept.key.lane, self.draft.names.axis
        for a in kept.dims:
            own = self.loops.is_own_row(a, v)
            name, extent = (f"{axis(a)}_r", f"ROWS_OF({a.extent})") if own else (axis(a), a.extent)
            at = f"({at}) * {extent} + {name}" if at else name
        vector = f"{axis(lane)}_v"
        return f"({at}) * VECTORS({self.draft.width(lane)}, {lane.extent}) + {vector}" if at else vector
