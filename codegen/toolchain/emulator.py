"""CUDA source as C++ for the emulator: the system's compiler, the headers with FP_EMULATE, a launcher per kernel."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from codegen.kernel import Kernel
from codegen.sandbox.limits import DEFAULT_LIMITS, Limits
from codegen.sandbox.slot import Slot
from codegen.toolchain.compiler import INCLUDE, Failure, header_digest, in_namespaces, inclusions
from codegen.toolchain.cpu import CpuCompiler, find_compiler
from codegen.toolchain.cuda import PRELUDE
from fusion_ir.records import CompileReport, Device

# What the kernel calls of the emulator is found when it is loaded, in codegen/runtime/emulator.cpp.
FLAGS = (
    *("-std=c++17", "-O1", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fno-strict-aliasing"),
    *("-fvisibility=hidden", "-fstack-clash-protection", "-fno-exceptions", "-fPIC", "-shared", "-w"),
    *("-Wl,-s", "-Wl,--as-needed"),
)

CLUSTER = re.compile(r"__cluster_dims__\(([\d, ]+)\)")

# g++ 12 fails in its scalar replacement of aggregates on some kernels that read a tile of shared memory.
INTERNAL, WITHOUT_SRA = "internal compiler error", ("-fno-tree-sra",)


@dataclass(frozen=True, slots=True)
class EmulatorCompiler:
    """Compiles for the architecture of an emulated device, by `compiler`."""

    device: Device
    compiler: CpuCompiler

    def identity(self) -> str:
        """See Compiler."""
        parts = (self.compiler.version, *FLAGS, *self.compiler.machine_flags(), self.device.arch)
        return "\n".join((*parts, header_digest(self.compiler.include)))

    def unit(self, kernels: Sequence[Kernel]) -> str:
        """See Compiler."""
        launchers = "".join(launcher(f"k{i}", k.entry, k.source) for i, k in enumerate(kernels))
        head = f"#define FP_EMULATE\n#define __CUDA_ARCH__ {arch_number(self.device.arch)}\n"
        return head + inclusions(PRELUDE, kernels) + in_namespaces(kernels) + '#line 1 "launchers"\n' + launchers

    def slot(self) -> Slot:
        """See Compiler."""
        return self.compiler.slot()

    def compile(
        self,
        slot: Slot,
        source: str,
        entries: Sequence[str],
        seconds: float,
        libraries: Sequence[str] = (),
        cpu_seconds: float | None = None,
        quickly: bool = False,
    ) -> tuple[bytes, dict[str, CompileReport]] | Failure:
        """See Compiler."""
        flags = [*FLAGS, f"-I{self.compiler.include}"]
        built = self.compiler.build(slot, source, flags, seconds)
        if isinstance(built, Failure) and INTERNAL in built.detail:
            built = self.compiler.build(slot, source, [*flags, *WITHOUT_SRA], seconds)
        return built if isinstance(built, Failure) else (built[0], {})


def emulator_compiler(device: Device, limits: Limits = DEFAULT_LIMITS, include: Path = INCLUDE) -> EmulatorCompiler:
    """An emulator compiler with the first C++ compiler that works. Raises CompilerMissing."""
    return EmulatorCompiler(device, find_compiler(None, limits, include))


def launcher(space: str, entry: str, source: str) -> str:
    """Text by which a kernel in a namespace is launched. Clusters are of as many blocks as the attribute in its source
    says, which is all that a device goes by; the emulator refuses a launch with others."""
    found = CLUSTER.search(source)
    blocks = math.prod(int(n) for n in found[1].split(",")) if found else 1
    return f"FP_LAUNCHER({space}, {entry}, {blocks})\n"


def arch_number(arch: str) -> int:
    """__CUDA_ARCH__ of an architecture: 900 of "sm_90a"."""
    return int(arch.removeprefix("sm_").rstrip("af")) * 10
