"""The ceilings of this machine for tests that search: measured once, and kept as compiled files are."""

from functools import cache

from codegen.devices.ceilings import PROTOCOL, reached_ceilings
from codegen.devices.detection import detect
from codegen.hardware.machine import cache_levels, usable_cpus
from codegen.sandbox.object_cache import ObjectCache
from codegen.sandbox.temporary_folders import make_folder
from codegen.toolchain.cpu import find_compiler
from codegen.toolchain.runtime import runtime_library
from fusion_ir.records import Ceilings
from testing.objects import machine, objects


@cache
def ceilings() -> Ceilings:
    """Ceilings of the CPU as some run measured them: tests assert no times, so any run's do."""

    def measured() -> bytes:
        found = detect("cpu", ObjectCache(make_folder())).ceilings
        assert found is not None
        return found.model_dump_json().encode()

    cpus = usable_cpus()
    data = objects().get(["ceilings", PROTOCOL, machine(), repr(cpus), repr(cache_levels(cpus))], measured)
    assert data is not None
    return Ceilings.model_validate_json(data)


def know_machine(objects_of_test: ObjectCache) -> ObjectCache:
    """The given object cache, which knows the machine's ceilings from now on and has the library that runs kernels:
    searches that use it begin at once."""
    device = detect("cpu", objects_of_test, ceilings=False)
    reached_ceilings(device.model_copy(update={"ceilings": ceilings()}), objects_of_test, [])
    compiler = find_compiler(device)
    with compiler.slot() as slot:
        runtime_library("pool", compiler, slot, objects_of_test)
    return objects_of_test
