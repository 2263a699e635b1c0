"""Facts about GPUs, so that plans can be made for one that is not there.

Everything in a row of `GPUS` is the vendor's figure, without sparsity, at the boost clock. What kernels reach of it is
not known before they run: `ceilings` are assumptions, and say so wherever a plan shows them.
"""

from dataclasses import dataclass, field
from functools import cache

from codegen.hardware.architectures import capability
from codegen.hardware.libraries import CUBLASLT
from fusion_ir.records import Ceilings, Device

# Shares of the peak. Copies: published kernels for H100 reach 88-92 % of 3.35 TB/s reading and writing, and plain
# copies on an H200 about 4.3 of 4.8 TB/s.
COPY_SHARE = 0.9
# Bandwidth of copies in L2, times that of copies in memory. Between 1.5 and 3 on A100 and H100.
L2_TIMES = 2.0
L2_PORT_BYTES = 64  # that a multiprocessor takes from L2 in a clock, at the most (A100 white paper)
LAUNCH_US = 2.0  # between the starts of empty kernels in a stream: assumed, like the shares above
# Between the starts of empty kernels in a CUDA graph, at the least: an H200's, with CUDA 13.0; assumed for others.
LEAST_LAUNCH_US = 0.797


@dataclass(frozen=True)
class Gpu:
    """One product. multiprocessors, clock_mhz (boost), l2_bytes, dram_bytes, dram_gbps: as sold. fma_gflops: f32, two
    operations per multiply-add. tensor_gflops: dense products by dtype of the operands, sums in f32 (i32 for i8).
    sources: the documents with these figures."""

    name: str
    arch: str
    multiprocessors: int
    clock_mhz: int
    l2_bytes: int
    dram_bytes: int
    dram_gbps: float
    fma_gflops: float
    tensor_gflops: dict[str, float] = field(hash=False)
    sources: tuple[str, ...]


def _tensor(tf32: float, half: float, eight: float | None, i8: float, f64: float | None = None) -> dict[str, float]:
    """GFLOP/s by dtype, from TFLOP/s: one rate for bf16 and f16, one for both f8; dtypes without a rate are left
    out."""
    rates = {"tf32": tf32, "f16": half, "bf16": half, "f8e4m3": eight, "f8e5m2": eight, "i8": i8, "u8": i8, "f64": f64}
    return {dtype: 1e3 * rate for dtype, rate in rates.items() if rate is not None}


H100_PAPER = "NVIDIA H100 Tensor Core GPU Architecture (white paper, v1.04), tables 2 and 3"
ADA_PAPER = "NVIDIA Ada GPU Architecture (white paper, v2.02)"

GPUS: dict[str, Gpu] = {
    "h200": Gpu(
        "NVIDIA H200", "sm_90a", 132, 1980, 50 << 20, 141_000_000_000, 4800.0, 66_900.0,
        _tensor(494.7, 989.4, 1978.9, 1978.9, 66.9),
        ("NVIDIA H200 Tensor Core GPU (data sheet), SXM: memory", f"{H100_PAPER}: the same multiprocessors and L2"),
    ),
    "h100": Gpu(
        "NVIDIA H100", "sm_90a", 132, 1980, 50 << 20, 80_000_000_000, 3350.0, 66_900.0,
        _tensor(494.7, 989.4, 1978.9, 1978.9, 66.9), ("NVIDIA H100 Tensor Core GPU (data sheet), SXM", H100_PAPER),
    ),
    "a100": Gpu(
        "NVIDIA A100", "sm_80", 108, 1410, 40 << 20, 80_000_000_000, 2039.0, 19_500.0,
        _tensor(156.0, 312.0, None, 624.0, 19.5),
        ("NVIDIA A100 Tensor Core GPU (data sheet), SXM 80 GB: memory",
         "NVIDIA A100 Tensor Core GPU Architecture (white paper, v1.0), table 4"),
    ),
    "l4": Gpu(
        "NVIDIA L4", "sm_89", 58, 2040, 48 << 20, 24_000_000_000, 300.0, 30_300.0,
        _tensor(60.5, 121.0, 242.5, 242.5),
        ("NVIDIA L4 Tensor Core GPU (data sheet): rates there are with sparsity, twice these",
         f"{ADA_PAPER}, appendix on L4: multiprocessors, clock, L2"),
    ),
    "rtx4090": Gpu(
        "NVIDIA GeForce RTX 4090", "sm_89", 128, 2520, 72 << 20, 24 << 30, 1008.0, 82_600.0,
        _tensor(82.6, 165.2, 330.3, 660.6), (f"{ADA_PAPER}, appendix A: peak rates with sums in f32",),
    ),
    "b200": Gpu(
        "NVIDIA B200", "sm_100a", 148, 1965, 126 << 20, 180_000_000_000, 8000.0, 75_000.0,
        _tensor(1100.0, 2250.0, 4500.0, 4500.0, 37.0),
        ("NVIDIA HGX B200 (data sheet): an eighth of the board's memory, bandwidth and rates",
         "multiprocessors, clock and L2: as drivers report them, no data sheet has them"),
    ),
}  # fmt: skip


# Targets as people write them: a pattern, and the same in words. Those of `GPUS` are planned for, never run on.
TARGET_PATTERN = (
    rf"^(cpu(:[1-9][0-9]{{0,3}})?(:mkl)?|cuda(:[0-9]{{1,2}})?|emulator(:sm_[0-9]{{2,3}}[af]?)?|{'|'.join(GPUS)})$"
)
TARGET_WORDS = (
    "cpu or cpu:THREADS, with :mkl behind it where plans may call PyTorch's MKL, cuda, cuda:N, emulator or "
    f"emulator:ARCH; for predictions {', '.join(GPUS)}"
)


def ceilings(gpu: Gpu) -> Ceilings:
    """Assumed ceilings of a GPU; only `read_gbps` of main memory and `fma_gflops`, the peaks, are facts."""
    copy = COPY_SHARE * gpu.dram_gbps
    port = gpu.multiprocessors * L2_PORT_BYTES * gpu.clock_mhz / 1e3
    return Ceilings(
        copy_gbps=((gpu.l2_bytes, L2_TIMES * copy), (0, copy)),
        read_gbps=((gpu.l2_bytes, port), (0, gpu.dram_gbps)),
        launch_us=LAUNCH_US,
        fma_gflops=gpu.fma_gflops,
    )


def specified(target: str, toolchain: str) -> Device:
    """The device of a row of `GPUS`. Raises KeyError."""
    gpu = GPUS[target]
    return Device(
        target="cuda",
        name=gpu.name,
        arch=gpu.arch,
        features=(CUBLASLT,),
        units=gpu.multiprocessors,
        vector_bytes=16,
        cache_bytes=gpu.l2_bytes,
        memory_bytes=gpu.dram_bytes,
        toolchain=toolchain,
        ceilings=ceilings(gpu),
        origin="specified",
    )


def facts(device: Device) -> Gpu | None:
    """The row of a device, there or not, by its name, its architecture and its multiprocessors. Drivers report longer
    names than a row has ("NVIDIA H100 80GB HBM3"). None for a device without a row."""
    return _row(device.name, device.arch, device.units) if device.target == "cuda" else None


@cache
def _row(name: str, arch: str, multiprocessors: int) -> Gpu | None:
    """`facts` by the figures that tell products apart: H100 is the name of several, with more or fewer
    multiprocessors."""
    rows = [g for g in GPUS.values() if f"{name} ".startswith(f"{g.name} ") and g.multiprocessors == multiprocessors]
    return next((g for g in rows if capability(g.arch) == capability(arch)), None)


def tensor_gflops(device: Device, dtype: str) -> float | None:
    """Peak GFLOP/s of dense products of operands of `dtype`; for a device without a row, the peak of a GPU of its
    architecture, scaled by multiprocessors. None where tensor cores do not take that dtype, or nothing is known."""
    gpu = facts(device)
    if gpu is not None:
        return gpu.tensor_gflops.get(dtype)
    like = [g for g in GPUS.values() if capability(g.arch) == capability(device.arch)]
    rate = like[0].tensor_gflops.get(dtype) if like else None
    return rate and rate * device.units / like[0].multiprocessors
