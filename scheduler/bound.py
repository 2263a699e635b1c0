"""Lower bounds: times that no kernel on the device can beat, from its ceilings alone and no candidate's measurement."""

from collections.abc import Sequence

from codegen.gpus import facts
from fusion_ir.records import Device
from scheduler.traffic import Traffic


def lower_bound_us(traffic: Traffic, device: Device) -> float:
    """Microseconds below which no launch, and no sequence of launches, with this traffic ends.

    The largest of: one launch; the arithmetic at the peak of fused multiply-adds; the distinct bytes at the best
    bandwidth, of copies or of reads, whichever is higher, of the smallest level of memory that holds them (a tensor may
    still be in cache); and products of narrow operands at the peak of the tensor cores, where that is known. 0 where
    the device's ceilings are unknown. Ceilings are measured: with their noise, this is a statistical claim. Of a device
    that is not there only the vendor's peaks count, and no launch, whose time is assumed.
    """
    ceilings = device.ceilings
    if ceilings is None:
        return 0.0
    gpu = facts(device)
    rates = gpu.tensor_gflops if gpu else {}
    matrix_us = sum(operations / (rates[dtype] * 1e3) for dtype, operations in traffic.products if dtype in rates)
    launch_us = 0.0 if device.origin == "specified" else ceilings.launch_us
    gbps = max(ceilings.gbps(traffic.bytes), ceilings.gbps(traffic.bytes, reads_only=True))
    arithmetic_us = traffic.vector_operations / (ceilings.fma_gflops * 1e3)
    return max(launch_us, arithmetic_us, matrix_us, traffic.bytes / (gbps * 1e3))


def least_bound_us(bytes_: int, device: Device) -> float:
    """The least that `lower_bound_us` says of any traffic of so many bytes or more."""
    ceilings = device.ceilings
    if ceilings is None:
        return 0.0
    gbps = max(best_gbps(bytes_, ceilings.copy_gbps), best_gbps(bytes_, ceilings.read_gbps))
    return max(0.0 if device.origin == "specified" else ceilings.launch_us, bytes_ / (gbps * 1e3))


def best_gbps(bytes_: int, rates: Sequence[tuple[int, float]]) -> float:
    """The best bandwidth of the levels that hold so many bytes: of more bytes, too, none is better."""
    return max(rate for limit, rate in rates if limit == 0 or bytes_ <= limit)


def copy_us(traffic: Traffic, device: Device) -> float | None:
    """Microseconds that the bytes take at the bandwidth of a copy in main memory: what a perfect fused kernel comes
    near."""
    if device.ceilings is None:
        return None
    _, gbps = device.ceilings.copy_gbps[-1]
    return traffic.bytes / (gbps * 1e3)
