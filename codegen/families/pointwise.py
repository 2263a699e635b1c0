"""Family `pointwise`: everything whose elements are independent, as one loop nest.

Pointwise and view ops, gathers, random numbers and small contractions (unrolled), any number of outputs of any shapes;
outputs that share nothing are siblings in one launch.
"""

from dataclasses import dataclass
from math import prod

from codegen.emit import Style, emit_body
from codegen.families.wrap import kernel_function
from codegen.kernel import EmitError, Kernel, Launch, Reject
from codegen.lowering.coalesce import coalesce
from codegen.lowering.index import Axis
from codegen.lowering.lanes import choose_lanes, widen_short_lanes
from codegen.lowering.narrow import narrow
from codegen.lowering.place import PlaceError, place
from codegen.lowering.program import Program
from codegen.lowering.rows import shared_axis, side_by_side
from codegen.lowering.scans import axes_scanned
from codegen.lowering.stores import pull_outputs
from codegen.lowering.sums import NotOnePiece, reduced_extents
from codegen.lowering.tile import tile_lane
from codegen.lowering.unify import unify
from codegen.lowering.unroll import unroll
from codegen.lowering.value import TooManyValues, cone
from codegen.lowering.write import Write, writes_of
from codegen.schedule import Schedule, parse_schedule
from fusion_ir.graph import Graph
from fusion_ir.node import Node
from fusion_ir.ops import OPS, OpKind
from fusion_ir.ops.contract import ORDERED_PRODUCTS
from fusion_ir.records import Device

MAX_DEPTH = 200  # nodes from an input to an output
MAX_NODES = 1000
KINDS = {OpKind.INPUT, OpKind.POINTWISE, OpKind.VIEW, OpKind.RANDOM, OpKind.GATHER, OpKind.CONTRACT}


@dataclass(frozen=True)
class CpuSchedule(Schedule):
    """How the loops are cut and written.

    lanes: elements of a vector, of any dtype. store: `plain`, or `stream` past the caches. tile: longest run of lanes.
    rows: iterations of a loop that share what they load along lanes, in one pass.
    """

    FAMILY = "pointwise"
    lanes: int
    store: str
    tile: int
    rows: int


@dataclass(frozen=True)
class CudaSchedule(Schedule):
    """How the loops are shared among threads.

    vec: elements of a vector. x, y: threads of a block along lanes and along rows. per: vectors of a thread along
    lanes.
    """

    FAMILY = "pointwise"
    vec: int
    x: int
    y: int
    per: int


class Pointwise:
    """See the module."""

    name = "pointwise"

    def accepts(self, segment: Graph, device: Device) -> Reject | None:
        depth: dict[Node, int] = {}
        for node in segment.nodes:
            depth[node] = 1 + max((depth[a] for a in node.args), default=0)
            kind = OPS[node.op].kind if node.op in OPS else OpKind.INPUT
            if kind not in KINDS:
                return Reject(f"{node.op} is no pointwise op")
            if kind is OpKind.CONTRACT and (k := prod(reduced_extents(node))) > ORDERED_PRODUCTS:
                return Reject(f"a contraction over {k} products is too long to unroll (at most {ORDERED_PRODUCTS})")
        if max(depth.values(), default=0) > MAX_DEPTH or len(depth) > MAX_NODES:
            return Reject(f"{len(depth)} nodes, {max(depth.values())} deep, are too many for one kernel")
        return None

    def space(self, segment: Graph, device: Device) -> tuple[str, ...]:
        if device.target == "cpu":
            native = max(device.vector_bytes // 4, 4)
            widths = [2 * native, native, 4 * native]
            schedules = [CpuSchedule(min(n, 64), store, 4096, 1) for n in widths for store in ("stream", "plain")]
            if any(n.op == "contract" and prod(reduced_extents(n)) > 1 for n in segment.nodes):
                products = [(2, 4096, 8), (2, 512, 8), (4, 4096, 4), (1, 512, 8), (2, 4096, 4)]
                shared = [CpuSchedule(min(n * native, 64), "stream", tile, rows) for n, tile, rows in products]
                schedules = [*shared, *schedules]
            return tuple(map(str, schedules))
        narrow = min((o.node.dtype.bytes for o in segment.outputs), default=4)
        vec = max(min(device.vector_bytes, 16) // narrow, 1)
        shapes = [(32, 8, 1), (8, 32, 1), (16, 16, 1), (128, 1, 1), (128, 1, 4), (256, 1, 1), (32, 4, 2)]
        schedules = [CudaSchedule(v, x, y, per) for v in dict.fromkeys((vec, max(vec // 2, 1))) for x, y, per in shapes]
        return tuple(map(str, schedules))

    def emit(self, segment: Graph, schedule: str, device: Device) -> Kernel:
        if device.target == "cpu":
            return _emit_cpu(segment, parse_schedule(schedule, CpuSchedule), device)
        return _emit_cuda(segment, parse_schedule(schedule, CudaSchedule), device)


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
) -> Program:
    """Segment -> loop program: the steps of `codegen.lowering` in order.

    width: vector width in elements. tile: longest run of lanes; it is shortened, down to least_tile, where the loops
    outside would have fewer than least_tasks iterations. keep_bytes, dear: see `place`. rows: see `side_by_side`.
    """
    try:
        pulled = pull_outputs(segment)
        unify(pulled)
        writes = coalesce(writes_of(pulled), pulled.axes)
        writes = unroll(writes, choose_lanes(writes))
        writes = widen_short_lanes(writes, choose_lanes(writes), width, pulled.axes)
        writes = narrow(writes, choose_lanes(writes))
        axis = shared_axis(writes) if rows > 1 else None
        if axis is not None:
            writes = side_by_side(writes, axis, rows, pulled.axes)
        tiles: dict[Axis, tuple[Axis, int]] = {}
        widths: dict[Axis, int] = {}
        values = cone(w.value for w in writes)
        scanned = axes_scanned(values)
        whole = scanned.union(*(v.bound for v in values))
        for lane in choose_lanes(writes):
            vector = min(width, 1 << (lane.extent - 1).bit_length())
            size = _tile(writes, lane, scanned, least_tile, tile, least_tasks) // vector * vector
            if size < lane.extent and lane not in whole:
                writes, outer, inner = tile_lane(writes, lane, size, pulled.axes)
                tiles[inner] = (outer, lane.extent)
                lane = inner
            widths[lane] = vector
        return place(writes, widths, tiles, keep_bytes=keep_bytes, dear=dear)
    except (TooManyValues, NotOnePiece, PlaceError) as error:
        raise EmitError(str(error)) from error


def _tile(writes: list[Write], lane: Axis, scanned: set[Axis], least: int, most: int, least_tasks: int) -> int:
    """Lanes of one tile. Tasks cannot share what is scanned."""
    shared = [[a for a in w.axes if a is not lane and a not in scanned] for w in writes if lane in w.axes]
    serial = max((prod(a.extent for a in axes) for axes in shared), default=1)
    tiles = max(-(-least_tasks // serial), 1)
    return min(most, max(-(-lane.extent // tiles), least))


def alignments(segment: Graph) -> dict[str, int]:
    """Of every pointer of a kernel, in bytes."""
    found = {f"in{i}": spec.alignment_bytes for i, spec in enumerate(segment.inputs)}
    return found | {f"out{i}": 64 for i in range(len(segment.outputs))}


def _emit_cpu(segment: Graph, s: CpuSchedule, device: Device) -> Kernel:
    tasks = 8 * device.units
    program = lower(segment, s.lanes, 16 * s.lanes, s.tile, least_tasks=tasks, keep_bytes=64 << 10, rows=s.rows)
    stream = s.store == "stream"
    style = Style("cpu", alignments(segment), stream=stream, grid_least=tasks)
    body = emit_body(program, style)
    entry, source = kernel_function(segment, body.text, "cpu", streams=stream)
    return Kernel(entry, source, "cpu", "pointwise", str(s), Launch(tasks=device.units), body.accesses)


def _emit_cuda(segment: Graph, s: CudaSchedule, device: Device) -> Kernel:
    block = s.vec * s.x * s.per  # lanes of one pass of a block's threads
    program = lower(segment, s.vec, block, block, least_tasks=1, keep_bytes=128)
    style = Style("cuda", alignments(segment), threads_x=s.x, access_bytes=min(device.vector_bytes, 16))
    body = emit_body(program, style)
    prologue = [f"constexpr int TX = {s.x}, TY = {s.y};"]
    entry, source = kernel_function(segment, body.text, "cuda", prologue=prologue, threads=s.x * s.y)
    grid = max((-(-count // s.y) if rows else count for count, rows in body.roots), default=1)
    launch = Launch(grid=(min(grid, (1 << 31) - 1), 1, 1), block=(s.x, s.y, 1))
    return Kernel(entry, source, "cuda", "pointwise", str(s), launch, body.accesses)
