"""Plans for a GPU that is not there, run in the emulator: planned many at once, compiled in a few files, each checked
whole against the interpreter."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from codegen.kernel import Kernel
from codegen.toolchain.compiler import Binary
from codegen.workbench.step_check import Meanings
from codegen.workbench.workbench import Workbench
from fusion_ir.core.graph import Graph
from fusion_ir.records import Device, Measurement, Plan, Status
from scheduler.budget import Budget
from scheduler.interfaces import Forgetful, TimedPlan
from scheduler.rewrites.rule import Alternative
from scheduler.rewrites.rules import ALTERNATIVES
from scheduler.tune import tune


@dataclass
class Collector:
    """A bench that compiles nothing yet: it keeps the kernels of plans, by entry. Times nothing."""

    kernels: dict[str, Kernel] = field(default_factory=dict)

    def compile_for_plans(
        self,
        kernels: Sequence[Kernel],
        graph: Graph | None = None,
        *,
        seed: int = 0,
        together: bool = False,
        optional: bool = False,
        quickly: bool = False,
    ) -> list[Binary]:
        self.kernels.update((k.entry, k) for k in kernels)
        return [Binary("0" * 64, k.entry, "") for k in kernels]

    def allow(self, seconds: float) -> None:
        pass

    def idle_share(self, seconds: float) -> None:
        return None

    def cpu_share(self) -> None:
        return None

    def expect(self, kernels: Sequence[Kernel]) -> None:
        pass

    def turn(self, segment_key: str) -> AbstractContextManager[None]:
        return nullcontext()

    def measure(
        self, segment: Graph, segment_key: str, kernels: Sequence[Kernel], *, seed: int = 0
    ) -> list[Measurement]:
        raise AssertionError("nothing is timed for a device that is not there")

    def race_seconds(self, segment_key: str, count: int) -> float:
        return 0.0

    def measure_plans(self, graph: Graph, plans: Sequence[Plan], *, seed: int = 0, seconds: float) -> list[TimedPlan]:
        raise AssertionError("nothing is timed for a device that is not there")

    def measure_by_steps(
        self, graph: Graph, plan: Plan, meanings: Meanings, *, seed: int = 0, seconds: float
    ) -> TimedPlan:
        raise AssertionError("nothing is timed for a device that is not there")


@dataclass
class Emulated:
    """Counts of the plans that were run. elsewhere: plans that round other values than their graphs. wrong: a line for
    each plan that does not compile, run, or compute its graph."""

    plans: int = 0
    elsewhere: int = 0
    kernels: int = 0
    families: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def plan_and_emulate(
    graphs: Mapping[str, Graph],
    device: Device,
    bench: Workbench,
    offers: Sequence[Alternative] = ALTERNATIVES,
) -> Emulated:
    """Plans each graph, by name, for `device`, and runs the plans on `bench`, an emulator's."""
    collector, result = Collector(), Emulated()
    plans: dict[str, Plan] = {}
    for name, graph in graphs.items():
        plans[name] = tune(graph, device, Budget(0.0), Forgetful(), collector, offers=offers)
    entries = list(dict.fromkeys(step.entry for plan in plans.values() for step in plan.steps))
    kernels = [collector.kernels[entry] for entry in entries]
    built = dict(zip(entries, bench.compile(kernels), strict=True))
    result.plans, result.kernels = len(plans), len(kernels)
    result.elsewhere = sum(plan.rounds_elsewhere for plan in plans.values())
    for kernel in kernels:
        result.families[kernel.family] += 1
    for name, plan in plans.items():
        failed = [b for step in plan.steps if not isinstance(b := built[step.entry], Binary)]
        if failed:
            result.wrong.append(f"{name}: {failed[0].status.value}: {failed[0].detail[:400]}")
            continue
        steps = tuple(
            step.model_copy(update={"binary": binary.sha256})
            for step in plan.steps
            if isinstance(binary := built[step.entry], Binary)
        )
        (timing,) = bench.measure_plans(graphs[name], [plan.model_copy(update={"steps": steps})], seconds=0.0)
        if timing.status is not Status.ok:
            what = ", ".join(f"{s.family} {s.schedule}" for s in plan.steps)
            result.wrong.append(f"{name}: {what}: {timing.status.value}: {timing.detail[:400]}")
    return result
