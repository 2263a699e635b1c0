"""Our own C++ beside the kernels (codegen/runtime): built once per machine, through the object cache."""

import hashlib
from pathlib import Path

from codegen.sandbox.object_cache import ObjectCache
from codegen.sandbox.slot import Slot
from codegen.toolchain.compiler import RUNTIME, CompilerMissing, Failure
from codegen.toolchain.cpu import CpuCompiler

# Without a C++ library, which not every compiler here has.
FLAGS = (
    "-std=c++17 -O3 -ffp-contract=fast -fno-exceptions -fno-threadsafe-statics -fPIC -shared -w -Wl,-z,defs"
    " -Wl,--as-needed -pthread"
).split()


def runtime_library(name: str, compiler: CpuCompiler, slot: Slot, cache: ObjectCache) -> Path:
    """The shared library built from codegen/runtime/NAME.cpp, with the headers beside it and those in
    codegen/runtime/NAME/. Raises CompilerMissing where that fails."""
    source = (RUNTIME / f"{name}.cpp").read_text()
    parts_of_it = (*sorted(RUNTIME.glob("*.h")), *sorted((RUNTIME / name).glob("*.h")))
    text = "".join([source, *(file.read_text() for file in parts_of_it)])
    parts = ("runtime", name, hashlib.sha256(text.encode()).hexdigest(), compiler.identity(), *FLAGS)
    key = "\n".join(parts)

    def make() -> bytes:
        flags = [*FLAGS, f"-I{RUNTIME}", f"-I{compiler.include}"]
        built = compiler.build(slot, source, flags, compiler.limits.compile_seconds)
        if isinstance(built, Failure):
            raise CompilerMissing(f"{' '.join(compiler.command)} cannot build {name}.cpp: {built.detail}")
        return built[0]

    return cache.made(key, make)
