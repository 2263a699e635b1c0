"""Family `reduction`: sums and extremes over any axes, with whatever leads to them and follows from them.

Inner (along lanes, several vector accumulators), outer (a vector of accumulators per lane, rows walked in order) or
both at once; several that read the same tensors share their pass. Products of matrices and few vectors are among them
where other reductions are too. On CUDA rows are summed by threads side by side, which then join; sums down columns by
rows of threads, which join in shared memory.
"""

from collections.abc import Set
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from codegen.families.loop_nest import FETCH, LoopSchedule, emit_cpu, loop_choices, with_variants
from codegen.families.loop_nest_cuda import CudaRowSchedule, emit_cuda, row_choices, row_schedules
from codegen.families.past_caches import stores
from codegen.families.pointwise import MAX_NODES
from codegen.kernel import Kernel, Reject
from codegen.lowering.code_length import too_much
from codegen.lowering.placement import MAX_REPEATED
from codegen.lowering.puller import MAX_DEPTH
from codegen.schedule import Choices, parse_schedule
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.ops import OPS, OpKind, kind_of
from fusion_ir.ops.contract import ORDERED_PRODUCTS, products
from fusion_ir.records import Device, TargetKind

KINDS = {OpKind.INPUT, OpKind.POINTWISE, OpKind.VIEW, OpKind.RANDOM, OpKind.GATHER, OpKind.CONTRACT, OpKind.REDUCTION}
MAX_THIN = 8
MATRIX = 64  # rows or columns of one operand alone that make a contraction the product of a matrix


@dataclass(frozen=True)
class ReductionSchedule(LoopSchedule):
    """Nothing but loops."""

    FAMILY = "reduction"


@dataclass(frozen=True)
class CudaReductionSchedule(CudaRowSchedule):
    """Nothing but threads."""

    FAMILY = "reduction"


class Reduction:
    """See the module."""

    name = "reduction"

    def accepts(self, segment: Graph, device: Device) -> Reject | None:
        reject = rejected(segment, device)
        if reject is None and spreads(segment):
            return Reject("results of reductions are spread over larger tensors: family normalization")
        if reject is None and (found := few_by_many(segment)) and found[1] >= MATRIX:
            return Reject(f"a matrix of {found[1]} rows or columns is multiplied with {found[0]}: family gemv")
        return reject

    def space(self, segment: Graph, device: Device) -> tuple[str, ...]:
        if device.target != "cpu":
            return row_schedules(segment, device, CudaReductionSchedule)
        native = max(device.vector_bytes // 4, 4)
        points = [(4 * native, 4096), (2 * native, 4096), (2 * native, 1024), (native, 4096), (4 * native, 512)]
        is_read_mostly = 8 * segment.written_bytes <= segment.read_bytes
        ways = ("plain",) if is_read_mostly else stores(segment, device)
        schedules = [
            ReductionSchedule(min(lanes, 64), FETCH, store, tile, 0, 0, 1) for lanes, tile in points for store in ways
        ]
        return with_variants(segment, schedules, in_blocks=True)

    def choices(self, segment: Graph, device: Device) -> Choices:
        return loop_choices(segment, device) if device.target == "cpu" else row_choices()

    def emit(self, segment: Graph, schedule: str, device: Device) -> Kernel:
        if device.target != "cpu":
            return emit_cuda(segment, device, parse_schedule(schedule, CudaReductionSchedule))
        s = parse_schedule(schedule, ReductionSchedule)
        return emit_cpu(segment, device, s, 4 * s.lanes)


def rejected(segment: Graph, device: Device) -> Reject | None:
    """Why a segment is no loop program around reductions, if it is none."""
    return _rejected(segment, device.target, device.units)


@lru_cache(maxsize=256)
def _rejected(segment: Graph, target: TargetKind, units: int) -> Reject | None:
    """`rejected` by the facts of a device that matter, cached: several families ask in turn."""
    if not any(is_reduction(n) for n in segment.nodes):
        return Reject("nothing is reduced")
    return refused(segment, KINDS) or _unshared(segment, target, units)


def _unshared(segment: Graph, target: TargetKind, units: int) -> Reject | None:
    """Why tasks would have nothing to share, as far as ops and shapes tell: placement has the last word."""
    largest: dict[Node, int] = {}  # elements of a tensor that a node is computed from
    for node in segment.nodes:
        largest[node] = max([node.elements, *(largest[a] for a in node.args)])
        if not is_reduction(node):
            continue
        if target == "cpu" and node.elements < units and largest[node] > MAX_REPEATED:
            return Reject(
                f"{node.elements} results of {largest[node]} elements: fewer than tasks that could share them"
            )
        if node.args[0].op == node.op:
            return Reject("the parts of a reduction come together in a kernel of their own, once all tasks are done")
    return None if target == "cpu" else _beside_rows(segment)


def _beside_rows(segment: Graph) -> Reject | None:
    """Why blocks of threads would have nothing to share of a sum down columns: where rows are summed, too, a block has
    whole rows, and so all columns."""
    sums = [n for n in segment.nodes if is_reduction(n) and n.op in OPS and "axes" in OPS[n.op].attrs]
    if not any(n.args[0].rank - 1 in n.ints("axes") and n.args[0].sizes[-1] > 1 for n in sums):
        return None
    for node in sums:
        whole = node.rank and node.args[0].rank - 1 not in node.ints("axes") and node.elements == node.sizes[-1] > 1
        if whole and node.args[0].elements > MAX_REPEATED:
            return Reject(
                f"sums down {node.elements} columns whole beside sums along rows: nothing for blocks to share"
            )
    return None


def refused(segment: Graph, kinds: Set[OpKind], most_thin: int = MAX_THIN) -> Reject | None:
    """Why a segment is no loop program of ops of these kinds, with few products to a contraction, if it is none.

    most_thin: columns of the thinner operand of a contraction.
    """
    reduced: set[Node] = set()
    depth: dict[Node, int] = {}
    for node in segment.nodes:
        depth[node] = 1 + max((depth[a] for a in node.args), default=0)
        kind = kind_of(node)
        if is_reduction(node) or any(a in reduced for a in node.args):
            reduced.add(node)
        if kind is OpKind.GATHER and node.args[0] in reduced and node.elements > node.args[0].elements:
            return Reject(f"{node.op} would reduce {node.args[0].elements} elements' rows {node.elements} times")
        if kind not in kinds:
            return Reject(f"{node.op} is no reduction and no pointwise op")
        if kind is OpKind.CONTRACT and not is_small(node) and (n := free_extents(node)[0]) > most_thin:
            return Reject(f"a contraction with {n} rows and columns at least is no reduction (at most {most_thin})")
    if max(depth.values(), default=0) > MAX_DEPTH or len(depth) > MAX_NODES:
        return Reject(f"{len(depth)} nodes, {max(depth.values())} deep, are too many for one kernel")
    return too_much(segment)


def is_small(node: Node) -> bool:
    """Whether the products of a contraction are written out."""
    return products(node) <= ORDERED_PRODUCTS


def is_reduction(node: Node) -> bool:
    if node.op == "contract":
        return not is_small(node)
    return node.op in OPS and OPS[node.op].kind is OpKind.REDUCTION


def few_by_many(segment: Graph) -> tuple[int, int] | None:
    """If a segment's only reduction is a contraction: the smaller and the larger of its M and N."""
    sums = [n for n in segment.nodes if is_reduction(n)]
    return free_extents(sums[0]) if len(sums) == 1 and sums[0].op == "contract" else None


def free_extents(node: Node) -> tuple[int, int]:
    """The smaller and the larger of a contraction's M and N: products of the extents that one operand alone has."""
    a_axes, b_axes = node.ints("a_axes"), node.ints("b_axes")
    extents = dict(enumerate(node.sizes))
    m = prod(extents[i] for i in extents if b_axes[i] < 0)
    n = prod(extents[i] for i in extents if a_axes[i] < 0)
    return min(m, n), max(m, n)


def spreads(segment: Graph) -> bool:
    """Whether the result of a reduction is used for more elements than it has."""
    fewest: dict[Node, int] = {}  # of the reductions above a node
    for node in segment.nodes:
        above = [fewest[a] for a in node.args if a in fewest]
        if is_reduction(node):
            above.append(node.elements)
        if above:
            fewest[node] = min(above)
            if node.elements > fewest[node]:
                return True
    return False
