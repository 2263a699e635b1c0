"""The table of GPUs that need not be there, and how many blocks of a kernel a multiprocessor holds."""

import pytest

from codegen.hardware.architectures import ARCHITECTURES, architecture, launched, occupancy
from codegen.hardware.gpus import GPUS, ceilings, facts, specified, tensor_gflops
from codegen.kernel import Launch
from codegen.toolchain.compiler import Binary, Failure
from codegen.workbench.outcome import not_worth_timing
from fusion_ir.records import CompileReport, Device, Status
from tests.support.candidates import is_dropped_for_spills
from tests.support.devices import CPU_DEVICE, CUDA_DEVICE
from tests.support.kernels import sum_kernel

LANES = {80: 64, 89: 128, 90: 128, 100: 128}  # f32 units of a multiprocessor, by compute capability


@pytest.mark.parametrize("name", GPUS)
def test_a_row_agrees_with_itself(name: str) -> None:
    """Peak of f32: two operations of every unit in every clock, to three digits or to the whole 5 TFLOP/s that the
    vendor writes for B200. Tensor cores: tf32 at half the rate of 16 bits, those at half the rate of 8 bits."""
    gpu = GPUS[name]
    lanes = LANES[int(gpu.arch.removeprefix("sm_").rstrip("a"))]
    assert gpu.fma_gflops == pytest.approx(2 * lanes * gpu.multiprocessors * gpu.clock_mhz / 1e3, rel=0.01)
    rates = gpu.tensor_gflops
    assert rates["bf16"] == rates["f16"] == pytest.approx(2 * rates["tf32"], rel=0.03)
    if "f8e4m3" in rates:
        assert rates["f8e4m3"] == rates["f8e5m2"] == pytest.approx(2 * rates["f16"], rel=0.01)
    assert gpu.sources


@pytest.mark.parametrize("name", GPUS)
def test_a_specified_device_is_never_the_detected_one(name: str) -> None:
    there = specified(name, "NVRTC 13.0").model_copy(update={"origin": "detected"})
    absent = specified(name, "NVRTC 13.0")
    assert absent.class_key != there.class_key
    assert Device.model_validate_json(absent.model_dump_json()) == absent
    assert facts(there) == facts(absent) == GPUS[name]


def test_records_of_devices_that_are_there_are_as_they_were() -> None:
    assert "origin" not in CUDA_DEVICE.model_dump(mode="json")
    assert CUDA_DEVICE.class_key == "cuda-f545273efa540427"
    assert CPU_DEVICE.class_key == "cpu-05f242dc9b5b6b17"


def test_assumptions_are_below_the_peaks() -> None:
    for gpu in GPUS.values():
        found = ceilings(gpu)
        assert found.copy_gbps[-1][1] < found.read_gbps[-1][1] == gpu.dram_gbps
        assert all(copy < read for (_, copy), (_, read) in zip(found.copy_gbps, found.read_gbps, strict=True))


def test_drivers_say_more_than_the_product() -> None:
    named = CUDA_DEVICE.model_copy(update={"name": "NVIDIA H100 80GB HBM3"})
    assert facts(named) == GPUS["h100"]
    assert facts(named.model_copy(update={"units": 114})) is None, "the PCIe product has fewer multiprocessors"
    assert facts(named.model_copy(update={"name": "NVIDIA H1000"})) is None
    assert facts(CPU_DEVICE) is None
    half = CUDA_DEVICE.model_copy(update={"units": 66})
    assert tensor_gflops(half, "bf16") == pytest.approx(989.4e3 / 2)
    assert tensor_gflops(half, "f32") is None


@pytest.mark.parametrize(
    ("arch", "threads", "registers", "shared", "blocks"),
    [
        ("sm_90a", 256, 32, 0, 8),  # by threads: 2048
        ("sm_90a", 32, 16, 0, 32),  # by blocks
        ("sm_90a", 256, 128, 0, 2),  # by registers: 64 K / (128 * 256)
        ("sm_80", 128, 232, 0, 2),  # 29 units of 256 a warp, two warps in each scheduler's quarter: 8 warps
        ("sm_80", 256, 40, 100 << 10, 1),  # by shared memory: 164 KiB
        ("sm_80", 256, 40, 80 << 10, 2),  # 81 KiB each with what the system takes
        ("sm_90a", 384, 168, 217_152, 1),
        ("sm_86", 256, 40, 0, 6),  # 1536 threads
        ("sm_89", 64, 16, 0, 24),
        ("sm_75", 1024, 64, 0, 1),
        ("sm_89", 128, 64, 100 << 10, 0),  # no block has more than 99 KiB
        ("sm_90a", 1056, 32, 0, 0),
        ("sm_90a", 33, 32, 0, 32),  # threads come in warps
    ],
)
def test_occupancy(arch: str, threads: int, registers: int, shared: int, blocks: int) -> None:
    assert occupancy(arch, threads, shared, CompileReport(registers=registers)) == blocks


def test_static_shared_memory_counts_too() -> None:
    report = CompileReport(registers=32, shared_bytes=60 << 10)
    assert occupancy("sm_90a", 128, 60 << 10, report) == 1
    found = launched(report, "sm_90a", Launch(block=(32, 4, 1), shared_bytes=1 << 10))
    assert (found.blocks, found.dynamic_shared_bytes, found.occupancy) == (3, 1024, 0.188)


def test_architectures_by_name() -> None:
    assert architecture("sm_90") == architecture("sm_90a") == ARCHITECTURES[90]
    assert architecture("sm_121") == ARCHITECTURES[120]
    for bad in ("sm_70", "90", "compute_90", "x86-64"):
        with pytest.raises(ValueError, match="sm_"):
            architecture(bad)


def built(family: str, spilled: int = 0, **fields: object) -> tuple[object, Binary]:
    report = CompileReport(registers=255, spill_bytes=spilled, **fields)  # type: ignore[arg-type]
    kernel = sum_kernel(8, f"k{spilled}{family}")
    return type(kernel)(kernel.entry, kernel.source, "cuda", family, "s", kernel.launch), Binary(
        "0", "k", "0", 0.0, report
    )


def test_what_spills_is_dropped_but_never_all_of_a_family() -> None:
    rows = [
        built("matmul", 96), built("matmul"), built("matmul", warnings=("C7510",)), built("transpose", 40),
        built("transpose", 8), built("reduction", 500), built("gemv", blocks=0),
    ]  # fmt: skip
    kernels = [k for k, _ in rows]
    dropped = not_worth_timing(kernels, [b for _, b in rows])  # type: ignore[arg-type]
    assert dropped == {
        0: "spills 96 bytes of registers in each thread",
        2: "its wgmma is serialised (C7510)",
        3: "spills 40 bytes of registers in each thread",
    }
    assert [is_dropped_for_spills(f"sum s: dropped: {fault}") for fault in dropped.values()] == [True, False, True]
    assert not is_dropped_for_spills(f"sum s: incorrect: {dropped[0]}")
    assert not is_dropped_for_spills(f"sum s: dropped: {dropped[0]}, and {dropped[2]}")
    failed = Failure(Status.compile_failed, "no")
    assert not_worth_timing(kernels[:2], [rows[0][1], failed]) == {}, "nothing else of the family is there to be timed"  # type: ignore[arg-type]
