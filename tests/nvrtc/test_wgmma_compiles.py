"""The code of family `wgmma` compiles for sm_90a: every function of its vocabulary, and kernels that keep their sums in
registers and their products asynchronous. Takes no GPU."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest

from codegen.families import FAMILIES
from codegen.families.wgmma import MOST_SUMS, WgmmaSchedule
from codegen.hardware.architectures import launched
from codegen.kernel import Kernel, Launch
from codegen.toolchain.cuda import FLAGS, CudaCompiler, parse_report
from codegen.toolchain.elf import whole
from fusion_ir import building as build
from fusion_ir.core.graph import Graph, InputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import bf16, f16
from tests.support.devices import CUDA_DEVICE
from tests.support.products import dense_graph, mlp, spec
from tests.support.sass import disassemble, nvdisasm
from tests.support.sm90_vocabulary import CASES
from tests.support.whole import in_turn, some

WGMMA = FAMILIES["wgmma"]
FIRST = Launch()


def compiled(kernels: Sequence[Kernel], folder: Path) -> tuple[str, bytes]:
    """The log of NVRTC and ptxas for the kernels in one file, and its machine code. Fails where they do not compile."""
    compiler = CudaCompiler(CUDA_DEVICE)
    flags = ["--gpu-architecture=sm_90a", *FLAGS, f"-I{compiler.include}"]
    request = {"job": "compile", "source": compiler.unit(kernels), "flags": flags, "file": str(folder / "unit.cubin")}
    with compiler.slot() as slot:
        answer = slot.call(request, seconds=280.0)
    assert answer["ok"], answer["log"]
    return str(answer["log"]), whole((folder / "unit.cubin").read_bytes())


def tensor(*sizes: int, f: bool = False) -> InputSpec:
    dtype = f16 if f else bf16
    return InputSpec(spec(sizes).shape, dtype, spec(sizes).strides, 16)


def turned(x: Node) -> Node:
    return build.permute(x, [1, 0])


def across(x: Node, w: Node) -> Node:
    return build.matmul(turned(x), w)


def along(x: Node, w: Node) -> Node:
    return build.matmul(x, turned(w))


def largest() -> list[WgmmaSchedule]:
    """Schedules that give a thread as many sums as it may have, for each number of consumers."""
    tiles = ((128, 192, 1, 1), (128, 256, 2, 2), (256, 128, 2, 1), (192, 192, 3, 1), (192, 64, 3, 2))
    made = [WgmmaSchedule(rows, columns, 2, n, 0, cluster, 8, 32) for rows, columns, n, cluster in tiles]
    assert {s.rows // (64 * s.consumers) * s.columns // 2 for s in made} >= set(MOST_SUMS.values())
    return made


# A multiprocessor has two blocks of it.
RESIDENT = WgmmaSchedule(128, 64, 4, 2, 0, 1, 8, 16)


def kernels_of(graph: Graph, schedules: Sequence[str]) -> list[Kernel]:
    return [WGMMA.emit(graph, s, CUDA_DEVICE) for s in schedules]


@dataclass(frozen=True)
class Unit:
    """Kernels compiled in one file: `epilogue` with one, `plain` without."""

    epilogue: list[Kernel]
    plain: list[Kernel]
    log: str
    cubin: bytes


@pytest.fixture(scope="module")
def unit(tmp_path_factory: pytest.TempPathFactory) -> Unit:
    fused = dense_graph([tensor(4096, 4096), tensor(4096, 4096), tensor(4096), tensor(4096, 4096)], mlp)
    rows = dense_graph([tensor(2048, 4096, f=True), tensor(2048, 4096, f=True)], along)
    columns = dense_graph([tensor(4096, 2048), tensor(4096, 2048)], across)
    narrow = "wgmma{rows=64,columns=8,stages=4,consumers=1,pingpong=0,cluster=1,group=1,staged=8}"
    schedules = [*WGMMA.space(fused, CUDA_DEVICE), *map(str, largest())]
    epilogue = kernels_of(fused, [*some(schedules, 3), str(RESIDENT)])
    plain = kernels_of(rows, some([*WGMMA.space(rows, CUDA_DEVICE)[:3], narrow], 2))
    plain += kernels_of(columns, in_turn(WGMMA.space(columns, CUDA_DEVICE)[:3], 1))
    kernels = list({k.entry: k for k in (*epilogue, *plain)}.values())
    return Unit(epilogue, plain, *compiled(kernels, tmp_path_factory.mktemp("wgmma")))


@pytest.mark.soak
def test_kernels_spill_nothing_and_stay_asynchronous(unit: Unit) -> None:
    for code in ("C7508", "C7510", "C7511"):  # registers not handed over; products one after the other
        assert code not in unit.log, [line for line in unit.log.splitlines() if code in line]
    reports = parse_report(unit.log)
    for k in (*unit.epilogue, *unit.plain):
        report = reports[k.entry]
        assert (report.spill_bytes, report.frame_bytes, report.warnings) == (0, 0, ()), k.schedule
        if k.schedule == str(RESIDENT):
            assert launched(report, CUDA_DEVICE.arch, k.launch).blocks == RESIDENT.resident == 2
            assert k.launch.grid[0] == 2 * CUDA_DEVICE.units


@pytest.mark.soak
@pytest.mark.skipif(nvdisasm() is None, reason="needs nvidia-cuda-nvdisasm: the extra `dev`")
def test_machine_code_multiplies_and_copies_by_hardware(unit: Unit) -> None:
    code = disassemble(unit.cubin)
    for k in (*unit.epilogue, *unit.plain):
        sass = code[k.entry]
        assert sass.count("HGMMA") >= 4, k.schedule
        assert sass.count("UTMALDG") >= 2, k.schedule
        trades = "consumers=2" in k.schedule and k.schedule != str(RESIDENT)
        assert sass.count("USETMAXREG") == (2 if trades else sass.count("USETMAXREG")), k.schedule
        assert not sass.local, k.schedule
        assert set(sass.global_stores) == {16}, k.schedule
        assert set(sass.global_loads) == ({16} if k in unit.epilogue else set()), k.schedule


def vocabulary() -> str:
    loads = [
        f"  tensor_load<{n}>(at, map0, bar, {', '.join('0' * n)});\n"
        f"  tensor_load_multicast<{n}>(at, map0, bar, mask, {', '.join('0' * n)});"
        for n in range(1, 6)
    ]
    return "\n".join(
        [
            'extern "C" __global__ void __cluster_dims__(2, 1, 1) vocabulary(const __grid_constant__ TensorMap map0) {',
            "  SHARED_MEMORY(shared);",
            "  const uint32_t at = shared_address(shared), bar = at + 1024;",
            "  const uint16_t mask = 3;",
            "  barrier_init(bar, 1);",
            "  fence_barrier_init();",
            "  cluster_barrier();",
            "  tensor_prefetch(map0);",
            "  barrier_expect(bar, 16);",
            *loads,
            "  barrier_arrive(bar);",
            "  barrier_arrive_at(bar, cluster_rank() ^ 1);",
            "  barrier_wait(bar, 0);",
            "  fence_async_shared();",
            "  registers_up<232>();",
            "  registers_down<40>();",
            "}",
        ]
    )


def products(dtype: str, columns: int) -> str:
    """All forms of a wgmma of so many columns."""
    forms = [
        f"  wgmma<{dtype}, {columns}, {a}, {b}>(sums, at, at, go);" for a, b in product(("false", "true"), repeat=2)
    ]
    forms += [f"  wgmma<{dtype}, {columns}, {b}>(sums, left, at, go);" for b in ("false", "true")]
    return "\n".join(
        [
            f'extern "C" __global__ void __launch_bounds__(128) {dtype}_{columns}(float* out, uint64_t at, bool go) {{',
            f"  float sums[{columns // 2}] = {{}};",
            "  const uint32_t left[4] = {threadIdx.x, 1, 2, 3};",
            "  wgmma_fence();",
            *forms,
            "  wgmma_commit();",
            "  wgmma_wait<0>();",
            f"  for (int i = 0; i < {columns // 2}; i++) out[i * 128 + threadIdx.x] = sums[i];",
            "}",
        ]
    )


@pytest.mark.soak
@pytest.mark.parametrize("part", in_turn(["all but products", "bf16", "f16"], 1))
def test_vocabulary_compiles(part: str, tmp_path: Path) -> None:
    sources = (
        [vocabulary()] if part == "all but products" else [products(part, n) for n in some(range(8, 257, 8), 8, part)]
    )
    source = "\n".join(sources)
    log, _ = compiled([Kernel("all", source, "cuda", "hand", part, FIRST, headers=("device_sm90.cuh",))], tmp_path)
    assert "C7510" not in log
    assert len(parse_report(log)) == len(sources)


@pytest.mark.soak
def test_kernels_that_a_device_is_tested_with_compile(tmp_path: Path) -> None:
    drawn = dict(some(CASES.items(), 6))
    log, _ = compiled([case.kernel for case in drawn.values()], tmp_path)
    assert parse_report(log).keys() == drawn.keys()
