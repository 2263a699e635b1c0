"""Lower bounds: times that no kernel on the device can beat, from its ceilings alone and no candidate's measurement."""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import combinations

from codegen.gemm.call import AMX_FEATURE, SPLIT_PRODUCTS
from codegen.hardware.gpus import LEAST_LAUNCH_US, facts
from fusion_ir.records import Ceilings, Device
from scheduler.cost.traffic import Traffic


def lower_bound_us(traffic: Traffic, device: Device) -> float:
    """Microseconds below which no launch, and no sequence of launches, with this traffic ends: the largest of
    `bound_terms_us`. 0 where the device's ceilings are unknown. Ceilings are measured: with their noise, this is a
    statistical claim."""
    return max(bound_terms_us(traffic, device).values(), default=0.0)


def bound_terms_us(traffic: Traffic, device: Device) -> dict[str, float]:
    """Lower bounds in microseconds by part of the device; {} where its ceilings are unknown.

    launch: one launch; of a device that is not there, one in a CUDA graph.
    bytes: see `memory_us`.
    arithmetic: at the peak of fused multiply-adds, two operations for each. Two nodes are never fused into one, since
    each is rounded, but additions and multiplications have units of their own: each core of a Zen 5 did 2 fused
    multiply-adds a cycle, or 2 additions and 2 multiplications (4.0 instructions), as many operations either way, and
    no more of any vector instructions. Conversions are not counted: 32 elements of 16 bits take one instruction at the
    least (vcvtne2ps2bf16, 1.3 a cycle), which is little beside their bytes.
    products: of narrow operands, at the peak of a GPU's tensor cores or of a CPU's vectors, where that is known; of f32
    where AMX may multiply it by pieces, at what its tiles and the vectors can do at once.
    """
    ceilings = device.ceilings
    if ceilings is None:
        return {}
    vector_operations = traffic.vector_operations - (traffic.f32_products if _has_split(device) else 0.0)
    return {
        "launch": _launch_us(device, ceilings),
        "bytes": memory_us(traffic.read_bytes, traffic.written_bytes, ceilings),
        "arithmetic": vector_operations / (ceilings.fma_gflops * 1e3),
        "products": sum(_products_us(traffic, device).values()),
    }


def bound_by(traffic: Traffic, device: Device) -> str | None:
    """The largest term of `lower_bound_us`, which is at its limit, in the words of `Plan.bound_by`. None where there is
    no bound."""
    terms = bound_terms_us(traffic, device)
    term = max(terms, key=lambda name: terms[name], default=None)
    if term is None or device.ceilings is None or not terms[term]:
        return None
    if term == "bytes":
        return "cache" if any(traffic.bytes <= limit for limit, _ in device.ceilings.copy_gbps) else "memory"
    if term == "products":
        products_us = _products_us(traffic, device)
        return f"{max(products_us, key=lambda dtype: products_us[dtype])} products"
    return term


def product_gflops(device: Device) -> Mapping[str, float]:
    """Peak rates of products of narrow operands (GFLOP/s) by their dtype, as far as they are known: those of a GPU's
    tensor cores by its data sheet, those of a CPU as measured."""
    gpu = facts(device)
    return gpu.tensor_gflops if gpu else dict(device.ceilings.product_gflops) if device.ceilings else {}


def _products_us(traffic: Traffic, device: Device) -> dict[str, float]:
    """Lower bounds in microseconds on products of narrow operands, by the operands' dtype, where its rate is known."""
    rates = product_gflops(device)
    found = {dtype: operations / (rates[dtype] * 1e3) for dtype, operations in traffic.products if dtype in rates}
    if traffic.f32_products and _has_split(device) and device.ceilings is not None:
        found["f32"] = traffic.f32_products / ((rates["bf16"] / SPLIT_PRODUCTS + device.ceilings.fma_gflops) * 1e3)
    return found


def _has_split(device: Device) -> bool:
    """Whether f32 may be multiplied by pieces of bf16 (gemm_split_cpu.h), at a rate that is known."""
    return device.target == "cpu" and AMX_FEATURE in device.features and "bf16" in product_gflops(device)


def _launch_us(device: Device, ceilings: Ceilings) -> float:
    return LEAST_LAUNCH_US if device.origin == "specified" else ceilings.launch_us


def memory_us(read_bytes: int, written_bytes: int, ceilings: Ceilings) -> float:
    """Lower bound in microseconds on moving these distinct bytes: at the best bandwidth of the smallest level of memory
    that holds them, since a tensor may still be in cache; in main memory, by what is known of this mix of reads and
    writes. A cache is taken to be no slower than main memory, though one that many share may be measured so."""
    bytes_ = read_bytes + written_bytes
    rates = _main_memory(ceilings)
    main_us = math.inf if rates is None else max(_known_ns(read_bytes, written_bytes, rates)) / 1e3
    if rates is not None and all(bytes_ > limit for limit, _ in ceilings.copy_gbps):
        return main_us
    return min(main_us, bytes_ / (max(ceilings.gbps(bytes_), ceilings.gbps(bytes_, reads_only=True)) * 1e3))


def _main_memory(ceilings: Ceilings) -> tuple[float, float, float] | None:
    """GB/s of reads, of writes and of copies; None where writes were not measured. A copy is no slower than to read and
    then to write, whatever was measured."""
    if ceilings.write_gbps is None:
        return None
    read_gbps, write_gbps = ceilings.read_gbps[-1][1], ceilings.write_gbps
    return read_gbps, write_gbps, max(ceilings.copy_gbps[-1][1], 2 / (1 / read_gbps + 1 / write_gbps))


def _known_ns(read: float, written: float, rates: tuple[float, float, float]) -> list[float]:
    """Lower bounds in nanoseconds on moving so many bytes to and from main memory. rates: as of `_main_memory`.

    Their reads, their writes, and the copy that is among them give one each. The fourth: whoever moved them and then,
    alone, what a copy of the larger part lacks, would have copied that part, no faster than copies were measured. On 2
    cores of a Zen 5 copies reached 117 GB/s, reads 101 and writes 89: for two bytes read for each written that makes
    130 at the most, and a kernel reached 129.
    """
    read_gbps, write_gbps, copy_gbps = rates
    less, more = sorted((read, written))
    rest_ns = (more - less) / (write_gbps if written < read else read_gbps)
    return [read / read_gbps, written / write_gbps, 2 * less / copy_gbps, 2 * more / copy_gbps - rest_ns]


@lru_cache(maxsize=64)
def _fastest_gbps(rates: tuple[float, float, float]) -> float:
    """Bytes a nanosecond of the mix of reads and writes that the bounds of `_known_ns` let be fastest. From reads alone
    to a copy, and from there to writes alone, each bound is linear in the share of writes, so that the largest of them
    is least at an end or where two of them cross."""
    least = math.inf
    for one, other in ((0.0, 0.5), (0.5, 1.0)):  # shares of writes
        ends = (_known_ns(1 - share, share, rates) for share in (one, other))
        lines = [(start, end - start) for start, end in zip(*ends, strict=True)]
        at = [0.0, 1.0]
        for (a, slope), (b, steeper) in combinations(lines, 2):
            if slope != steeper and 0 < (crossing := (a - b) / (steeper - slope)) < 1:
                at.append(crossing)
        least = min(least, *(max(start + slope * x for start, slope in lines) for x in at))
    return 1 / least


def least_bound_us(bytes_: int, device: Device) -> float:
    """Lower bound on `lower_bound_us` of any traffic of so many bytes or more."""
    ceilings = device.ceilings
    if ceilings is None:
        return 0.0
    gbps = max(best_gbps(bytes_, ceilings.copy_gbps), best_gbps(bytes_, ceilings.read_gbps))
    if (rates := _main_memory(ceilings)) is not None:
        gbps = max(gbps, _fastest_gbps(rates))
    return max(_launch_us(device, ceilings), bytes_ / (gbps * 1e3))


def best_gbps(bytes_: int, rates: Sequence[tuple[int, float]]) -> float:
    """The best bandwidth of the levels that hold so many bytes; more bytes have no better one."""
    return max(rate for limit, rate in rates if limit == 0 or bytes_ <= limit)


def copy_us(traffic: Traffic, device: Device) -> float | None:
    """Microseconds that the bytes take at the bandwidth of a copy in main memory: what a perfect fused kernel comes
    near."""
    if device.ceilings is None:
        return None
    _, gbps = device.ceilings.copy_gbps[-1]
    return traffic.bytes / (gbps * 1e3)
