"""A loop program: values, reductions and writes placed in one tree of loops, for emitters and goldens to print."""

from dataclasses import dataclass, field
from functools import cached_property

from codegen.lowering.index import Axis
from codegen.lowering.value import Value, cone
from codegen.lowering.write import Write
from fusion_ir.ops import OPS


@dataclass(frozen=True)
class Loop:
    """A serial loop. phase: the phase at which it stands in its place; loops over one axis may follow each other."""

    axis: Axis
    phase: int = 0

    def __repr__(self) -> str:
        return f"{self.axis}" + (f"'{self.phase}" if self.phase else "")


Path = tuple[Loop, ...]

UNCOUNTED = ("load", "const", "index")


@dataclass(frozen=True)
class Key:
    """A place for code: inside the loops `path`, after `phase` reductions there, in own loops over `dims`, then over
    `lane` (None: scalars)."""

    path: Path
    phase: int = 0
    lane: Axis | None = None
    dims: tuple[Axis, ...] = ()

    @cached_property
    def _hash(self) -> int:
        return hash((self.path, self.phase, self.lane, self.dims))

    def __hash__(self) -> int:
        """The hash, computed once: blocks are looked up by key for every value that is placed."""
        return self._hash


@dataclass
class Block:
    """Code at one key: values to compute, reductions to update, writes. `ordered`: values in order of creation."""

    values: dict[Value, None] = field(default_factory=dict[Value, None])
    updates: list[Value] = field(default_factory=list[Value])  # reductions that take in one more element here
    # With the axes that repeat the write.
    writes: list[tuple[Write, tuple[Axis, ...]]] = field(default_factory=list[tuple[Write, tuple[Axis, ...]]])

    def ordered(self) -> list[Value]:
        return sorted(self.values, key=lambda v: v.uid)


@dataclass(frozen=True)
class PlacedReduction:
    """Where a reduction lives: its result at `home` (there is one for every point of home.dims and home.lane), its
    updates at `site`, inside. Its accumulators have a lane each along the lane axis of `site`."""

    home: Key
    site: Key

    @property
    def is_local(self) -> bool:
        """Begun and ended around one lane loop; otherwise its accumulators live across loops."""
        return self.site.path == self.home.path and self.home.lane is None

    @property
    def joins_lanes(self) -> bool:
        """Lanes are parts of one result, which come together at the end."""
        return self.home.lane is None and self.site.lane is not None


@dataclass(frozen=True)
class Kept:
    """An array that outlives the block `key` which fills it: declared at `scope`, over `dims` and key's lanes."""

    key: Key
    scope: Path
    dims: tuple[Axis, ...]


@dataclass(frozen=True)
class Tile:
    """An array in cache by way of which `access` reads or writes a tensor across the lanes: [along][lane] for every
    point of `others`, with the tensor's consecutive elements along `along`. It lives at `scope`: a load fills it there
    before anything else, a write empties it there at the end, once for every point of `repeats`."""

    access: Value | Write
    scope: Path
    along: Axis
    lane: Axis
    others: tuple[Axis, ...] = ()
    repeats: tuple[Axis, ...] = ()

    def __repr__(self) -> str:
        dims = "".join(f"[{a}]" for a in (*self.others, self.along, self.lane))
        return f"in{self.access.tensor}{dims}" if isinstance(self.access, Value) else f"out{self.access.out}{dims}"


@dataclass(frozen=True)
class SliceLists:
    """Lists of the slices of each of `extent` places: `place` is that of slice `slice_number`, in i64."""

    slice_number: Axis
    extent: int
    place: Value

    @property
    def reads(self) -> frozenset[int]:
        """The inputs, by number, that places are computed from."""
        return frozenset(v.tensor for v in cone([self.place]) if v.op == "load")


@dataclass
class Program:
    """One kernel before printing.

    widths: lane axis -> vector width in elements. tiles: axis within a tile -> (axis over the tiles, whole extent).
    order: serial axes, outermost first. kept: values read in other blocks than their own that are no plain locals.
    across: the tile of each load and write that a block makes by way of one. unrolled: serial axes without a loop
    around reductions: every statement there stands once for each of their points that it varies with. threads: number
    of threads that share the vectors along lanes; each of them has its own vectors only. walked: axes that run through
    lists of slices. lists: these lists, by number, made before the loops that walk through them.
    """

    widths: dict[Axis, int]
    tiles: dict[Axis, tuple[Axis, int]]
    order: list[Axis]
    blocks: dict[Key, Block]
    kept: dict[Value, Kept]
    reductions: dict[Value, PlacedReduction] = field(default_factory=dict[Value, PlacedReduction])
    across: dict[tuple[Key, Value | Write], Tile] = field(default_factory=dict[tuple[Key, Value | Write], Tile])
    unrolled: frozenset[Axis] = frozenset()
    threads: int = 1
    walked: frozenset[Axis] = frozenset()
    lists: tuple[SliceLists, ...] = ()

    def walks(self, path: Path) -> list[Value]:
        """The listed slices, in any block inside `path`, whose lists some loop there walks through."""
        if not self.walked:
            return []
        blocks = (block for key, block in self.blocks.items() if key.path[: len(path)] == path)
        return list(dict.fromkeys(v for block in blocks for v in block.ordered() if v.op == "listed"))

    def vectors(self, lane: Axis) -> int:
        """Vectors of a thread along a lane axis, the masked one included."""
        return -(-lane.extent // (self.widths[lane] * self.threads))

    def last_tile(self, within: Axis) -> tuple[Axis, int] | None:
        """(axis over the tiles, whole extent) if the last tile along `within` is not a whole one."""
        tile = self.tiles.get(within)
        return tile if tile and tile[1] % within.extent else None

    def tiles_at(self, path: Path) -> list[Tile]:
        """The tiles that live at `path`."""
        return [t for t in dict.fromkeys(self.across.values()) if t.scope == path]

    def prefixes(self) -> set[Path]:
        """Every loop nest that has code inside, outermost loop first."""
        return {k.path[:i] for k in self.blocks for i in range(len(k.path) + 1)}

    def phases(self, path: Path) -> list[int]:
        """The phases that have code at `path`, in blocks or in loops."""
        blocks = {k.phase for k in self.blocks if k.path == path}
        loops = {p[-1].phase for p in self.prefixes() if p and p[:-1] == path}
        ends = {r.home.phase for r in self.reductions.values() if r.home.path == path}
        return sorted(blocks | loops | ends)

    def at(self, path: Path, phase: int) -> list[Key]:
        """Keys directly inside `path`: scalars first, then by number of own loops, but none ahead of one whose arrays
        it reads. A sum over unrolled axes, in loops of its own over others, reads arrays over the former:

            loop k: for k0 < 4: keep w = sin(...);  for m < 3: take y[m] += x[m, k] * w, for every k0
        """
        keys = [k for k in self.blocks if k.path == path and k.phase == phase]
        rest = sorted(
            keys, key=lambda k: (k.lane is not None, len(k.dims), [a.uid for a in (*k.dims, *filter(None, [k.lane]))])
        )
        found: list[Key] = []
        while rest:
            free = (k for k in rest if not any(k is not other and self._reads(k, other) for other in rest))
            found.append(next(free, rest[0]))
            rest.remove(found[-1])
        return found

    def _reads(self, key: Key, other: Key) -> bool:
        """Whether a block reads arrays that another one fills."""
        block = self.blocks[key]
        used = {a for v in (*block.values, *block.updates) for a in v.args} | {w.value for w, _ in block.writes}
        return any((kept := self.kept.get(v)) is not None and kept.key == other for v in used if v not in block.values)

    def filled_by(self, key: Key) -> list[Value]:
        """Kept values, and results of reductions begun and ended there, whose arrays live where `key` stands."""
        found = [v for v in self.blocks[key].values if (kept := self.kept.get(v)) and kept.key == key]
        found += [v for v in self.blocks[key].updates if v in self.kept and self.reductions[v].is_local]
        return sorted((v for v in found if self.kept[v].scope == key.path), key=lambda v: v.uid)

    def ahead_of_lanes(self, key: Key) -> tuple[list[Value], list[Value]]:
        """Values of a block that are the same for all its lanes, and the others. g++ would leave the former inside the
        loop over lanes once a store that goes past the caches is there."""
        inside: dict[Value, None] = {}
        for v in self.blocks[key].ordered():
            kept = self.kept.get(v)
            if key.lane in v.deps or v.op == "scan" or (kept and kept.key == key) or any(a in inside for a in v.args):
                inside[v] = None
        return [v for v in self.blocks[key].ordered() if v not in inside], list(inside)

    def cost(self, key: Key) -> float:
        """Arithmetic of a block for one point, in f32 additions."""
        return sum(OPS[v.op].cost if v.op in OPS else 1.0 for v in self.blocks[key].values if v.op not in UNCOUNTED)

    def children(self, path: Path, phase: int) -> list[Loop]:
        """The loops directly inside `path` in one phase."""
        inside = self.prefixes()
        return [loop for a in self.order if (*path, loop := Loop(a, phase)) in inside]

    def reduced_at(self, path: Path, phase: int) -> list[Value]:
        """Reductions that begin and end in this phase."""
        found = [v for v, r in self.reductions.items() if r.home.path == path and r.home.phase == phase]
        return sorted(found, key=lambda v: v.uid)

    def is_shared(self, path: Path) -> bool:
        """Whether the iterations of the last loop of `path` depend on nothing outside: no reduction runs through it, no
        scan along it."""
        summed = any(
            r.site.path[: len(path)] == path and len(r.home.path) < len(path) for r in self.reductions.values()
        )
        return not summed and not any(path[-1].axis in v.scanned for v, _ in self.scans(path))

    def only_loop(self, path: Path) -> Path | None:
        """The loop directly inside `path`, if nothing else is there."""
        phases = self.phases(path)
        if (
            len(phases) != 1
            or self.at(path, phases[0])
            or any(k.scope == path for k in self.kept.values())
            or self.tiles_at(path)
        ):
            return None
        loops = self.children(path, phases[0])
        alone = len(loops) == 1 and not self.reduced_at(path, phases[0]) and not self.last_tile(loops[0].axis)
        return (*path, loops[0]) if alone else None

    def is_closed(self, path: Path) -> bool:
        """Whether nothing outside the last loop of `path` reads what is computed inside."""
        places = [(r.site, r.home.path) for r in self.reductions.values()]
        places += [(kept.key, kept.scope) for kept in self.kept.values()]
        return not any(key.path[: len(path)] == path and len(scope) < len(path) for key, scope in places)

    def scans(self, path: Path) -> list[tuple[Value, Key]]:
        """The scans inside `path`, with their blocks."""
        inside = [k for k in self.blocks if k.path[: len(path)] == path]
        return [(v, k) for k in inside for v in self.blocks[k].ordered() if v.op == "scan"]

    @staticmethod
    def carried_over(v: Value, key: Key) -> tuple[Axis, ...]:
        """The loops inside the one that a scan runs along in block `key`: it carries a value for each point of them."""
        loops = (*(loop.axis for loop in key.path), *key.dims)
        (axis,) = v.scanned
        return loops[loops.index(axis) + 1 :] if axis in loops else ()

    def __str__(self) -> str:
        lines: list[str] = []
        self._print(lines, ())
        return "\n".join(lines) + "\n"

    def _print(self, lines: list[str], path: Path) -> None:
        indent = "  " * len(path)
        tiles = self.tiles_at(path)
        lines += [f"{indent}fill {t}" for t in tiles if isinstance(t.access, Value)]
        for phase in self.phases(path):
            across = [v for v in self.reduced_at(path, phase) if not self.reductions[v].is_local]
            for v in across:
                lines.append(f"{indent}begin {_accumulator(v, self.reductions[v])}")
            for key in self.at(path, phase):
                self._print_block(lines, indent, key)
            for loop in self.children(path, phase):
                lines.append(f"{indent}loop {self._range(loop.axis)}:")
                self._print(lines, (*path, loop))
            for v in across:
                lines.append(f"{indent}end v{v.uid}")
        lines += [f"{indent}empty {t}" for t in tiles if isinstance(t.access, Write)]

    def _range(self, axis: Axis) -> str:
        last = self.last_tile(axis)
        return f"{axis} < {axis.extent}" + (f" up to {last[1]} in all" if last else "")

    def _print_block(self, lines: list[str], indent: str, key: Key) -> None:
        head = [f"for {self._range(a)}" for a in key.dims]
        if key.lane:
            head.append(f"lanes {self._range(key.lane)} by {self.widths[key.lane]}")
        block = self.blocks[key]
        own = set[Axis]().union(*(v.ranges for v in (*block.values, *block.updates))) - set(key.dims)
        head += [f"unrolled {a} < {a.extent}" for a in sorted(self.unrolled & own, key=lambda a: a.uid)]
        lines.append(f"{indent}{', '.join(head) or 'once'}:")
        for v in block.ordered():
            kept = self.kept.get(v)
            keep = "keep " if kept and kept.key == key else ""
            by_way = f" by way of {self.across[key, v]}" if (key, v) in self.across else ""
            lines.append(f"{indent}  {keep}v{v.uid}: {v.dtype} = {v.op}({_arguments(v)}){by_way}")
        for v in block.updates:
            reduction = self.reductions[v]
            local = f" begin and end {_accumulator(v, reduction)}" if reduction.is_local else ""
            lines.append(f"{indent}  take v{v.uid} {v.attr[0]}({', '.join(map(_operand, v.args))}){local}")
        for w, repeats in block.writes:
            over = f" for {', '.join(f'{a} < {a.extent}' for a in repeats)}" if repeats else ""
            by_way = f" by way of {self.across[key, w]}" if (key, w) in self.across else ""
            lines.append(f"{indent}  out{w.out}[{w.offset}] = {_operand(w.value)}{over}{by_way}")


def _accumulator(v: Value, reduction: PlacedReduction) -> str:
    dims = "".join(f"[{a}]" for a in reduction.home.dims)
    lanes = f" in lanes of {reduction.site.lane}" if reduction.joins_lanes else ""
    return f"v{v.uid}{dims}: {v.dtype}{lanes}"


def _operand(v: Value) -> str:
    return f"v{v.uid}" if v.op != "const" else repr(v.scalar)


def _arguments(v: Value) -> str:
    return ", ".join(filter(None, [*map(_operand, v.args), ", ".join(str(x) for x in v.attr)]))
