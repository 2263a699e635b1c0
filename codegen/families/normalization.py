"""Family `normalization`: reductions whose results are spread over what they were taken from.

Softmax, layer, RMS, batch, group and instance norm, their gradients. A task computes whole rows: the tensors of a row
are read from memory once, and again from the cache in every later phase; what is dear is kept beside them. On CUDA a
row is a block's, a warp's or a part of a warp's; what is read again is kept in registers or in shared memory meanwhile.
"""

from dataclasses import dataclass

from codegen.families.loop_nest import FETCH, LoopSchedule, emit_cpu, loop_choices, with_variants
from codegen.families.loop_nest_cuda import CudaRowSchedule, emit_cuda, row_choices, row_schedules
from codegen.families.past_caches import by_stores
from codegen.families.reduction import rejected, spreads
from codegen.kernel import Kernel, Reject
from codegen.schedule import Choices, parse_schedule
from fusion_ir.core.graph import Graph
from fusion_ir.records import Device


@dataclass(frozen=True)
class NormalizationSchedule(LoopSchedule):
    """dear: values that take no more arithmetic than this are computed again, not kept. ahead: 1 where the next row is
    brought from memory while this one is gone over again."""

    FAMILY = "normalization"
    dear: int
    ahead: int


@dataclass(frozen=True)
class CudaNormalizationSchedule(CudaRowSchedule):
    """Nothing but threads."""

    FAMILY = "normalization"


class Normalization:
    """See the module."""

    name = "normalization"

    def accepts(self, segment: Graph, device: Device) -> Reject | None:
        reject = rejected(segment, device)
        if reject is None and not spreads(segment):
            return Reject("nothing that is reduced is spread again: family reduction")
        return reject

    def space(self, segment: Graph, device: Device) -> tuple[str, ...]:
        if device.target != "cpu":
            return row_schedules(segment, device, CudaNormalizationSchedule)
        native = max(device.vector_bytes // 4, 4)
        widths = [4 * native, 2 * native, native]
        points = [(lanes, store, 4, 1) for lanes in widths for store in ("stream", "plain")]
        points += [(4 * native, "stream", dear, ahead) for dear, ahead in ((0, 1), (0, 0), (4, 0), (8, 1), (20, 1))]
        schedules = (
            NormalizationSchedule(min(lanes, 64), FETCH if store == "stream" else 0, store, 1024, 0, 0, 1, dear, ahead)
            for lanes, store, dear, ahead in points
        )
        return with_variants(segment, by_stores(schedules, segment, device))

    def choices(self, segment: Graph, device: Device) -> Choices:
        if device.target != "cpu":
            return row_choices()
        return {**loop_choices(segment, device), "dear": (0, 4, 8, 20), "ahead": (0, 1)}

    def emit(self, segment: Graph, schedule: str, device: Device) -> Kernel:
        if device.target != "cpu":
            return emit_cuda(segment, device, parse_schedule(schedule, CudaNormalizationSchedule))
        s = parse_schedule(schedule, NormalizationSchedule)
        return emit_cpu(segment, device, s, 4 * s.lanes, dear=s.dear, ahead=bool(s.ahead))
