"""Finding the device of a target, with what it can reach."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from codegen.devices.ceilings import Reached, cpu_ceilings, cuda_ceilings, reached_ceilings
from codegen.hardware.gpus import GPUS, TARGET_WORDS, specified
from codegen.hardware.libraries import MKL, LibraryMissing, library_file
from codegen.hardware.machine import cache_levels, cpu_name, memory_bytes, usable_cpus
from codegen.hardware.missing_cuda import what_to_do
from codegen.sandbox.object_cache import ObjectCache
from codegen.sandbox.slot import ChildLimits, Slot, SlotError, SlotFailure
from codegen.toolchain.cpu import find_compiler, host_arch, host_features
from codegen.toolchain.cuda import nvrtc_version
from fusion_ir.records import Device

MOST_THREADS = 1024  # of the pool
EMULATED_ARCH = "sm_80"
EMULATED_UNITS = 4  # multiprocessors: small grids, so that kernels which share work out among them are quick


class DeviceError(Exception):
    """There is no such device here. The message says what is missing and what to install."""


def detect(
    target: str, cache: ObjectCache, *, ceilings: bool = True, on_measuring: Callable[[], None] | None = None
) -> Device:
    """The device of `target`: "cpu", "cpu:N" for N threads at most, "cuda" or "cuda:N". Behind either of the first two
    ":mkl" lets plans call PyTorch's MKL, of processes that have it. Ceilings come from the cache or are measured now,
    which takes some seconds: on_measuring is called before that. "emulator" or "emulator:ARCH" runs CUDA kernels of an
    architecture, sm_80 where none is named, on the CPU; it has no ceilings. A name of `GPUS`, "h200": that device as
    its data sheet has it, there or not, to predict plans for.

    Raises DeviceError, CompilerMissing (cpu, and those of `GPUS`), ValueError for a target that is none.
    """
    kind, _, number = target.partition(":")
    if (cpu := re.fullmatch(r"cpu(?::([1-9][0-9]*))?(:mkl)?", target)) is not None:
        return _cpu(int(cpu[1] or MOST_THREADS), (MKL,) if cpu[2] else (), cache, ceilings, on_measuring)
    if kind == "cuda" and (target == "cuda" or number.isdigit()):
        return _cuda(int(number or 0), cache, ceilings, on_measuring)
    if kind == "emulator" and re.fullmatch(r"emulator(:sm_[0-9]{2,3}[af]?)?", target):
        return _emulator(number or EMULATED_ARCH, cache)
    if target in GPUS:
        device = specified(target, nvrtc_version())
        return device if ceilings else device.model_copy(update={"ceilings": None})
    raise ValueError(f"unknown target {target!r}: expected {TARGET_WORDS}")


def no_cuda(answer: Mapping[str, Any]) -> DeviceError:
    """The error for a GPU that is not there, by the answer of the child that looked, with what is missing."""
    todo = what_to_do(answer.get("lacks", ""), answer["problem"])
    return DeviceError(f"no CUDA device: {answer['problem']}{'; ' * bool(todo)}{todo}")


def with_raised_ceilings(
    device: Device, cache: ObjectCache, reached: Sequence[Reached], *, measured: bool = True
) -> Device:
    """The device with its ceilings raised by what kernels reached (`raised`), for when one beat its bound; `measured`:
    and measured again, which takes seconds, the best kept of all. Only for the CPU; a CUDA device comes back as it is.
    Raises DeviceError."""
    if device.target != "cpu":
        return device
    if not measured:
        return device.model_copy(update={"ceilings": reached_ceilings(device, cache, reached)})
    try:
        return device.model_copy(
            update={"ceilings": cpu_ceilings(device, find_compiler(cache=cache), cache, again=True, reached=reached)}
        )
    except (SlotError, SlotFailure) as e:
        raise DeviceError(f"the ceilings of this CPU cannot be measured: {e}") from e


def vector_bytes(arch: str, features: tuple[str, ...]) -> int:
    """Widest vector register of a CPU."""
    if arch == "x86-64":
        return 64 if "avx512f" in features else 32 if "avx" in features else 16
    return 16


def _cpu(
    threads: int,
    libraries: tuple[str, ...],
    cache: ObjectCache,
    measured: bool,
    on_measuring: Callable[[], None] | None,
) -> Device:
    for name in libraries:
        try:
            library_file(name)
        except LibraryMissing as e:
            raise DeviceError(f"no CPU with {name}: {e}") from e
    compiler = find_compiler(cache=cache)
    cpus = usable_cpus()[:threads]
    levels = cache_levels(cpus)
    device = Device(
        target="cpu",
        name=cpu_name(),
        arch=host_arch(),
        features=tuple(sorted((*host_features(), *libraries))),
        units=len(cpus),
        vector_bytes=vector_bytes(host_arch(), host_features()),
        cache_bytes=levels[-1] if levels else 0,
        memory_bytes=memory_bytes(),
        toolchain=compiler.version,
    )
    if not measured:
        return device
    try:
        return device.model_copy(update={"ceilings": cpu_ceilings(device, compiler, cache, on_measuring=on_measuring)})
    except (SlotError, SlotFailure) as e:
        raise DeviceError(f"the ceilings of this CPU cannot be measured: {e}") from e


def _emulator(arch: str, cache: ObjectCache) -> Device:
    return Device(
        target="emulator",
        name=f"emulated {arch}",
        arch=arch,
        units=EMULATED_UNITS,
        vector_bytes=16,
        cache_bytes=0,
        memory_bytes=memory_bytes(),
        toolchain=find_compiler(cache=cache).version,
    )


def _cuda(number: int, cache: ObjectCache, measured: bool, on_measuring: Callable[[], None] | None) -> Device:
    with Slot("codegen.child.cuda_bench", ChildLimits()) as slot:
        try:
            answer = slot.call({"job": "detect", "number": number}, seconds=60.0)
        except (SlotError, SlotFailure) as e:
            raise DeviceError(f"no CUDA device: {e}") from e
        if "problem" in answer:
            raise no_cuda(answer)
        answer.pop("output")
        device = Device.model_validate(answer["device"])
        if not measured:
            return device
        return device.model_copy(update={"ceilings": cuda_ceilings(device, number, slot, cache, on_measuring)})
