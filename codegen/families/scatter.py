"""Family `scatter`: sums of slices by their places, with whatever leads to them and follows from them.

Each task lists the slices of the places that are its own (a counting sort of the index), then computes place after
place: a vector of sums per lane, over the slices of its list in order. So every sum has one task and one order of
terms, and each bit is the same in every run. What leads to a slice, a gather of messages or a product with weights, is
computed as it is added; what follows from the sums, reductions of their rows among it, while they are at hand.
"""

from dataclasses import dataclass
from functools import lru_cache

from codegen.families import pointwise
from codegen.families.loop_nest import FETCH, LoopSchedule, emit_cpu, loop_choices
from codegen.families.past_caches import stores
from codegen.kernel import Kernel, Reject
from codegen.lowering.code_length import too_much
from codegen.lowering.puller import MAX_DEPTH
from codegen.lowering.scans import axes_from
from codegen.schedule import Choices, parse_schedule
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.ops import OpKind, kind_of, reduced_axes
from fusion_ir.ops.contract import ORDERED_PRODUCTS, products
from fusion_ir.records import Device

KINDS = pointwise.KINDS | {OpKind.SCATTER, OpKind.REDUCTION}
PLACED = {OpKind.INPUT, OpKind.POINTWISE, OpKind.VIEW, OpKind.GATHER}  # of what places are computed from
MOST_LISTED = (1 << 31) - 1  # slices, and places: lists hold 32 bits
TILES = (64, 256, 1024, 4096)


@dataclass(frozen=True)
class ScatterSchedule(LoopSchedule):
    """Nothing but loops."""

    FAMILY = "scatter"


class Scatter:
    """See the module."""

    name = "scatter"

    def accepts(self, segment: Graph, device: Device) -> Reject | None:
        if not any(kind_of(node) is OpKind.SCATTER for node in segment.nodes):
            return Reject("nothing is scattered", is_told=False)
        if device.target != "cpu":
            return Reject("on cuda scatters are computed by family naive only")
        return _refused(segment)

    def space(self, segment: Graph, device: Device) -> tuple[str, ...]:
        native = max(device.vector_bytes // 4, 4)
        points = [(2, 1024, 1), (4, 64, 1), (2, 1024, 4), (4, 64, 4), (1, 64, 1)]
        ways = stores(segment, device)
        schedules = (
            ScatterSchedule(min(n * native, 64), FETCH if way == "stream" else 0, way, tile, 0, 0, tasks)
            for n, tile, tasks in points
            for way in ways
        )
        return tuple(map(str, schedules))

    def choices(self, segment: Graph, device: Device) -> Choices:
        return {**loop_choices(segment, device), "tile": TILES, "block": (0,), "interleave": (0,)}

    def emit(self, segment: Graph, schedule: str, device: Device) -> Kernel:
        s = parse_schedule(schedule, ScatterSchedule)
        return emit_cpu(segment, device, s, s.tile)


@lru_cache(maxsize=256)
def _refused(segment: Graph) -> Reject | None:
    """Why a segment is no scatter with pointwise ops around it, and reductions behind it, if it is none."""
    depth: dict[Node, int] = {}
    sums: dict[Node, int] = {}  # the fewest elements of a scatter that a node is computed from
    places: dict[Node, frozenset[int]] = {}  # axes of each node's that are places of a scatter, or parts of them
    for node in segment.nodes:
        depth[node] = 1 + max((depth[a] for a in node.args), default=0)
        if (kind := kind_of(node)) not in KINDS:
            return Reject(f"{node.op} is no scatter, no reduction and no pointwise op")
        if kind is OpKind.CONTRACT and (k := products(node)) > ORDERED_PRODUCTS:
            return Reject(f"a contraction over {k} products is too long to unroll (at most {ORDERED_PRODUCTS})")
        above = [sums[a] for a in node.args if a in sums]
        if kind is OpKind.REDUCTION and not above:
            return Reject(f"{node.op} is of no sums of a scatter")
        if kind is OpKind.REDUCTION and not places[node.args[0]].isdisjoint(reduced_axes(node)):
            return Reject(f"{node.op} runs over places, which tasks share")
        if kind is OpKind.SCATTER:
            if above:
                return Reject("the slices of a scatter come out of another one, whose sums would be computed again")
            if (reject := _unlisted(node)) is not None:
                return reject
            above = [node.elements]
        if above:
            sums[node] = min(above)
            own = {node.attr("axis", int)} if kind is OpKind.SCATTER else set[int]()
            known = [(k, axis) for k, a in enumerate(node.args) for axis in places.get(a, ())]
            places[node] = frozenset(own.union(*(axes_from(node, k, axis) for k, axis in known)))
            if kind is OpKind.GATHER or kind is OpKind.CONTRACT or node.elements > sums[node]:
                return Reject(f"{node.op} would have the sums of a scatter computed over and over")
    if max(depth.values()) > MAX_DEPTH or len(depth) > pointwise.MAX_NODES:
        return Reject(f"{len(depth)} nodes, {max(depth.values())} deep, are too many for one kernel")
    return too_much(segment)


def _unlisted(node: Node) -> Reject | None:
    """Why a task cannot list the slices of a scatter's places, if it cannot."""
    if max(node.args[1].elements, node.attr("extent", int)) > MOST_LISTED:
        return Reject(f"more than {MOST_LISTED} slices or places do not fit lists")
    pending, seen = [node.args[1]], {node.args[1]}
    while pending:
        place = pending.pop()
        if kind_of(place) not in PLACED:
            return Reject(f"places are computed by {place.op}, which every task would compute again")
        more = [a for a in place.args if a not in seen]
        pending += more
        seen.update(more)
    return None
