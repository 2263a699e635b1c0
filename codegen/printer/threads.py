"""Threads: how the blocks of a CUDA device and their threads share a loop program.

Blocks share the outermost loops. Of a block's threads, those along x share every loop over lanes, vector by vector;
those along y share rows: the iterations of an outermost loop that has no loop inside, else those of the loops in it.
Where a loop that rows share is part of a sum, each row has a sum of its own, and the sums of all rows come together:

    y[i] = sum over j of x[i, j]   ->  blocks and rows share i: threads along x sum a part of the lanes j, then join
    y[j] = sum over i of x[i, j]   ->  blocks share tiles of lanes j, rows share i: threads along y sum, then join
"""

from dataclasses import dataclass
from functools import cached_property

from codegen.kernel import EmitError
from codegen.lowering.index import Axis
from codegen.lowering.program import Key, Path, Program
from codegen.lowering.value import Value


@dataclass(frozen=True)
class Threads:
    """Threads of a block: x along lanes, y along rows. Both powers of two."""

    x: int = 1
    y: int = 1

    @property
    def count(self) -> int:
        return self.x * self.y


ONE_THREAD = Threads()


@dataclass(frozen=True)
class Sharing:
    """Who goes through which loops of a program."""

    program: Program

    @cached_property
    def grids(self) -> frozenset[Path]:
        """The loop nests that blocks share: outermost loops, each with those that alone are inside it."""
        return frozenset(map(self._grid, filter(self.program.is_shared, self._outermost)))

    @cached_property
    def rows(self) -> frozenset[Path]:
        """The loops that threads along y share. All threads of a block go through the loops around a tile, which they
        fill and empty together, and each goes through a loop that a scan runs along by itself."""
        found: set[Path] = set()
        scanned = {a for v, _ in self.program.scans(()) for a in v.scanned}
        inside = {p for p in self.program.prefixes() if p} - {g[:i] for g in self.grids for i in range(1, len(g))}
        for path in sorted(inside, key=len):
            is_grid = path in self.grids and any(p[: len(path)] == path for p in inside - {path})
            around_tile = any(t.scope[: len(path)] == path for t in self.program.across.values())
            if path[-1].axis not in scanned and not is_grid and not around_tile and not self.is_in_row(path, found):
                found.add(path)
        return frozenset(found)

    @property
    def _outermost(self) -> list[Path]:
        return [p for p in self.program.prefixes() if len(p) == 1]

    def _grid(self, path: Path) -> Path:
        while (inner := self.program.only_loop(path)) and self.program.is_shared(inner):
            path = inner
        return path

    def is_in_row(self, path: Path, rows: "set[Path] | frozenset[Path] | None" = None) -> bool:
        """Whether only some of the rows go through what is at `path`."""
        return any(path[: len(row)] == row for row in (self.rows if rows is None else rows))

    def is_sum_of_rows(self, v: Value) -> bool:
        """Whether each row has a part of a reduction's elements; not if it has some of the results whole."""
        reduction = self.program.reductions[v]
        if not self.is_in_row(reduction.site.path) or self.is_in_row(reduction.home.path):
            return False
        return not set(reduction.home.dims) & self._shared_by(reduction.site)

    def check(self, threads: Threads) -> None:
        """Raises EmitError if a row would read what another one keeps."""
        if threads.y > 1 and (crossing := self.crossing):
            raise EmitError(f"{crossing[0]} is kept by the row that computes it and read by others")

    @cached_property
    def crossing(self) -> list[Value]:
        """Kept values that other rows read than those that computed them."""
        found: dict[Value, None] = {}
        for key, block in self.program.blocks.items():
            used = {a for u in (*block.values, *block.updates) for a in u.args} | {w.value for w, _ in block.writes}
            found |= {v: None for v in used if v not in block.values and self.own_rows(v) - self._shared_by(key)}
        return list(found)

    @cached_property
    def kept_rows(self) -> frozenset[Axis]:
        """The axes that rows share along which each keeps what is of its own part, and no more."""
        kept = {a for v in self.program.kept for a in self.own_rows(v)}
        return frozenset(kept.difference(*(self.own_rows(v) for v in self.crossing)))

    def own_rows(self, v: Value) -> set[Axis]:
        """The dimensions of an array of `v` of which a row fills its part."""
        kept, reduction = self.program.kept.get(v), self.program.reductions.get(v)
        filled = self._shared_by(kept.key) if kept else set[Axis]()
        if reduction:
            filled |= self._shared_by(reduction.site)
        return filled & {*(kept.dims if kept else ()), *(reduction.home.dims if reduction else ())}

    def _shared_by(self, key: Key) -> set[Axis]:
        """The axis of the loop around a block that rows share, if there is one."""
        return {path[-1].axis for path in self.rows if key.path[: len(path)] == path}
