"""Runs plans that Fuseplan made where Fuseplan is not installed: `load(folder)`, then call what it gives."""

from typing import Any

from fuseplan_client.bundle import Bundle, BundleError, read_bundle
from fuseplan_client.cpu.machine import MachineError
from fuseplan_client.cpu.runtime import CpuPlan
from fuseplan_client.cuda.library import LibraryError
from fuseplan_client.cuda.prologue import PrologueError
from fuseplan_client.cuda.runtime import CudaPlan
from fuseplan_client.fill import InputsError
from fuseplan_client.guards import GuardError
from fuseplan_client.loading import load
from fuseplan_client.names import Names
from fuseplan_client.outputs import Outputs
from fuseplan_client.plan import Plan

__all__ = [
    "Bundle",
    "BundleError",
    "CpuPlan",
    "CudaPlan",
    "GuardError",
    "InputsError",
    "LibraryError",
    "MachineError",
    "Names",
    "Outputs",
    "Plan",
    "PrologueError",
    "explain",
    "load",
    "read_bundle",
]


def explain(model: Any, inputs: Any, **options: Any) -> Any:
    """See `fuseplan_client.torch.explain.explain`: PyTorch is imported when this is called."""
    from fuseplan_client.torch.explain import explain as explained  # noqa: PLC0415

    return explained(model, inputs, **options)
