"""Family `scan`: running sums along any axis, with whatever leads to them and follows from them.

Along lanes by steps of doubling length and a carry, along other axes a vector of sums per lane; tasks share whatever no
sum runs along. A tensor that is one row is one task's. Reductions over the same rows may stand beside the scans.
On CUDA the threads of a row go through it in step, and tell each other what they have; side by side each has its own.
"""

from dataclasses import dataclass

from codegen.families.loop_nest import FETCH, LoopSchedule, emit_cpu, loop_choices, rows_of
from codegen.families.loop_nest_cuda import CudaRowSchedule, emit_cuda, row_choices, row_schedules, vectors_of
from codegen.families.past_caches import by_stores
from codegen.families.reduction import KINDS, refused
from codegen.kernel import Kernel, Reject
from codegen.lowering.placement import MAX_REPEATED
from codegen.lowering.scans import parted
from codegen.schedule import Choices, parse_schedule
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.ops import OpKind, kind_of
from fusion_ir.records import Device

SIDE_BY_SIDE = (64, 32, 128, 256)  # threads of a block where no sum runs along lanes


@dataclass(frozen=True)
class ScanSchedule(LoopSchedule):
    """Nothing but loops."""

    FAMILY = "scan"


@dataclass(frozen=True)
class CudaScanSchedule(CudaRowSchedule):
    """Nothing but threads."""

    FAMILY = "scan"


def _of_sums(segment: Graph) -> Reject | None:
    """Why tasks would have nothing to share: whoever sums up results of long reductions needs all of these."""
    largest: dict[Node, int] = {}  # elements of a tensor that a node is computed from
    for node in segment.nodes:
        largest[node] = max([node.elements, *(largest[a] for a in node.args)])
        if kind_of(node) is OpKind.SCAN and node.elements < largest[node] > MAX_REPEATED:
            return Reject(
                "running sums of results of reductions come in a kernel of their own, once all tasks are done"
            )
    return None


class Scan:
    """See the module."""

    name = "scan"

    def accepts(self, segment: Graph, device: Device) -> Reject | None:
        if not any(kind_of(n) is OpKind.SCAN for n in segment.nodes):
            return Reject("nothing is scanned")
        if node := parted(segment):
            return Reject(f"{node.op} reads some of what is scanned")
        return refused(segment, KINDS | {OpKind.SCAN}) or _of_sums(segment)

    def space(self, segment: Graph, device: Device) -> tuple[str, ...]:
        if device.target != "cpu":
            if rows_of(segment).along:
                points = (parse_schedule(s, CudaScanSchedule) for s in row_schedules(segment, device, CudaScanSchedule))
                return tuple(dict.fromkeys(str(s.replaced(keep="registers", dear=0)) for s in points))
            shapes = [(vec, x) for vec in vectors_of(segment) for x in SIDE_BY_SIDE]
            return tuple(str(CudaScanSchedule(vec, x, 1, 1, "registers", 0)) for vec, x in shapes)
        native = max(device.vector_bytes // 4, 4)
        points = [(4, "stream", 512), (2, "stream", 4096), (4, "plain", 512), (2, "plain", 4096), (1, "stream", 1024)]
        schedules = (
            ScanSchedule(min(n * native, 64), FETCH if store == "stream" else 0, store, tile, 0, 0, 1)
            for n, store, tile in points
        )
        return tuple(map(str, by_stores(schedules, segment, device)))

    def choices(self, segment: Graph, device: Device) -> Choices:
        return loop_choices(segment, device) if device.target == "cpu" else row_choices()

    def emit(self, segment: Graph, schedule: str, device: Device) -> Kernel:
        if device.target != "cpu":
            return emit_cuda(segment, device, parse_schedule(schedule, CudaScanSchedule))
        s = parse_schedule(schedule, ScanSchedule)
        return emit_cpu(segment, device, s, s.tile)
