"""The ceilings of a device: measured once by our own kernels, kept in the object cache."""

from codegen.machine import cache_levels, usable_cpus
from codegen.object_cache import ObjectCache
from codegen.slot import ChildLimits, Slot
from codegen.toolchain.cpu import CpuCompiler
from codegen.toolchain.runtime import runtime_library
from fusion_ir.records import Ceilings, Device

PROTOCOL = "1"  # changes with runtime/ceilings.cpp and child/*_ceilings.py
DRAM_BYTES = 128 << 20


def cpu_ceilings(device: Device, compiler: CpuCompiler, cache: ObjectCache) -> Ceilings:
    """The ceilings of this machine, about a second the first time. Raises SlotError, SlotFailure, CompilerMissing."""
    key = "\n".join(("ceilings", PROTOCOL, device.class_key, device.toolchain))
    known = _recall(cache, key)
    if known is not None:
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
        answer = slot.call(request, seconds=60.0)
    answer.pop("output")
    ceilings = Ceilings.model_validate(answer)
    cache.remember(key, ceilings.model_dump_json())
    return ceilings


def cuda_ceilings(device: Device, number: int, slot: Slot, cache: ObjectCache) -> Ceilings:
    """The ceilings of a CUDA device; `slot` runs child/cuda_bench.py. Raises SlotError, SlotFailure."""
    key = "\n".join(("ceilings", PROTOCOL, device.class_key, device.toolchain, device.driver))
    known = _recall(cache, key)
    if known is not None:
        return known
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
