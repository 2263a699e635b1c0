"""The ceilings of a device: measured by our own kernels, kept in the object cache, raised when they prove too low."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from codegen.hardware.machine import cache_levels, usable_cpus
from codegen.sandbox.device_lock import device_turn
from codegen.sandbox.object_cache import ObjectCache
from codegen.sandbox.slot import ChildLimits, Slot, once_more
from codegen.toolchain.cpu import CpuCompiler
from codegen.toolchain.runtime import runtime_library
from fusion_ir.records import Ceilings, Device

PROTOCOL = "7"  # changes with runtime/ceilings.cpp and child/*_ceilings.py
MEASURING = "measuring what this machine can reach, once: about 10 s"
DRAM_BYTES = 128 << 20
# However large the last cache is: to touch a gigabyte for the first time takes a virtual machine some seconds. What a
# cache holds of this is read faster, and bounds are lower for it.
MOST_DRAM_BYTES = 192 << 20


class Reached(NamedTuple):
    """A kernel that beat its bound: the bytes that it read and wrote, what bounded it (`Plan.bound_by`), and how many
    times as fast as its bound it was."""

    bytes: int
    bound_by: str | None
    times: float


def cpu_ceilings(
    device: Device,
    compiler: CpuCompiler,
    cache: ObjectCache,
    *,
    again: bool = False,
    reached: Sequence[Reached] = (),
    on_measuring: Callable[[], None] | None = None,
) -> Ceilings:
    """The ceilings of this machine. Takes some seconds the first time, most of them for compilers.

    again: measure now, and keep the best of the old and the new. reached: kernels that beat their bounds, by which the
    device's own ceilings are raised (`raised`): a rate reached once can be reached. on_measuring: called before
    anything is compiled or measured. Raises SlotError, SlotFailure, CompilerMissing.
    """
    key = _cpu_key(device)
    known = _recall(cache, key)
    if known is not None and not again:
        return known
    if on_measuring is not None:
        on_measuring()
    cpus = usable_cpus()[: device.units]
    levels = cache_levels(cpus)
    last = levels[-1] if levels else 0
    with compiler.slot() as builds, Slot("codegen.child.cpu_ceilings", ChildLimits()) as slot:
        request = {
            "job": "ceilings",
            "library": str(runtime_library("ceilings", compiler, builds, cache)),
            "levels": levels,
            "dram_bytes": max(DRAM_BYTES, min(4 * last, MOST_DRAM_BYTES, device.memory_bytes // 16)),
            "pool": str(runtime_library("pool", compiler, builds, cache)),
            "cpus": cpus,
        }
        with device_turn(cache, device.class_key):
            answer = once_more(lambda: slot.call(request, seconds=60.0))
    answer.pop("output")
    ceilings = best(best(Ceilings.model_validate(answer), known), raised(device.ceilings, reached))
    cache.remember(key, ceilings.model_dump_json())
    return ceilings


def reached_ceilings(device: Device, cache: ObjectCache, reached: Sequence[Reached]) -> Ceilings | None:
    """The ceilings of a CPU, raised by what kernels reached (`raised`) and kept, with nothing measured."""
    ceilings = raised(device.ceilings, reached)
    if ceilings is not None:
        ceilings = best(ceilings, _recall(cache, _cpu_key(device)))
        cache.remember(_cpu_key(device), ceilings.model_dump_json())
    return ceilings


def _cpu_key(device: Device) -> str:
    return "\n".join(("ceilings", PROTOCOL, device.class_key, device.toolchain))


def best(one: Ceilings, other: Ceilings | None) -> Ceilings:
    """The better of two measurements, rate by rate: memory of a shared machine is faster at some moments than at
    others. `one` alone where `other` is None or has other cache levels."""
    if other is None or [n for n, _ in one.copy_gbps] != [n for n, _ in other.copy_gbps]:
        return one

    def highest(a: tuple[tuple[int, float], ...], b: tuple[tuple[int, float], ...]) -> tuple[tuple[int, float], ...]:
        return tuple((limit, max(x, y)) for (limit, x), (_, y) in zip(a, b, strict=True))

    rates = dict(one.product_gflops)
    rates |= {dtype: max(gflops, rates.get(dtype, 0.0)) for dtype, gflops in other.product_gflops}
    return Ceilings(
        copy_gbps=highest(one.copy_gbps, other.copy_gbps),
        read_gbps=highest(one.read_gbps, other.read_gbps),
        launch_us=min(one.launch_us, other.launch_us),
        fma_gflops=max(one.fma_gflops, other.fma_gflops),
        write_gbps=max((r for r in (one.write_gbps, other.write_gbps) if r is not None), default=None),
        product_gflops=tuple(rates.items()),
    )


def raised(ceilings: Ceilings | None, reached: Sequence[Reached]) -> Ceilings | None:
    """Ceilings raised so that no kernel of `reached` is faster than its bound: the rate that bounded a kernel is
    multiplied by its `times`. For memory that is the rate of the smallest level that holds the kernel's bytes, for
    copies and reads alike."""
    if ceilings is None:
        return None
    most: dict[str, float] = {}  # by what bounds
    levels: dict[int, float] = {}  # by the level's limit
    for bytes_, bound_by, times in reached:
        if bound_by in (None, "memory", "cache"):
            limit = next(limit for limit, _ in ceilings.copy_gbps if limit == 0 or bytes_ <= limit)
            levels[limit] = max(levels.get(limit, 1.0), times)
        else:
            most[bound_by] = max(most.get(bound_by, 1.0), times)
    update: dict[str, object] = {
        name: tuple((limit, gbps * levels.get(limit, 1.0)) for limit, gbps in rates)
        for name, rates in (("copy_gbps", ceilings.copy_gbps), ("read_gbps", ceilings.read_gbps))
    }
    update["write_gbps"] = None if ceilings.write_gbps is None else ceilings.write_gbps * levels.get(0, 1.0)
    update["launch_us"] = ceilings.launch_us / most.get("launch", 1.0)
    update["fma_gflops"] = ceilings.fma_gflops * most.get("arithmetic", 1.0)
    update["product_gflops"] = tuple(
        (dtype, gflops * most.get(f"{dtype} products", 1.0)) for dtype, gflops in ceilings.product_gflops
    )
    return ceilings.model_copy(update=update)


def cuda_ceilings(
    device: Device, number: int, slot: Slot, cache: ObjectCache, on_measuring: Callable[[], None] | None = None
) -> Ceilings:
    """The ceilings of a CUDA device; `slot` runs child/cuda_bench.py. on_measuring: called before they are measured.
    Raises SlotError, SlotFailure."""
    key = "\n".join(("ceilings", PROTOCOL, device.class_key, device.toolchain, device.driver))
    known = _recall(cache, key)
    if known is not None:
        return known
    if on_measuring is not None:
        on_measuring()
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
