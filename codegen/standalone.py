"""Kernels as one source file that compiles by itself, with the headers of the vocabulary copied into it."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from codegen.toolchain import cuda
from codegen.toolchain.compiler import INCLUDE
from codegen.toolchain.cpu import FLAGS as CPU_FLAGS
from codegen.toolchain.cpu import CpuCompiler
from fusion_ir.records import Device

OURS = re.compile(r'^#include "([^"]+)"$')
NAMESPACE = re.compile(r"^namespace k\d+ \{$")
EMULATED = re.compile(r"^#(ifdef FP_EMULATE\b|if defined\(FP_EMULATE\))")
NOT_EMULATED = re.compile(r"^#ifndef FP_EMULATE\b")
# Our compilers' flags that apply to an object file: the others are for NVRTC, reports and linking.
CUDA_FLAGS = tuple(f for f in cuda.FLAGS if f not in ("-default-device", "--ptxas-options=-v"))
OBJECT_FLAGS = tuple(f for f in CPU_FLAGS if f not in ("-shared", "-fstack-usage") and not f.startswith("-Wl,"))


class HeaderMissing(LookupError):
    """A kernel includes a header that this version has not."""


def standalone(sources: Iterable[str], include: Path = INCLUDE) -> str:
    """One file of sources that each compile alone (`Compiler.unit` of one kernel): each header once, where it is
    included first, then the kernels, each distinct one once, in namespaces k0, k1, ...

    include "a.h"; namespace k0 { A }, include "a.h"; namespace k0 { B }  ->  a.h; namespace k0 { A } namespace k1 { B }

    What is for the emulator alone is left out. Raises HeaderMissing.
    """
    seen: set[str] = set()
    headers: list[str] = []
    kernels: list[str] = []
    for number, source in enumerate(dict.fromkeys(sources)):
        for line in source.splitlines():
            if named := OURS.match(line):
                headers += _inlined(named[1], include, seen)
            elif not line.startswith("#line "):
                kernels.append(f"namespace k{number} {{" if NAMESPACE.match(line) else line)
    return "\n".join((*headers, *kernels, ""))


def compile_command(device: Device, file: str, output: str) -> Sequence[str]:
    """The words of a command line that compiles a standalone file to an object file, as kernels for `device` are."""
    if device.target == "cuda":
        return ("nvcc", "-c", f"-arch={device.arch}", *CUDA_FLAGS, file, "-o", output)
    compiler = CpuCompiler(("g++",), "g++", device)
    flags = (*OBJECT_FLAGS, *compiler.own_flags(), *compiler.machine_flags())
    return ("g++", "-c", *flags, file, "-o", output)


def _inlined(name: str, include: Path, seen: set[str]) -> Iterator[str]:
    """The lines of a header and of those that it includes; nothing where it is in the file already."""
    if name in seen:
        return
    seen.add(name)
    try:
        text = (include / name).read_text()
    except FileNotFoundError:
        raise HeaderMissing(f"the kernel includes {name}, which this version has not") from None
    yield f"// ---- {name}"
    depth = 0  # of conditions that stay
    for line in _for_devices(text.splitlines()):
        if named := OURS.match(line):
            # In a branch that is not taken it would be missing where it is included next.
            assert depth == 0, f"{name} includes {named[1]} under a condition"
            yield from _inlined(named[1], include, seen)
        elif line != "#pragma once":
            depth += line.startswith("#if") - line.startswith("#endif")
            yield line


def _for_devices(lines: Sequence[str]) -> Iterator[str]:
    """The lines without those for the emulator, and without the conditions that are about it alone."""
    # For each open condition whether its lines are taken; None where the condition stays and both branches are taken.
    open_: list[bool | None] = []
    for line in lines:
        if line.startswith("#if"):
            open_.append(False if EMULATED.match(line) else True if NOT_EMULATED.match(line) else None)
            shown = open_[-1] is None
        elif line.startswith(("#else", "#elif")) and open_[-1] is not None:
            open_[-1], shown = not open_[-1], False
        elif line.startswith("#endif"):
            shown = open_.pop() is None
        else:
            shown = True
        if shown and False not in open_:
            yield line
