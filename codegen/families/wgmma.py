"""Family `wgmma`: a contraction of 16-bit floats with everything that is computed of its result, on sm_90a.

A persistent grid of warp-specialised blocks: one warp group brings tiles by tensor maps, which follow the axis mapping
of the contraction, others multiply them (codegen/include/gemm_sm90.cuh). Everything behind the product is a function of
its point, computed from registers before anything is stored.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product as combinations

from codegen.families.kernel_function import INDEX_LIMIT, kernel_function
from codegen.families.pointwise import MAX_NODES
from codegen.families.product_rules import not_pointwise, too_many
from codegen.gemm.dims import Digit, alone, contraction
from codegen.hardware.architectures import architecture
from codegen.kernel import EmitError, Kernel, Launch, Reject
from codegen.lowering.code_length import too_much
from codegen.printer.expressions import CTYPE
from codegen.schedule import Choices, Schedule, parse_schedule
from codegen.tiled.code_length import MOST_OF_ELEMENT, staged_length
from codegen.tiled.code_length import fault as length_fault
from codegen.tiled.epilogue import check_epilogue, epilogue, epilogue_cost
from codegen.tiled.problem import Problem, main_contraction
from codegen.tiled.tma_boxes import DEPTH, RUN, BoxedProduct, boxed, operand_a, operand_b, point_problem
from fusion_ir.core.extent import dense_strides
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import bf16, f16
from fusion_ir.ops import OPS, OpKind
from fusion_ir.ops.contract import ORDERED_PRODUCTS, products
from fusion_ir.records import Device

KINDS = {OpKind.INPUT, OpKind.POINTWISE, OpKind.VIEW, OpKind.RANDOM, OpKind.CONTRACT, OpKind.GATHER}
HEADER = "gemm_sm90.cuh"
ARCH = "sm_90a"
SHARED_BYTES = architecture(ARCH).block_shared_bytes
UNIT_SHARED_BYTES, RESERVED_BYTES = architecture(ARCH).shared_bytes, architecture(ARCH).reserved_shared_bytes
# Two blocks of so many threads have 80 registers for each thread: with these accumulators and an epilogue of so many
# columns at a time, gelu and a residual in it, nothing is spilled.
MOST_SUMS_OF_TWO, MOST_THREADS_OF_TWO, STAGED_OF_TWO = 32, 384, 16
MOST_STAGES = 12
# Accumulators of a thread, by how many warp groups multiply: with the registers that ptxas has for a block of that many
# threads (255, 168, 128) the instruction and its addresses fit, and nothing is spilled.
MOST_SUMS = {1: 192, 2: 128, 3: 96}
# Rows and columns of a tile, warp groups that multiply, whether these take tiles in turns.
TILES = (
    (128, 256, 2, 0), (256, 128, 2, 0), (128, 192, 2, 0), (192, 128, 3, 0), (128, 128, 2, 0), (128, 128, 1, 0),
    (128, 64, 2, 0), (64, 256, 1, 0), (64, 128, 1, 0), (64, 64, 1, 0), (64, 32, 1, 0), (64, 16, 1, 0),
    (128, 128, 2, 1), (64, 256, 2, 1), (64, 128, 2, 1), (64, 128, 3, 1), (64, 64, 3, 1),
)  # fmt: skip
# Rates of a multiprocessor of an H100, per clock: products of 16-bit floats by wgmma; bytes from the L2 cache, a number
# between those of published microbenchmarks and the one that puts the tiles of products of 8192^3 in the order of their
# times on an H200. They order the first schedules; measurements decide.
PRODUCTS_PER_CLOCK = 2048
L2_BYTES_PER_CLOCK = 40
# Shares of it by the columns of an instruction: 192 and 128 as products of 8192^3 on an H200 suggest, 64 assumed; in
# between, that of fewer columns. The two below are assumed, too.
RATE = {256: 1.0, 192: 0.88, 128: 0.95, 64: 0.8}
START_CLOCKS = 500  # of a tile: until its first stage is there
STAGED_CLOCKS = 8  # of a thread for an element in the epilogue, beside what is computed there


@dataclass(frozen=True)
class WgmmaSchedule(Schedule):
    """rows, columns: extents of a tile. stages: pieces of 64 of the summed axis that are on their way or being
    multiplied. consumers: warp groups that multiply. pingpong: 1 where each of them takes tiles of its own in turn, 0
    where they share the rows of each tile. cluster: blocks below each other that share the columns' operand, of which
    each brings a part. group: tiles below each other that come before tiles of the next columns. staged: columns that
    the epilogue passes through shared memory at once."""

    FAMILY = "wgmma"
    rows: int
    columns: int
    stages: int
    consumers: int
    pingpong: int
    cluster: int
    group: int
    staged: int

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory of a block, equal to WgmmaTile::SHARED_BYTES in the kernel."""
        staging = self.consumers * 4 * 16 * (self.staged + 8) * 4
        turns = self.consumers * 8 if self.pingpong else 0
        return self.stages * self.stage_bytes + staging + turns

    @property
    def stage_bytes(self) -> int:
        """Bytes of the operands and barriers of one stage."""
        return (self.rows + self.columns) * 2 * DEPTH + 16

    @property
    def sharers(self) -> int:
        """Warp groups that share the rows of a tile."""
        return 1 if self.pingpong else self.consumers

    @property
    def threads(self) -> int:
        return 128 * (self.consumers + 1)

    @property
    def sums(self) -> int:
        """Accumulators of a thread."""
        return self.rows // (64 * self.sharers) * self.columns // 2

    @property
    def resident(self) -> int:
        """Blocks of a multiprocessor: two where each has few accumulators and little shared memory. Then twice as many
        warps are at their epilogues."""
        fits = 2 * (self.shared_bytes + RESERVED_BYTES) <= UNIT_SHARED_BYTES
        small = self.sums <= MOST_SUMS_OF_TWO and self.threads <= MOST_THREADS_OF_TWO
        return 2 if fits and small and self.staged <= STAGED_OF_TWO else 1

    def problem(self, b_across: bool) -> str:
        """Why there is no such kernel; empty where there is."""
        if self.pingpong not in (0, 1) or (self.pingpong and self.consumers == 1):
            return "warp groups take turns (pingpong=1) where there are two or more, or they do not (0)"
        if self.consumers not in MOST_SUMS or self.rows % (64 * self.sharers) or not self.rows:
            return f"{self.rows} rows cannot be shared by {self.sharers} warp groups, 64 each at a time"
        if self.columns % 8 or not 8 <= self.columns <= 256:
            return f"{self.columns} columns, expected a multiple of 8 up to 256"
        if self.sums > MOST_SUMS[self.consumers]:
            return f"{self.sums} accumulators a thread, at most {MOST_SUMS[self.consumers]} fit its registers"
        unit = RUN if b_across else 8 * self.cluster
        if self.columns % unit:
            return f"{self.columns} columns are brought in boxes of {unit}"
        if self.cluster not in (1, 2):
            return f"clusters of {self.cluster} blocks, expected 1 or 2"
        if not 2 <= self.stages <= MOST_STAGES or self.shared_bytes > SHARED_BYTES:
            return f"{self.stages} stages take {self.shared_bytes} bytes of shared memory, of {SHARED_BYTES}"
        if self.staged % 8 or self.columns % self.staged:
            return f"{self.columns} columns do not pass through shared memory {self.staged} at a time"
        return "" if self.group > 0 else "groups are of 1 tile or more"


class Wgmma:
    """See the module."""

    name = "wgmma"

    def accepts(self, segment: Graph, device: Device) -> Reject | None:
        if reject := self.fits(segment, device):
            return reject
        found = _products(segment)
        return found if isinstance(found, Reject) else None

    def fits(self, segment: Graph, device: Device) -> Reject | None:
        if device.arch != ARCH:
            return Reject(f"takes instructions of {ARCH}, which {device.arch} has not")
        if (
            reject := too_many(segment, MAX_NODES)
            or not_pointwise(segment, KINDS)
            or too_much(segment, MOST_OF_ELEMENT)
        ):
            return reject
        node = main_contraction(segment)
        return node if isinstance(node, Reject) else _fault(alone(segment, node))

    def space(self, segment: Graph, device: Device) -> tuple[str, ...]:
        product = _accepted(segment)
        p, behind = product.boxes, _behind_clocks(segment, product.node)
        found: list[WgmmaSchedule] = []
        for tile, cluster in combinations(TILES, (1, 2)):
            s = _deepest(*tile, cluster, p, device)
            if s and length_fault(staged_length(segment, product.problem, s.staged)):
                s = replace(s, staged=STAGED_OF_TWO)
            if s and (cluster == 1 or p.m.extent > s.rows):
                found.append(s)
        found.sort(key=lambda s: _clocks(s, p, behind, device))
        return tuple(map(str, found[:8]))

    def choices(self, segment: Graph, device: Device) -> Choices:
        return {
            "rows": (64, 128, 192, 256),
            "columns": (16, 32, 64, 96, 128, 160, 192, 256),
            "stages": tuple(range(2, MOST_STAGES + 1)),  # the first schedules take as many as there is room for
            "consumers": (1, 2, 3),
            "pingpong": (0, 1),
            "cluster": (1, 2),
            "group": (1, 4, 8, 16),
            "staged": (16, 32, 64),
        }

    def emit(self, segment: Graph, schedule: str, device: Device) -> Kernel:
        s = parse_schedule(schedule, WgmmaSchedule)
        found = _accepted(segment)
        p = found.boxes
        if problem := s.problem(p.b_across):
            raise EmitError(problem)
        if problem := length_fault(staged_length(segment, found.problem, s.staged)):
            raise EmitError(problem)
        behind = epilogue(segment, found.problem, device)
        a, b = operand_a(segment, p, s.rows), operand_b(segment, p, s.columns // (1 if p.b_across else s.cluster))
        m, n, t = p.m.extent, p.n.extent, CTYPE[found.node.args[0].dtype.name]
        numbers = (s.rows, s.columns, s.stages, s.consumers, bool(s.pingpong), s.cluster, s.group, s.staged)
        arguments = ", ".join(str(x).lower() for x in (*numbers, p.a_across, p.b_across))
        shared = s.cluster > 1
        lines = [
            behind.text,
            f"  using Tile = WgmmaTile<{t}, {arguments}>;",
            "  SHARED_MEMORY(shared);",
            "  const auto load_a = [&](uint32_t to, uint32_t bar, int batch, int place, int depth) {",
            f"    {_load('map0', a.coordinates, multicast=False)}",
            "  };",
            "  const auto load_b = [&](uint32_t to, uint32_t bar, int batch, int place, int depth, uint16_t mask) {",
            f"    {_load('map1', b.coordinates, multicast=shared)}",
            "  };",
            "  if (threadIdx.x == 0) {",
            "    tensor_prefetch(map0);",
            "    tensor_prefetch(map1);",
            "  }",
            f"  using Product = Extents<{p.batch_count}, {m}, {n}, {products(found.node)}>;",
            f"  multiply_wgmma<Tile, Product, {p.depths}>(shared, load_a, load_b, {behind.made});",
        ]
        entry, source = kernel_function(
            segment,
            "\n".join(lines),
            "cuda",
            threads=s.threads,
            cluster=s.cluster,
            tensor_maps=2,
            blocks=s.resident,
            reach=behind.reach,
        )
        launch = Launch(
            grid=(_grid(s, p, device), 1, 1),
            block=(s.threads, 1, 1),
            shared_bytes=s.shared_bytes,
            cluster=s.cluster,
            tensor_maps=(a.map, b.map),
        )
        return Kernel(entry, source, "cuda", self.name, str(s), launch, behind.accesses, headers=(HEADER,))


@dataclass(frozen=True)
class _Product:
    """The contraction of a segment, as boxes and as the epilogue sees it."""

    node: Node
    boxes: BoxedProduct
    problem: Problem


@lru_cache(maxsize=256)
def _product(segment: Graph) -> _Product | Reject:
    """The product that the kernel computes: among the segment's largest products of matrices, the one whose operand for
    the columns lets the epilogue move the fewest bytes, where a short access counts as a whole one."""
    found = _products(segment)
    if isinstance(found, Reject):
        return found
    return min(found, key=lambda product: epilogue_cost(segment, product.problem))


@lru_cache(maxsize=1024)
def _fault(product: Graph) -> Reject | None:
    """Why a product cannot be computed by boxes, None where it can."""
    found = _boxes(product)
    return found if isinstance(found, Reject) else None


@lru_cache(maxsize=256)
def _boxes(segment: Graph) -> tuple[Node, Sequence[BoxedProduct]] | Reject:
    """The contraction, and the largest products of matrices in it, with either operand for the columns."""
    node = main_contraction(segment)
    if isinstance(node, Reject):
        return node
    operand = node.args[0].dtype
    if operand not in (bf16, f16):
        return Reject(f"multiplies bf16 and f16, not {operand}")
    if products(node) <= ORDERED_PRODUCTS:
        return Reject(f"sums {products(node)} products, expected more than {ORDERED_PRODUCTS}")
    if max([*(spec.span for spec in segment.inputs), node.elements]) >= INDEX_LIMIT:
        return Reject(f"a tensor has {INDEX_LIMIT} elements or more")
    dense = dense_strides(node.sizes)
    digits = [Digit(w, n, w) for w, n in zip(dense, node.sizes, strict=True) if n > 1]
    found = contraction(segment, node, digits)
    boxes = found if isinstance(found, Reject) else boxed(segment, found)
    return boxes if isinstance(boxes, Reject) else (node, boxes)


def _products(segment: Graph) -> tuple[_Product, ...] | Reject:
    """The products of `_boxes` whose epilogue can be lowered; the first one's fault where there is none."""
    found = _boxes(segment)
    if isinstance(found, Reject):
        return found
    node, boxes = found
    reasons: list[str] = []
    ways: list[_Product] = []
    for p in boxes:
        problem = point_problem(node, p)
        try:
            if isinstance(problem, Reject):
                raise EmitError(problem.reason)
            check_epilogue(segment, problem)
            ways.append(_Product(node, p, problem))
        except EmitError as error:
            reasons.append(str(error))
    return tuple(ways) if ways else Reject(reasons[0])


def _accepted(segment: Graph) -> _Product:
    found = _product(segment)
    if isinstance(found, Reject):
        raise EmitError(found.reason)
    return found


def _load(name: str, coordinates: Sequence[str], *, multicast: bool) -> str:
    listed = ", ".join(coordinates)
    if multicast:
        return f"tensor_load_multicast<{len(coordinates)}>(to, {name}, bar, mask, {listed});"
    return f"tensor_load<{len(coordinates)}>(to, {name}, bar, {listed});"


def _deepest(
    rows: int, columns: int, consumers: int, pingpong: int, cluster: int, p: BoxedProduct, device: Device
) -> WgmmaSchedule | None:
    """The schedule of a tile with as many stages as there is room for and use of, over all tiles of a block. Where
    groups take turns, an epilogue that passes more columns at once was faster on an H200 than a stage more."""
    staged = min(64 if pingpong and columns % 64 == 0 else 32, columns)
    least = WgmmaSchedule(rows, columns, 2, consumers, pingpong, cluster, 8, staged)
    if least.problem(p.b_across):
        return None
    room = 2 + (SHARED_BYTES - least.shared_bytes) // least.stage_bytes
    return replace(least, stages=max(2, min(room, MOST_STAGES, p.depths * _turns(least, p, device))))


def _tiles(s: WgmmaSchedule, p: BoxedProduct) -> int:
    """Tiles of one block of each cluster."""
    return p.batch_count * -(-p.m.extent // (s.rows * s.cluster)) * -(-p.n.extent // s.columns)


def _grid(s: WgmmaSchedule, p: BoxedProduct, device: Device) -> int:
    """Blocks: as many clusters as there are tiles or room for."""
    return s.cluster * min(_tiles(s, p), max(1, s.resident * device.units // s.cluster))


def _turns(s: WgmmaSchedule, p: BoxedProduct, device: Device) -> int:
    """Tiles of the block that has most."""
    return -(-_tiles(s, p) // max(1, device.units // s.cluster))


def _behind_clocks(segment: Graph, node: Node) -> float:
    """Clocks of a thread in the epilogue for one element of the product, about one for each f32 addition."""
    behind = {node}
    clocks = 0.0
    for n in segment.nodes:
        if n is not node and not behind.isdisjoint(n.args):
            behind.add(n)
            clocks += OPS[n.op].cost if OPS[n.op].kind is OpKind.POINTWISE else 0.0
    return clocks


def _clocks(s: WgmmaSchedule, p: BoxedProduct, behind: float, device: Device) -> float:
    """Clocks that a multiprocessor takes for all its tiles: for each the slower of bringing and multiplying it, and the
    epilogue, beside which other warp groups multiply where they take turns. behind: see `_behind_clocks`."""
    rate = next((r for columns, r in RATE.items() if s.columns >= columns), 0.5)
    multiplying = s.rows * s.columns * DEPTH / (PRODUCTS_PER_CLOCK * rate)
    bringing = (s.rows + s.columns / s.cluster) * 2 * DEPTH / L2_BYTES_PER_CLOCK
    loop = p.depths * max(multiplying, bringing) + START_CLOCKS
    epilogue = s.rows * s.columns / (128 * s.sharers) * (STAGED_CLOCKS + behind)
    tile = max(loop, (loop + epilogue) / s.consumers) if s.pingpong else loop + epilogue
    return _turns(s, p, device) * tile
