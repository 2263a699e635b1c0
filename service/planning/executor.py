"""The executor: the shared object by which other programs run plans for CPUs (codegen/runtime/executor.cpp)."""

from codegen.sandbox.object_cache import ObjectCache, object_bytes, object_digest
from codegen.toolchain.cpu import find_compiler, host_arch
from codegen.toolchain.runtime import runtime_library
from fusion_ir.records import Plan


def executor(cache: ObjectCache) -> tuple[str, bytes]:
    """Its sha256 and bytes, for CPUs of this machine's architecture, whatever their features. Raises CompilerMissing,
    CacheError."""
    compiler = find_compiler(cache=cache)
    with compiler.slot() as slot:
        file = runtime_library("executor", compiler, slot, cache)
    return object_digest(file), object_bytes(file)


def runs_here(plan: Plan) -> bool:
    """Whether `executor` is one for the plan: it is for CPUs of this machine's architecture."""
    return plan.device.target == "cpu" and plan.device.arch == host_arch()
