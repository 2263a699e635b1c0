"""The machine as plans ask for it: its architecture, flags of its CPU, libraries that kernels call."""

import ctypes
import os
import platform
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

ARCHITECTURES = {"x86_64": "x86-64", "amd64": "x86-64", "aarch64": "aarch64", "arm64": "aarch64"}
OPENBLAS, MKL = "openblas", "mkl"
MKL_FUNCTIONS = ("sgemm_", "dgemm_", "cblas_gemm_bf16bf16f32", "MKL_Set_Num_Threads_Local")
_loading = threading.Lock()


class MachineError(RuntimeError):
    """This machine lacks what a plan needs; says what, and what to install where that helps."""


def check_machine(arch: str, features: Sequence[str]) -> None:
    """Raises MachineError where code for `arch` does not run here. features: flags of /proc/cpuinfo, and MKL where it
    may be called."""
    here = architecture()
    if arch != here:
        raise MachineError(f"the plan is for {arch}, this machine is {here}")
    missing = [flag for flag in features if flag not in cpu_flags() and flag != MKL]
    if missing:
        raise MachineError(f"the plan is for CPUs with {', '.join(missing)}, which this one lacks")


def architecture() -> str:
    """This machine's architecture, as plans call it."""
    machine = platform.machine().lower()
    return ARCHITECTURES.get(machine, machine)


@lru_cache(maxsize=1)
def cpu_flags() -> frozenset[str]:
    """Flags of the first CPU of /proc/cpuinfo."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return frozenset(next((x.partition(":")[2] for x in lines if x.startswith(("flags", "Features"))), "").split())


def load_library(name: str) -> None:
    """Loads a library that kernels call into this process, for good; kernels linked with it find it from then on.
    Raises MachineError."""
    if name == MKL:
        if not has_mkl():
            raise MachineError("the plan calls the MKL of PyTorch for x86-64: pip install 'fuseplan-client[mkl]'")
    elif name == OPENBLAS:
        _openblas()
    else:
        raise MachineError(f"the plan calls {name}, which this version does not know")


@lru_cache(maxsize=1)
def has_mkl() -> bool:
    """Whether there is a PyTorch here that has Intel's MKL in it, and lets others call it; it is loaded then."""
    package = find_spec("torch")
    file = Path(package.origin).with_name("lib") / "libtorch_cpu.so" if package and package.origin else None
    if file is None or not file.exists():
        return False
    try:
        library = ctypes.CDLL(str(file))
    except OSError:
        return False
    return all(hasattr(library, name) for name in MKL_FUNCTIONS)


@lru_cache(maxsize=1)
def _openblas() -> ctypes.CDLL:
    """OpenBLAS without threads of its own, and free to take the kernels that suit this CPU: tasks of a plan call it at
    the same time, and a variable of the process's environment would halve it without a word."""
    wheel = find_spec("scipy_openblas32")
    file = Path(wheel.origin).with_name("lib") / "libscipy_openblas.so" if wheel and wheel.origin else None
    if file is None or not file.exists():
        raise MachineError("the plan calls OpenBLAS: pip install 'fuseplan-client[openblas]'")
    with _loading, _environment("OPENBLAS_", {"OPENBLAS_NUM_THREADS": "1"}):
        try:
            return ctypes.CDLL(str(file))
        except OSError as e:
            raise MachineError(f"OpenBLAS cannot be loaded: {e}") from e


def library_kernels(name: str) -> str:
    """The kernels that a loaded library chose for this CPU ("SkylakeX"), "" where it does not say."""
    if name != OPENBLAS:
        return ""
    core = _openblas().scipy_openblas_get_corename
    core.restype = ctypes.c_char_p
    return (core() or b"").decode()


@contextmanager
def _environment(prefix: str, wanted: dict[str, str]) -> Generator[None]:
    """For the block, the environment's variables that start with `prefix` are those in `wanted` and no others."""
    before = {key: value for key, value in os.environ.items() if key.startswith(prefix)}
    for key in before:
        del os.environ[key]
    os.environ.update(wanted)
    try:
        yield
    finally:
        for key in wanted:
            del os.environ[key]
        os.environ.update(before)
