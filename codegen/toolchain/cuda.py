"""NVRTC, in a child: CUDA source to cubins for any architecture, with or without a GPU."""

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from codegen.hardware.missing_cuda import cupy_hint
from codegen.kernel import Kernel
from codegen.sandbox.limits import DEFAULT_LIMITS, Limits
from codegen.sandbox.slot import ChildLimits, Slot, SlotError, SlotFailure, once_more
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
from codegen.toolchain.elf import symbol_bytes, whole
from fusion_ir.records import CompileReport, Device, Status

PRELUDE = "loops_cuda.cuh"  # once per file; includes vec_cuda.cuh
PROTOCOL = "2"  # changes with what is kept of a compilation: the cubin as we store it, the report
FLAGS = ("-std=c++17", "--fmad=false", "--ptxas-options=-v", "-default-device")
ENTRY = re.compile(r"Compiling entry function '(\w+)'")
USED = re.compile(r"Used (\d+) registers")
FRAME = re.compile(r"(\d+) bytes stack frame")
SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
SHARED = re.compile(r"(\d+) bytes smem")
SERIALISED = re.compile(r"\((C751[01])\)[^\n]*\bfunction '(\w+)'")


class CudaCompiler:
    """Compiles for one architecture. Raises CompilerMissing when made where NVRTC is not installed."""

    def __init__(self, device: Device, limits: Limits = DEFAULT_LIMITS, include: Path = INCLUDE) -> None:
        self.device, self.limits, self.include = device, limits, include
        self.version = nvrtc_version()

    def identity(self) -> str:
        """See Compiler."""
        return "\n".join((PROTOCOL, self.version, " ".join(FLAGS), self.device.arch, header_digest(self.include)))

    def unit(self, kernels: Sequence[Kernel]) -> str:
        """See Compiler."""
        return inclusions(PRELUDE, kernels) + in_namespaces(kernels)

    def slot(self) -> Slot:
        """See Compiler."""
        return _slot(self.limits)

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
        with temporary_folder() as folder:
            output = Path(folder, "unit.cubin")
            flags = [f"--gpu-architecture={self.device.arch}", *FLAGS, f"-I{self.include}"]
            try:
                request = {"job": "compile", "source": source, "flags": flags, "file": str(output)}
                answer = once_more(lambda: slot.call(request, seconds=seconds))
            except SlotFailure as e:
                return Failure(compile_status(e.status), e.detail)
            log = str(answer["log"]).replace(f"{self.include}/", "")
            if not answer["ok"]:
                return Failure(Status.compile_failed, last_lines(log))
            data = whole(output.read_bytes())
            sizes, reports = symbol_bytes(data), parse_report(log)
            return data, {
                entry: report.model_copy(update={"code_bytes": sizes.get(entry)}) for entry, report in reports.items()
            }


def parse_report(log: str) -> dict[str, CompileReport]:
    """Registers, spills, shared memory and serialised wgmma of each entry, from what `ptxas -v` prints."""
    reports: dict[str, CompileReport] = {}
    warned = {(function, code) for code, function in SERIALISED.findall(log)}
    for part in re.split(r"(?=Compiling entry function)", log):
        entry, used = ENTRY.search(part), USED.search(part)
        if entry and used:
            spills, shared, frame = SPILLS.search(part), SHARED.search(part), FRAME.search(part)
            spilled = int(spills[1]) + int(spills[2]) if spills else 0
            reports[entry[1]] = CompileReport(
                frame_bytes=int(frame[1]) if frame else None,
                registers=int(used[1]),
                spill_bytes=spilled,
                shared_bytes=int(shared[1]) if shared else 0,
                warnings=tuple(sorted(code for function, code in warned if function == entry[1])),
            )
    return reports


@lru_cache(maxsize=1)
def nvrtc_version() -> str:
    """Version of NVRTC, as "NVRTC 13.0". Raises CompilerMissing."""
    with _slot(DEFAULT_LIMITS) as slot:
        try:
            answer = slot.call({"job": "version"}, seconds=60.0)
        except (SlotError, SlotFailure) as e:
            raise CompilerMissing(f"NVRTC does not work: {e}") from e
    if answer["problem"]:
        raise CompilerMissing(f"no CUDA compiler ({answer['problem']}): {cupy_hint(answer['problem'])}")
    return str(answer["version"])


def _slot(limits: Limits) -> Slot:
    bounds = ChildLimits(limits.compile_memory_bytes, limits.binary_bytes, limits.output_bytes)
    return Slot("codegen.child.cuda_compiler", bounds)
