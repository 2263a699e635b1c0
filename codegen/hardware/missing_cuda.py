"""Diagnosis of a machine without CUDA: it lacks CuPy (where the processes that compile and run look for it), a driver,
or a device."""

from collections.abc import Mapping
from importlib.util import find_spec

CUPY = "pip install 'fuseplan[cuda13]' (driver 580 or later) or 'fuseplan[cuda12]'"
# CUDA's own numbers of errors (cudaError_t).
NO_DRIVER, NO_DEVICE = 35, 100


def lacks(error: Exception, driver: int) -> str:
    """The missing part, by the error that CuPy raised: "cupy", "driver", "newer driver" or "device"; "" where the error
    does not tell. driver: the CUDA version that the driver is for, 0 where there is none."""
    if isinstance(error, ImportError):
        return "cupy"
    status = getattr(error, "status", None)
    if status == NO_DRIVER:
        return "newer driver" if driver else "driver"
    return "device" if status == NO_DEVICE else ""


def what_to_do(lacking: str, problem: str) -> str:
    """A clause on how to get the missing part (`lacks`), "" where nothing can be done. problem: CuPy's error."""
    return cupy_hint(problem) if lacking == "cupy" else _WHAT_TO_DO.get(lacking, "")


def cupy_hint(problem: str) -> str:
    """How CuPy is installed; where it can be imported here, why that does not count. problem: as above."""
    if "No module named 'cupy'" not in problem or find_spec("cupy") is None:
        return CUPY
    return (
        "CuPy can be imported here, but not by the processes that compile and run kernels, which read no PYTHONPATH "
        f"and no user's folder: {CUPY}, into the environment of this Python"
    )


_WHAT_TO_DO: Mapping[str, str] = {
    "driver": "CuPy is there, an NVIDIA driver is not: it takes one, in a container passed on from the host",
    "newer driver": "the NVIDIA driver is older than CuPy's CUDA: a newer driver (580 or later for CUDA 13), or "
    "pip install 'fuseplan[cuda12]'",
    "device": "the NVIDIA driver is there and shows no GPU: see nvidia-smi, and CUDA_VISIBLE_DEVICES",
}
