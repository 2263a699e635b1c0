"""Plans for GPUs that are not there: compiled for them, predicted, and nothing is run. Takes NVRTC and no GPU."""

from pathlib import Path

import pytest

from codegen.devices.detection import detect
from codegen.hardware.gpus import GPUS
from codegen.kernel import Kernel, Launch
from codegen.sandbox.limits import Limits
from codegen.sandbox.object_cache import ObjectCache
from codegen.toolchain.compiler import Binary
from codegen.toolchain.cuda import CudaCompiler
from codegen.workbench.outcome import Outcome
from codegen.workbench.programs import Program
from codegen.workbench.timing_child import TimingChild
from codegen.workbench.timing_jobs import TimingJobs
from codegen.workbench.workbench import Workbench
from fusion_ir.core.graph import Graph
from fusion_ir.core.named import NamedGraph
from fusion_ir.formats import read
from fusion_ir.ops import make, make_input
from fusion_ir.records import Device, Status
from scheduler.budget import Budget
from service.planning.planner import PlanAnswer, plan_graph
from tests.support.kernels import bare_headers, dense, graph_of
from tests.support.whole import in_turn
from tuning_db.store import Store

EXAMPLES = Path(__file__).parents[2] / "examples"

SPILLING = """extern "C" __global__ void __launch_bounds__(1024, 2) spilling(const float* a, float* out) {
  float v[96];
#pragma unroll
  for (int i = 0; i < 96; i++) v[i] = a[i * 1024 + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 96; i++) out[i * 1024 + threadIdx.x] = v[i] * v[(i * 7 + 3) % 96] + v[95 - i];
}
"""
# Touches what a wgmma sums into before it is waited for.
SERIALISED = """extern "C" __global__ void serialised(unsigned long long a, unsigned long long b, float* out, int n) {
  float d[4] = {0, 0, 0, 0};
  asm volatile("wgmma.fence.sync.aligned;");
  for (int i = 0; i < n; i++) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3}, %4, %5, p, 1, 1, 0, 0; }" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));
    d[0] += 1.0f;
    asm volatile("wgmma.commit_group.sync.aligned;");
  }
  asm volatile("wgmma.wait_group.sync.aligned 0;");
  out[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}
"""
SOUND = """extern "C" __global__ void __launch_bounds__(256) sound(const float* a, float* out) {
  extern __shared__ float s[];
  s[threadIdx.x] = a[threadIdx.x]; __syncthreads(); out[threadIdx.x] = s[255 - threadIdx.x];
}
"""


def example(name: str) -> NamedGraph:
    return read((EXAMPLES / name).read_text(), filename=name)


def planned(name: str, target: str, folder: Path) -> PlanAnswer:
    with Store(f"sqlite:///{folder / 'plans.db'}") as store:
        return plan_graph(example(name), target, Budget(60.0), store, ObjectCache(folder / "cache"))


def test_a_plan_for_an_absent_gpu_is_predicted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("nothing is run for a device that is not there")

    monkeypatch.setattr(TimingChild, "call", never)
    answer = planned("swiglu.json", "h200", tmp_path)
    plan = answer.plan
    assert (answer.state, answer.cache, plan.device.origin) == ("predicted", "miss", "specified")
    assert plan.device.arch == "sm_90a"
    assert plan.time_us is None
    assert plan.spread is None
    assert plan.search.measured == 0
    assert plan.predicted_us == pytest.approx(sum(s.predicted_us or 0.0 for s in plan.steps))
    assert plan.predicted_us > plan.lower_bound_us > 0
    for step in plan.steps:
        assert step.binary
        assert step.time_us is None
        assert step.report is not None
        assert step.report.registers
        assert step.report.blocks
        assert not step.report.fault
    again = planned("swiglu.json", "h200", tmp_path)
    assert (again.cache, again.state, again.plan_key) == ("hit", "predicted", answer.plan_key)
    assert again.plan.plan_key == answer.plan_key


@pytest.mark.soak
@pytest.mark.parametrize("target", in_turn((name for name in GPUS if name != "h200"), 1))
def test_every_target_plans(target: str, tmp_path: Path) -> None:
    answer = planned("momentum_step.json", target, tmp_path)
    assert answer.state == "predicted"
    assert answer.plan.device.name == GPUS[target].name


def reports(device: Device, folder: Path, *sources: str) -> dict[str, Binary]:
    names = [source.partition("(const")[0].partition("(unsigned")[0].split()[-1] for source in sources]
    launch = Launch(grid=(1, 1, 1), block=(256, 1, 1), shared_bytes=1024)
    kernels = [Kernel(n, s, "cuda", "hand", n, launch) for n, s in zip(names, sources, strict=True)]
    compiler = CudaCompiler(device, Limits(), bare_headers(folder / "include"))
    with Workbench(device, ObjectCache(folder / "cache"), compiler=compiler) as bench:
        return {n: b for n, b in zip(names, bench.compile(kernels), strict=True) if isinstance(b, Binary)}


def test_a_kernel_that_spills_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to the launch: what the timing child is asked to run, and the rows."""
    device = detect("h200", ObjectCache(tmp_path / "cache"))
    names, launch = ("spilling", "sound"), Launch(grid=(1, 1, 1), block=(256, 1, 1), shared_bytes=1024)
    kernels = [Kernel(n, s, "cuda", "hand", n, launch) for n, s in zip(names, (SPILLING, SOUND), strict=True)]
    ran: list[list[str]] = []

    def timed(self: Workbench, segment: Graph, programs: dict[int, Program], *_: object, **__: object) -> object:
        ran.append([step["entry"] for p in programs.values() for step in p["steps"]])
        return {i: Outcome(Status.ok, samples_us=(1.0,)) for i in programs}

    monkeypatch.setattr(TimingChild, "call", lambda *_, **__: {"number": 0})
    monkeypatch.setattr(TimingJobs, "bench", timed)
    spec = dense(256)
    graph = graph_of((spec,), make("neg", [make_input(0, spec)]))
    compiler = CudaCompiler(device, Limits(), bare_headers(tmp_path / "include"))
    with Workbench(device, ObjectCache(tmp_path / "cache"), compiler=compiler) as bench:
        rows = bench.measure(graph, "segment", kernels)
        alone = bench.measure(graph, "segment", kernels[:1])
    assert [m.status for m in rows] == [Status.dropped, Status.ok]
    assert "spills" in rows[0].detail
    assert rows[0].report is not None
    assert rows[0].samples_us == ()
    assert alone[0].status is Status.ok, "nothing else of its family was there"
    assert ran == [["sound"], ["spilling"]]


def test_the_compiler_says_what_is_not_worth_timing(tmp_path: Path) -> None:
    device = detect("h200", ObjectCache(tmp_path / "cache"))
    found = {n: b.report for n, b in reports(device, tmp_path, SPILLING, SERIALISED, SOUND).items()}
    spilling, serialised, sound = found["spilling"], found["serialised"], found["sound"]
    assert spilling is not None
    assert spilling.spill_bytes
    assert spilling.fault == f"spills {spilling.spill_bytes} bytes of registers in each thread"
    assert serialised is not None
    assert serialised.warnings == ("C7511",)
    assert "serialised" in serialised.fault
    assert sound is not None
    assert not sound.fault
    assert (sound.blocks, sound.occupancy, sound.dynamic_shared_bytes) == (8, 1.0, 1024)
