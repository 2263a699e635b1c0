"""The emulator in the process of a test: kernels compiled together, then run on arrays."""

from collections.abc import Sequence
from ctypes import CDLL
from functools import lru_cache
from pathlib import Path

from codegen.kernel import Kernel
from codegen.launch.emulator import Emulation, emulator_library, load_kernels, load_runtime
from codegen.sandbox.object_cache import ObjectCache
from codegen.sandbox.temporary_folders import make_folder
from codegen.toolchain.compiler import INCLUDE, Failure
from codegen.toolchain.cpu import find_compiler
from codegen.toolchain.emulator import EmulatorCompiler, emulator_compiler
from fusion_ir.records import Device

SECONDS = 200.0  # for one file


@lru_cache(maxsize=1)
def object_cache() -> ObjectCache:
    """The objects of this process."""
    return ObjectCache(make_folder())


def emulated_device(arch: str = "sm_80") -> Device:
    """The emulator's device as `codegen.devices.detection.detect` gives it, without asking the machine."""
    return Device(
        target="emulator", name=f"emulated {arch}", arch=arch, units=4, vector_bytes=16, cache_bytes=0,
        memory_bytes=16 << 30, toolchain="",
    )  # fmt: skip


@lru_cache(maxsize=8)
def compiler(arch: str = "sm_80", include: Path = INCLUDE) -> EmulatorCompiler:
    """The emulator's compiler, with the emulator itself loaded into this process. include: the folder of the kernels'
    headers."""
    made = emulator_compiler(emulated_device(arch), include=include)
    load_runtime(emulator_library(find_compiler(), object_cache()))
    return made


def build(kernels: Sequence[Kernel], arch: str = "sm_80", include: Path = INCLUDE) -> list[Emulation]:
    """The kernels compiled in one file, ready to run with their own launches. include: where their headers are."""
    made = compiler(arch, include)
    with made.slot() as slot:
        built = made.compile(slot, made.unit(kernels), [k.entry for k in kernels], SECONDS)
    assert not isinstance(built, Failure), built.detail
    file = object_cache().path(object_cache().put(built[0]))
    assert file is not None
    library = load_kernels(Path(file))
    return [emulation(k, library) for k in kernels]


def emulation(k: Kernel, library: CDLL) -> Emulation:
    """A kernel of a loaded file with its own launch."""
    at = k.launch
    return Emulation(k.entry, library, at.grid, at.block, at.shared_bytes, (at.cluster, 1, 1), at.tensor_maps)
