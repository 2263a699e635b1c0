"""The vocabulary of sm_90a in the emulator: what each function does, and what the emulator says to wrong uses of it."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from codegen.kernel import Kernel
from codegen.launch.emulator import Emulation, EmulatorFault, run_arrays
from fusion_ir.records import TensorMapSpec
from testing.emulated_kernels import build
from tests.support.sm90_vocabulary import CASES, BoxCase, aligned, kernel

SEEDS = (0, 1, 2, 3, 4)


@pytest.fixture(scope="module")
def emulations() -> dict[str, Emulation]:
    return {e.entry: e for e in build([case.kernel for case in CASES.values()], "sm_90a")}


@pytest.mark.parametrize("name", CASES)
def test_it_does_what_it_says(name: str, emulations: dict[str, Emulation]) -> None:
    case = CASES[name]
    for seed in SEEDS:
        out = np.full(case.expected.shape, 77).astype(case.expected.dtype)
        run_arrays(emulations[name], case.inputs, [out], seed=seed)
        assert out.tobytes() == case.expected.tobytes(), seed


# ---- what the emulator says to wrong uses
BOX = BoxCase(np.uint16, (64, 8), (64, 8), (0, 0), 128)
BEGIN = """
  const uint32_t bar = shared_address(shared + 32768), at = shared_address(shared);
  if (threadIdx.x == 0) { barrier_init(bar, 1); fence_barrier_init(); }
  block_barrier();"""
BEGIN_TOGETHER = BEGIN.replace("block_barrier()", "cluster_barrier()")
LOAD = "if (threadIdx.x == 0) { barrier_expect(bar, 1024); tensor_load<2>(at, map0, bar, 0, 0); }"
MULTIPLY = """
  for (int i = threadIdx.x; i < 8192; i += 128) store<1, 1>(shared + i, Vec<uint8_t, 1>{0});
  fence_async_shared();
  block_barrier();
  const uint64_t da = matrix_descriptor(shared_address(shared), 16, 1024);
  float sums[4] = {};
  wgmma_fence();
  wgmma<bf16, 8>(sums, da, da, true);
  wgmma_commit();"""


@dataclass(frozen=True)
class Wrong:
    """A kernel, and what the report about it holds."""

    body: str
    report: str
    threads: int = 32
    cluster: int = 1


WRONG = {
    "too many arrivals": Wrong(
        BEGIN + "if (threadIdx.x < 2) { barrier_expect(bar, 16); }", "all 1 of this phase have come"
    ),
    "bytes that never come": Wrong(
        BEGIN + LOAD.replace("1024", "2048") + "if (threadIdx.x == 9) barrier_wait(bar, 0);", "deadlock"
    ),
    "more bytes than announced": Wrong(
        BEGIN + LOAD.replace("1024", "512") + "if (threadIdx.x == 9) barrier_wait(bar, 0);", "deadlock"
    ),
    "nobody waits for a copy": Wrong(BEGIN + LOAD, "which is through"),
    "copy into a block that is through": Wrong(
        BEGIN_TOGETHER
        + "if (threadIdx.x == 0 && blockIdx.x == 0) { barrier_expect(bar, 1024);"
        + " tensor_load_multicast<2>(at, map0, bar, 3, 0, 0); barrier_wait(bar, 0); }",
        "which is through",
        cluster=2,
    ),
    "arrival at a block that is through": Wrong(
        BEGIN_TOGETHER + "if (blockIdx.x == 0) { named_barrier(1, 32); barrier_arrive_at(bar, 1); }",
        "which is through",
        cluster=2,
    ),
    "a barrier never begun": Wrong("  barrier_wait(shared_address(shared), 0);", "was never begun, or overwritten"),
    "a barrier overwritten": Wrong(
        BEGIN
        + "if (threadIdx.x == 0) store<1, 1>((uint64_t*)(shared + 32768), Vec<uint64_t, 1>{0});"
        + "if (threadIdx.x == 0) barrier_arrive(bar);",
        "was never begun, or overwritten",
    ),
    "a box that is not aligned": Wrong(BEGIN + LOAD.replace("(at,", "(at + 64,"), "not aligned to 128"),
    "a box from within 16 bytes": Wrong(
        BEGIN + LOAD.replace("bar, 0, 0)", "bar, 4, 0)"), "from element 4 of a row, 2 bytes each"
    ),
    "a box from within 16 bytes before": Wrong(
        BEGIN + LOAD.replace("bar, 0, 0)", "bar, -6, 0)"), "from element -6 of a row, 2 bytes each"
    ),
    "a box beyond shared memory": Wrong(BEGIN + LOAD.replace("(at,", "(at + 73728 - 128,"), "of shared memory"),
    "blocks of a cluster part": Wrong(
        "  if (blockIdx.x == 0) {\n    cluster_barrier();\n  } else {\n    cluster_barrier();\n  }",
        "divergent cluster_barrier",
        cluster=2,
    ),
    "no wait for a product": Wrong(MULTIPLY, "wgmma that is under way", 128),
    "accumulators written meanwhile": Wrong(
        MULTIPLY + "sums[1] = 2.f; wgmma_wait<0>();", "was written before wgmma_wait", 128
    ),
    "registers written meanwhile": Wrong(
        MULTIPLY.replace(
            "wgmma<bf16, 8>(sums, da, da, true);", "uint32_t a[4] = {}; wgmma<bf16, 8>(sums, a, da, true);"
        )
        + "if (threadIdx.x == 40) a[2] = 1; wgmma_wait<0>();",
        "registers of a were written in lane 8",
        128,
    ),
    "no fence": Wrong(MULTIPLY.replace("wgmma_fence();", "") + "wgmma_wait<0>();", "before the first wgmma_fence", 128),
    "no fence since the last products": Wrong(
        MULTIPLY + "wgmma_wait<0>(); wgmma<bf16, 8>(sums, da, da, true); wgmma_commit(); wgmma_wait<0>();",
        "without a wgmma_fence since the last commit",
        128,
    ),
    "products of what threads wrote": Wrong(
        MULTIPLY.replace("fence_async_shared();", "") + "wgmma_wait<0>();", "and no fence_async_shared since", 128
    ),
    "a fence before the last write": Wrong(
        MULTIPLY.replace("block_barrier();", "store<1, 1>(shared + threadIdx.x, Vec<uint8_t, 1>{0}); block_barrier();")
        + "wgmma_wait<0>();",
        "and no fence_async_shared since",
        128,
    ),
    "a fence of others": Wrong(
        MULTIPLY.replace("fence_async_shared();", "if (threadIdx.x % 32) fence_async_shared();") + "wgmma_wait<0>();",
        "and no fence_async_shared since",
        128,
    ),
    "a copy over what a thread wrote": Wrong(
        BEGIN
        + "if (threadIdx.x == 0) store<1, 1>(shared + 512, Vec<uint8_t, 1>{0});"
        + LOAD
        + "if (threadIdx.x == 0) barrier_wait(bar, 0);",
        "tensor_load to byte 512",
    ),
    "a barrier that copies do not know of": Wrong(
        BEGIN.replace("fence_barrier_init();", "") + LOAD + "barrier_wait(bar, 0);", "begun without fence_barrier_init"
    ),
    "a barrier that another thread fenced": Wrong(
        BEGIN.replace("fence_barrier_init(); }", "} else fence_barrier_init();") + LOAD + "barrier_wait(bar, 0);",
        "begun without fence_barrier_init",
    ),
    "a barrier that other blocks do not know of": Wrong(
        BEGIN_TOGETHER.replace("fence_barrier_init();", "")
        + "if (threadIdx.x == 0) barrier_arrive_at(bar, 1 - blockIdx.x); cluster_barrier();",
        "other blocks may not know of it",
        cluster=2,
    ),
    "a descriptor within a pattern": Wrong(
        MULTIPLY.replace("shared_address(shared),", "shared_address(shared) + 128,") + "wgmma_wait<0>();",
        "into a pattern of 1024",
        128,
    ),
    "a descriptor with strides of no pattern": Wrong(
        MULTIPLY.replace("16, 1024)", "16, 512)") + "wgmma_wait<0>();", "has strides of 512 bytes", 128
    ),
    "one warp alone": Wrong(
        MULTIPLY.replace("wgmma_fence();", "if (threadIdx.x >= 32) return; wgmma_fence();") + "wgmma_wait<0>();",
        "of one warp group issued",
        128,
    ),
    "more registers than there are": Wrong(
        "  if (threadIdx.x < 128) {\n    registers_up<240>();\n  } else {\n    registers_up<232>();\n  }"
        "\n  if (threadIdx.x >= 256) registers_down<80>();",
        "registers of 65536",
        384,
    ),
}


def wrong_kernels() -> Iterator[Kernel]:
    for i, wrong in enumerate(WRONG.values()):
        yield kernel(
            f"wrong{i}", "const uint16_t* in0", wrong.body, threads=wrong.threads, cluster=wrong.cluster,
            maps=(BOX.spec,),
        )  # fmt: skip


@pytest.fixture(scope="module")
def wrong_emulations() -> dict[str, Emulation]:
    return dict(zip(WRONG, build(list(wrong_kernels()), "sm_90a"), strict=True))


@pytest.mark.parametrize("name", WRONG)
def test_wrong_uses_are_reported(name: str, wrong_emulations: dict[str, Emulation]) -> None:
    tensor = aligned(np.ones((8, 64), np.uint16))
    reports: list[str] = []
    for seed in SEEDS:
        try:
            run_arrays(wrong_emulations[name], [tensor], [], seed=seed)
        except EmulatorFault as fault:
            reports.append(str(fault))
    assert reports, "nobody noticed"
    assert any(WRONG[name].report in report for report in reports), reports


def test_boxes_that_their_swizzle_does_not_allow_are_refused() -> None:
    fields = BOX.spec.model_dump()
    for changed, problem in (
        ({"box": (128, 8)}, "rows of a box have 256 bytes"),
        ({"box": (4, 8)}, "rows of a box have 8 bytes"),
        ({"box": (64, 257)}, "is not between 1 and 256"),
        ({"strides_bytes": (136,)}, "not all multiples of 16"),
        ({"offset_bytes": 8}, "no multiple of 16"),
    ):
        with pytest.raises(ValueError, match=problem):
            TensorMapSpec.model_validate(fields | changed)
