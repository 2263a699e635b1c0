"""A plan from its folder, ready to be called, on whatever it was made for."""

from collections.abc import Iterable
from pathlib import Path

from fuseplan_client.bundle import read_bundle
from fuseplan_client.cpu.runtime import CpuPlan
from fuseplan_client.cuda.runtime import MOST_GRAPHS, CudaPlan


def load(
    folder: Path | str,
    *,
    most_graphs: int = MOST_GRAPHS,
    threads: int | None = None,
    server_keys: Iterable[str] | None = None,
) -> CpuPlan | CudaPlan:
    """A plan from its folder: on the current CUDA device, or on this CPU. most_graphs: CUDA graphs that are kept.
    threads: at most, on a CPU. server_keys: see `read_bundle`. Raises BundleError, PlanError, SignatureError,
    DeviceError, LibraryError, MachineError, ObjectError."""
    bundle = read_bundle(folder, server_keys=server_keys)
    if bundle.plan.target == "cpu":
        return CpuPlan(bundle, threads=threads)
    return CudaPlan(bundle, most_graphs=most_graphs)
