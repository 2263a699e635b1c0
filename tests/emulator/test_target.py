"""Target `emulator`: kernels are checked and get no times, plans are predicted and run, faults say where they are."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from codegen.devices.detection import detect
from codegen.families import FAMILIES
from codegen.kernel import Kernel, Launch
from codegen.launch.emulator import Conflicts, EmulatorFault, Sectors
from codegen.sandbox.limits import Limits
from codegen.sandbox.object_cache import ObjectCache
from codegen.workbench.workbench import Workbench
from fusion_ir.records import Status
from fusion_ir.text.printing import parse_graph
from service.cli import main
from service.cli.tensor_files import read_tensors, write_tensors
from testing.emulated_kernels import build
from tests.emulator.primitives import BLOCK_SUM, PRODUCT, WARP_TRANSPOSE
from tests.support.whole import in_turn

GRAPH = """fuseplan.graph 1
in0: f32[6, 256] align 16
%0 = in0: f32[6, 256]
%1 = exp(%0): f32[6, 256]
%2 = sum(%1) {axes=[1]}: f32[6]
out0: %1
out1: %2
"""
SUM = """fuseplan.graph 1
in0: f32[512] align 16
in1: f32[512] align 16
%0 = in0: f32[512]
%1 = in1: f32[512]
%2 = add(%0, %1): f32[512]
out0: %2
"""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    cache = ObjectCache(tmp_path_factory.mktemp("objects"))
    with Workbench(detect("emulator", cache), cache, Limits(kernel_seconds=0.05)) as made:
        yield made


def adding(name: str, body: str, shared_bytes: int = 0) -> Kernel:
    source = (
        f'extern "C" __global__ void __launch_bounds__(128) k_{name}(const float* RESTRICT in0, '
        f"const float* RESTRICT in1, float* RESTRICT out0) {{\n"
        f"  const int i = blockIdx.x * 128 + threadIdx.x;\n  SHARED_MEMORY(shared);\n{body}\n}}\n"
    )
    return Kernel(f"k_{name}", source, "cuda", "test", name, Launch((4, 1, 1), (128, 1, 1), shared_bytes))


RIGHT = adding("right", "  store<1, 1>(out0 + i, add_(load<1, 1>(in0 + i), load<1, 1>(in1 + i)));")
BAD = {
    adding("wrong", "  store<1, 1>(out0 + i, load<1, 1>(in0 + i));"): (Status.wrong_result, "seed 0"),
    adding("beyond", "  store<1, 1>(out0 + i + 1, load<1, 1>(in0 + i));"): (
        Status.wrong_result,
        "k_beyond:4: store of 4 bytes at byte 2048 of out0, which has 2048; block (3, 0, 0) thread (127, 0, 0)",
    ),
    adding("poor", "  shared_store((float*)shared + threadIdx.x, splat<1>(1.f));", 64): (
        Status.wrong_result,
        "k_poor:4: store of 4 bytes at byte 64 of the 64 of shared memory; block (0, 0, 0) thread (16, 0, 0)",
    ),
    adding("direct", "  out0[(1 << 30) + i] = in0[i];"): (Status.wrong_result, "access outside of every tensor"),
    adding("deep", "  volatile float big[100000];\n  big[0] = 1;\n  out0[i] = big[0];"): (
        Status.wrong_result,
        "more than 262144 bytes of local memory",
    ),
    adding("stuck", "  if (i % 32) block_barrier();\n  else warp_barrier(3);"): (
        Status.wrong_result,
        "deadlock",
    ),
    adding("endless", "  volatile int n = 1;\n  while (n) out0[i] = 0;"): (Status.timed_out, ""),
}


def test_a_right_kernel_passes_and_has_no_time(bench: Workbench) -> None:
    [row] = bench.measure(parse_graph(SUM).graph, "0" * 64, [RIGHT])
    assert (row.status, row.samples_us, row.time_us, row.max_rel_error) == (Status.ok, (), None, 0.0)
    assert "not timed" in row.detail


def test_bad_kernels_say_where_they_are_and_the_next_is_right(bench: Workbench) -> None:
    rows = bench.measure(parse_graph(SUM).graph, "1" * 64, [*BAD, RIGHT])
    for (kernel, (status, detail)), row in zip(BAD.items(), rows, strict=False):
        assert row.status is status, (kernel.schedule, row)
        assert detail in row.detail, (kernel.schedule, row.detail)
    assert rows[-1].status is Status.ok


def test_limits_of_the_architecture(tmp_path: Path) -> None:
    emulation = replace(build([RIGHT])[0], shared_bytes=163 << 10)
    for large in (replace(emulation, shared_bytes=(163 << 10) + 1), replace(emulation, block=(1025, 1, 1))):
        with pytest.raises(EmulatorFault, match="k_right: "):
            large.run([0, 0, 0], [])


def test_instructions_that_the_architecture_lacks() -> None:
    kernel = replace(PRODUCT.kernel(), entry="k_early", source=PRODUCT.source.replace("k_product", "k_early"))
    [early] = build([kernel], "sm_75")
    with pytest.raises(EmulatorFault, match="mma of bf16 takes sm_80, this is sm_75"):
        PRODUCT.run(early, 0)


def test_bank_conflicts_are_counted_by_line() -> None:
    emulation, sound = build([WARP_TRANSPOSE.kernel(), BLOCK_SUM.kernel()])
    tile = replace(
        WARP_TRANSPOSE,
        name="wide",
        source=WARP_TRANSPOSE.source.replace("33", "32").replace("_warp_transpose", "_wide"),
    )
    [conflicting] = build([tile.kernel()])
    line = 1 + next(i for i, text in enumerate(tile.source.splitlines()) if "shared_load" in text)
    found = {c.line: c for c in tile.run(conflicting, 0)[1].conflicts}
    assert found[line] == Conflicts("k_wide", line, 32 * 64, 64)  # 32 rows of 2 warps, all lanes in one bank
    assert all(c.passes == c.least for c in WARP_TRANSPOSE.run(emulation, 0)[1].conflicts)
    assert all(c.passes == c.least for c in BLOCK_SUM.run(sound, 0)[1].conflicts)


def test_sectors_are_counted_by_line() -> None:
    across = replace(
        WARP_TRANSPOSE,
        name="across",
        source=WARP_TRANSPOSE.source.replace("_warp_transpose", "_across").replace(
            "(warp * 32 + row) * 32 + lane));", "(warp * 32 + lane) * 32 + row));"
        ),
    )
    along, emulation = build([WARP_TRANSPOSE.kernel(), across.kernel()])
    line = 1 + next(i for i, text in enumerate(across.source.splitlines()) if "load<1, 1>" in text)
    found = {s.line: s for s in across.run(emulation, 0)[1].sectors}
    assert found[line] == Sectors("k_across", line, 64 * 32, 64 * 4)  # 64 rows, each lane in a sector of its own
    assert all(s.touched == s.least for s in WARP_TRANSPOSE.run(along, 0)[1].sectors)


@pytest.mark.soak
@pytest.mark.parametrize("target", in_turn(["emulator", "emulator:sm_75", "emulator:sm_90a"], 1))
def test_every_family_passes(target: str, bench: Workbench) -> None:
    graph = parse_graph(GRAPH).graph
    device = bench.device.model_copy(update={"arch": target.partition(":")[2] or "sm_80"})
    kernels = [
        family.emit(graph, family.space(graph, device)[0], device)
        for family in FAMILIES.values()
        if family.accepts(graph, device) is None
    ]
    assert {k.target for k in kernels} == {"cuda"}
    assert [row.status for row in bench.measure(graph, "2" * 64, kernels)] == [Status.ok] * len(kernels)


def test_tune_predicts_and_run_computes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUSEPLAN_DB", f"sqlite:///{tmp_path / 'plans.db'}")
    monkeypatch.setenv("FUSEPLAN_CACHE", str(tmp_path / "cache"))
    (tmp_path / "graph.txt").write_text(GRAPH)
    x = np.random.default_rng(0).standard_normal((6, 256)).astype(np.float32)
    write_tensors(tmp_path / "in.safetensors", {"in0": x})
    assert main(["tune", str(tmp_path / "graph.txt"), "--target", "emulator", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["state"], plan["time_us"], plan["predicted_us"]) == ("predicted", None, None)
    assert 0 < plan["max_rel_error"] < 1e-5, "of its kernels, each by itself"
    files = ["--inputs", str(tmp_path / "in.safetensors"), "--outputs", str(tmp_path / "out.safetensors")]
    for subject in (str(tmp_path / "graph.txt"), plan["plan_key"]):
        assert main(["run", subject, *files, "--target", "emulator", "--check"]) == 0
        results = read_tensors(tmp_path / "out.safetensors")
        np.testing.assert_allclose(results["out0"], np.exp(x), rtol=1e-6)
        np.testing.assert_allclose(results["out1"], np.exp(x).sum(1), rtol=1e-5)


@pytest.mark.parametrize("target", ["emulator:", "emulator:90", "emulator:sm_9", "emulators"])
def test_unknown_architectures(target: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown target"):
        detect(target, ObjectCache(tmp_path))
