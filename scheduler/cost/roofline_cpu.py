"""Predicted times, to decide what is measured first. A prediction never ends a search and never wins over a
measurement."""

from collections.abc import Collection
from dataclasses import dataclass

from codegen.gemm.call import AMX_FEATURE
from codegen.hardware.libraries import MKL
from codegen.kernel import Kernel
from fusion_ir.records import Ceilings, CompileReport, Device
from scheduler.cost.lower_bound import best_gbps, lower_bound_us
from scheduler.cost.roofline_gpu import family_us, kernel_us, least_family_us
from scheduler.cost.traffic import LeastTraffic, Traffic


@dataclass(frozen=True)
class Efficiency:
    """Shares of the device's ceilings that a family usually reaches, and what a launch of it costs besides. pulls: each
    element of an output computes all that it needs, nothing is shared. beside: share for operations beside products of
    matrices, where these differ."""

    bandwidth: float
    arithmetic: float
    overhead_us: float
    pulls: bool = False
    beside: float | None = None


# By family, on CPUs; a family without a row is taken for `USUAL`. GPUs: scheduler/cost/roofline_gpu.py.
EFFICIENCY: dict[str, Efficiency] = {
    "pointwise": Efficiency(bandwidth=0.75, arithmetic=0.25, overhead_us=1.0),
    "transpose": Efficiency(bandwidth=0.5, arithmetic=0.25, overhead_us=1.0),
    "reduction": Efficiency(bandwidth=0.75, arithmetic=0.25, overhead_us=1.0),
    "normalization": Efficiency(bandwidth=0.65, arithmetic=0.25, overhead_us=1.0),
    "scan": Efficiency(bandwidth=0.5, arithmetic=0.1, overhead_us=1.0),
    "scatter": Efficiency(bandwidth=0.4, arithmetic=0.1, overhead_us=1.0),
    "gemv": Efficiency(bandwidth=0.7, arithmetic=0.3, overhead_us=1.0),
    "matmul": Efficiency(bandwidth=0.6, arithmetic=0.7, overhead_us=3.0),
    "attention": Efficiency(bandwidth=0.6, arithmetic=0.75, overhead_us=3.0, beside=0.25),
    "aten": Efficiency(bandwidth=0.6, arithmetic=0.75, overhead_us=2.0),
    "naive": Efficiency(bandwidth=0.05, arithmetic=0.004, overhead_us=2.0, pulls=True),
}
# Times the bytes for `pointwise` where `transpose` accepts too: of what lies across the lanes, each element is fetched
# with a cache line. Measured: 24 and 40 times as slow on 20 and 32 MiB of bf16; less where caches help.
GATHERED = 8.0
# Elements of the largest output for each multiprocessor, and bytes: with fewer, or more, blocks may be too few.
FEW, NARROW_BYTES = 1024, 1 << 20
SPLIT_RATE = 1.4  # see `_narrow_rate`
USUAL = Efficiency(bandwidth=0.5, arithmetic=0.25, overhead_us=1.0)

# For a device whose ceilings were not measured: only ratios matter here.
ASSUMED: dict[str, Ceilings] = {
    "cpu": Ceilings(copy_gbps=((0, 50.0),), read_gbps=((0, 50.0),), launch_us=5.0, fma_gflops=200.0),
    "cuda": Ceilings(copy_gbps=((0, 1500.0),), read_gbps=((0, 1500.0),), launch_us=4.0, fma_gflops=30_000.0),
    "emulator": Ceilings(copy_gbps=((0, 1500.0),), read_gbps=((0, 1500.0),), launch_us=4.0, fma_gflops=30_000.0),
}


def family_bound_us(traffic: Traffic, family: str, device: Device) -> float:
    """The segment's lower bound in microseconds; for a family that shares nothing, not below the time of all that it
    computes at the device's peak."""
    least_us = lower_bound_us(traffic, device)
    if EFFICIENCY.get(family, USUAL).pulls and device.ceilings is not None:
        least_us = max(least_us, traffic.pulled_operations / (device.ceilings.fma_gflops * 1e3))
    return least_us


def _narrow_rate(device: Device, dtype: str) -> float:
    """Rate at which kernels multiply operands of a dtype, over that of f32 in vectors: for bf16 4 where a library uses
    registers that are tiles (of a peak of 8 and more; measured: 4 to 6), up to 2 where the CPU has an instruction for
    it, as far as that is faster, else 1, since operands are widened. For f32 1.4 where such registers multiply it by
    pieces (measured: 1.3 to 1.6)."""
    if dtype == "f32":
        return SPLIT_RATE if AMX_FEATURE in device.features else 1.0
    if dtype != "bf16" or "avx512_bf16" not in device.features:
        return 1.0
    known = dict(device.ceilings.product_gflops).get(dtype) if device.ceilings else None
    if device.ceilings is None or known is None:
        return 2.0
    peak = known / device.ceilings.fma_gflops
    by_tiles = not {MKL, AMX_FEATURE}.isdisjoint(device.features)
    return 4.0 if by_tiles and peak >= 2 * 4.0 else min(max(peak, 1.0), 2.0)


def predicted_us(traffic: Traffic, family: str, device: Device, among: Collection[str]) -> float:
    """Predicted microseconds by a roofline: a launch, and the longer of moving the bytes and doing the arithmetic at
    the rates that the family usually reaches. among: the families that accept the segment."""
    ceilings = device.ceilings or ASSUMED[device.target]
    if device.target != "cpu":
        return family_us(traffic, family, device, among, ceilings)
    usual = EFFICIENCY.get(family, USUAL)
    memory_us = traffic.bytes / (ceilings.gbps(traffic.bytes) * usual.bandwidth * 1e3)
    if family == "pointwise" and "transpose" in among:
        memory_us *= GATHERED
    products = 0.0 if usual.pulls else traffic.made_contracted
    others = (traffic.pulled_operations if usual.pulls else traffic.made_operations) - products
    if not usual.pulls:
        made_products = (*traffic.made_products, ("f32", traffic.f32_products))
        products -= sum(made - made / _narrow_rate(device, dtype) for dtype, made in made_products)
    shares = products / usual.arithmetic + others / (usual.beside or usual.arithmetic)
    arithmetic_us = shares / (ceilings.fma_gflops * 1e3)
    return ceilings.launch_us + usual.overhead_us + max(memory_us, arithmetic_us)


def least_us(least: LeastTraffic, family: str, device: Device) -> float:
    """Lower bound on `predicted_us` of any segment whose traffic is `least` or more: a launch, and the longer of moving
    the bytes and multiplying."""
    ceilings = device.ceilings or ASSUMED[device.target]
    if device.target != "cpu":
        return least_family_us(least, family, device, ceilings)
    usual = EFFICIENCY.get(family, USUAL)
    memory_us = least.bytes / (best_gbps(least.bytes, ceilings.copy_gbps) * usual.bandwidth * 1e3)
    operations = sum(made if usual.pulls else made / _narrow_rate(device, dtype) for dtype, made in least.products)
    arithmetic_us = operations / (ceilings.fma_gflops * usual.arithmetic * 1e3)
    return ceilings.launch_us + usual.overhead_us + max(memory_us, arithmetic_us)


def may_be_narrow(traffic: Traffic, family: str, device: Device) -> bool:
    """Whether kernels of the family may have too few blocks to keep a GPU's memory busy, however much they read: sums
    into a few elements. Whether they do, a kernel's launch says."""
    reduces = family in ("reduction", "normalization")
    return device.target != "cpu" and reduces and traffic.elements < FEW * device.units and traffic.bytes > NARROW_BYTES


def predicted_kernel_us(
    traffic: Traffic, kernel: Kernel, report: CompileReport | None, device: Device, among: Collection[str]
) -> float:
    """`predicted_us` for one kernel, on a GPU by its launch too. report: of its compilation, if there was one."""
    if device.target == "cpu":
        return predicted_us(traffic, kernel.family, device, among)
    return kernel_us(traffic, kernel, report, device, among, device.ceilings or ASSUMED[device.target])
