"""The ceilings of a device: measured by our own kernels, kept in the object cache, raised when they prove too low."""

from collections.abc import Sequence

from codegen.device_turn import device_turn
from codegen.machine import cache_levels, usable_cpus
from codegen.object_cache import ObjectCache
from codegen.slot import ChildLimits, Slot, once_more
from codegen.toolchain.cpu import CpuCompiler
from codegen.toolchain.runtime import runtime_library
from fusion_ir.records import Ceilings, Device

PROTOCOL = "2"  # changes with runtime/ceilings.cpp and child/*_ceilings.py
DRAM_BYTES = 128 << 20


def cpu_ceilings(
    device: Device,
    compiler: CpuCompiler,
    cache: ObjectCache,
    *,
    again: bool = False,
    reached: Sequence[tuple[int, float]] = (),
) -> Ceilings:
    """The ceilings of this machine, about a second the first time.

    again: measure now, and keep the best of both. reached: (bytes, GB/s) that kernels were seen to move: what was
    reached once can be reached. Raises SlotError, SlotFailure, CompilerMissing.
    """
    key = "\n".join(("ceilings", PROTOCOL, device.class_key, device.toolchain))
    known = _recall(cache, key)
    if known is not None and not again:
        return known
    levels = cache_levels(usable_cpus())
    last = levels[-1] if levels else 0
    with compiler.slot() as builds, Slot("codegen.child.cpu_ceilings", ChildLimits()) as slot:
        request = {
            "job": "ceilings",
            "library": str(runtime_library("ceilings", compiler, builds, cache)),
            "levels": levels,
            "dram_bytes": max(DRAM_BYTES, min(4 * last, device.memory_bytes // 16)),
            "pool": str(runtime_library("pool", compiler, builds, cache)),
            "cpus": usable_cpus(),
        }
        with device_turn(cache, device.class_key):
            answer = once_more(lambda: slot.call(request, seconds=60.0))
    answer.pop("output")
    ceilings = at_least(best(Ceilings.model_validate(answer), known), reached)
    cache.remember(key, ceilings.model_dump_json())
    return ceilings


def best(one: Ceilings, other: Ceilings | None) -> Ceilings:
    """What was ever reached: memory of a shared machine is faster at some moments than at others."""
    if other is None or [n for n, _ in one.copy_gbps] != [n for n, _ in other.copy_gbps]:
        return one

    def highest(a: tuple[tuple[int, float], ...], b: tuple[tuple[int, float], ...]) -> tuple[tuple[int, float], ...]:
        return tuple((limit, max(x, y)) for (limit, x), (_, y) in zip(a, b, strict=True))

    return Ceilings(
        copy_gbps=highest(one.copy_gbps, other.copy_gbps),
        read_gbps=highest(one.read_gbps, other.read_gbps),
        launch_us=min(one.launch_us, other.launch_us),
        fma_gflops=max(one.fma_gflops, other.fma_gflops),
    )


def at_least(ceilings: Ceilings, reached: Sequence[tuple[int, float]]) -> Ceilings:
    """Copy bandwidths no lower than these (bytes, GB/s) show for the smallest level that holds so much."""
    copies = list(ceilings.copy_gbps)
    for bytes_, gbps in reached:
        i = next(i for i, (limit, _) in enumerate(copies) if limit == 0 or bytes_ <= limit)
        copies[i] = copies[i][0], max(copies[i][1], gbps)
    return ceilings.model_copy(update={"copy_gbps": tuple(copies)})


def cuda_ceilings(device: Device, number: int, slot: Slot, cache: ObjectCache) -> Ceilings:
    """The ceilings of a CUDA device; `slot` runs child/cuda_bench.py. Raises SlotError, SlotFailure."""
    key = "\n".join(("ceilings", PROTOCOL, device.class_key, device.toolchain, device.driver))
    known = _recall(cache, key)
    if known is not None:
        return known
    with device_turn(cache, device.class_key):
        answer = slot.call({"job": "ceilings", "number": number, "cache_bytes": device.cache_bytes}, seconds=120.0)
    answer.pop("output")
    ceilings = Ceilings.model_validate(answer)
    cache.remember(key, ceilings.model_dump_json())
    return ceilings


def _recall(cache: ObjectCache, key: str) -> Ceilings | None:
    text = cache.recall(key)
    try:
        return Ceilings.model_validate_json(text) if text is not None else None
    except ValueError:
        return None  # noted by another version
