"""Builds of kernels in which every inexact operation is as far off as its row allows (`perturbed.h`)."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from codegen.toolchain.compiler import INCLUDE, Compiler
from codegen.toolchain.cpu import CpuCompiler, find_compiler
from codegen.toolchain.emulator import EmulatorCompiler
from fusion_ir.ops import OPS
from fusion_ir.records import Device

HEADER, LIST = Path(__file__).with_name("perturbed.h"), "vec_math.h"
BEFORE = "VEC_MATH1(exp_,"  # the first inexact operation of the list
SEEDS = {"anywhere": 1, "either end": 2, "up": 4, "down": 8}  # as `draw` in the header has them


def perturbed_headers(folder: Path, seed: int, times: float = 1.0) -> Path:
    """A copy of codegen/include in `folder`, in which results are off by what the seed says. times: what is stated.
    Raises AssertionError where the list of operations begins otherwise."""
    shutil.copytree(INCLUDE, folder)
    text = (folder / LIST).read_text()
    assert text.count(BEFORE) == 1
    rows = "".join(f"#define ULPS_{row.name}_ {row.ulps * times}\n" for row in OPS.values() if row.ulps)
    head = f'#define PERTURB_SEED {seed}\n{rows}#include "{HEADER.name}"\n'
    (folder / LIST).write_text(text.replace(BEFORE, head + BEFORE))
    shutil.copy(HEADER, folder)
    return folder


@dataclass(frozen=True)
class QuickCompiler(CpuCompiler):
    """Optimizes less: kernels of a sweep run once."""

    def own_flags(self) -> tuple[str, ...]:
        """See CpuCompiler."""
        return (*CpuCompiler.own_flags(self), "-O1")


def quick_compiler(device: Device, include: Path = INCLUDE) -> Compiler:
    """For a CPU or an emulated device, with these headers."""
    found = find_compiler(device if device.target == "cpu" else None)
    quick = QuickCompiler(found.command, found.version, found.device, found.limits, include)
    return quick if device.target == "cpu" else EmulatorCompiler(device, quick)
