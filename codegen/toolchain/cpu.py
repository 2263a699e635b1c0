"""The system's C++ compiler: which one there is, with which flags, and how it is run."""

import os
import platform
import re
import shlex
import shutil
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from codegen.hardware.libraries import LIBRARIES, LibraryMissing, library_file
from codegen.hardware.machine import ROOT, system_text
from codegen.kernel import Kernel
from codegen.sandbox.limits import DEFAULT_LIMITS, Limits
from codegen.sandbox.object_cache import ObjectCache
from codegen.sandbox.slot import ChildLimits, Slot, SlotFailure, once_more
from codegen.sandbox.temporary_folders import temporary_folder
from codegen.toolchain.compiler import (
    INCLUDE,
    CompilerMissing,
    Failure,
    compile_status,
    header_digest,
    in_namespaces,
    inclusions,
    last_lines,
)
from codegen.toolchain.compiler_key import compiler_key
from codegen.toolchain.elf import symbol_bytes
from fusion_ir.records import CompileReport, Device, Status

FLAGS = (
    *("-std=c++17", "-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fPIC", "-shared", "-w"),
    *("-Wl,-s", "-Wl,-z,defs", "-Wl,--as-needed", "-fstack-usage"),
)
# Of stores that later iterations repeat, g++ keeps the last ones and writes back what it read of the others: elements
# that another task writes meanwhile are lost.
# Kernels say themselves what is a vector. Of scalars that were joined g++ made others, in 2.6 s instead of 1.9, which
# took 0.76 ms instead of 0.46.
GCC_FLAGS = ("-fno-predictive-commoning", "-fno-tree-slp-vectorize")
# g++ 12 fails in code motion (`sink`, `loopinit`) on what partial redundancies were taken out of.
GCC_WITHOUT_PRE = ("-fno-tree-pre",)
QUICK_FLAGS = ("-O1",)  # 0.5 to 0.7 of what a compiler takes, and none of the passes that it has faults in
PRELUDE = "loops_cpu.h"  # once per file; includes vec_cpu.h
ZIG_FLAGS = ("-nostdlib++",)  # our sources need no C++ library; zig would build its own first, which takes a minute
# "ENTRY:12:17:void k0::ENTRY(void* const*, long int, long int)<tab>208<tab>dynamic,bounded"
FRAME = re.compile(r"^(\w+):\d+:\d+:.*\t(\d+)\t[\w,]+$", re.MULTILINE)
KILLED = "Killed signal terminated"  # what g++ says where one of its parts was killed
COMPILER_FAULT = "internal compiler error"
MISSING = "no C++ compiler found; on Debian or Ubuntu: apt-get install g++; anywhere: pip install ziglang"

# CPU flags, by the names in /proc/cpuinfo, that a compiler may make use of by itself; and how it spells them.
X86_FEATURES = {
    **{
        name: name
        for name in (
            "avx",
            "avx2",
            "avx512bw",
            "avx512cd",
            "avx512dq",
            "avx512f",
            "avx512ifma",
            "avx512vbmi",
            "avx512vl",
        )
    },
    **{name: name for name in ("bmi2", "f16c", "fma", "gfni", "movbe", "popcnt", "ssse3")},
    "abm": "lzcnt",
    "amx_bf16": "",  # by functions that say so (gemm_amx_cpu.h): g++ 10 knows no such flag
    "avx512_bf16": "avx512bf16",
    "avx512_bitalg": "avx512bitalg",
    "avx512_fp16": "avx512fp16",
    "avx512_vbmi2": "avx512vbmi2",
    "avx512_vnni": "avx512vnni",
    "avx512_vpopcntdq": "avx512vpopcntdq",
    "avx_vnni": "avxvnni",
    "bmi1": "bmi",
    "pni": "sse3",
    "sse4_1": "sse4.1",
    "sse4_2": "sse4.2",
}
ARM_FEATURES = {"asimddp": "dotprod", "asimdhp": "fp16", "bf16": "bf16", "i8mm": "i8mm", "sve": "sve", "sve2": "sve2"}


@dataclass(frozen=True, slots=True)
class CpuCompiler:
    """`command` compiles C++ for `device`; `version` is the first line that it prints for `--version`. Its children
    have the environment that slot.py makes, with a folder for zig's own cache."""

    command: tuple[str, ...]
    version: str
    device: Device | None
    limits: Limits = DEFAULT_LIMITS
    include: Path = INCLUDE

    def identity(self) -> str:
        """See Compiler."""
        return "\n".join(
            (
                self.version,
                " ".join((*FLAGS, *self.own_flags())),
                " ".join(self.machine_flags()),
                self._features(),
                header_digest(self.include),
            )
        )

    def unit(self, kernels: Sequence[Kernel]) -> str:
        """See Compiler."""
        return inclusions(PRELUDE, kernels) + in_namespaces(kernels)

    def slot(self) -> Slot:
        """See Compiler."""
        return command_slot(self.limits)

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
        try:
            linked = [str(library_file(name)) for name in libraries]
        except LibraryMissing as e:
            return Failure(Status.compile_failed, str(e))
        flags = [*FLAGS, *self.own_flags(), f"-I{self.include}", *linked, *(QUICK_FLAGS if quickly else ())]
        built = self.build(slot, source, flags, seconds, entries, cpu_seconds)
        for fewer in self.fewer_passes(alone=len(entries) == 1):
            if isinstance(built, Failure) and COMPILER_FAULT in built.detail:
                built = self.build(slot, source, [*flags, *fewer], seconds, entries, cpu_seconds)
        return built

    def build(
        self,
        slot: Slot,
        source: str,
        flags: Sequence[str],
        seconds: float,
        entries: Sequence[str] = (),
        cpu_seconds: float | None = None,
    ) -> tuple[bytes, dict[str, CompileReport]] | Failure:
        """Compiles one file in a folder of its own, and reports on these entries; once more where somebody killed the
        compiler. Raises SlotError."""
        built, was_killed = self._build(slot, source, flags, seconds, entries, cpu_seconds)
        return self._build(slot, source, flags, seconds, entries, cpu_seconds)[0] if was_killed else built

    def _build(
        self,
        slot: Slot,
        source: str,
        flags: Sequence[str],
        seconds: float,
        entries: Sequence[str],
        cpu_seconds: float | None,
    ) -> tuple[tuple[bytes, dict[str, CompileReport]] | Failure, bool]:
        """The result of one try of `build`, and whether somebody killed the compiler or its child."""
        with temporary_folder() as folder:
            Path(folder, "unit.cpp").write_text(source)
            argv = [*self.command, "unit.cpp", "-o", "unit.so", *self.machine_flags(), *flags]
            # What a compiler that is killed leaves behind goes with the folder.
            request: dict[str, Any] = {"job": "run", "argv": argv, "cwd": folder, "environment": {"TMPDIR": folder}}
            if cpu_seconds is not None:
                request["cpu_seconds"] = cpu_seconds
            try:
                answer = slot.call(request, seconds=seconds)
            except SlotFailure as e:
                return Failure(compile_status(e.status), e.detail), e.was_killed
            if answer["returncode"] or answer["problem"]:
                text = answer["problem"] or answer["output"].replace(f"{self.include}/", "")
                was_killed = answer["returncode"] == -signal.SIGKILL or KILLED in text
                return Failure(*_diagnosis(answer["returncode"], text)), was_killed
            try:
                data = Path(folder, "unit.so").read_bytes()
            except FileNotFoundError:
                return Failure(Status.compile_failed, "the compiler wrote nothing"), False
            frames = "".join(file.read_text("utf-8", "replace") for file in Path(folder).glob("*.su"))
            return (data, cpu_reports(data, frames, entries)), False

    def own_flags(self) -> tuple[str, ...]:
        """Flags that this compiler alone knows."""
        return () if "clang" in self.version else GCC_FLAGS

    def fewer_passes(self, *, alone: bool) -> tuple[tuple[str, ...], ...]:
        """Flags that leave out passes in which compilers have faults, in the order in which they are tried. alone: the
        file has one kernel; a file of several is split into one for each before all are compiled with fewer passes."""
        without_pre = () if "clang" in self.version else (GCC_WITHOUT_PRE,)
        return (*without_pre, QUICK_FLAGS) if alone else without_pre

    def machine_flags(self) -> tuple[str, ...]:
        """Flags that let the compiler use what the device has: all of it on the device itself, else the features it
        lists."""
        host = host_arch(), host_features()
        if self.device is None or (self.device.arch, cpu_flags(self.device)) == host:
            return ("-mcpu=native",) if host[0] == "aarch64" else ("-march=native",)
        if self.device.arch == "aarch64":
            features = [ARM_FEATURES[f] for f in self.device.features if f in ARM_FEATURES]
            return ("+".join(("-march=armv8-a", *features)),)
        return ("-march=x86-64", *(f"-m{X86_FEATURES[f]}" for f in self.device.features if X86_FEATURES.get(f)))

    def _features(self) -> str:
        device = self.device
        return " ".join((device.arch, *cpu_flags(device)) if device else (host_arch(), *host_features()))


def cpu_flags(device: Device) -> tuple[str, ...]:
    """Features of a CPU without the libraries that plans for it may call: these change no code."""
    return tuple(f for f in device.features if f not in LIBRARIES)


def cpu_reports(binary: bytes, frames: str, entries: Sequence[str]) -> dict[str, CompileReport]:
    """Compile report of each entry: bytes of its code, and of its largest stack frame (frames: the output of
    -fstack-usage, whose lines name each kernel's entry as their file, see `in_namespaces`). Entries of which nothing is
    known are left out."""
    sizes = symbol_bytes(binary)
    largest: dict[str, int] = {}
    for file, frame_bytes in FRAME.findall(frames):
        largest[file] = max(largest.get(file, 0), int(frame_bytes))
    reports = {e: CompileReport(code_bytes=sizes.get(e), frame_bytes=largest.get(e)) for e in entries}
    return {entry: report for entry, report in reports.items() if report != CompileReport()}


def command_slot(limits: Limits) -> Slot:
    """A child that runs commands, with a compiler's limits."""
    bounds = ChildLimits(limits.compile_memory_bytes, limits.binary_bytes, limits.output_bytes)
    zig_cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fuseplan" / "zig"
    return Slot("codegen.child.cpu_compiler", bounds, {"ZIG_GLOBAL_CACHE_DIR": str(zig_cache)}, dies_with_parent=False)


def find_compiler(
    device: Device | None = None,
    limits: Limits = DEFAULT_LIMITS,
    include: Path = INCLUDE,
    cache: ObjectCache | None = None,
) -> CpuCompiler:
    """The first that works of $CXX, g++, clang++ and the ziglang wheel. `include`: folder of the headers. cache: keeps
    a compiler's version, so that it need not be started to print it again. Raises CompilerMissing."""
    asked = os.environ.get("CXX", ""), os.environ.get("PATH", "")
    if asked not in FOUND:
        FOUND[asked] = _find(*asked, cache)
    command, version = FOUND[asked]
    return CpuCompiler(command, version, device, limits, include)


FOUND: dict[tuple[str, str], tuple[tuple[str, ...], str]] = {}  # command and version, by $CXX and $PATH


def _find(cxx: str, path: str, cache: ObjectCache | None) -> tuple[tuple[str, ...], str]:
    choices = [tuple(shlex.split(cxx))] if cxx else []
    choices += [(found,) for found in (shutil.which(name, path=path) for name in ("g++", "clang++")) if found]
    if find_spec("ziglang"):
        choices.append((sys.executable, "-I", "-m", "ziglang", "c++", *ZIG_FLAGS))
    problems: list[str] = []
    with command_slot(DEFAULT_LIMITS) as slot:
        for command in choices:
            key = compiler_key(command, path)
            known = cache.recall(key) if cache is not None and key is not None else None
            if known is not None:
                return command, known
            try:
                request: dict[str, Any] = {"job": "run", "argv": [*command, "--version"], "cwd": "/"}
                answer = once_more(partial(slot.call, request, seconds=30.0))
            except SlotFailure as e:
                problems.append(f"{' '.join(command)}: {e.detail}")
                continue
            if answer["returncode"] == 0 and answer["output"].strip():
                version = str(answer["output"]).splitlines()[0].strip()
                if cache is not None and key is not None:
                    cache.remember(key, version)
                return command, version
            problems.append(f"{' '.join(command)}: {answer['problem'] or answer['output'][:200]}")
    raise CompilerMissing("; ".join((MISSING, *problems)))


def host_arch() -> str:
    """Architecture of this machine, as in Device.arch."""
    return {"amd64": "x86-64", "x86_64": "x86-64", "arm64": "aarch64"}.get(
        platform.machine().lower(), platform.machine()
    )


@lru_cache(maxsize=1)
def host_features() -> tuple[str, ...]:
    """The CPU flags of this machine that compilers know how to use, sorted."""
    return cpu_features()


def cpu_features(root: Path = ROOT) -> tuple[str, ...]:
    """`host_features`, read anew, from the system's files below `root`."""
    known = ARM_FEATURES if host_arch() == "aarch64" else X86_FEATURES
    lines = system_text(root / "proc/cpuinfo").splitlines()
    flags = next((line.partition(":")[2] for line in lines if line.startswith(("flags", "Features"))), "")
    return tuple(sorted(f for f in flags.split() if f in known))


def _diagnosis(code: int, text: str) -> tuple[Status, str]:
    """Status and detail of a failed compilation, by exit code and output: compilers report limits in many ways."""
    if "CPU time limit exceeded" in text or code == -24:
        return Status.compile_timeout, "the compiler used up its CPU time"
    signs = ("out of memory", "virtual memory exhausted", "cannot allocate", "bad_alloc", "memoryerror")
    if any(sign in text.lower() for sign in signs):
        return Status.out_of_memory, last_lines(text)
    return Status.compile_failed, last_lines(text) or f"the compiler ended with {code}"
