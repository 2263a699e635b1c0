"""The error of a search without a plan: which kernels failed, and why."""

from fusion_ir.core.extent import shape_of
from fusion_ir.core.graph import InputSpec
from fusion_ir.dtype import f32
from fusion_ir.ops import make_input
from fusion_ir.records import Measurement, Status
from scheduler.no_plan import unusable


def failed(schedule: str, detail: str) -> Measurement:
    return Measurement(
        family="naive", schedule=schedule, status=Status.rejected, detail=detail, segment_key="", device_key=""
    )


def test_kernels_that_failed_alike_are_said_once() -> None:
    node = make_input(0, InputSpec(shape_of((8,)), f32, (1,)))
    rows = [failed(schedule, "no room") for schedule in "abcdefghijkl"] + [failed("m", "other")]
    assert str(unusable(node, rows)).endswith(
        "can be used: naive a and 11 more: rejected no room; naive m: rejected other"
    )
