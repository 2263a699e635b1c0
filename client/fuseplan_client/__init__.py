"""Runs plans that Fuseplan made where Fuseplan is not installed: `load(folder)`, then call what it gives."""

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
    "load",
    "read_bundle",
]
