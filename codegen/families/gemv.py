"""Family `gemv`: a large matrix, read once, multiplied with few vectors, and the ops before and after the product.

Each element of the matrix that comes from memory is multiplied with its element of every vector while it is at hand.
Matrices that are contiguous along the sum are read several rows at a time, with an accumulator in registers for each
row and vector; others a tile of columns at a time, with accumulators in cache that take in several rows on each visit.
On CUDA the lanes of either are threads'.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from codegen.families.kernel_function import kernel_function
from codegen.families.loop_nest_cuda import FREE_BYTES, loop_kernel
from codegen.families.reduction import KINDS, MATRIX, few_by_many, is_reduction, refused, spreads
from codegen.kernel import EmitError, Kernel, Launch, Reject
from codegen.lowering.access import alignments
from codegen.lowering.coalesce import coalesce
from codegen.lowering.code_length import first_short, least_lanes
from codegen.lowering.index import Axes, Axis, var, volume
from codegen.lowering.lane_tiles import tile_lane
from codegen.lowering.lanes import choose_lanes
from codegen.lowering.placement import PlaceError, place
from codegen.lowering.program import Program
from codegen.lowering.stores import pull_outputs
from codegen.lowering.sums import NotOnePiece
from codegen.lowering.unify import unify
from codegen.lowering.value import TooManyValues, Value, Values, cone, remade, rewrite_offsets
from codegen.lowering.write import MAX_VALUES, Write, rewritten, writes_of
from codegen.printer.emit import Style, emit_body
from codegen.printer.threads import Threads
from codegen.schedule import Choices, Schedule, parse_schedule
from fusion_ir.core.graph import Graph
from fusion_ir.ops import OpKind
from fusion_ir.records import Device

MOST_FEW = 16  # vectors
LEAST_TILE = 256  # columns
SPLIT = 4  # times as many terms as rows at once, that a sum of another number of terms has before it is split
MANY_TILES = 4  # for each thread: whether all have as many matters no more
KEEP_BYTES = 1 << 20  # cap of what a task keeps of the vectors, on the stack of its thread


@dataclass(frozen=True)
class GemvSchedule(Schedule):
    """rows: rows of the matrix at once. few: most vectors at once. lanes: elements of a vector register or of several,
    of any dtype. tile: most columns of a tile, where the matrix is not contiguous along the sum."""

    FAMILY = "gemv"
    rows: int
    few: int
    lanes: int
    tile: int


@dataclass(frozen=True)
class CudaGemvSchedule(Schedule):
    """rows, few: see `GemvSchedule`. vec: elements of a vector. x, y: threads of a block along lanes and along rows.
    per: vectors of a thread along columns, where the matrix is not contiguous along the sum."""

    FAMILY = "gemv"
    rows: int
    few: int
    vec: int
    x: int
    y: int
    per: int


class Gemv:
    """See the module."""

    name = "gemv"

    def accepts(self, segment: Graph, device: Device) -> Reject | None:
        found = few_by_many(segment)
        if found is None:
            sums = ", ".join(n.op for n in segment.nodes if is_reduction(n))
            return Reject(f"holds {sums or 'no long contraction'}; takes one contraction and no other reduction")
        few, many = found
        if few > MOST_FEW or many < MATRIX:
            return Reject(f"multiplies {few} and {many} rows and columns; takes up to {MOST_FEW} and {MATRIX} or more")
        if spreads(segment):
            return Reject("the product is spread over a larger tensor: family normalization")
        return refused(segment, KINDS - {OpKind.REDUCTION}, most_thin=MOST_FEW)

    def space(self, segment: Graph, device: Device) -> tuple[str, ...]:
        if device.target != "cpu":
            vec = min(16 // min((spec.dtype.bytes for spec in segment.inputs), default=4), 8)
            points = [(2, 4, vec, 32, 4, 1), (1, 8, vec, 32, 4, 1), (4, 4, vec, 64, 2, 1), (1, 4, vec, 128, 1, 1)]
            points += [(4, 4, vec, 16, 16, 1), (2, 4, vec // 2, 32, 8, 1)]
            return tuple(dict.fromkeys(str(CudaGemvSchedule(*point)) for point in points))
        native = min(max(device.vector_bytes // 4, 4), 32)
        points = [(8, 4, native, 4096), (4, 8, native, 2048), (8, 2, native, 1024), (4, 4, 2 * native, 4096)]
        return tuple(str(GemvSchedule(*point)) for point in points)

    def choices(self, segment: Graph, device: Device) -> Choices:
        if device.target != "cpu":
            return {
                "rows": (1, 2, 4, 8),
                "few": (1, 2, 4, 8),
                "vec": (1, 2, 4, 8),
                "x": (8, 16, 32, 64, 128, 256),
                "y": (1, 2, 4, 8, 16, 32),
                "per": (1, 2, 4),
            }
        native = min(max(device.vector_bytes // 4, 4), 32)
        return {
            "rows": (1, 2, 4, 8),
            "few": (1, 2, 4, 8),
            "lanes": (native, 2 * native),
            "tile": (512, 1024, 2048, 4096),
        }

    def emit(self, segment: Graph, schedule: str, device: Device) -> Kernel:
        if device.target != "cpu":
            return _emit_cuda(segment, parse_schedule(schedule, CudaGemvSchedule), device)
        s = parse_schedule(schedule, GemvSchedule)
        program = first_short(_shorter(segment, s, device), device)
        body = emit_body(
            program, Style("cpu", alignments(segment), register_bytes=device.vector_bytes, grid_least=8 * device.units)
        )
        entry, source = kernel_function(segment, body.text, "cpu")
        return Kernel(entry, source, "cpu", self.name, str(s), Launch(tasks=device.units), body.accesses)


def _emit_cuda(segment: Graph, s: CudaGemvSchedule, device: Device) -> Kernel:
    like = GemvSchedule(s.rows, s.few, s.vec, s.vec * s.x * s.per)
    program = first_short(_shorter(segment, like, device, threads=s.x), device)
    return loop_kernel(segment, program, device, Threads(s.x, s.y), s)


def _shorter(segment: Graph, s: GemvSchedule, device: Device, threads: int = 1) -> Iterator[Program]:
    """Programs by the schedule, then by schedules of fewer rows, fewer vectors and fewer lanes at once."""
    least = least_lanes(segment, device) if device.target == "cpu" else 1
    yield lower_gemv(segment, s, device, threads)
    while s.rows * s.few > 1 or s.lanes // 2 >= least:
        if s.rows * s.few == 1:
            s = s.replaced(lanes=s.lanes // 2, tile=s.tile if device.target == "cpu" else s.tile // 2)
        else:
            s = s.replaced(rows=s.rows // 2) if s.rows > 1 else s.replaced(few=s.few // 2)
        yield lower_gemv(segment, s, device, threads)


@dataclass(frozen=True)
class _Sum:
    """A sum of products in a loop program. vectors: the operand with few of them. few, many: axes of the result that
    the vectors, or the matrix, alone vary with."""

    value: Value
    vectors: Value
    few: frozenset[Axis]
    many: frozenset[Axis]


def _sums_of(writes: Sequence[Write]) -> list[_Sum]:
    """The sums of a segment's contraction: one, or several where an operand is put together from pieces."""
    return [_sum_of(v) for v in cone(w.value for w in writes) if v.op == "reduce"]


def _sum_of(v: Value) -> _Sum:
    x, w = v.args if len(v.args) == 2 else v.args[0].args
    if volume(v.deps - w.deps) > volume(v.deps - x.deps):
        x, w = w, x
    return _Sum(v, x, v.deps - w.deps, v.deps - x.deps)


@dataclass
class _Loops:
    """Writes, and how their axes are cut and walked: the arguments of `place`."""

    writes: list[Write]
    axes: Axes
    widths: dict[Axis, int]
    tiles: dict[Axis, tuple[Axis, int]] = field(default_factory=dict[Axis, tuple[Axis, int]])
    innermost: list[Axis] = field(default_factory=list[Axis])
    within: set[Axis] = field(default_factory=set[Axis])
    unrolled: set[Axis] = field(default_factory=set[Axis])

    def unroll(self, axis: Axis, size: int) -> list[Axis]:
        """axis -> size * outer + inner, where size divides it; inner is unrolled. Returns outer, if there is one."""
        rest: list[Axis] = []
        if size < axis.extent:
            self.writes, outer, axis = tile_lane(self.writes, axis, size, self.axes)
            rest = [outer]
        self.unrolled.add(axis)
        self.within.add(axis)
        return rest

    def unroll_few(self, axes: Set[Axis], most: int) -> list[Axis]:
        """Unrolls axes of vectors for at most `most` vectors at once. Returns the axes over the parts."""
        parts = [(a, max(most // volume(axes - {a}), 1)) for a in sorted(axes, key=lambda a: a.uid)]
        sizes = [(a, max(n for n in range(1, size + 1) if a.extent % n == 0)) for a, size in parts]
        return [outer for a, size in sizes for outer in self.unroll(a, size)]


def lower_gemv(segment: Graph, s: GemvSchedule, device: Device, threads: int = 1) -> Program:
    """Segment -> loop program: rows at once where lanes run along the sum, else columns at once. threads: number of
    threads that share lanes (cuda). Raises EmitError."""
    try:
        pulled = pull_outputs(segment)
        unify(pulled)
        writes = coalesce(writes_of(pulled), pulled.axes)
        widths = {lane: min(s.lanes, 1 << (lane.extent - 1).bit_length()) for lane in choose_lanes(writes)}
        loops, sums = _Loops(writes, pulled.axes, widths), _sums_of(writes)
        few = frozenset[Axis]().union(*(x.few for x in sums)) - widths.keys()
        if any(set(x.value.bound) & widths.keys() for x in sums):
            _rows_at_once(loops, sums, few, s)
        else:
            _columns_at_once(loops, sums, few, s, device)
        dear = {x.vectors for x in _sums_of(loops.writes) if _is_dear(x.vectors, loops.widths)}
        return place(
            loops.writes,
            loops.widths,
            loops.tiles,
            keep_bytes=KEEP_BYTES if device.target == "cpu" else FREE_BYTES,
            innermost=loops.innermost,
            within=loops.within,
            unrolled=loops.unrolled,
            held=dear,
            threads=threads,
        )
    except (TooManyValues, NotOnePiece, PlaceError) as error:
        raise EmitError(str(error)) from error


def _rows_at_once(loops: _Loops, sums: Sequence[_Sum], few: Set[Axis], s: GemvSchedule) -> None:
    """Lanes along the sum: vectors and rows are unrolled in parts; other vectors meet the rows in cache."""
    loops.innermost += loops.unroll_few(few, s.few)
    many = (a for x in sums for a in x.many - loops.widths.keys())  # none where views left no matrix: a padded row
    rows = max(many, key=lambda a: (a.extent, a.uid), default=None)
    if rows is not None and rows.extent >= s.rows > 1:
        loops.unroll(_whole_parts(loops, rows, s.rows), s.rows)


def _columns_at_once(loops: _Loops, sums: Sequence[_Sum], few: Set[Axis], s: GemvSchedule, device: Device) -> None:
    """Lanes along columns of the matrix, in tiles: several rows of the sum and a part of the vectors are unrolled; the
    other vectors take their turns inside the loop over the rows."""
    loops.within |= set(loops.unroll_few(few, s.few))
    for lane, width in list(loops.widths.items()):
        shared = max((volume(x.value.deps - {lane} - few) for x in sums if lane in x.value.deps), default=1)
        size = _tile(lane.extent, shared, width, s, device)
        if size < lane.extent:
            loops.writes, outer, inner = tile_lane(loops.writes, lane, size, loops.axes)
            loops.tiles[inner] = (outer, lane.extent)
            loops.widths[inner] = loops.widths.pop(lane)
    for depth in {x.value.bound[-1]: None for x in sums}:
        size = next((n for n in (s.rows, 4, 2) if n <= s.rows and depth.extent % n == 0 and depth.extent > n), 1)
        if size < s.rows and depth.extent >= SPLIT * s.rows and device.target == "cpu":
            depth, size = _whole_sums(loops, depth, s.rows), s.rows
        if size > 1:
            loops.unroll(depth, size)


def _tile(columns: int, shared: int, width: int, s: GemvSchedule, device: Device) -> int:
    """Columns of a tile, a multiple of the lanes. cpu: as many as the schedule allows and as give all threads equal
    numbers of tiles, since columns side by side are read in one go and the next row is on another page."""
    least = min(LEAST_TILE, columns // 2)
    if device.target != "cpu":
        wanted = max(-(-columns * shared // (2 * device.units)), least)
        return max(min(s.tile, wanted) // width, 1) * width
    tiles = -(-columns // s.tile)
    while tiles * shared % device.units and tiles * shared < MANY_TILES * device.units:
        tiles += 1
    return max(-(-max(-(-columns // tiles), least) // width), 1) * width


def _whole_sums(loops: _Loops, depth: Axis, size: int) -> Axis:
    """Splits the sums over an axis of more than twice `size`: a multiple of `size` terms, and a few more, two at least.
    Returns the axis over the former."""
    rest = depth.extent % size + (size if depth.extent % size == 1 else 0)
    first, last = loops.axes.new(depth.extent - rest), loops.axes.new(rest)
    values, sums = Values(MAX_VALUES), [v for v in cone(w.value for w in loops.writes) if depth in v.bound]
    parts: list[list[Value]] = []
    for piece, start in ((first, 0), (last, first.extent)):
        at = {depth: var(piece) + start}

        def axes_of(of: tuple[Axis, ...], piece: Axis = piece) -> tuple[Axis, ...]:
            return tuple(piece if a is depth else a for a in of)

        parts.append(rewrite_offsets(values, sums, lambda e, at=at: e.subst(at), axes_of))
    joined = [values.make("add", pair, (), v.dtype) for v, *pair in zip(sums, *parts, strict=True)]
    made = dict(zip(sums, joined, strict=True))
    loops.writes = [replace(w, value=remade(values, w.value, made)) for w in loops.writes]
    return first


def _whole_parts(loops: _Loops, axis: Axis, size: int) -> Axis:
    """Sets the writes over the last axis.extent % size of an axis apart. Returns the axis over the rest."""
    if axis.extent % size == 0:
        return axis
    first, last = loops.axes.new(axis.extent // size * size), loops.axes.new(axis.extent % size)
    own = [w for w in loops.writes if axis in w.axes]
    loops.writes = [w for w in loops.writes if axis not in w.axes]
    for piece, start in ((first, 0), (last, first.extent)):
        at = {axis: var(piece) + start}
        loops.writes += rewritten(
            own, lambda e, at=at: e.subst(at), lambda of, p=piece: tuple(p if a is axis else a for a in of)
        )
    return first


def _is_dear(vectors: Value, widths: Mapping[Axis, int]) -> bool:
    """Whether the vectors take more than a load of one element, or of consecutive elements along the lanes."""
    return vectors.op != "load" or any(vectors.offset.coef(lane) != 1 for lane in vectors.deps & widths.keys())
