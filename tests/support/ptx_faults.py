"""Seeded faults of code that only a device runs: an edit of a header, and the kernels whose results show it as PTX, or
none where the statement's words to the compiler do."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from codegen.sandbox.temporary_folders import temporary_folder
from codegen.toolchain.compiler import INCLUDE
from tests.support.asm_statements import problems
from tests.support.ptx.compiled import compile_ptx
from tests.support.ptx.syntax import PtxError, parse
from tests.support.ptx_cases import CASES

CUDA, SM90, WGMMA, NARROW = "device_cuda.cuh", "device_sm90.cuh", "wgmma_sm90.cuh", "vec_narrow_cuda.cuh"
MEMORY, VEC, EXP = "vec_memory_cuda.cuh", "vec_cuda.cuh", "vec_exp.h"


@dataclass(frozen=True)
class PtxFault:
    """text, replacement: `count` times in the header. cases: of which one has to show it; none: `asm_statements`."""

    name: str
    header: str
    text: str
    replacement: str
    cases: str = ""
    arch: str = "80"
    count: int = 1

    @contextmanager
    def headers(self) -> Iterator[Path]:
        """A copy of codegen/include with the fault. Raises AssertionError where the text does not occur."""
        with temporary_folder() as folder:
            shutil.copytree(INCLUDE, folder, dirs_exist_ok=True)
            file = Path(folder, self.header)
            source = file.read_text()
            assert source.count(self.text) == self.count, (self.name, source.count(self.text))
            file.write_text(source.replace(self.text, self.replacement))
            yield Path(folder)

    def shows(self) -> str:
        """How the fault shows: "" if it does not."""
        with self.headers() as include:
            if not self.cases:
                return "; ".join(problems(include))
            cases = [CASES[name] for name in self.cases.split()]
            source = "".join(case.kernel.source for case in cases)
            try:
                module = parse(compile_ptx(source, self.arch, include))
            except PtxError as e:
                return str(e)
            return next((f"{c.name}: {found}" for c in cases if (found := c.problem(module))), "")


def cuda(name: str, text: str, replacement: str, cases: str = "", arch: str = "80", count: int = 1) -> PtxFault:
    return PtxFault(name, CUDA, text, replacement, cases, arch, count)


def sm90(name: str, text: str, replacement: str, cases: str = "", count: int = 1) -> PtxFault:
    return PtxFault(name, SM90, text, replacement, cases, "90a", count)


def wgmma(name: str, text: str, replacement: str, cases: str, count: int = 1) -> PtxFault:
    return PtxFault(name, WGMMA, text, replacement, cases, "90a", count)


BLOCK_FAULTS = (
    PtxFault("shared memory in 16 bytes", CUDA, "__align__(1024)", "__align__(16)", "box2", "90a"),
    cuda("barrier of a warp for a block", "barrier.cta.sync.aligned 0;", "bar.warp.sync 0xffffffff;", "copy_4"),
    cuda("barrier that nobody waits at", '"barrier.cta.sync.aligned 0;"', '""', "shared_float_4"),
    cuda("id and threads swapped", '"r"(id), "r"(threads)', '"r"(threads), "r"(id)', "named_barriers"),
    cuda("named barrier for a whole block", "aligned %0, %1;", "aligned %0;", "named_barriers"),
    cuda("no barrier of a warp", "bar.warp.sync %0;", "// %0", "warp_barriers"),
    cuda("barrier of all lanes", "bar.warp.sync %0;", "bar.warp.sync 0xffff;", "warp_barriers"),
    cuda("exchange from a lane by number", "shfl.sync.bfly.b32", "shfl.sync.idx.b32", "i32_0"),
    cuda("down with the clamp of up", "down.b32 %0, %1, %2, 0x1f", "down.b32 %0, %1, %2, 0", "i32_1"),
    cuda("up with the clamp of down", "up.b32 %0, %1, %2, 0,", "up.b32 %0, %1, %2, 0x1f,", "i32_2"),
    cuda("lanes within eights", "idx.b32 %0, %1, %2, 0x1f", "idx.b32 %0, %1, %2, 0x181f", "i32_3"),
    cuda("exchange among all lanes", '"r"(lanes), "r"(mask)', '"r"(lanes), "r"(~0u)', "branch_0"),
    cuda("ballot among all lanes", '"r"((uint32_t)x), "r"(mask)', '"r"((uint32_t)x), "r"(~0u)', "branch_3"),
    cuda("one word of two", "words[1] = f(words[1])", "words[1] = f(words[0])", "i64_0"),
    cuda("ballot of the others", "setp.ne.u32 p, %1, 0", "setp.eq.u32 p, %1, 0", "ballot"),
    cuda("fence of a block", "fence.acq_rel.gpu;", "fence.acq_rel.cta;", "fences"),
    cuda("relaxed for acquire", "ld.acquire.gpu.global.b32", "ld.relaxed.gpu.global.b32", "flag_int"),
    cuda("weak for acquire", "ld.acquire.gpu.global.b64", "ld.global.b64", "flag_int64_t"),
    cuda("weak for release", "st.release.gpu.global.b32", "st.global.b32", "flag_int"),
    cuda("release to a block", "st.release.gpu.global.b64", "st.release.cta.global.b64", "flag_int64_t"),
    cuda("half of a flag", "st.release.gpu.global.b64 [%0], %1", "st.release.gpu.global.b32 [%0], %1", "flag_int64_t"),
    cuda("waits while it holds", "if (holds(x)) return x;", "if (!holds(x)) return x;", "flag_int"),
    cuda("copies what is not there", "const int bytes = there ? BYTES : 0;", "const int bytes = BYTES;", "copy_16"),
    cuda("copies four bytes", '"n"(BYTES), "r"(bytes)', '"n"(4), "r"(bytes)', "copy_8"),
    cuda("half of a copy", "[%0], [%1], 16, %2;", "[%0], [%1], 8, %2;", "copy_16"),
    cuda("copies that no group takes", '"cp.async.commit_group;"', '""', "copy_16"),
    cuda("waits for all but one more", '%0;" ::"n"(N)', '%0;" ::"n"(N + 1)', "groups"),
    cuda(
        "words of a store swapped",
        '"r"(words[0]), "r"(words[1]), "r"(words[2])',
        '"r"(words[1]), "r"(words[0]), "r"(words[2])',
        "copy_16",
        "75",
    ),
    cuda("words of a pair swapped", '"r"(words[0]), "r"(words[1]) :', '"r"(words[1]), "r"(words[0]) :', "copy_8", "75"),
    cuda("reads what is not there", "if (there) {", "if (true) {", "copy_4", "75"),
)
MATRIX_FAULTS = (
    cuda("four matrices as they lie", "x4.trans.shared", "x4.shared", "load_matrix_x4_transposed"),
    cuda("two matrices as they lie", "x2.trans.shared", "x2.shared", "load_matrix_x2_transposed"),
    cuda("two matrices across", "x2.shared", "x2.trans.shared", "load_matrix_x2"),
    cuda(
        "matrices in another order",
        "x4.shared.b16 {%0, %1, %2, %3}",
        "x4.shared.b16 {%0, %2, %1, %3}",
        "load_matrix_x4",
    ),
    cuda("b0 and b1 swapped", '"r"(b0), "r"(b1))\n  if', '"r"(b1), "r"(b0))\n  if', "mma_bf16"),
    cuda("f16 read as bf16", 'FP_MMA("f16.f16")', 'FP_MMA("bf16.bf16")', "mma_f16"),
    cuda("b0 twice", '"r"(a[2]), "r"(a[3]), "r"(b1)', '"r"(a[2]), "r"(a[3]), "r"(b0)', "mma_f16", "75"),
    cuda("rows of a swapped", '"r"(a[2]), "r"(a[3]), "r"(b1)', '"r"(a[3]), "r"(a[2]), "r"(b1)', "mma_f16", "75"),
    cuda(
        "tf32 with b0 and b1 swapped",
        '"r"(b0), "r"(b1));\n}\n// The nearest',
        '"r"(b1), "r"(b0));\n}\n// The nearest',
        "mma_tf32",
    ),
    cuda("tf32 cut off", "cvt.rna.tf32.f32", "mov.b32", "tf32"),
    cuda("sums not taken in", '"+r"(d[0]), "+r"(d[1])', '"=r"(d[0]), "+r"(d[1])', "mma_s8"),
    cuda(
        "s8 with a1 and a2 swapped",
        '"+r"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2])',
        '"+r"(d[3]) : "r"(a[0]), "r"(a[2]), "r"(a[1])',
        "mma_s8",
    ),
)
SM90_FAULTS = (
    sm90(
        "barrier of one",
        "mbarrier.init.shared::cta.b64 [%0], %1;",
        "mbarrier.init.shared::cta.b64 [%0], 1;",
        "ping_pong",
    ),
    sm90(
        "no bytes announced", "expect_tx.shared::cta.b64 _, [%0], %1;", "expect_tx.shared::cta.b64 _, [%0], 0;", "box0"
    ),
    sm90("arrives at home", "shared::cluster.b64 _, [there]; }", "shared::cluster.b64 _, [%0]; }", "arrive_at"),
    sm90("waits when it is over", "@!over bra", "@over bra", "box0 ping_pong"),
    sm90("waits for the first phase", r"over, [%0], %1;\n", r"over, [%0], 0;\n", "ping_pong"),
    sm90("barriers that copies do not know of", '"fence.mbarrier_init.release.cluster;"', '""', "box0"),
    sm90("writes that wgmma does not see", '"fence.proxy.async.shared::cta;"', '""', "product12"),
    sm90(
        "cluster barrier that orders nothing",
        "barrier.cluster.arrive.release;",
        "barrier.cluster.arrive.relaxed;",
        "cluster_barriers",
    ),
    sm90("cluster barrier that nobody waits at", r"\nbarrier.cluster.wait.acquire;", "", "cluster_barriers"),
    sm90("meeting that nobody waits at", r"\nbarrier.cluster.wait;", "", "meet"),
    sm90("number of the cluster as a rank", "%%cluster_ctarank", "%%clusterid.x", "cluster_barriers"),
    sm90("two coordinates swapped", '"{%3, %4}"', '"{%4, %3}"', "box1"),
    sm90("three coordinates permuted", '"{%3, %4, %5}"', '"{%3, %5, %4}"', "box7"),
    sm90("four coordinates permuted", '"{%3, %4, %5, %6}"', '"{%3, %5, %4, %6}"', "box8"),
    sm90("five coordinates permuted", '"{%3, %4, %5, %6, %7}"', '"{%3, %4, %5, %7, %6}"', "box10"),
    sm90("multicast with coordinates permuted", '"{%4, %5, %6}"', '"{%4, %6, %5}"', "many5"),
    sm90("multicast with the last two swapped", '"{%4, %5, %6, %7, %8}"', '"{%4, %5, %6, %8, %7}"', "many7"),
    sm90("multicast to one block", "[%2], %3;", "[%2], 1;", "many0"),
    sm90(
        "multicast to nobody else",
        '".multicast::cluster [%0], [%1, " names "], [%2], %3;"',
        '" [%0], [%1, " names "], [%2];"',
        "many0",
    ),
    sm90("products without a fence", '"wgmma.fence.sync.aligned;"', '""', "product12"),
    sm90("products that no group takes", '"wgmma.commit_group.sync.aligned;"', '""', "product12"),
    sm90("waits for all products but one", '%0;" ::"n"(N) : "memory"', '%0;" ::"n"(N + 1) : "memory"', "product12"),
    sm90("takes registers that it has to give", "setmaxnreg.dec", "setmaxnreg.inc", "registers"),
    sm90("gives registers that it has to take", "setmaxnreg.inc", "setmaxnreg.dec", "registers"),
    wgmma("minus b", ", adds, 1, 1, ", ", adds, 1, -1, ", "product12"),
    wgmma("minus a", ", adds, 1, 1, ", ", adds, -1, 1, ", "product12"),
    wgmma("adds when it should not", "setp.ne.b32 adds", "setp.eq.b32 adds", "product12"),
    wgmma(
        "registers of a in another order",
        '"r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)',
        '"r"(a[2]), "r"(a[1]), "r"(a[3]), "l"(b)',
        "product16",
        2,
    ),
    wgmma(
        "a across for b",
        '"n"((int)A_ACROSS), "n"((int)B_ACROSS)',
        '"n"((int)B_ACROSS), "n"((int)A_ACROSS)',
        "product3",
        2,
    ),
    wgmma(
        "operands of one width swapped",
        'COLUMNS(40, "%20", "%21", "%22", "%23"',
        'COLUMNS(40, "%20", "%21", "%23", "%22"',
        "product16",
    ),
    wgmma("sums in another order", '", %8, %9, %10, %11"', '", %8, %9, %11, %10"', "product13"),
    wgmma("f16 multiplied as bf16", 'WGMMA_TEXT(N, "f16", i', 'WGMMA_TEXT(N, "bf16", i', "product12"),
)
VECTOR_FAULTS = (
    PtxFault(
        "halves of a pair of bf16",
        NARROW,
        'bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo)',
        'bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(lo), "f"(hi)',
        "to_bf16_4",
    ),
    PtxFault(
        "halves of a pair of f16", NARROW, "f16x2.f32 %0, %1, %2", "f16x2.f32 %0, %2, %1", "to_f16_4 to_bf16_4", count=2
    ),
    PtxFault(
        "sum for a factor", NARROW, "fma.rn.bf16x2 %0, %1, %2, %3", "fma.rn.bf16x2 %0, %1, %3, %2", "narrow_add_4"
    ),
    PtxFault("pairs of f16 for bf16", NARROW, "fma.rn.bf16x2", "fma.rn.f16x2", "narrow_mul_4"),
    PtxFault("f16 read as another", NARROW, "cvt.f32.f16", "cvt.f32.bf16", "from_f16_1"),
    PtxFault("f16 written as another", NARROW, "cvt.rn.f16.f32", "cvt.rn.bf16.f32", "to_f16_1", "75"),
    PtxFault("early registers in another order", MEMORY, "{%0, %1, %2, %3}", "{%1, %0, %2, %3}", "load_early_int"),
    PtxFault("one early access for all", MEMORY, "(const uint4*)p + i)) :", "(const uint4*)p)) :", "load_early_int"),
    PtxFault("denormals kept", VEC, "mul.rn.ftz.f32", "mul.rn.f32", "divided"),
    PtxFault(
        "reciprocal as the unit gives it", VEC, "core::fma(-core::fma(by, near, -1.0f), near, near)", "near", "divided"
    ),
    PtxFault("exponents beyond all bounds", VEC, "fma.rn.sat.f32", "fma.rn.f32", "exp"),
    PtxFault("largest number beside a NaN", VEC, "max.NaN.f32", "max.f32", "maximum"),
    PtxFault("largest for smallest", VEC, "min.NaN.f32", "max.NaN.f32", "minimum"),
    PtxFault("powers that are denormal", VEC, "ex2.approx.f32", "ex2.approx.ftz.f32", "exp2"),
    PtxFault("roots of denormals", VEC, "rsqrt.approx.f32", "rsqrt.approx.ftz.f32", "rsqrt"),
    PtxFault("exp without the low part of log2 e", EXP, "fma(x, L_LO, fma(x, L, -n))", "fma(x, L, -n)", "exp"),
)
# What no run shows: ptxas and NVVM move and join what they may.
WORD_FAULTS = (
    cuda("group that is committed early", '"cp.async.commit_group;" ::: "memory"', '"cp.async.commit_group;"'),
    cuda("wait that accesses pass", '"n"(N) : "memory"', '"n"(N)'),
    cuda("barrier that accesses pass", '"barrier.cta.sync.aligned 0;" ::: "memory"', '"barrier.cta.sync.aligned 0;"'),
    cuda(
        "barrier that may be left out", 'asm volatile("barrier.cta.sync.aligned %0', 'asm("barrier.cta.sync.aligned %0'
    ),
    cuda(
        "matrices that are loaded early",
        '"=r"(r[1]) : "r"(row_address) : "memory"',
        '"=r"(r[1]) : "r"(row_address)',
        count=2,
    ),
    cuda("exchange that may move", 'asm volatile("shfl.sync.bfly', 'asm("shfl.sync.bfly'),
    cuda(
        "flag that is read once",
        '"=r"(x) : "l"(__cvta_generic_to_global(p)) : "memory"',
        '"=r"(x) : "l"(__cvta_generic_to_global(p))',
    ),
    cuda("product that may move", "#define FP_MMA(types) asm volatile(", "#define FP_MMA(types) asm("),
    sm90(
        "code of sm_90a that may be left out",
        "#define SM90A_ASM(...) asm volatile(__VA_ARGS__)",
        "#define SM90A_ASM(...) asm(__VA_ARGS__)",
    ),
    sm90("barrier begun late", '"r"(bar), "r"(arrivals) : "memory"', '"r"(bar), "r"(arrivals)'),
    sm90("boxes that accesses pass", '"h"(mask), __VA_ARGS__ : "memory"', '"h"(mask), __VA_ARGS__'),
    sm90(
        "wait for products that accesses pass",
        '"wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"',
        '"wgmma.wait_group.sync.aligned %0;" ::"n"(N)',
    ),
    PtxFault("early load that comes late", MEMORY, 'asm volatile("ld.global.v4', 'asm("ld.global.v4'),
)
FAULTS = {f.name: f for f in (*BLOCK_FAULTS, *MATRIX_FAULTS, *SM90_FAULTS, *VECTOR_FAULTS, *WORD_FAULTS)}
assert len(FAULTS) == sum(map(len, (BLOCK_FAULTS, MATRIX_FAULTS, SM90_FAULTS, VECTOR_FAULTS, WORD_FAULTS)))
