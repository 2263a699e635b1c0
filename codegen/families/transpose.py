"""Family `transpose`: pointwise and view ops over tensors that do not all lie in memory in one order.

A tensor across the lanes is read or written along its own consecutive elements, tile by tile, and transposed in
registers, on CUDA by way of shared memory: `a + b.T`, NCHW -> NHWC, an output in two orders; any ops in front and
behind.
"""

from dataclasses import dataclass, replace
from math import prod

from codegen.families.kernel_function import kernel_function
from codegen.families.loop_nest import KEEP_BYTES
from codegen.families.loop_nest_cuda import FREE_BYTES, loop_kernel, shared_bytes
from codegen.families.memory_order import lies_across
from codegen.families.past_caches import by_stores, stores
from codegen.families.pointwise import refused
from codegen.kernel import EmitError, Kernel, Launch, Reject
from codegen.lowering.access import alignments
from codegen.lowering.coalesce import coalesce
from codegen.lowering.code_length import first_short, halved, least_lanes
from codegen.lowering.index import Axis
from codegen.lowering.int_narrowing import narrow
from codegen.lowering.lanes import choose_lanes
from codegen.lowering.placement import PlaceError, place
from codegen.lowering.program import Program
from codegen.lowering.stores import pull_outputs
from codegen.lowering.transpose_tiles import BLOCK, MAX_TILE_BYTES, Turned, add_tiles, cut_axis, turned
from codegen.lowering.unify import unify
from codegen.lowering.value import TooManyValues
from codegen.lowering.write import Write, writes_of
from codegen.printer.emit import Style, emit_body
from codegen.printer.threads import Threads
from codegen.schedule import Choices, Schedule, parse_schedule
from fusion_ir.core.graph import Graph
from fusion_ir.records import Device

NOTHING = "nothing is transposed: family pointwise"
SEVERAL_BLOCKS = 48 << 10  # bytes of shared memory of a block, of which a multiprocessor then holds several
LEAST = 16  # lanes and rows of a tile; shorter axes are lanes only where nothing else can be


@dataclass(frozen=True)
class TransposeSchedule(Schedule):
    """How tiles are cut and walked.

    lanes: elements of a vector, of any dtype. store: `plain`, or `stream` past the caches. rows: extent of a tile along
    the consecutive elements of the tensors that lie across. columns: extent of a tile along the lanes. next: direction
    of the tile that comes next, `columns` or `rows`. ahead: 1 where the next tile's elements are brought from memory
    meanwhile.
    """

    FAMILY = "transpose"
    lanes: int
    store: str
    rows: int
    columns: int
    next: str
    ahead: int


@dataclass(frozen=True)
class CudaTransposeSchedule(Schedule):
    """vec: elements of a vector. x, y: threads of a block along lanes and along rows. rows, columns: extents of a tile
    in shared memory, along the consecutive elements of the tensors that lie across, and along the lanes."""

    FAMILY = "transpose"
    vec: int
    x: int
    y: int
    rows: int
    columns: int


@dataclass(frozen=True)
class Tiling:
    """Parameters of `lower` from a schedule of either target. tasks: least number of tasks, where there can be as many.
    room: bytes for all tiles. threads: number of threads that share lanes."""

    lanes: int
    rows: int
    columns: int
    next: str
    tasks: int
    keep_bytes: int
    room: int = MAX_TILE_BYTES
    threads: int = 1


class Transpose:
    """See the module."""

    name = "transpose"

    def accepts(self, segment: Graph, device: Device) -> Reject | None:
        return refused(segment) or (None if lies_across(segment) else Reject(NOTHING))

    def space(self, segment: Graph, device: Device) -> tuple[str, ...]:
        if device.target != "cpu":
            return _cuda_schedules(segment)
        native = max(device.vector_bytes // 4, 4)
        points = [
            ("stream", 128, 128, "columns", 1), ("stream", 128, 128, "rows", 1), ("stream", 32, 128, "rows", 1),
            ("stream", 128, 64, "columns", 1), ("stream", 128, 128, "columns", 0), ("stream", 32, 256, "rows", 0),
            ("plain", 64, 64, "columns", 0),
        ]  # fmt: skip
        schedules = (TransposeSchedule(2 * native, *point) for point in points)
        return tuple(map(str, by_stores(schedules, segment, device)))

    def choices(self, segment: Graph, device: Device) -> Choices:
        if device.target != "cpu":
            return {
                "vec": (1, 2, 4, 8),
                "x": (4, 8, 16, 32, 64),
                "y": (2, 4, 8, 16, 32, 64, 128),
                "rows": (16, 32, 64, 128),
                "columns": (16, 32, 64, 128),
            }
        native = max(device.vector_bytes // 4, 4)
        return {
            "lanes": (native, 2 * native, 4 * native),
            "store": stores(segment, device),
            "rows": (16, 32, 64, 128, 256),
            "columns": (32, 64, 128, 256),
            "next": ("columns", "rows"),
            "ahead": (0, 1),
        }

    def emit(self, segment: Graph, schedule: str, device: Device) -> Kernel:
        if device.target != "cpu":
            return _emit_cuda(segment, parse_schedule(schedule, CudaTransposeSchedule), device)
        s = parse_schedule(schedule, TransposeSchedule)
        tiling = Tiling(s.lanes, s.rows, s.columns, s.next, 8 * device.units, KEEP_BYTES)
        widths = halved(s.lanes, least_lanes(segment, device))
        program = first_short((lower(segment, replace(tiling, lanes=lanes)) for lanes in widths), device)
        stream = s.store == "stream"
        style = Style(
            "cpu",
            alignments(segment),
            register_bytes=device.vector_bytes,
            stream=stream,
            grid_least=8 * device.units,
            ahead=bool(s.ahead),
        )
        body = emit_body(program, style)
        entry, source = kernel_function(segment, body.text, "cpu", streams=stream)
        return Kernel(entry, source, "cpu", "transpose", str(s), Launch(tasks=device.units), body.accesses)


def _cuda_schedules(segment: Graph) -> tuple[str, ...]:
    """Schedules worth trying first. Threads side by side have 32 elements along lanes: of 2 bytes, a warp has 64 bytes
    of eight rows, which its ldmatrix transposes; of 4 bytes, 128 bytes of four rows. Few vectors to a thread make many
    blocks; many vectors spend a smaller share of the time on addresses."""
    sizes = [spec.dtype.bytes for spec in segment.inputs] + [o.node.dtype.bytes for o in segment.outputs]
    vec = min(16 // max(min(sizes, default=4), 2), 8)
    x = max(32 // vec, 1) if vec > 2 else 8
    if vec == 8:
        shapes = [(64, 64, 64), (128, 64, 64), (64, 64, 32), (128, 64, 128), (64, 128, 64), (64, 32, 32)]
    else:
        shapes = [(64, 32, 32), (32, 64, 32), (32, 32, 32), (64, 64, 32), (64, 64, 64), (128, 32, 32)]
    points = [(vec, x, *shape) for shape in shapes] + [(max(vec // 2, 1), 2 * x, 64, 64, 16)]
    return tuple(dict.fromkeys(str(CudaTransposeSchedule(v, x, y, rows, columns)) for v, x, rows, columns, y in points))


def _emit_cuda(segment: Graph, s: CudaTransposeSchedule, device: Device) -> Kernel:
    room = min(shared_bytes(device), SEVERAL_BLOCKS) * 3 // 4  # rows of tiles take a little more than their elements
    tiling = Tiling(s.vec, s.rows, s.columns, "columns", 2 * device.units, FREE_BYTES, room, s.x)
    program = first_short((lower(segment, replace(tiling, lanes=vec)) for vec in halved(s.vec)), device)
    return loop_kernel(segment, program, device, Threads(s.x, s.y), s)


def lower(segment: Graph, s: Tiling) -> Program:
    """Segment -> loop program: the steps of `codegen.lowering`, with tiles for tensors that lie across the lanes.

    Tiles shrink where there would be fewer tasks than wanted. Raises EmitError.
    """
    try:
        pulled = pull_outputs(segment)
        unify(pulled)
        writes, axes = coalesce(writes_of(pulled), pulled.axes), pulled.axes
        writes = narrow(writes, choose_lanes(writes, LEAST))
        tiles: dict[Axis, tuple[Axis, int]] = {}
        widths: dict[Axis, int] = {}
        rows: dict[Axis, int] = {}  # of tiles, along each axis that anything goes along across the lanes
        over: dict[str, list[Axis]] = {"rows": [], "columns": []}
        within: list[Axis] = []
        for lane in choose_lanes(writes, LEAST):
            across = turned(writes, lane)
            least, columns = _size(writes, lane, across, s)
            rows |= {axis: min(least, rows.get(axis, least)) for axis in across.axes}
            vector = min(1 << (min(s.lanes, columns).bit_length() - 1), 1 << (lane.extent - 1).bit_length())
            writes, outer, inner = cut_axis(writes, lane, columns, vector, axes, tiles)
            widths[inner] = vector
            over["columns"] += [outer] if outer else []
        for axis, most in rows.items():
            writes, outer, inner = cut_axis(writes, axis, most, BLOCK, axes, tiles)
            over["rows"] += [outer] if outer else []
            within.append(inner)
        program = place(
            writes, widths, tiles, keep_bytes=s.keep_bytes, innermost=[*over[s.next], *within], threads=s.threads
        )
    except (TooManyValues, PlaceError) as error:
        raise EmitError(str(error)) from error
    add_tiles(program, within, s.room)
    if not program.across:
        raise EmitError(NOTHING)
    return program


def _size(writes: list[Write], lane: Axis, across: Turned, s: Tiling) -> tuple[int, int]:
    """Rows and columns of the tiles along `lane`: fewer than the schedule says where tasks are few or tiles many."""
    rows, columns = (s.rows if len(across.axes) < 2 else LEAST), s.columns

    def tasks() -> int:
        sizes = {lane: columns, **dict.fromkeys(across.axes, rows)}
        return max(prod(-(-a.extent // sizes.get(a, 1)) for a in w.axes) for w in writes if lane in w.axes)

    while max(rows, columns) > LEAST and (tasks() < s.tasks or across.tile_bytes(rows, columns) > s.room):
        if rows >= columns:
            rows = max(rows // 2, LEAST)
        else:
            columns = max(columns // 2, LEAST)
    return rows, columns
