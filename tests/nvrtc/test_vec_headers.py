"""CUDA's header compiles for every architecture with no other include, keeps values in registers, moves 16 bytes."""

import re
from collections.abc import Sequence

import pytest

from fusion_ir.dtype import DTYPES
from testing.vec_harness import CTYPE, INCLUDE, Function
from testing.vec_ops import EXACT, INEXACT, functions
from tests.support.whole import in_turn, some

nvrtc = pytest.importorskip("cupy.cuda", reason="needs cupy and NVRTC").nvrtc
WIDTH = 4
ARCHS = ("75", "80", "86", "89", "90a", "100a", "120")
CASTS = [
    Function(f"cast_{a}_{b}", f"cast<{CTYPE[b.name]}>({{0}})", (a,), b, WIDTH)
    for a in DTYPES.values()
    for b in DTYPES.values()
]
EVERYTHING = [*(f for _, f in functions((*EXACT, *INEXACT), WIDTH)), *CASTS]

# bf16 as RoPE has it, masked tails, all kinds of loads and stores, random numbers.
KERNELS = """
extern "C" __global__ void rope(const bf16* RESTRICT x, const float* RESTRICT angle, bf16* RESTRICT y) {
  const idx_t i = (idx_t)(blockIdx.x * blockDim.x + threadIdx.x) * 8;
  const auto a = cast<float>(load<8, 8>(x + i));
  const auto t = load<8, 4>(angle + i);
  const auto c = cast<float>(cast<bf16>(mul_(a, cos_(t)))), s = cast<float>(cast<bf16>(mul_(neg_(a), sin_(t))));
  store_stream<8, 8>(y + i, cast<bf16>(add_(c, s)));
}
extern "C" __global__ void tail(const float* RESTRICT x, float* RESTRICT y, int n) {
  const idx_t i = (idx_t)(blockIdx.x * blockDim.x + threadIdx.x) * 4;
  const auto a = add_(load_masked<4, 4>(x + i, n - i), load_strided<4>(x, 3, n - i));
  const auto b = add_(load_tile<4, 2>(x), load_repeat<4, 2>(x));
  const auto c = load_lanes<4>([=](int l) { return x[(i + l) % 7]; }, n - i);
  const auto u = uniform_<4>(n, 1, 2, iota_<int64_t, 4>(i));
  const auto r = uniform_run<4>(n, 1, 2, i);
  store_masked<4, 4>(y + i, add_(add_(a, b), add_(c, add_(u, r))), n - i);
  store_strided<4>(y, 5, a, n - i);
  store_lanes<4>(b, [=](int l, float v) { y[l * l] = v; }, n - i);
}
"""


def kernel(f: Function) -> str:
    """`f` over whole aligned vectors."""
    w = f.width
    inputs = [f"const {CTYPE[t.name]}* RESTRICT p{i}" for i, t in enumerate(f.operands)]
    loads = " ".join(f"const auto x{i} = load<{w}, {w}>(p{i} + i);" for i in range(len(f.operands)))
    value = f.expression.format(*(f"x{i}" for i in range(len(f.operands))))
    return (
        f'extern "C" __global__ void {f.name}({", ".join(inputs)}, {CTYPE[f.result.name]}* RESTRICT q) {{ '
        f"const idx_t i = (idx_t)(blockIdx.x * blockDim.x + threadIdx.x) * {w}; {loads} "
        f"store<{w}, {w}>(q + i, {value}); }}\n"
    )


def compile_cuda(source: str, arch: str, options: Sequence[str] = ()) -> tuple[str, str]:
    """PTX (empty for a real architecture) and the log of the assembler."""
    program = nvrtc.createProgram('#include "vec_cuda.cuh"\n' + source, "kernels.cu", [], [])
    flags = [f"--gpu-architecture={arch}", "-std=c++17", "--fmad=false", "-default-device", f"-I{INCLUDE}", *options]
    try:
        nvrtc.compileProgram(program, flags)
    except nvrtc.NVRTCError:
        pytest.fail(nvrtc.getProgramLog(program)[:4000])
    return (nvrtc.getPTX(program).decode() if arch.startswith("compute") else ""), nvrtc.getProgramLog(program)


def assert_registers_only(log: str) -> None:
    frames = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", log)
    assert frames and set(frames) == {("0", "0", "0")}, log[:4000]


@pytest.mark.soak
@pytest.mark.parametrize("arch", in_turn(ARCHS, 3))
def test_kernels_compile_without_spills(arch: str) -> None:
    assert_registers_only(compile_cuda(KERNELS, f"sm_{arch}", ["--ptxas-options=-v"])[1])


@pytest.mark.soak
@pytest.mark.parametrize("arch", in_turn(["75", "90a"], 1))
def test_every_function_compiles_without_spills(arch: str) -> None:
    drawn = some(EVERYTHING, len(EVERYTHING) // 6, arch)
    assert_registers_only(compile_cuda("".join(map(kernel, drawn)), f"sm_{arch}", ["--ptxas-options=-v"])[1])


def test_accesses_are_as_wide_as_alignment_allows() -> None:
    moves = "".join(
        kernel(Function(f"move_{t}_{w}", "{0}", (DTYPES[t],), DTYPES[t], w))
        for t, w in (("f32", 8), ("bf16", 8), ("bf16", 2), ("u8", 16))
    )
    ptx, _ = compile_cuda(moves, "compute_80")
    by_kernel = {part.split("(")[0].strip(): part for part in ptx.split(".visible .entry ")[1:]}
    counts = {name: len(re.findall(r"ld\.global\.(?:nc\.)?v4\.(?:b|u)32", text)) for name, text in by_kernel.items()}
    assert counts == {"move_f32_8": 2, "move_bf16_8": 1, "move_bf16_2": 0, "move_u8_16": 1}
    assert len(re.findall(r"ld\.global\.(?:nc\.)?(?:b|u)32", by_kernel["move_bf16_2"])) == 1


def test_multiplication_and_addition_stay_apart() -> None:
    ptx, _ = compile_cuda(
        kernel(Function("lerp", "lerp_({0}, {1}, {2})", (DTYPES["f32"],) * 3, DTYPES["f32"], 1)), "compute_80"
    )
    assert "fma" not in ptx and "mul" in ptx


def test_index_type_is_chosen_by_macro() -> None:
    check = 'static_assert(sizeof(idx_t) == EXPECTED_SIZE, "width of an index"); __global__ void empty() {}'
    compile_cuda(check, "compute_80", ["-DEXPECTED_SIZE=4"])
    compile_cuda(check, "compute_80", ["-DEXPECTED_SIZE=8", "-DFP_INDEX64"])
