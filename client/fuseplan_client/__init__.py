"""Runs plans that Fuseplan made, where only CuPy is installed: `load(folder)`, then call what it gives."""

from fuseplan_client.bundle import Bundle, BundleError, read_bundle
from fuseplan_client.fill import InputsError
from fuseplan_client.guards import GuardError
from fuseplan_client.library import LibraryError
from fuseplan_client.names import Names
from fuseplan_client.outputs import Outputs
from fuseplan_client.plan import Plan
from fuseplan_client.prologue import PrologueError
from fuseplan_client.runtime import LoadedPlan, load

__all__ = [
    "Bundle",
    "BundleError",
    "GuardError",
    "InputsError",
    "LibraryError",
    "LoadedPlan",
    "Names",
    "Outputs",
    "Plan",
    "PrologueError",
    "load",
    "read_bundle",
]
