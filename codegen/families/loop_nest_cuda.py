"""Loop nests on CUDA: the schedule of threads that families with a loop program share, and the kernel around a body."""

from collections.abc import Sequence
from dataclasses import dataclass

from codegen.families.kernel_function import kernel_function
from codegen.families.loop_nest import Rows, lower, rows_of
from codegen.hardware.architectures import ACCESS_BYTES, architecture
from codegen.kernel import EmitError, Kernel, Launch
from codegen.lowering.access import alignments
from codegen.lowering.code_length import first_short, halved
from codegen.lowering.in_place import in_place
from codegen.lowering.program import Program
from codegen.printer.emit import Body, Style, emit_body
from codegen.printer.threads import Sharing, Threads
from codegen.schedule import Choices, Schedule
from fusion_ir.core.graph import Graph
from fusion_ir.records import Device

KEEP_BYTES = 256  # of an array in a thread's registers
FREE_BYTES = 128  # of an array in a thread's registers, where rows are not kept on purpose
LEAST_THREADS, MOST_THREADS = 32, 1024
MANY_THREADS = 512
MOST_VECTORS = 4  # of a row, for each thread
# Threads along lanes and along rows where nothing is reduced along lanes, those first that are usually best: of sums
# down columns, and where sums are so short that they are written out. Rotary embeddings' gradients, which sum over 4 to
# 7 heads, took 20.2, 34.0 and 42.2 us on an H200 with blocks of one or two warps and 4 lanes to a vector, 40.6, 56.6
# and 59.3 with four warps and 8 lanes.
COLUMN_SHAPES = ((32, 8), (16, 16), (32, 16), (8, 32), (32, 4), (16, 8), (8, 64), (4, 64), (4, 32))
WRITTEN_OUT_SHAPES = ((16, 2), (16, 4), (32, 1), (32, 2), (8, 4), (32, 4), (32, 8), (128, 2), (128, 8), (256, 4))
COLUMN_POINTS = 8  # worth trying
FEW_LANES = 4
ENOUGH_THREADS = 768  # on a multiprocessor
WRITTEN = 2  # times the bytes written, with less read than that
MOST_BLOCKS = (1 << 31) - 1


class TooMuchShared(EmitError):
    """A block would need more shared memory than it may have."""


@dataclass(frozen=True)
class CudaRowSchedule(Schedule):
    """How the loops of a reduction are shared among threads.

    vec: elements of a vector. x, y: threads of a block along lanes and along rows. per: vectors of a thread along lanes
    that are not reduced. keep: where a row that is read again is kept meanwhile, `registers` or `shared` memory;
    `reload`: it is not kept. dear: values that take no more arithmetic than this are computed again, not kept.
    """

    vec: int
    x: int
    y: int
    per: int
    keep: str
    dear: int


def emit_cuda(segment: Graph, device: Device, s: CudaRowSchedule) -> Kernel:
    """The kernel of a loop program around reductions, of narrower vectors than the schedule says where its code would
    be too long. Raises EmitError."""
    threads = Threads(s.x, s.y)
    keep_bytes = {"registers": KEEP_BYTES, "shared": shared_bytes(device) // threads.count, "reload": FREE_BYTES}[
        s.keep
    ]
    while True:
        programs = (
            lower(
                segment, vec, tile, tile, least_tasks=1, keep_bytes=keep_bytes, dear=s.dear, threads=s.x,
                hold=s.keep != "reload",
            )
            for vec in halved(s.vec)
            for tile in [vec * s.x * s.per]
        )  # fmt: skip
        program = first_short(programs, device)
        try:
            return loop_kernel(segment, program, device, threads, s, shared_rows=s.keep == "shared")
        except TooMuchShared:
            if s.keep != "shared" or keep_bytes < FREE_BYTES:
                raise
            keep_bytes //= 2  # of several arrays the longest are not kept


def loop_kernel(
    segment: Graph, program: Program, device: Device, threads: Threads, s: Schedule, *, shared_rows: bool = False
) -> Kernel:
    """The kernel of a loop program with `threads` in a block. Raises EmitError."""
    if not LEAST_THREADS <= threads.count <= MOST_THREADS:
        raise EmitError(f"{threads.count} threads to a block, expected {LEAST_THREADS} to {MOST_THREADS}")
    style = Style("cuda", alignments(segment), access_bytes=ACCESS_BYTES, threads=threads, shared_rows=shared_rows)
    body = emit_body(program, style)
    if body.shared_bytes > shared_bytes(device):
        raise TooMuchShared(f"{body.shared_bytes} bytes of shared memory (at most {shared_bytes(device)})")
    prologue = [f"constexpr int TX = {threads.x}, TY = {threads.y};"]
    blocks = _blocks(body, threads)
    # Where rows wait for their results, a block takes few enough registers for another one to fit, if there is one.
    sharing = Sharing(program)
    waits = any(sharing.is_in_row(r.home.path) for r in program.reductions.values())
    is_many = threads.count >= MANY_THREADS and blocks > device.units
    together = MOST_THREADS // threads.count if waits and is_many else 1
    # A counter that all blocks share goes past its end by as much as they do at a time.
    shared = [count + blocks * (threads.y if rows else 1) for count, rows in body.roots]
    reach = max(body.reach, *shared, 0)
    own = _in_place(segment, program)
    entry, source = kernel_function(
        segment, body.text, "cuda", prologue=prologue, threads=threads.count, blocks=together, reach=reach, in_place=own
    )
    launch = Launch((blocks, 1, 1), (threads.x, threads.y, 1), body.shared_bytes)
    return Kernel(entry, source, "cuda", s.FAMILY, str(s), launch, body.accesses, in_place=own)


def _in_place(segment: Graph, program: Program) -> tuple[int, ...]:
    """See `lowering.in_place`, and each element is one thread's: where sums are kept, something is scanned, or nothing
    runs along lanes, threads read what others write."""
    if program.reductions or program.kept or program.scans(()):
        return ()
    of_threads = {w.out for key, block in program.blocks.items() if key.lane for w, _ in block.writes}
    return tuple(i for i in in_place(segment, program) if i in of_threads)


def _blocks(body: Body, threads: Threads) -> int:
    """Number of blocks: as many as the longest of the outermost loops has iterations for."""
    grid = max((-(-count // threads.y) if rows else count for count, rows in body.roots), default=1)
    return min(grid, MOST_BLOCKS)


def shared_bytes(device: Device) -> int:
    """Shared memory that a block may have."""
    return architecture(device.arch).block_shared_bytes


def vectors_of(segment: Graph) -> tuple[int, ...]:
    """Vector widths worth trying, in elements: 16 bytes of the narrowest and of the widest tensor, and half the former.
    The width for the widest comes first where the largest output is that wide and the segment reads at most WRITTEN
    times its bytes: a thread's neighbouring stores of 16 bytes would each fill half a sector."""
    sizes = [spec.dtype.bytes for spec in segment.inputs] + [o.node.dtype.bytes for o in segment.outputs]
    narrow, wide = ACCESS_BYTES // min(sizes, default=4), ACCESS_BYTES // max(sizes, default=4)
    widths = (min(narrow, 8), max(wide, 1), max(min(narrow, 8) // 2, 1))
    largest = max(segment.outputs, key=lambda o: o.node.bytes, default=None)
    if largest and largest.node.dtype.bytes == max(sizes) and WRITTEN * largest.node.bytes >= segment.read_bytes:
        widths = (widths[1], widths[0], widths[2])
    return tuple(dict.fromkeys(widths))


def row_schedules(segment: Graph, device: Device, family: type[CudaRowSchedule]) -> tuple[str, ...]:
    """Schedules worth trying first.

    Sums down columns: threads side by side, rows in groups. Short rows: several to a block, a part of a warp or a whole
    one for each. Long rows: a block for each. Sums over rows and lanes: a block, its threads shared between them.
    """
    rows, widths = rows_of(segment), vectors_of(segment)
    points: list[tuple[int, int, int, int, str, int]] = []
    if not rows.along:
        points = [(vec, x, y, 1, "registers", 0) for vec, x, y in _column_points(widths, rows, device)]
    for vec in widths if rows.along else ():
        vectors = -(-rows.lane // vec)
        if rows.rows > 1:
            wanted = _power(device.units * MOST_THREADS // max(rows.results, 1) // 2 + 1, 256, MANY_THREADS)
            x = _power(vectors, 4, 256)
            y = _power(rows.rows, 1, max(wanted // x, 1))
            x = max(x, 32 // y)
        else:
            x = _power(-(-vectors // MOST_VECTORS), 4, MOST_THREADS)
            y = max(256 // x, 1) if x <= 32 else 1
        own = -(-vectors // x) * -(-rows.rows // y) * vec * 4
        keeps = ["registers", "shared", "reload"] if own <= KEEP_BYTES else ["shared", "reload"]
        if rows.rows > 1 and own > KEEP_BYTES // 4:
            keeps.sort(key="shared".__ne__)  # sums down columns are in registers already
        points += [(vec, x, y, 1, keep, 0) for keep in keeps]
        wider, narrower = min(2 * x, MOST_THREADS), max(x // 2, 1)
        if wider <= vectors or rows.rows == 1:
            points.append((vec, wider, max(y * x // wider, 1), 1, keeps[0], 0))
        points.append((vec, narrower, y, 1, keeps[0], 4))
    if rows.along and rows.rows > 1:  # the first of each width ahead: which of them spill is hard to tell
        firsts = [next(p for p in points if p[0] == vec) for vec in widths]
        points = [*firsts, *points]
    return tuple(dict.fromkeys(str(family(*point)) for point in points if point[1] * point[2] >= LEAST_THREADS))


def _column_points(widths: Sequence[int], rows: Rows, device: Device) -> list[tuple[int, int, int]]:
    """Points (vec, x, y) where nothing is reduced along lanes. First come points that leave no thread idle along lanes,
    and no multiprocessor without a block or with too few threads. Short sums that are written out load many vectors at
    once: narrow vectors come first."""

    def drawbacks(point: tuple[int, int, int]) -> tuple[float, float, float]:
        vec, x, y = point
        vectors = -(-rows.lane // vec)
        idle = 1 - vectors / (-(-vectors // x) * x)
        blocks = rows.results * (-(-vectors // x) if rows.shared else 1)
        few = max(device.units / blocks, 1.0) if rows.rows > 1 else 1.0
        short = device.units * ENOUGH_THREADS / (blocks * x * y)
        return round(idle, 2), round(max(few, short), 1), round(few, 1)

    if rows.rows == 1:
        narrow_first = sorted(widths, key=lambda vec: vec > FEW_LANES)
        points = [(vec, x, y) for vec in narrow_first for x, y in WRITTEN_OUT_SHAPES]
    else:
        most = max(_power(rows.rows, 2, 64), 4)
        points = [(vec, x, y) for vec in widths for x, y in COLUMN_SHAPES if y <= most]
    return sorted(points, key=drawbacks)[:COLUMN_POINTS]


def _power(wanted: int, least: int, most: int) -> int:
    """The least power of two that is `wanted` or more, within bounds."""
    return min(max(1 << (max(wanted, 1) - 1).bit_length(), least), most)


def row_choices() -> Choices:
    """The values that each field of a `CudaRowSchedule` may have."""
    return {
        "vec": (1, 2, 4, 8),
        "x": (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024),
        "y": (1, 2, 4, 8, 16, 32, 64, 128),
        "per": (1, 2, 4),
        "keep": ("registers", "shared", "reload"),
        "dear": (0, 4, 8, 20),
    }
