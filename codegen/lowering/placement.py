"""Placement: every value gets a place in one tree of serial loops.

A write's nest is the serial axes that its value varies with, in one global order. A value's path is the longest prefix
of that nest made only of axes it varies with (over several users: what they share). Its other serial axes become
dimensions of a kept array, filled in loops of its own at that path; what varies along lanes is computed for all lanes
there. Cheap values (loads, exact casts of loads) are computed again where they are used, and so is what would exceed
the cap.

    out[t, h, d] = x[t, h, d] * cos(f[t, d])  ->  loop t: { lanes d: keep c = cos(f); loop h: lanes d: out = x * c }

A reduction has a path as every value does; inside are loops over the serial axes it runs over, and what it reads is
placed there. Whoever reads its result comes a phase later at that path: reductions number the phases of a place, and a
loop of another phase is another loop. What an earlier one computed is kept in an array that outlives it, or computed
again.

    y[i, j] = x[i, j] / sum over j of x[i, j]  ->  loop i: { lanes j: sum += x; then lanes j: y = x / sum }
    m[c] = max over n of x[n, c]; y = x - m    ->  begin m[lanes]; loop n: lanes c: m = max(m, x); loop n': lanes c: ...

Axes that stay within have no loop around a reduction: it has an accumulator for each of their points. If they are
unrolled too, there is no loop inside either, and what does not vary with them is computed once for all.

    y[m, f] = sum over k of x[m, k] * w[f, k], f unrolled  ->  loop m: { lanes k: x; y0 += x * w0; y1 += x * w1; ... }
"""

from collections.abc import Iterable, Sequence, Set
from dataclasses import replace
from itertools import takewhile

from codegen.lowering.index import Axis, volume
from codegen.lowering.lanes import lane_of
from codegen.lowering.loop_fusion import join_loops
from codegen.lowering.loop_order import Axes, Phases, nest_of, order_of, paths_of, phases_after, phases_of
from codegen.lowering.program import Block, Kept, Key, Loop, Path, PlacedReduction, Program
from codegen.lowering.value import REDUCES, Value, cone
from codegen.lowering.write import Write
from fusion_ir.ops import OPS

GATHER_COST = 24.0  # arithmetic of a load with an index for each lane
MAX_REPEATED = 1 << 15  # iterations of reductions outside every shared loop: each task goes through them for itself
MAX_STACK_BYTES = 4 << 20  # of all kept arrays together: they lie on the stack of a thread


class PlaceError(Exception):
    """This tree of loops cannot hold what the writes need; says why."""


def place(
    writes: Sequence[Write],
    widths: dict[Axis, int],
    tiles: dict[Axis, tuple[Axis, int]],
    *,
    keep_bytes: int,
    dear: float = 0.0,
    outermost: Sequence[Axis] = (),
    innermost: Sequence[Axis] = (),
    within: Set[Axis] = frozenset(),
    unrolled: Set[Axis] = frozenset(),
    held: Set[Value] = frozenset(),
    threads: int = 1,
) -> Program:
    """The loop program of `writes`. keep_bytes: most bytes that a thread has of one kept array. dear: values that take
    no more arithmetic than this are computed again, not kept, and so are cheap values; not those in `held`. outermost,
    innermost: serial axes that come first and last, in this order. within: serial axes without a loop around
    reductions. unrolled: axes of `within` without any loop. threads: number of threads that share the lanes. Raises
    PlaceError."""
    values = cone(w.value for w in writes)
    order = order_of(writes, values, set(widths))
    given = {*outermost, *innermost}
    order = [*outermost, *(a for a in order if a not in given), *(a for a in innermost if a in order)]
    tiled = {outer for outer, _ in tiles.values()} | (tiles.keys() - widths.keys())
    loops = [a for a in order if a not in within]
    nests = [nest_of(w, loops, tiled) for w in writes]
    paths = paths_of(writes, nests, values, loops, widths, keep_bytes, threads)
    walked = frozenset(a for v in values for a in v.walked)
    program = Program(widths, tiles, order, {}, {}, unrolled=frozenset(unrolled), threads=threads, walked=walked)
    again = _again(values, set(widths), dear) - held
    placer = _Placer(program, paths, phases_of(values, paths), keep_bytes, again, within)
    for write, nest in zip(writes, nests, strict=True):
        placer.write(write, nest)
    join_loops(program)
    _check_repeated(program)
    _check_stack(program)
    return program


def _again(values: Sequence[Value], lanes: set[Axis], dear: float) -> set[Value]:
    """Values that are computed again wherever they are read: cheap ones, except those gathered lane by lane; and values
    along lanes that take at most `dear` arithmetic from constants, results of reductions and values that are one for
    all lanes."""
    cost: dict[Value, float] = {}
    gathered: set[Value] = set()
    again: set[Value] = set()
    for v in values:
        is_cheap, along = v.is_cheap, not lanes.isdisjoint(v.deps)
        if (v.op == "load" and any(lanes & i.deps for i in v.offset.fetched)) or (
            is_cheap and gathered and not gathered.isdisjoint(v.args)
        ):
            gathered.add(v)
        own = GATHER_COST if v in gathered else OPS[v.op].cost if v.op in OPS else 1.0
        at_hand = v.op == "const" or v.op in REDUCES or not along
        cost[v] = 0.0 if at_hand else own + sum([cost[a] for a in v.args])
        if (is_cheap and v not in gathered) or (along and v.op not in REDUCES and cost[v] <= dear):
            again.add(v)
    return again


def _check_repeated(program: Program) -> None:
    """Raises PlaceError where a reduction at the root goes over more than MAX_REPEATED elements: every task computes it
    with all its operands. Threads that share lanes share it instead, if one block does everything."""
    if program.threads > 1 and not any(program.is_shared(path) for path in program.prefixes() if len(path) == 1):
        return
    for v, reduction in program.reductions.items():
        if reduction.home.path:
            continue
        count = max(volume(u.ranges) for u in cone([v]))
        if count > MAX_REPEATED:
            raise PlaceError(f"a reduction over {count} elements is outside every loop that tasks could share")


def _check_stack(program: Program) -> None:
    total = 0
    for v, kept in program.kept.items():
        lanes = program.vectors(kept.key.lane) * program.widths[kept.key.lane] if kept.key.lane else 1
        total += volume(kept.dims) * lanes * v.dtype.bytes
    if total > MAX_STACK_BYTES:
        raise PlaceError(f"arrays of {total} bytes in all are too large for a thread's stack")


class _Placer:
    def __init__(
        self,
        program: Program,
        paths: dict[Value, Axes],
        phases: dict[Value, Phases],
        keep_bytes: int,
        again: set[Value],
        within: Set[Axis],
    ) -> None:
        self.program, self.paths, self.phases, self.keep_bytes = program, paths, phases, keep_bytes
        self.again, self.within = again, within
        self._homes: dict[Value, tuple[Key, Key]] = {}
        self._loops: dict[tuple[Axis, int], Loop] = {}  # one of each, so that paths compare by identity

    # ---- places
    def home(self, v: Value) -> tuple[Key, Key]:
        """The key at which a value is computed once for all its users, for a reduction the key of its result; and that
        key without the unrolled axes."""
        if v not in self._homes:
            key, dims = self.key(self.paths[v], self.phases[v]), self.dims(v)
            home = Key(key.path, key.phase, self.lane(v.deps), dims)
            looped = self.looped(dims)
            self._homes[v] = home, home if looped == dims else replace(home, dims=looped)
        return self._homes[v]

    def key(self, axes: Axes, phases: Phases) -> Key:
        return Key(tuple([self.loop(*pair) for pair in zip(axes, phases, strict=False)]), phases[-1])

    def loop(self, axis: Axis, phase: int) -> Loop:
        key = axis, phase
        if key not in self._loops:
            self._loops[key] = Loop(axis, phase)
        return self._loops[key]

    def inside(self, args: Sequence[Value], axes: Axes) -> Key:
        """The first place inside the loops over `axes` at which all of `args` can be read."""
        return self.key(axes, phases_after(args, len(axes), self.paths, self.phases))

    def lane(self, deps: Iterable[Axis]) -> Axis | None:
        return next((a for a in self.program.widths if a in deps), None)

    def dims(self, v: Value) -> Axes:
        path, deps = self.paths[v], v.deps
        return tuple([a for a in self.program.order if a in deps and a not in path])

    def looped(self, axes: Iterable[Axis]) -> Axes:
        """The given axes without the unrolled ones."""
        return tuple(a for a in axes if a not in self.program.unrolled)

    def block(self, key: Key) -> Block:
        block = self.program.blocks.get(key)
        if block is None:
            block = self.program.blocks[key] = Block()
        return block

    # ---- writes and what they need
    def write(self, w: Write, nest: Axes) -> None:
        place = self.inside([w.value], nest)
        own = tuple(a for a in self.dims(w.value) if a in self.within and a in w.axes)
        key = Key(place.path, place.phase, lane_of(w, list(self.program.widths)), own)
        repeats = tuple(a for a in w.axes if a is not key.lane and a not in nest and a not in own)
        self.block(key).writes.append((w, repeats))
        self.need(w.value, key)

    def need(self, v: Value, at: Key) -> None:
        """Makes `v` available in block `at`, and what it is computed from in the block that computes it."""
        stack = [(v, at)]
        while stack:
            v, at = stack.pop()
            if v.op == "const":
                continue
            home, looped = self.home(v)
            if v.op in REDUCES:
                self.keep(v, home, at)
                if v not in self.program.reductions:
                    site = self.reduce(v, home)
                    stack += ((a, site) for a in v.args)
                continue
            key = at if (v in self.again and at.lane) or not self.fits(v, home, at) else home
            if key is not at and looped == at:
                key = at
            if v.op == "scan":
                self.check_carry(v, key)
            if key != at:
                self.keep(v, key, at)
            values = self.block(key).values
            if v not in values:
                values[v] = None
                stack += ((a, key) for a in v.args)

    def reduce(self, v: Value, home: Key) -> Key:
        """Places the updates of a reduction and returns their key. Raises PlaceError for too large accumulators."""
        self.check_lists(v, home)
        inside = tuple(a for a in self.program.order if a in v.bound and a not in self.within)
        place = self.inside(v.args, self.paths[v] + inside)
        lane = self.lane(v.ranges)  # of its operands, or one that they repeat along
        site = Key(place.path, place.phase, lane, self.looped(home.dims))
        self.program.reductions[v] = PlacedReduction(home, site)
        self.block(site).updates.append(v)
        width = self.program.widths[lane] if lane and not home.lane and site.path != home.path else 1
        if width * self.bytes(v, home.dims, home.lane) > self.keep_bytes:
            raise PlaceError(f"the accumulators of {v} would take more than {self.keep_bytes} bytes")
        return site

    def check_lists(self, v: Value, home: Key) -> None:
        """Raises PlaceError where a reduction walks through lists of places outside the loops over these."""
        loops = {loop.axis for loop in home.path}
        for u in cone([v]) if not self.program.walked.isdisjoint(v.bound) else ():
            if u.op == "listed" and not loops.issuperset(u.offset.axes):
                raise PlaceError(f"{v} walks through lists outside the loops over their places {u.offset}")

    def check_carry(self, v: Value, key: Key) -> None:
        """Raises PlaceError where block `key` cannot carry a scan from iteration to iteration."""
        if key.lane and key.lane not in v.deps:
            raise PlaceError(f"{v} is the same for all lanes of the block that would compute it again")
        lane = None if key.lane in v.scanned else key.lane
        if self.bytes(v, self.program.carried_over(v, key), lane) > self.keep_bytes:
            raise PlaceError(f"what {v} carries would take more than {self.keep_bytes} bytes")

    # ---- kept arrays
    def keep(self, v: Value, key: Key, at: Key) -> None:
        """Lets block `at` read what block `key` computes: as a local where it can, else by way of an array."""
        scope = _common(key.path, at.path)
        known = self.program.kept.get(v)
        if known and len(known.scope) < len(scope):
            scope = known.scope
        dims = tuple(loop.axis for loop in key.path[len(scope) :]) + key.dims
        too_large = not scope or self.bytes(v, dims, key.lane) > self.keep_bytes
        if v.op in REDUCES and len(scope) < len(key.path) and too_large:
            raise PlaceError(f"{v} is read in another loop over {dims} than the one that computes it")
        if key.lane or dims:
            self.program.kept[v] = Kept(key, scope, dims)

    def fits(self, v: Value, key: Key, at: Key) -> bool:
        """Whether `v` may be kept from `key` until `at`. Tasks share the outermost loops: nothing outlives those. Lists
        differ in length: nothing is kept for each of their slices."""
        scope = _common(key.path, at.path)
        dims = tuple(loop.axis for loop in key.path[len(scope) :]) + key.dims
        if not self.program.walked.isdisjoint(dims):
            return False
        return (len(scope) > 0 or not key.path) and self.bytes(v, dims, key.lane) <= self.keep_bytes

    def bytes(self, v: Value, dims: Axes, lane: Axis | None) -> int:
        lanes = self.program.vectors(lane) * self.program.widths[lane] if lane else 1
        return volume(dims) * lanes * v.dtype.bytes


def _common(path: Path, other: Path) -> Path:
    """The loops that two places have in common."""
    if path == other:
        return path
    return tuple(a for a, _ in takewhile(lambda pair: pair[0] == pair[1], zip(path, other, strict=False)))
