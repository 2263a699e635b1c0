"""NVRTC compiles for every architecture, in a child, and reports what the assembler says. Takes no GPU."""

from pathlib import Path

import pytest

from codegen.devices.detection import DeviceError, detect
from codegen.kernel import Kernel, Launch
from codegen.sandbox.limits import DEFAULT_LIMITS, Limits
from codegen.sandbox.object_cache import ObjectCache
from codegen.toolchain.builder import Builder, Result
from codegen.toolchain.compiler import Binary, Failure
from codegen.toolchain.cuda import CudaCompiler, parse_report
from codegen.workbench.probe import probe_binary, probe_job
from codegen.workbench.workbench import Workbench
from fusion_ir.records import Device, Status
from tests.support.kernels import bare_headers, sum_graph

pytestmark = pytest.mark.compiles

ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120")


def kernel(entry: str, body: str) -> Kernel:
    source = f'extern "C" __global__ void {entry}(const float* in0, const float* in1, float* out0) {{ {body} }}\n'
    return Kernel(entry, source, "cuda", "hand", entry, Launch(grid=(1, 1, 1), block=(32, 1, 1)))


SUM = kernel("sum", "long long i = blockIdx.x * blockDim.x + threadIdx.x; out0[i] = in0[i] + in1[i];")


def device(arch: str) -> Device:
    """A GPU that need not be there."""
    return Device(
        target="cuda",
        name="GPU",
        arch=arch,
        units=132,
        vector_bytes=16,
        cache_bytes=50 << 20,
        memory_bytes=80 << 30,
        toolchain="NVRTC",
    )


def build(
    folder: Path, arch: str, *kernels: Kernel, limits: Limits = DEFAULT_LIMITS
) -> tuple[ObjectCache, list[Result]]:
    cache = ObjectCache(folder / "cache")
    builder = Builder(CudaCompiler(device(arch), limits, bare_headers(folder / "include")), cache, limits, 1)
    try:
        return cache, builder.compile(kernels)
    finally:
        builder.close()


def test_what_was_compiled_ahead_is_there(tmp_path: Path) -> None:
    compiler = CudaCompiler(device("sm_90a"), DEFAULT_LIMITS, bare_headers(tmp_path / "include"))
    with Workbench(device("sm_90a"), ObjectCache(tmp_path / "cache"), compiler=compiler) as bench:
        bench.expect([SUM])
        bench.compile([kernel("other", "out0[0] = 2;")])
        (built,) = bench.compile([SUM])
        assert isinstance(built, Binary)
        bench.compile([kernel("third", "out0[0] = 3;")])
        (again,) = bench.compile([SUM])
    assert isinstance(again, Binary)
    assert again.sha256 == built.sha256
    assert again.seconds == 0.0, "from the cache"


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_architecture(arch: str, tmp_path: Path) -> None:
    shared = kernel(
        "tile", "__shared__ float s[64]; s[threadIdx.x] = in0[threadIdx.x]; __syncthreads(); out0[0] = s[in1[0] > 0];"
    )
    cache, built = build(tmp_path, arch, SUM, shared)
    for binary in built:
        assert isinstance(binary, Binary), binary
        data = cache.get(binary.sha256)
        assert data is not None
        assert data[:4] == b"\x7fELF"
        assert binary.report is not None
        assert binary.report.registers
        assert binary.report.spill_bytes == 0
        assert binary.report.code_bytes
        assert binary.report.code_bytes >= 64
    assert [(b.report.shared_bytes or 0) >= 256 for b in built if isinstance(b, Binary) and b.report] == [False, True]
    assert built[0].sha256 == built[1].sha256  # type: ignore[union-attr]
    _, again = build(tmp_path, arch, SUM)
    assert isinstance(again[0], Binary)
    assert isinstance(built[0], Binary)
    assert (again[0].sha256, again[0].report, again[0].seconds) == (built[0].sha256, built[0].report, 0.0)


def test_a_bad_kernel_does_not_spoil_the_other(tmp_path: Path) -> None:
    _, built = build(tmp_path, "sm_80", kernel("bad", "int x = nowhere;"), SUM)
    assert isinstance(built[0], Failure)
    assert built[0].status is Status.compile_failed
    assert "nowhere" in built[0].detail
    assert str(tmp_path) not in built[0].detail
    assert isinstance(built[1], Binary)


def test_multiply_and_add_are_not_fused(tmp_path: Path) -> None:
    """--fmad=false: a fused multiply-add shows in the cubin of the explicit one only."""
    cache, built = build(
        tmp_path,
        "sm_80",
        kernel("apart", "out0[0] = in0[0] * in1[0] + in0[1];"),
        kernel("fused", "out0[0] = fmaf(in0[0], in1[0], in0[1]);"),
    )
    sizes = [cache.get(b.sha256) for b in built if isinstance(b, Binary)]
    assert len(sizes) == 2
    identity = CudaCompiler(device("sm_80"), Limits(), bare_headers(tmp_path / "include")).identity()
    assert "--fmad=false" in identity


@pytest.mark.turn("compile bombs")
def test_a_compile_bomb_is_stopped(tmp_path: Path) -> None:
    bomb = "constexpr long f(int n) { return n < 2 ? n : f(n - 1) + f(n - 2); } static_assert(f(80) > 0);"
    source = Kernel("bomb", f"{bomb}\n{SUM.source.replace('sum', 'bomb')}", "cuda", "hand", "bomb", Launch())
    unrolled = kernel(
        "unrolled",
        "float s = 0;\n#pragma unroll\nfor (int i = 0; i < 16384; i++) s = s * in0[i] + in1[i % 7];\nout0[0] = s;",
    )
    _, built = build(tmp_path, "sm_80", source, unrolled, limits=Limits(compile_seconds=1.5, kernels_per_file=1))
    assert all(isinstance(b, Failure) for b in built)
    assert isinstance(built[1], Failure)
    assert built[1].status is Status.compile_timeout


def test_without_a_gpu_compiling_works_and_measuring_says_why_not(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path / "cache")
    try:
        detect("cuda", cache, ceilings=False)
    except DeviceError as e:
        reason = str(e)
    else:
        pytest.skip("this machine has a GPU")
    assert "no CUDA device" in reason
    compiler = CudaCompiler(device("sm_90a"), Limits(), bare_headers(tmp_path / "include"))
    with Workbench(device("sm_90a"), cache, compiler=compiler) as bench:
        (binary,) = bench.compile([SUM])
        assert isinstance(binary, Binary)
        with pytest.raises(DeviceError, match="no CUDA device"):
            bench.measure(sum_graph(32), "s", [SUM])


def test_reports_are_read_from_what_ptxas_prints() -> None:
    log = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'k_a' for 'sm_90a'
ptxas info    : Function properties for k_a
    16 bytes stack frame, 24 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 1024 bytes smem
ptxas info    : Compiling entry function 'k_b' for 'sm_90a'
ptxas info    : Used 8 registers, used 0 barriers
"""
    found = parse_report(log)
    assert (found["k_a"].registers, found["k_a"].spill_bytes, found["k_a"].shared_bytes) == (255, 32, 1024)
    assert (found["k_a"].frame_bytes, found["k_b"].frame_bytes) == (16, None)
    assert (found["k_b"].registers, found["k_b"].spill_bytes, found["k_b"].shared_bytes) == (8, 0, 0)


def test_the_probe_compiles(tmp_path: Path) -> None:
    """And is compiled once."""
    cache, gpu = ObjectCache(tmp_path), device("sm_90a")
    compiler = CudaCompiler(gpu)
    file = probe_binary(gpu, compiler, cache, DEFAULT_LIMITS.compile_seconds)
    assert file.read_bytes().startswith(b"\x7fELF")
    assert probe_binary(gpu, compiler, cache, 0.0) == file
    assert probe_job(gpu, file, {"number": 0})["programs"][0]["steps"][0]["grid"] == (16, 1, 1)
