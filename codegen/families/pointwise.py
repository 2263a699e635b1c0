"""Family `pointwise`: everything whose elements are independent, as one loop nest.

Pointwise and view ops, gathers, random numbers and small contractions (unrolled), any number of outputs of any shapes;
outputs that share nothing are siblings in one launch.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import gcd

from codegen.families.loop_nest import FETCH, LoopSchedule, emit_cpu, loop_choices, lower, rows_of, with_variants
from codegen.families.loop_nest_cuda import FREE_BYTES, loop_kernel
from codegen.families.past_caches import by_stores
from codegen.kernel import EmitError, Kernel, Reject
from codegen.lowering.code_length import first_short, halved, too_much
from codegen.lowering.puller import MAX_DEPTH
from codegen.printer.threads import Threads
from codegen.schedule import Choices, Schedule, parse_schedule
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.ops import OpKind, kind_of
from fusion_ir.ops.contract import ORDERED_PRODUCTS, products
from fusion_ir.records import Device

SHORT_ROW = 512  # lanes
MAX_NODES = 1000
REGISTERS = 32  # for the sums of rows that share what they load; with more, g++ takes half a minute and spills them
FEW_THREADS = (4, 64, 1)  # x, y, per where a row has no more vectors: of 24 lanes in f16, 8 threads would leave 5 idle
CACHED_BYTES = 48 << 20  # of all tensors: what is larger gains nothing from going through the caches
KINDS = {OpKind.INPUT, OpKind.POINTWISE, OpKind.VIEW, OpKind.RANDOM, OpKind.GATHER, OpKind.CONTRACT}


@dataclass(frozen=True)
class CpuSchedule(LoopSchedule):
    """rows: iterations of a loop that share what they load along lanes, in one pass."""

    FAMILY = "pointwise"
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
        return refused(segment)

    def space(self, segment: Graph, device: Device) -> tuple[str, ...]:
        if device.target == "cpu":
            native = max(device.vector_bytes // 4, 4)
            schedules = _row_by_row(segment, device)
            if _multiplies(segment):
                products = [(2, 4096, 8), (2, 512, 8), (4, 4096, 4), (1, 512, 8), (2, 4096, 4)]
                shared = [
                    CpuSchedule(min(n * native, 64), 0, "stream", tile, 0, 0, 1, rows) for n, tile, rows in products
                ]
                schedules = by_stores([*shared, *schedules], segment, device)
            return with_variants(segment, schedules)
        narrow = min((o.node.dtype.bytes for o in segment.outputs), default=4)
        vec = max(min(device.vector_bytes, 16) // narrow, 1)
        shapes = [(32, 8, 1), (16, 16, 1), (8, 32, 1), (128, 1, 1), (128, 1, 4), (256, 1, 1), (32, 4, 2)]
        lane = rows_of(segment, vec, aligned=True).lane
        schedules = [
            CudaSchedule(v, x, y, per)
            for v in dict.fromkeys((vec, max(vec // 2, 1)))
            for x, y, per in (*shapes, *([FEW_THREADS] if lane <= v * FEW_THREADS[0] else []))
        ]
        schedules.sort(key=lambda s: (_splits(s, lane), -round(_useful(s, lane), 2)))
        return tuple(map(str, schedules))

    def least_unrolled(self, segment: Graph, device: Device) -> str:
        """The first schedule that computes one row at a time: g++ 12 compiles a product 9 x 16 x 11 so in 0.02 s, in
        0.25 s with all rows side by side."""
        return str(_row_by_row(segment, device)[0]) if device.target == "cpu" else self.space(segment, device)[0]

    def choices(self, segment: Graph, device: Device) -> Choices:
        if device.target != "cpu":
            return {}
        return {**loop_choices(segment, device), "rows": (1, 2, 4, 8) if _multiplies(segment) else (1,)}

    def emit(self, segment: Graph, schedule: str, device: Device) -> Kernel:
        if device.target == "cpu":
            s = parse_schedule(schedule, CpuSchedule)
            if s.rows > 1 and s.rows * s.lanes * 4 > REGISTERS * device.vector_bytes:
                raise EmitError(f"{s.rows} rows of {s.lanes} sums take more than {REGISTERS} registers")
            return emit_cpu(segment, device, s, 16 * s.lanes, rows=s.rows)
        return _emit_cuda(segment, parse_schedule(schedule, CudaSchedule), device)


@lru_cache(maxsize=256)
def refused(segment: Graph) -> Reject | None:
    """Why a segment is not pointwise, if it is not."""
    depth: dict[Node, int] = {}
    for node in segment.nodes:
        depth[node] = 1 + max((depth[a] for a in node.args), default=0)
        kind = kind_of(node)
        if kind not in KINDS:
            return Reject(f"{node.op} is no pointwise op")
        if kind is OpKind.CONTRACT and (k := products(node)) > ORDERED_PRODUCTS:
            return Reject(f"a contraction over {k} products is too long to unroll (at most {ORDERED_PRODUCTS})")
    if max(depth.values(), default=0) > MAX_DEPTH or len(depth) > MAX_NODES:
        return Reject(f"{len(depth)} nodes, {max(depth.values())} deep, are too many for one kernel")
    return too_much(segment)


def _row_by_row(segment: Graph, device: Device) -> list[CpuSchedule]:
    """Schedules in which no rows share what they load."""
    native = max(device.vector_bytes // 4, 4)
    is_large = segment.read_bytes + segment.written_bytes > CACHED_BYTES
    ways = {"stream": FETCH} if is_large else {"stream": FETCH, "plain": 0}
    schedules = (
        CpuSchedule(min(n * native, 64), fetch, way, 4096, 0, 0, 1, 1) for n in (4, 2, 1) for way, fetch in ways.items()
    )
    return by_stores(schedules, segment, device)


def _multiplies(segment: Graph) -> bool:
    """Whether several products are added up, rows of which share what they load."""
    return any(n.op == "contract" and products(n) > 1 for n in segment.nodes)


def _splits(s: CudaSchedule, lane: int) -> bool:
    """Whether a block takes a short row in parts: rotary embeddings took twice as long so on an H200."""
    return s.vec * s.x * s.per < lane <= SHORT_ROW


def _useful(s: CudaSchedule, lane: int) -> float:
    """Mean elements of a thread's vector for a row of `lane` lanes, idle threads counted in, times the share of the
    vector that one access may move: rows of this length begin where accesses of that width may. Vectors half as wide
    for twice as many threads gain nothing: a warp moves as much at once."""
    vectors = -(-lane // s.vec)
    return lane / (-(-vectors // s.x) * s.x) * gcd(s.vec, lane) / s.vec


def _emit_cuda(segment: Graph, s: CudaSchedule, device: Device) -> Kernel:
    programs = (
        lower(segment, vec, block, block, least_tasks=1, keep_bytes=FREE_BYTES, threads=s.x, aligned=True)
        for vec in halved(s.vec)
        for block in [vec * s.x * s.per]  # lanes of one pass of a block's threads
    )
    return loop_kernel(segment, first_short(programs, device), device, Threads(s.x, s.y), s)
