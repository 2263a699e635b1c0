"""Fruitless trials, which count against searching a segment further: schedules that were built and did not win."""

import pytest

from codegen.schedule import Variant
from fusion_ir.records import Measurement, Status
from scheduler.tuning.trial_log import TrialLog


def row(schedule: str, status: Status, samples_us: tuple[float, ...] = ()) -> Measurement:
    return Measurement(
        segment_key="s", device_key="d", family="aten", schedule=schedule, status=status, samples_us=samples_us,
        race="r",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("status", "count"), [(Status.rejected, 0), (Status.wrong_result, 3), (Status.compile_failed, 3)]
)
def test_what_is_rejected_costs_no_patience(status: Status, count: int) -> None:
    pending: list[Variant] = [("aten", f"algorithm={i}") for i in range(4)]
    entry = TrialLog(pending)
    entry.note([row("algorithm=0", Status.ok, (3.0, 3.0, 3.0))])
    entry.note([row(f"algorithm={i}", status) for i in range(1, 4)])
    assert entry.winner == ("aten", "algorithm=0")
    assert entry.fruitless == count
    assert not entry.pending, "and is not tried again"
