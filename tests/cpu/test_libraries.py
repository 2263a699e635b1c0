"""Libraries that kernels call: loaded the same way in every process, whatever its environment says."""

import ctypes
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from fuseplan_client.device import class_key

from codegen.devices.detection import DeviceError, detect
from codegen.families import FAMILIES
from codegen.hardware import libraries
from codegen.hardware.libraries import LIBRARIES, MKL, library_file, load_library
from codegen.sandbox.object_cache import ObjectCache
from codegen.toolchain.compiler import Failure
from codegen.toolchain.cpu import find_compiler
from codegen.workbench.workbench import Workbench
from fusion_ir import building as build
from fusion_ir.dtype import DType, bf16, f16, f32, f64
from tests.support.candidates import check_all
from tests.support.products import dense_graph, einsum_graph

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
    with pytest.raises(OSError, match="no library 'blas'"):
        load_library("blas")


needs_mkl = pytest.mark.skipif(LIBRARIES[MKL].find() is None, reason="needs PyTorch with MKL")


def test_mkl_is_found_where_pytorch_has_it() -> None:
    torch = pytest.importorskip("torch")
    assert (LIBRARIES[MKL].find() is not None) == torch.backends.mkl.is_available()


@pytest.mark.turn("MKL")
@needs_mkl
@pytest.mark.parametrize("first", ["import torch", "pass"], ids=["after", "before"])
def test_mkl_is_loaded_after_pytorch_and_before(first: str) -> None:
    """Either way PyTorch has its threads for products."""
    source = f"""
import ctypes
{first}
from codegen.hardware.libraries import load_library
library = load_library("mkl")
import torch
torch.set_num_threads(2)
print(library.MKL_Get_Max_Threads(), (torch.ones(300, 300) @ torch.ones(300, 300))[0, 0].item())
"""
    run = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=120, check=False)
    assert run.stdout.split() == ["2", "300.0"], run.stderr


@needs_mkl
def test_a_kernel_leaves_the_threads_of_its_caller_as_they_are(bench: Workbench, tmp_path: Path) -> None:
    graph = dense_graph([(64, 64), (64, 64)], build.matmul)
    kernel = FAMILIES["aten"].emit(graph, "aten{library=mkl,rows=1,columns=1}", bench.device)
    compiler = find_compiler(bench.device)
    with compiler.slot() as slot:
        built = compiler.compile(slot, compiler.unit([kernel]), [kernel.entry], 60.0, kernel.libraries)
    assert not isinstance(built, Failure), built.detail
    file = tmp_path / "kernel.so"
    file.write_bytes(built[0])
    source = f"""
import ctypes, sys
import numpy as np
from codegen.hardware.libraries import load_library
library = load_library("mkl")
kernel = ctypes.CDLL({str(file)!r})[{kernel.entry!r}]
kernel.argtypes, kernel.restype = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_long, ctypes.c_long], None
a, b, c = (np.ones((64, 64), np.float32) for _ in range(3))
for threads in (0, 3):
    library.MKL_Set_Num_Threads_Local(threads)
    kernel((ctypes.c_void_p * 3)(*(x.ctypes.data for x in (a, b, c))), 0, 1)
    print(library.MKL_Set_Num_Threads_Local(0), c[5, 6])
"""
    run = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=120, check=False)
    assert run.stdout.split() == ["0", "64.0", "3", "64.0"], run.stderr


@needs_mkl
def test_a_device_with_mkl_is_one_of_its_own(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path)
    plain, mkl = (detect(target, cache, ceilings=False) for target in ("cpu:1", "cpu:1:mkl"))
    assert set(mkl.features) - set(plain.features) == {MKL}
    assert mkl.class_key != plain.class_key
    assert (class_key("cpu:1"), class_key("cpu:1:mkl")) == (plain.class_key, mkl.class_key)
    one, other = find_compiler(plain), find_compiler(mkl)
    assert (one.machine_flags(), one.identity()) == (other.machine_flags(), other.identity())


def test_a_device_without_mkl_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    absent = {**LIBRARIES, MKL: replace(LIBRARIES[MKL], find=lambda: None)}
    monkeypatch.setattr(libraries, "LIBRARIES", absent)
    with pytest.raises(
        DeviceError, match="no CPU with mkl: the library mkl is not installed: pip install torch, on x86-64"
    ):
        detect("cpu:mkl", ObjectCache(tmp_path), ceilings=False)


@pytest.mark.turn("MKL")
@needs_mkl
@pytest.mark.parametrize("dtype", [f32, f64, bf16, f16], ids=str)
def test_products_by_mkl(bench: Workbench, dtype: DType) -> None:
    """Operands that lie either way, several calls that add up, results of another type."""
    wide = f64 if dtype == f64 else f32
    cases = {
        "dense": dense_graph([(37, 141), (141, 53)], build.matmul, dtype),
        "turned": dense_graph([(141, 37), (53, 141)], lambda x, y: build.matmul(*map(build.transpose, (x, y))), dtype),
        "wide result": dense_graph([(70, 65), (65, 40)], lambda x, y: build.matmul(x, y, wide), dtype),
        "two sums": einsum_graph("htd", "hdn", "tn", {"t": 45, "h": 4, "d": 64, "n": 96}, wide),
    }
    schedules = [f"aten{{library=mkl,rows={n},columns={n}}}" for n in (1, 2)]
    kernels = [
        (name, graph, [FAMILIES["aten"].emit(graph, s, bench.device) for s in schedules])
        for name, graph in cases.items()
    ]
    wrong = check_all(kernels, bench)
    assert not wrong, "\n".join(wrong)
