"""Every function of device_cuda.cuh compiles for every architecture that has it, into the instruction it stands for."""

import pytest

from testing.vec_harness import INCLUDE
from tests.nvrtc.test_vec_headers import ARCHS, assert_registers_only

nvrtc = pytest.importorskip("cupy.cuda", reason="needs cupy and NVRTC").nvrtc

HEAD = """#include "loops_cuda.cuh"
extern "C" __global__ void __launch_bounds__(128) k(const bf16* in0, float* out0, int* out1) {
  SHARED_MEMORY(shared);
  const int i = threadIdx.x;
  float* const floats = (float*)shared;
"""
ANYWHERE = """
  float x = read(out0 + i);
  x += shuffle_xor(x, 16) + shuffle_down(x, 3) + shuffle_up(x, 2) + shuffle_from(x, i);
  const int64_t wide = shuffle_xor((int64_t)x, 1);
  const uint8_t narrow = shuffle_down((uint8_t)x, 1, 0xffffu);
  shared_store(floats + i * 4, splat<4>(x));
  block_barrier();
  named_barrier(1, 64);
  warp_barrier();
  const auto v = shared_load<float, 4>(floats + 4 * (i ^ 1));
  if (vote_any(x > 1) || vote_all(x < 2)) x += vote_ballot(x > 3);
  atomic_add(out0, x);
  atomic_add(floats, x);
  atomic_add((double*)out0, 2.0);
  atomic_add(out1, 3);
  atomic_add((int64_t*)out1, (int64_t)3);
  atomic_max(out1, 3);
  atomic_min(out0, x);
  atomic_max((double*)out0, 1.0);
  memory_fence();
  store_release(out1 + 8, load_acquire(out1 + 9));
  store_release((int64_t*)out1 + 8, wait_until((const int64_t*)out1 + 9, [](int64_t y) { return y > 3; }));
  copy_async<16>(shared_address(shared), in0 + i * 8, i < 7);
  copy_async<8>(shared_address(shared) + 64, in0);
  copy_async<4>(shared_address(shared) + 96, in0);
  copy_async_commit();
  copy_async_wait<0>();
  uint32_t a[4], b[2];
  float d[4] = {};
  load_matrix_x4(a, shared_address(shared) + i % 32 * 16);
  load_matrix_x2(b, shared_address(shared) + i % 32 * 16);
  mma_16x8x16<f16>(d, a, b[0], b[1]);
  load_matrix_x4_transposed(a, shared_address(shared) + i % 32 * 16);
  load_matrix_x2_transposed(b, shared_address(shared) + i % 32 * 16);
  mma_16x8x16<f16>(d, a, b[0], b[1]);
  store<4, 4>(out0 + 4 * i, v);
  out1[i] = wide + narrow;
  for (int r = 0; r < 4; r++) out0[4 * i + r] = d[r];
"""
FROM_80 = """
  int n[4] = {};
  mma_16x8x16<bf16>(d, a, b[0], b[1]);
  mma_16x8x8_tf32(d, a, tf32(x), b[1]);
  mma_16x8x32_s8(n, a, b[0], b[1]);
  for (int r = 0; r < 4; r++) out0[i + r] = d[r] + n[r];
"""
EXPECTED = (
    "shfl.sync.bfly",
    "shfl.sync.down",
    "shfl.sync.up",
    "shfl.sync.idx",
    "bar.warp.sync",
    "vote.sync.ballot",
    "ld.acquire.gpu.global.b32",
    "ld.acquire.gpu.global.b64",
    "st.release.gpu.global.b32",
    "st.release.gpu.global.b64",
)
EXPECTED_80 = (
    "cp.async.cg.shared.global", "cp.async.ca.shared.global", "cp.async.commit_group", "cp.async.wait_group 0",
    "ldmatrix.sync.aligned.m8n8.x4.shared", "ldmatrix.sync.aligned.m8n8.x2.trans.shared", "f32.bf16.bf16.f32",
    "f32.f16.f16.f32", "f32.tf32.tf32.f32", "s32.s8.s8.s32", "ld.shared.v4", "st.shared.v4", "atom.shared.add.f32",
)  # fmt: skip


def compiled(arch: str) -> tuple[str, str]:
    """PTX (empty for a real architecture) and the log of the assembler."""
    body = ANYWHERE + (FROM_80 if int(arch.partition("_")[2].rstrip("a")) >= 80 else "")
    program = nvrtc.createProgram(f"{HEAD}{body}}}\n", "kernels.cu", [], [])
    flags = [f"--gpu-architecture={arch}", "-std=c++17", "--fmad=false", "-default-device", f"-I{INCLUDE}"]
    real = arch.startswith("sm")
    try:
        nvrtc.compileProgram(program, [*flags, *(["--ptxas-options=-v"] if real else [])])
    except nvrtc.NVRTCError:
        pytest.fail(nvrtc.getProgramLog(program)[:4000])
    return ("" if real else nvrtc.getPTX(program).decode()), nvrtc.getProgramLog(program)


@pytest.mark.parametrize("arch", ARCHS)
def test_vocabulary_compiles_without_local_memory(arch: str) -> None:
    assert_registers_only(compiled(f"sm_{arch}")[1])


@pytest.mark.parametrize(("arch", "expected"), [("compute_75", EXPECTED), ("compute_80", (*EXPECTED, *EXPECTED_80))])
def test_functions_are_the_instructions_they_stand_for(arch: str, expected: tuple[str, ...]) -> None:
    ptx = compiled(arch)[0]
    assert [text for text in expected if text not in ptx] == []
    assert ("cp.async" in ptx) == (arch == "compute_80")
