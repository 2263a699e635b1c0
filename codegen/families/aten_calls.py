"""Family `aten` on GPUs: a contraction with ops that cuBLASLt's epilogues express, as one described library call.

The kernel's source is the JSON of the call. Schedules name an algorithm by its place in the library's own list for the
problem: where the list is shorter, the schedule fails when it is tried.
"""

import hashlib
from dataclasses import dataclass
from functools import lru_cache

from codegen.gemm.library_call import library_call
from codegen.hardware.libraries import CALLED, CUBLASLT
from codegen.kernel import EmitError, Kernel, Launch, Reject
from codegen.schedule import Choices, Schedule, parse_schedule
from fusion_ir.core.graph import Graph
from fusion_ir.records import Device, LibraryCall

ALGORITHMS = 16
FIRST = 4  # algorithms that are tried first
# MiB. The library's own default is 32 from sm_90 on, 4 before (cuBLAS, "cublasSetWorkspace").
WORKSPACES = (0, 4, 32)


@dataclass(frozen=True)
class CallSchedule(Schedule):
    """library: `cublaslt`. algorithm: place in its list, the best by its own estimate first. workspace: MiB of scratch
    that the algorithm may use, to sum in parts."""

    FAMILY = "aten"
    library: str
    algorithm: int
    workspace: int


def accepts(segment: Graph, device: Device) -> Reject | None:
    """See Family."""
    if CUBLASLT not in device.features:
        return Reject(f"cuBLASLt is not installed beside {device.name}: {CALLED[CUBLASLT]}")
    call = _call(segment)
    return call if isinstance(call, Reject) else None


def space(device: Device) -> tuple[str, ...]:
    """See Family."""
    workspace = 32 if _generation(device) >= 9 else 4
    return tuple(str(CallSchedule(CUBLASLT, i, workspace)) for i in range(FIRST))


def choices() -> Choices:
    """See Family."""
    return {"library": (CUBLASLT,), "algorithm": tuple(range(ALGORITHMS)), "workspace": WORKSPACES}


def emit(segment: Graph, schedule: str, device: Device) -> Kernel:
    """See Family."""
    s = parse_schedule(schedule, CallSchedule)
    call = _call(segment)
    if isinstance(call, Reject):
        raise EmitError(call.reason)
    if s.library not in CALLED:
        raise EmitError(f"no library {s.library!r}; there is {', '.join(CALLED)}")
    scratch = s.workspace << 20
    text = call.model_copy(update={"algorithm": s.algorithm, "workspace_bytes": scratch}).text()
    entry = "call_" + hashlib.sha256(text.encode()).hexdigest()[:16]
    return Kernel(entry, text, device.target, s.FAMILY, str(s), Launch(scratch_bytes=scratch), libraries=(s.library,))


@lru_cache(maxsize=256)
def _call(segment: Graph) -> LibraryCall | Reject:
    return library_call(segment)


def _generation(device: Device) -> int:
    """The generation in the name of a device's architecture: 9 for "sm_90a", 0 for a name without digits."""
    digits = "".join(c for c in device.arch if c.isdigit())
    return int(digits) // 10 if digits else 0
