"""Libraries that kernels call: loaded the same way in every process, whatever its environment says."""

import ctypes
import os
import subprocess
import sys

import pytest

from codegen.hardware.libraries import LIBRARIES, library_file, load_library

SHOW = """
import ctypes, os
from codegen.hardware.libraries import load_library
library = load_library("openblas")
library.scipy_openblas_get_corename.restype = ctypes.c_char_p
threads, alive = library.scipy_openblas_get_num_threads(), len(os.listdir("/proc/self/task"))
print(threads, alive, library.scipy_openblas_get_corename().decode(), os.environ.get("OPENBLAS_NUM_THREADS"))
"""


def shown(**changed: str) -> list[str]:
    """Words that SHOW prints in a new process. changed: the only OPENBLAS_* variables in its environment."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}
    run = subprocess.run(
        [sys.executable, "-c", SHOW], env={**kept, **changed}, capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.split()


def test_openblas_runs_on_the_calling_thread_with_the_kernels_that_fit() -> None:
    threads, alive, core, variable = shown()
    assert (threads, alive, variable) == ("1", "1", "None")
    assert shown(OPENBLAS_NUM_THREADS="2", OPENBLAS_CORETYPE="Prescott") == ["1", "1", core, "2"]


def test_the_file_has_the_name_that_linked_kernels_ask_for() -> None:
    assert isinstance(load_library("openblas"), ctypes.CDLL)
    assert library_file("openblas").name == "libscipy_openblas.so"
    assert load_library("openblas") is load_library("openblas")
    assert all(row.install for row in LIBRARIES.values())
    with pytest.raises(OSError, match="no library 'mkl'"):
        load_library("mkl")
