"""Family `scan`: running sums along any axis, with whatever leads to them and follows from them.

Along lanes by steps of doubling length and a carry, along other axes a vector of sums per lane; tasks share whatever no
sum runs along. A tensor that is one row is one task's. Reductions over the same rows may stand beside the scans.
"""

from dataclasses import dataclass

from codegen.families.reduction import KINDS, emit_cpu, refused
from codegen.kernel import Kernel, Reject
from codegen.schedule import Schedule, parse_schedule
from fusion_ir.graph import Graph
from fusion_ir.ops import OpKind, kind_of
from fusion_ir.records import Device


@dataclass(frozen=True)
class ScanSchedule(Schedule):
    """How the loops are cut and written.

    lanes: elements of a vector, of any dtype. store: `plain`, or `stream` past the caches. tile: longest run of lanes
    that no sum runs along. keep: KiB of one array of values that are read again, or of one step's sums.
    """

    FAMILY = "scan"
    lanes: int
    store: str
    tile: int
    keep: int


class Scan:
    """See the module."""

    name = "scan"

    def accepts(self, segment: Graph, device: Device) -> Reject | None:
        if device.target != "cpu":
            return Reject("on cuda scans are computed by family naive only")
        if not any(kind_of(n) is OpKind.SCAN for n in segment.nodes):
            return Reject("nothing is scanned")
        return refused(segment, KINDS | {OpKind.SCAN})

    def space(self, segment: Graph, device: Device) -> tuple[str, ...]:
        native = max(device.vector_bytes // 4, 4)
        points = [(4, "stream", 256), (2, "stream", 4096), (4, "plain", 256), (2, "plain", 4096), (1, "stream", 1024)]
        return tuple(str(ScanSchedule(min(n * native, 64), store, tile, 64)) for n, store, tile in points)

    def emit(self, segment: Graph, schedule: str, device: Device) -> Kernel:
        s = parse_schedule(schedule, ScanSchedule)
        return emit_cpu(segment, device, s, s.lanes, s.store, s.tile, s.keep, least_tile=s.tile)
