"""Family `scan`: running sums along any axis, with whatever leads to them and follows from them.

Along lanes by steps of doubling length and a carry, along other axes a vector of sums per lane; tasks share whatever no
sum runs along. A tensor that is one row is one task's. Reductions over the same rows may stand beside the scans.
"""

from dataclasses import dataclass

from codegen.families.loop_nest import FETCH, LoopSchedule, emit_cpu, loop_choices
from codegen.families.past_caches import by_stores
from codegen.families.reduction import KINDS, refused
from codegen.kernel import Kernel, Reject
from codegen.lowering.scans import parted
from codegen.schedule import Choices, parse_schedule
from fusion_ir.core.graph import Graph
from fusion_ir.ops import OpKind, kind_of
from fusion_ir.records import Device


@dataclass(frozen=True)
class ScanSchedule(LoopSchedule):
    """Nothing but loops."""

    FAMILY = "scan"


class Scan:
    """See the module."""

    name = "scan"

    def accepts(self, segment: Graph, device: Device) -> Reject | None:
        if device.target != "cpu":
            return Reject("on cuda scans are computed by family naive only")
        if not any(kind_of(n) is OpKind.SCAN for n in segment.nodes):
            return Reject("nothing is scanned")
        if node := parted(segment):
            return Reject(f"{node.op} reads some of what is scanned")
        return refused(segment, KINDS | {OpKind.SCAN})

    def space(self, segment: Graph, device: Device) -> tuple[str, ...]:
        native = max(device.vector_bytes // 4, 4)
        points = [(4, "stream", 512), (2, "stream", 4096), (4, "plain", 512), (2, "plain", 4096), (1, "stream", 1024)]
        schedules = (
            ScanSchedule(min(n * native, 64), FETCH if store == "stream" else 0, store, tile, 0, 0, 1)
            for n, store, tile in points
        )
        return tuple(map(str, by_stores(schedules, segment, device)))

    def choices(self, segment: Graph, device: Device) -> Choices:
        return loop_choices(segment, device)

    def emit(self, segment: Graph, schedule: str, device: Device) -> Kernel:
        s = parse_schedule(schedule, ScanSchedule)
        return emit_cpu(segment, device, s, s.tile)
