"""Predicted times on GPUs. Shares are from published kernels, as the comments say, but for what was measured on an
H200."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cache
from math import ceil, prod

from codegen.hardware.architectures import capability
from codegen.hardware.gpus import tensor_gflops
from codegen.kernel import Kernel
from codegen.schedule import schedule_values
from fusion_ir.records import Ceilings, CompileReport, Device
from scheduler.cost.traffic import LeastTraffic, Traffic


@dataclass(frozen=True)
class Shares:
    """Shares that a family usually reaches: of the bandwidth of a copy, of the peak of f32 multiply-adds, of the peak
    of the tensor cores (0: it does not use them). overhead_us: cost of a launch besides the work. pulls: each element
    of an output computes all that it needs, nothing is shared."""

    bandwidth: float
    arithmetic: float
    matrix: float = 0.0
    overhead_us: float = 1.0
    pulls: bool = False


# By family. Copies, sums and norms whose rows are independent reach as much as a copy on an H200 (QuACK: on an H100,
# too); arithmetic there: GELU, softmax and cross entropy, whose functions take more instructions than `OPS` counts. A
# transpose pays for its tile in shared memory; a scan waits for its carries. cuBLAS on an H100: 716 of 989 TFLOP/s at
# 4096, 795 at 8192; on an A100 79-84 %. fast.cu and DeepGEMM by wgmma: as much; a plain CUTLASS 3 kernel 85 % of that;
# ours on an H200 behind 4096 x 4096 outputs 94 % for each product more, and GELU and a residual of these in 33 us.
# naive: GELU of a bias at 53 us instead of 26, the gradient of a softmax at 9 ms instead of 15 us.
FAMILY_SHARES: dict[str, Shares] = {
    "pointwise": Shares(bandwidth=0.97, arithmetic=0.22),
    "transpose": Shares(bandwidth=0.9, arithmetic=0.22),
    "reduction": Shares(bandwidth=0.97, arithmetic=0.22),
    "normalization": Shares(bandwidth=0.97, arithmetic=0.22),
    "scan": Shares(bandwidth=0.4, arithmetic=0.1),
    "gemv": Shares(bandwidth=0.85, arithmetic=0.3),
    "matmul": Shares(bandwidth=0.8, arithmetic=0.6, matrix=0.6, overhead_us=2.0),  # see MMA_SYNC
    "wgmma": Shares(bandwidth=0.8, arithmetic=0.45, matrix=0.75, overhead_us=2.5),
    "attention": Shares(
        bandwidth=0.8, arithmetic=0.3, matrix=0.6, overhead_us=2.0
    ),  # see ATTENTION_SYNC; others assumed
    "aten": Shares(bandwidth=0.8, arithmetic=0.8, matrix=0.75, overhead_us=2.5),
    "naive": Shares(bandwidth=0.45, arithmetic=0.15, overhead_us=2.0, pulls=True),
}
OTHERS = Shares(bandwidth=0.6, arithmetic=0.3)
# Share of the tensor cores' peak that mma.sync reaches, by compute capability: 72-77 % on A100; on Hopper the
# instruction itself ends at 63 %, and 128 x 256 tiles of ours reached 34 % on an H200; on consumer chips 92 % is known
# (sm_120); sm_100 has faster instructions of its own.
MMA_SYNC = {80: 0.72, 86: 0.85, 89: 0.85, 90: 0.4, 100: 0.2, 103: 0.2, 120: 0.85}
ATTENTION_SYNC = {**MMA_SYNC, 90: 0.55}  # whose operands stay in registers
# Tiles of a product that are looked at before there is a kernel, in elements of the output.
TILES = (128 * 256, 128 * 128, 64 * 64)
# Fields of schedules that are a tile's rows and columns.
TILE_FIELDS = (("bm", "bn"), ("rows", "columns"))
# Times the bytes for `pointwise` where `transpose` accepts too: one element of each sector of 32 bytes, which L2 keeps
# for the neighbours in part.
GATHERED = 4.0
# Threads of a multiprocessor that keep memory busy. On an H200 normalizations of 124 threads for each reached some 33 %
# of a copy's bandwidth, of 248 68 %. Threads have several loads of 16 bytes in flight.
BUSY_THREADS = 370
# Of the bandwidth, for normalizations most of whose blocks run at once: they wait for their rows' results in step with
# each other, and memory with them. On an H200: 0.70 with 497 threads on each multiprocessor, 0.69 with 993; 1 where
# blocks follow upon others. Alone on a multiprocessor, a block has nobody to go on while it waits.
IN_STEP, ALONE = 0.72, 0.65
MOSTLY_AT_ONCE = 1.5  # rounds of blocks: 0.70 with 1.3 of them, 1 with 1.9
SERIAL_US = 0.011  # an operation of a thread that has only one to do at a time: a mean of 8192 elements took 185 us


def family_us(traffic: Traffic, family: str, device: Device, among: Collection[str], ceilings: Ceilings) -> float:
    """Predicted microseconds before there is a kernel: a launch, and the longer of moving the bytes and doing the
    arithmetic at the rates that the family usually reaches. among: the families that accept the segment."""
    memory_us, arithmetic_us = _work_us(traffic, family, device, among, ceilings)
    shares = _shares(family, device)
    if shares.pulls:  # a thread for each element
        memory_us /= min(1.0, max(traffic.elements, 1) / (device.units * BUSY_THREADS))
    return ceilings.launch_us + shares.overhead_us + max(memory_us, arithmetic_us, _serial_us(traffic, shares))


def least_family_us(least: LeastTraffic, family: str, device: Device, ceilings: Ceilings) -> float:
    """Lower bound on `family_us` of any segment whose traffic is `least` or more."""
    shares = _shares(family, device)
    memory_us = least.bytes / (ceilings.copy_gbps[-1][1] * shares.bandwidth * 1e3)
    arithmetic_us = 0.0
    for dtype, products in least.products:
        if rate := shares.matrix * (tensor_gflops(device, dtype) or 0.0):
            arithmetic_us += products / (rate * 1e3) * _tiled(least.elements, family, device, TILES)
        else:
            arithmetic_us += products / (ceilings.fma_gflops * shares.arithmetic * 1e3)
    return ceilings.launch_us + shares.overhead_us + max(memory_us, arithmetic_us)


def kernel_us(
    traffic: Traffic, kernel: Kernel, report: CompileReport | None, device: Device, among: Collection[str],
    ceilings: Ceilings,
) -> float:  # fmt: skip
    """`family_us` for one kernel, by its launch: its grid may leave multiprocessors idle, in the last round too, and
    where few of its threads fit on a multiprocessor, memory is not kept busy."""
    if kernel.libraries:  # calls a library, which chooses its own grid
        return family_us(traffic, kernel.family, device, among, ceilings)
    tile = _tile(kernel)
    memory_us, arithmetic_us = _work_us(traffic, kernel.family, device, among, ceilings, (tile,) if tile else TILES)
    shares = _shares(kernel.family, device)
    blocks, threads = prod(kernel.launch.grid), prod(kernel.launch.block)
    if tile:  # loads run ahead by themselves there
        busy, working = min(1.0, blocks / device.units), 1.0
    else:
        held = (report.blocks if report else None) or max(1, 1024 // max(threads, 1))
        rounds = blocks / (device.units * held)
        working = rounds / ceil(rounds) if rounds > 1 else blocks / (device.units * ceil(blocks / device.units))
        waits = kernel.family == "normalization" and rounds < MOSTLY_AT_ONCE
        most = 1.0 if not waits else IN_STEP if blocks > device.units else ALONE
        busy = min(most, min(held, blocks / device.units) * threads / BUSY_THREADS)
    overhead_us = ceilings.launch_us + shares.overhead_us
    serial_us = _serial_us(traffic, shares)
    return overhead_us + max(memory_us / max(busy, 1e-3), arithmetic_us / max(working, 1e-3), serial_us)


def _serial_us(traffic: Traffic, shares: Shares) -> float:
    """Microseconds of the thread that has most to do, each operation waiting for the last; 0 where work is shared."""
    return SERIAL_US * traffic.longest if shares.pulls else 0.0


def _tile(kernel: Kernel) -> int | None:
    """Elements of the tile of a product that a block computes at a time, where the schedule names it."""
    values = schedule_values(kernel.schedule)
    named = [(values[a], values[b]) for a, b in TILE_FIELDS if a in values and b in values]
    return int(named[0][0]) * int(named[0][1]) if named and kernel.family in ("matmul", "wgmma") else None


def _shares(family: str, device: Device) -> Shares:
    return _shares_on(family, device.arch)


@cache
def _shares_on(family: str, arch: str) -> Shares:
    shares = FAMILY_SHARES.get(family, OTHERS)
    if family not in ("matmul", "attention"):
        return shares
    known = ATTENTION_SYNC if family == "attention" else MMA_SYNC
    return replace(shares, matrix=known.get(capability(arch), 0.0))  # not known: its rates are multiply-adds'


def _work_us(
    traffic: Traffic, family: str, device: Device, among: Collection[str], ceilings: Ceilings,
    tiles: Collection[int] = TILES,
) -> tuple[float, float]:  # fmt: skip
    """Microseconds of memory and of arithmetic, each as if it were alone. tiles: of products, in elements of the
    output; the best one counts."""
    shares = _shares(family, device)
    # Every tensor is taken to come from memory, as in measurements; else whatever is cut small enough would seem fast.
    memory_us = traffic.bytes / (ceilings.copy_gbps[-1][1] * shares.bandwidth * 1e3)
    if family == "pointwise" and "transpose" in among:
        memory_us *= GATHERED
    operations = traffic.pulled_operations if shares.pulls else traffic.made_operations
    matrix_us = 0.0
    for dtype, products in traffic.made_products:
        rate = tensor_gflops(device, dtype)
        if shares.matrix and rate:
            operations -= products
            matrix_us += products / (rate * shares.matrix * 1e3)
    if matrix_us:
        matrix_us *= _tiled(traffic.elements, family, device, tiles)
    return memory_us, matrix_us + operations / (ceilings.fma_gflops * shares.arithmetic * 1e3)


def _tiled(elements: int, family: str, device: Device, tiles: Collection[int]) -> float:
    """How many times as long a product takes by the best of the tiles as by perfect ones."""
    if family == "attention":  # whose blocks are rows of the first product, whatever comes out
        return 1.0
    return min(_rounds(elements, tile, device.units) / _use(tile) for tile in tiles)


def _rounds(elements: int, tile: int, units: int) -> float:
    """How many times as long a product takes because its last round of tiles does not fill the multiprocessors."""
    tiles = max(elements / tile, 1.0)
    return ceil(tiles / units) * units / tiles


@cache
def _use(tile: int) -> float:
    """Share of the tensor cores that a tile of so many elements keeps busy: small tiles load each operand more often. 1
    from about 128 x 160 on, 0.92 for 128 x 128, 0.6 for 64 x 64: assumed, in the order that tuners of such kernels
    find."""
    return min(1.0, 0.6 * (tile / 4096) ** 0.308)
