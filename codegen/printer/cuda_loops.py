"""Loops on CUDA, shared by blocks and threads (`codegen.printer.threads`)."""

from functools import cached_property

from codegen.kernel import EmitError
from codegen.lowering.index import Axis
from codegen.lowering.program import Key, Path, Tile
from codegen.lowering.value import Value
from codegen.printer.draft import Draft
from codegen.printer.shared_memory import is_in_shared
from codegen.printer.threads import Sharing

MOST_ROWS = 16  # of a thread, what is kept of which is in registers
WARP = 32  # threads
UNROLLED = 8  # longest loop over a dimension of an array that is always unrolled
MOST_UNROLLED = 64  # vectors of a thread along lanes: arrays in registers are indexed by constants only


class ThreadLoops:
    """One thread's share of loops, as `LoopDialect` says. Raises EmitError where threads cannot share the program."""

    def __init__(self, draft: Draft) -> None:
        self.draft, self.program, self.threads = draft, draft.program, draft.style.threads
        self.sharing = Sharing(draft.program)
        self.sharing.check(self.threads)

    def is_enough(self, path: Path) -> bool:
        return False

    def shares_rows(self, path: Path) -> bool:
        return path in self.sharing.rows

    def around(self, path: Path, depth: int) -> str:
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

    def once(self) -> str:
        return "ONCE FIRST_ROW"

    def guards(self, key: Key, depth: int) -> list[str]:
        rows = [] if self.sharing.is_in_row(key.path) or (not key.path and depth == 2) else ["FIRST_ROW"]
        return rows + (["FIRST_LANE"] if key.lane is None else [])

    def within(self, axis: Axis | None) -> str:
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

    def in_step(self, key: Key) -> str:
        if not self._scans(key) and not self._fills_for_scan(key):
            return ""
        return "IN_STEP_MANY" if self.indexes_registers(key) else "IN_STEP"

    def _scans(self, key: Key) -> bool:
        """Whether a scan runs along the lanes of a block."""
        return any(key.lane in v.scanned for v in self.program.blocks[key].values)

    def _fills_for_scan(self, key: Key) -> bool:
        """Whether a block keeps what others read that scan the same lanes: those read what is beyond the end, too."""
        filled = {v for v, kept in self.program.kept.items() if kept.key == key}
        readers = (b for k, b in self.program.blocks.items() if k != key and k.lane is key.lane and self._scans(k))
        return any(not filled.isdisjoint(v.args) for b in readers for v in (*b.values, *b.updates))

    def indexes_registers(self, key: Key) -> bool:
        """Whether a block fills or reads an array over its lanes that registers hold, or scans lanes side by side."""
        block = self.program.blocks[key]
        if any(v.op == "scan" and key.lane not in v.scanned for v in block.values):
            return True
        used = {a for v in (*block.values, *block.updates) for a in v.args} | {w.value for w, _ in block.writes}
        filled = {v for v in (*block.values, *block.updates) if (k := self.program.kept.get(v)) and k.key == key}
        kept = {v: self.program.kept[v] for v in used | filled | set(block.updates) if v in self.program.kept}
        return any(
            k.key.lane is key.lane and not is_in_shared(self.program, self.draft.style, v) for v, k in kept.items()
        )

    def count_left(self, lane: Axis, extent: str) -> str:
        return f"{extent} - {self.draft.names.axis(lane)}"

    def is_even_row(self, path: Path, tile: Tile) -> bool:
        """Whether `path` is a loop along a tile whose rows all threads along y share evenly, at most UNROLLED each."""
        a = tile.along
        own, rest = divmod(a.extent, self.threads.y)
        return path[-1].axis is a and len(path) > 1 and not self.program.last_tile(a) and not rest and own <= UNROLLED

    def is_even(self, lane: Axis) -> bool:
        """Whether all threads along x share the whole vectors along a lane axis evenly, at most UNROLLED each."""
        own, rest = divmod(lane.extent, self.program.widths[lane] * self.threads.x)
        return not self.program.last_tile(lane) and not rest and own <= UNROLLED
