"""Shared libraries that kernels call: where they are found, and how a process loads them before it loads kernels; and
libraries that are called instead of a kernel."""

import ctypes
import mmap
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path


@dataclass(frozen=True)
class Library:
    """A shared library that kernels call. find: gives its file. install: the command to run where `find` gives None.
    prefix: of the environment's variables that the library reads while it is loaded; in every process it sees
    `environment` in their place. optional: kernels call it only where the device lists it among its features."""

    install: str
    find: Callable[[], Path | None]
    prefix: str
    environment: Mapping[str, str]
    optional: bool = False


def _openblas() -> Path | None:
    """The file beside the wheel's module. The module is not imported: that would load the library before its
    environment is set."""
    wheel = find_spec("scipy_openblas32")
    file = Path(wheel.origin).with_name("lib") / "libscipy_openblas.so" if wheel and wheel.origin else None
    return file if file and file.exists() else None


def _pytorch() -> Path | None:
    """PyTorch's library, where Intel's MKL is part of it: its wheels for x86-64 export what kernels call of that.
    Neither is loaded: that takes half a second and 200 MB, of a process that may never run a kernel."""
    package = find_spec("torch")
    file = Path(package.origin).with_name("lib") / "libtorch_cpu.so" if package and package.origin else None
    return file if file and file.exists() and _names(file, file.stat().st_mtime_ns) else None


@lru_cache(maxsize=4)
def _names(file: Path, _written: int) -> bool:
    """Whether all of MKL_FUNCTIONS are among a file's strings."""
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return all(content.find(b"\0%s\0" % name.encode()) >= 0 for name in MKL_FUNCTIONS)


MKL = "mkl"
MKL_FUNCTIONS = ("sgemm_", "dgemm_", "cblas_gemm_bf16bf16f32", "MKL_Set_Num_Threads_Local")
LIBRARIES: Mapping[str, Library] = {
    # Without threads of its own: tasks call it at the same time, each for its part.
    "openblas": Library("pip install scipy-openblas32", _openblas, "OPENBLAS_", {"OPENBLAS_NUM_THREADS": "1"}),
    # As the program has it that runs the plan, which may have loaded it long before.
    MKL: Library("pip install torch, on x86-64", _pytorch, "", {}, optional=True),
}


# Steps of these are no kernels: whoever runs a plan makes the call that they describe. A device that has one lists it
# among its features.
CUBLASLT = "cublaslt"
CALLED: Mapping[str, str] = {CUBLASLT: "pip install 'fuseplan[cublas13]' or 'fuseplan[cublas12]'"}


def is_call(libraries: Sequence[str]) -> bool:
    """Whether a step with these libraries is a call of one of them instead of a kernel."""
    return any(name in CALLED for name in libraries)


class LibraryMissing(OSError):
    """A library that a kernel calls is not installed, or there is none of this name. Says what to install."""


def library_file(name: str) -> Path:
    """The file of a library of the table, to link with. Raises LibraryMissing."""
    if name not in LIBRARIES:
        raise LibraryMissing(f"no library {name!r}; there are {', '.join(LIBRARIES)}")
    file = LIBRARIES[name].find()
    if file is None:
        raise LibraryMissing(f"the library {name} is not installed: {LIBRARIES[name].install}")
    return file


@lru_cache(maxsize=8)
def load_library(name: str) -> ctypes.CDLL:
    """Loads a library of the table into this process, for good. What is linked with it finds it from then on. Raises
    LibraryMissing, OSError."""
    file = library_file(name)
    if not LIBRARIES[name].prefix:
        return ctypes.CDLL(str(file))
    with _environment(LIBRARIES[name].prefix, LIBRARIES[name].environment):
        return ctypes.CDLL(str(file))


@contextmanager
def _environment(prefix: str, wanted: Mapping[str, str]) -> Generator[None]:
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
