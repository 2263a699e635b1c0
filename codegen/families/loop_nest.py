"""Loop nests: how families that print a loop program lower a segment, and their schedule of loops on a CPU."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from codegen.families.kernel_function import kernel_function
from codegen.families.past_caches import stores
from codegen.kernel import EmitError, Kernel, Launch
from codegen.lowering.access import alignments
from codegen.lowering.coalesce import coalesce
from codegen.lowering.code_length import first_short, halved, least_lanes
from codegen.lowering.in_place import in_place
from codegen.lowering.index import Axes, Axis, volume
from codegen.lowering.int_narrowing import narrow
from codegen.lowering.lane_tiles import tile_lane
from codegen.lowering.lanes import choose_lanes, join_rows, widen_short_lanes
from codegen.lowering.placement import PlaceError, place
from codegen.lowering.program import Program
from codegen.lowering.row_blocking import blocked_axis
from codegen.lowering.scans import axes_scanned
from codegen.lowering.slice_lists import slice_lists
from codegen.lowering.stores import pull_outputs
from codegen.lowering.sums import NotOnePiece
from codegen.lowering.transpose_tiles import cut_axis
from codegen.lowering.unify import unify
from codegen.lowering.unroll import unroll
from codegen.lowering.unroll_and_jam import shared_axis, side_by_side
from codegen.lowering.value import REDUCES, TooManyValues, Value, cone
from codegen.lowering.write import Write, writes_of
from codegen.printer.emit import Style, emit_body
from codegen.schedule import Choices, Schedule
from fusion_ir.core.graph import Graph
from fusion_ir.ops import OPS, OpKind
from fusion_ir.records import Device

KEEP_BYTES = 64 << 10  # cap of one array of values that are read again
BLOCKS = (16, 64, 4)  # rows of a block, those first that are usually best
SHORT = 4  # vectors; of a run of more, the last one may be masked
LEAST_LANES = 16
MOST_TASKS = 8  # for every thread
FETCH = 1024  # bytes; of 256 to 8192, 512 and 1024 were best as a rule
LONG_CHAIN = 8.0  # cost of an op: that of exp
LISTS = "scatter_cpu.h"  # header of kernels that walk through lists of slices


@dataclass(frozen=True)
class LoopSchedule(Schedule):
    """How the loops are cut and written on a CPU.

    lanes: elements of a vector, of any dtype; wider vectors are more accumulators. fetch: how many bytes ahead of its
    load memory that is read once is brought into the first cache; 0: it is not. store: `plain`, or `stream` past the
    caches. tile: longest run of lanes that are no part of a sum. block: rows of a block where tensors step through
    memory in different orders; 0: no blocks. interleave: 1 where the compiler orders instructions by latency, so that
    the long chains of several vectors' functions run side by side. tasks: number of tasks for every thread; several
    are handed out one by one.
    """

    lanes: int
    fetch: int
    store: str
    tile: int
    block: int
    interleave: int
    tasks: int


def lower(
    segment: Graph,
    width: int,
    least_tile: int,
    tile: int,
    *,
    least_tasks: int,
    keep_bytes: int,
    dear: float = 0.0,
    rows: int = 1,
    block: int = 0,
    threads: int = 1,
    hold: bool = False,
    aligned: bool = False,
) -> Program:
    """Segment -> loop program: the steps of `codegen.lowering` in order. Raises EmitError.

    width: vector width in elements. tile: longest run of lanes; it is shortened, down to least_tile, where the loops
    outside would have fewer than least_tasks iterations. keep_bytes, dear: see `place`. rows: see `side_by_side`.
    block: see `blocked_axis`; 0 for none. threads: number of threads that share lanes. hold: elements of a row that are
    read again are kept as they came from memory. aligned: accesses are no wider than their addresses are aligned.
    """
    try:
        writes, axes = _writes(segment, width, aligned=aligned)
        side = shared_axis(writes) if rows > 1 else None
        if side is not None:
            writes = side_by_side(writes, side, rows, axes)
        tiles: dict[Axis, tuple[Axis, int]] = {}
        over, within = list[Axis](), list[Axis]()
        if block:
            cut = blocked_axis(writes, choose_lanes(writes))
            if cut is None:
                raise EmitError("all tensors are stepped through in one order: no blocks")
            writes, outer, inner = cut_axis(writes, cut, block, 1, axes, tiles)
            over, within = [outer] if outer else [], [inner]
        widths: dict[Axis, int] = {}
        values = cone(w.value for w in writes)
        scanned = axes_scanned(values)
        whole = scanned.union(*(v.bound for v in values))
        for lane in choose_lanes(writes):
            vector, size = _tile(writes, lane, scanned, width, least_tile, tile, least_tasks)
            if size < lane.extent and lane not in whole:
                writes, outer, inner = tile_lane(writes, lane, size, axes)
                tiles[inner] = (outer, lane.extent)
                lane = inner
            widths[lane] = vector
        held = _rows_read(writes, widths) if hold else frozenset[Value]()
        placed = {a for v in cone(w.value for w in writes) if v.op == "listed" for a in v.offset.axes}
        if any(not placed.isdisjoint(v.bound) for v in cone(w.value for w in writes)):
            raise EmitError("a reduction runs over the places of a scatter")
        program = place(
            writes,
            widths,
            tiles,
            keep_bytes=keep_bytes,
            dear=dear,
            outermost=[*over, *sorted(placed, key=lambda a: a.uid)],
            innermost=within,
            held=held,
            threads=threads,
        )
        program.lists = slice_lists(segment)
        return program
    except (TooManyValues, NotOnePiece, PlaceError) as error:
        raise EmitError(str(error)) from error


def _rows_read(writes: Sequence[Write], lanes: Collection[Axis]) -> frozenset[Value]:
    """The loads along lanes that read a different run for each iteration of some loop."""
    loads = (v for v in cone(w.value for w in writes) if v.op == "load" and not v.offset.fetched)
    return frozenset(v for v in loads if v.deps.intersection(lanes) and v.deps.difference(lanes))


def _writes(segment: Graph, width: int, *, aligned: bool = False) -> tuple[list[Write], Axes]:
    """The writes of a segment before tiling, for vectors of `width` elements, and the maker of further axes. aligned:
    see `lower`."""
    pulled, made = _unrolled(segment)
    axes = made.fork()
    writes = widen_short_lanes(pulled, choose_lanes(pulled), width, axes)
    if aligned:
        writes = join_rows(writes, width, axes, alignments(segment))
    return narrow(writes, choose_lanes(writes)), axes


def _unrolled(segment: Graph) -> tuple[list[Write], Axes]:
    """The writes of a segment as far as no vector width matters, and the maker of their axes. Raises TooManyValues or
    NotOnePiece."""
    found = _unrolled_or_not(segment)
    if isinstance(found, Exception):
        raise type(found)(*found.args)
    return found


@lru_cache(maxsize=16)
def _unrolled_or_not(segment: Graph) -> tuple[list[Write], Axes] | TooManyValues | NotOnePiece:
    """`_unrolled`, or what it raises. Cached, both of them: a family looks for schedules, then lowers one of these, or
    finds of one after the other that it cannot be lowered."""
    try:
        pulled = pull_outputs(segment)
        unify(pulled)
        writes = coalesce(writes_of(pulled), pulled.axes)
        return unroll(writes, choose_lanes(writes)), pulled.axes
    except (TooManyValues, NotOnePiece) as error:
        return error.with_traceback(None)


def vector_lanes(extent: int, width: int) -> int:
    """Lanes of a vector, at most `width`: fewer where a run of so few vectors would end in a masked one."""
    most = min(width, 1 << (extent - 1).bit_length())
    if extent > SHORT * most:
        return most
    return next((w for w in (most, most // 2, most // 4) if w >= LEAST_LANES and extent % w == 0), most)


def _tile(
    writes: list[Write], lane: Axis, scanned: set[Axis], width: int, least: int, most: int, least_tasks: int
) -> tuple[int, int]:
    """Lanes of a vector, at most `width`, and of a tile, which is whole vectors. Tasks cannot share the loops over
    scanned axes, nor those within which a sum that is one for each lane is spread again, as in a batch norm of channels
    that lie innermost. Where sums are one for each lane, vectors and tiles are as short as it takes to have a tile for
    each thread, and two at least: what is in no loop, every task would compute."""
    vector, serial, sums = vector_lanes(lane.extent, width), 1, list[frozenset[Axis]]()
    for write in (w for w in writes if lane in w.axes):
        own = [v.deps for v in cone([write.value]) if v.op in REDUCES and lane in v.deps]
        shared = [a for a in write.axes if a is not lane and a not in scanned and all(a in deps for deps in own)]
        serial = max(serial, prod(a.extent for a in shared))
        sums += own
    if sums and least_tasks > 1:
        while least > LEAST_LANES and serial * -(-lane.extent // least) < max(least_tasks // MOST_TASKS, 2):
            least //= 2
        vector = min(vector, max(least, LEAST_LANES))
    tiles = max(-(-least_tasks // serial), 1)
    return vector, min(most, max(-(-lane.extent // tiles), least)) // vector * vector


def loop_choices(segment: Graph, device: Device) -> Choices:
    """The values that each field of a `LoopSchedule` may have."""
    native = max(device.vector_bytes // 4, 4)
    return {
        "lanes": (native, 2 * native, 4 * native, 8 * native),
        "fetch": (0, FETCH // 2, FETCH),
        "store": stores(segment, device),
        "tile": (512, 1024, 4096),
        "block": (0, *sorted(BLOCKS)) if steps_apart(segment, 4 * native) else (0,),
        "interleave": (0, 1) if has_chains(segment) else (0,),
        "tasks": (1, 2, 4, 8),
    }


def with_variants(segment: Graph, points: Sequence[LoopSchedule], *, in_blocks: bool = False) -> tuple[str, ...]:
    """The schedules as text, with variants of the first one ahead: interleaved, with as many lanes and twice as many,
    where the segment holds functions of many steps; and the foremost of these in blocks, where rows may be in blocks.
    Those in blocks come first of all if `in_blocks`."""
    first, *others = points
    chains = has_chains(segment)
    interleaved = [first.replaced(lanes=n * first.lanes, interleave=1) for n in (1, 2)] if chains else []
    foremost = [*interleaved, first][0]
    blocks = [foremost.replaced(block=block) for block in BLOCKS] if steps_apart(segment, first.lanes) else []
    ahead = [*blocks[:1], foremost] if in_blocks else [foremost]
    return tuple(map(str, dict.fromkeys([*ahead, *blocks, *interleaved, first, *others])))


def has_chains(segment: Graph) -> bool:
    """Whether random numbers, or functions of many steps (polynomials, most of them), are computed of half of the
    elements or more."""
    most = max((n.elements for n in segment.nodes), default=0)
    rows = ((n, OPS[n.op]) for n in segment.nodes if n.op in OPS)
    return any(2 * n.elements >= most for n, op in rows if op.kind is OpKind.RANDOM or op.cost >= LONG_CHAIN)


def steps_apart(segment: Graph, width: int) -> bool:
    """Whether tensors are stepped through in different orders outside the lanes."""
    try:
        writes, _ = _writes(segment, width)
    except (TooManyValues, NotOnePiece):
        return False
    return blocked_axis(writes, choose_lanes(writes)) is not None


@dataclass(frozen=True)
class Rows:
    """The shape of a segment's reductions in its loops. lane: extent of the longest lane axis that a reduction or a
    scan runs along, else of the longest lane axis. along: whether one runs along it. rows: most iterations of one
    reduction over other axes. results: iterations of the axes that all reductions leave, without lanes, which blocks
    can share; where no reduction stays a loop, the fewest iterations of a write, without lanes. shared: whether blocks
    can share the lanes, too."""

    lane: int
    along: bool
    rows: int
    results: int = 1
    shared: bool = False


def rows_of(segment: Graph, width: int = 1, *, aligned: bool = False) -> Rows:
    """The shape of a segment's reductions, in vectors of `width` elements. aligned: see `lower`."""
    try:
        writes, _ = _writes(segment, width, aligned=aligned)
    except (TooManyValues, NotOnePiece):
        return Rows(1, along=False, rows=1)
    values = cone(w.value for w in writes)
    sums = [v for v in values if v.bound]
    lanes = set(choose_lanes(writes))
    along = {a for v in values for a in (*v.bound, *v.scanned)}
    lane, is_along = max(((a.extent, a in along) for a in lanes), key=lambda e: (e[1], e[0]), default=(1, False))
    rows = max((volume(set(v.bound) - lanes) for v in sums), default=1)
    written = min((volume(set(w.axes) - lanes) for w in writes), default=1)
    common = {a for a in sums[0].deps if all(a in v.deps for v in sums)} if sums else set[Axis]()
    results = volume(common - lanes) if sums else written
    return Rows(lane, is_along, rows, results, not is_along and all(lanes & set(w.axes) for w in writes))


def emit_cpu(
    segment: Graph,
    device: Device,
    s: LoopSchedule,
    least_tile: int,
    *,
    rows: int = 1,
    dear: float = 0.0,
    ahead: bool = False,
) -> Kernel:
    """The kernel of a loop program, of narrower vectors than the schedule says where its code would be too long, and
    then of fewer rows side by side. least_tile: how short a run of lanes may become, for more tasks. Raises
    EmitError."""
    tasks = MOST_TASKS * device.units
    programs = (
        lower(
            segment, lanes, least_tile, s.tile,
            least_tasks=tasks, keep_bytes=KEEP_BYTES, dear=dear, rows=side, block=s.block,
        )
        for side in halved(rows)
        for lanes in halved(s.lanes, least_lanes(segment, device))
    )  # fmt: skip
    program = first_short(programs, device)
    own = in_place(segment, program)
    stream = s.store == "stream" and len(own) < len(segment.outputs)
    style = Style(
        "cpu",
        alignments(segment),
        register_bytes=device.vector_bytes,
        stream=stream,
        grid_least=tasks,
        ahead=ahead,
        fetch_bytes=s.fetch,
        in_place=frozenset(own),
    )
    body = emit_body(program, style)
    entry, source = kernel_function(
        segment, body.text, "cpu", streams=stream, interleave=bool(s.interleave), in_place=own
    )
    launch = Launch(tasks=s.tasks * device.units)
    headers = (LISTS,) if program.walked else ()
    return Kernel(entry, source, "cpu", s.FAMILY, str(s), launch, body.accesses, headers=headers, in_place=own)
