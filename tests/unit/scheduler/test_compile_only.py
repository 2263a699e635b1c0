"""Schedules where nothing can be timed: the compiler's reports decide, and nothing is ever left without a kernel."""

from collections.abc import Mapping, Sequence

import pytest

from codegen.hardware.gpus import specified
from codegen.kernel import EmitError, Kernel
from codegen.schedule import Variant
from codegen.toolchain.compiler import Binary, Failure
from fusion_ir.core.graph import Graph
from fusion_ir.ops import make, make_input
from fusion_ir.records import CompileReport, Plan, Status
from scheduler import compile_only
from scheduler.budget import Budget
from scheduler.segments.enumeration import Candidate
from scheduler.tune import tune
from scheduler.tuning.trials import ALIKE, Ledger
from tests.support.absent import Collector, Forgetful
from tests.support.kernels import dense, graph_of

H200 = specified("h200", "")
SPEC = dense(4096, 1024)
GRAPH = graph_of((SPEC,), make("exp", [make_input(0, SPEC)]))
SOUND = CompileReport(registers=32, spill_bytes=0, blocks=8)


class Reporting(Collector):
    """A bench whose compiler reports what it is told, by the number of the schedule, in the order asked for."""

    def __init__(self, reports: Mapping[int, CompileReport | Failure]) -> None:
        super().__init__()
        self.reports, self.asked = reports, list[str]()

    def compile_for_plans(  # type: ignore[override]
        self,
        kernels: Sequence[Kernel],
        graph: Graph | None = None,
        *,
        seed: int = 0,
        together: bool = False,
        optional: bool = False,
        quickly: bool = False,
    ) -> list[Binary | Failure]:
        self.asked += [k.schedule for k in kernels if k.schedule not in self.asked]
        found = [self.reports.get(self.asked.index(k.schedule), SOUND) for k in kernels]
        return [
            r if isinstance(r, Failure) else Binary("0" * 64, k.entry, "", 0.0, r)
            for k, r in zip(kernels, found, strict=True)
        ]


def planned(reports: Mapping[int, CompileReport | Failure]) -> tuple[Plan, list[str]]:
    """The plan, and the schedules of the first family in the order in which they were compiled."""
    bench = Reporting(reports)
    plan = tune(GRAPH, H200, Budget(10.0), Forgetful(), bench)  # type: ignore[arg-type]
    assert plan.time_us is None
    assert len(plan.steps) == 1
    return plan, bench.asked


def spilling(bytes_: int) -> CompileReport:
    return CompileReport(registers=255, spill_bytes=bytes_, blocks=1)


def test_of_equal_reports_the_default_is_taken() -> None:
    plan, asked = planned({})
    assert plan.steps[0].schedule == asked[0]
    assert len(asked) == 4
    assert plan.steps[0].report == SOUND
    assert plan.predicted_us == plan.steps[0].predicted_us


@pytest.mark.parametrize(
    "fault", [spilling(40), CompileReport(warnings=("C7510",)), CompileReport(blocks=0), Failure(Status.crashed, "no")]
)
def test_what_has_a_fault_is_passed_over(fault: CompileReport | Failure) -> None:
    plan, asked = planned({0: fault})
    assert plan.steps[0].schedule == asked[1]


def test_few_threads_at_a_time_are_slower() -> None:
    plan, asked = planned({0: CompileReport(registers=255, spill_bytes=0, blocks=1)})
    assert plan.steps[0].schedule != asked[0]


def test_where_all_spill_the_least_is_taken() -> None:
    plan, asked = planned({i: spilling(spilled) for i, spilled in enumerate((40, 16, 8, 24))})
    assert plan.steps[0].schedule == asked[2]
    assert plan.steps[0].report == spilling(8)


def test_what_compiles_is_chosen_where_its_neighbours_cannot_be_lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many schedules of a family are refused that the others are not tried any more; those that were lowered before
    are there to be chosen all the same."""
    lowered = list[str]()
    kernel = Ledger.kernel

    def some(self: Ledger, candidate: Candidate, variant: Variant) -> Kernel:
        if len(lowered) >= 2 and variant[1] not in lowered:
            raise EmitError("too long")
        lowered.append(variant[1])
        return kernel(self, candidate, variant)

    monkeypatch.setattr(compile_only, "COMPILED", ALIKE + 2)
    monkeypatch.setattr(Ledger, "kernel", some)
    plan, order = planned({1: SOUND})
    assert plan.steps[0].schedule in order[:2]
