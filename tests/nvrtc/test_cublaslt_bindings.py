"""The real bindings of cuBLASLt, without a GPU: descriptions that the library itself keeps, read back from it.

The bindings ask the driver for its version before they load the library, so a stand-in for that one function is built;
the library's own context, and with it every call, needs a device.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DRIVER = "int cuDriverGetVersion(int* version) { *version = 13000; return 0; }\n"
PROGRAM = """
import json
import numpy as np
from codegen.child import cublaslt
from codegen.gemm.library_call import library_call
from fusion_ir import building as build
from fusion_ir.dtype import f16
from tests.support import fake_cublaslt as fake
from tests.support.products import dense_graph

lt = cublaslt.bindings()
unlike = []
attributes = ("MatrixLayoutAttribute", "MatmulDescAttribute", "MatmulPreferenceAttribute")
for name in ("Epilogue", "ReductionScheme", *attributes):
    for member in getattr(fake, name):
        if int(getattr(lt, name)[member.name]) != int(member):
            unlike.append(f"{name}.{member.name}")
for kind in ("matrix_layout", "matmul_desc", "matmul_preference"):
    (named,) = [a for a in attributes if a.lower().startswith(kind.replace("_", ""))]
    for member in getattr(fake, named):
        real = getattr(lt, f"get_{kind}_attribute_dtype")(getattr(lt, named)[member.name])
        if np.dtype(real) != np.dtype(fake.TYPES[member.name]):
            unlike.append(f"type of {member.name}")
if np.dtype(lt.matmul_heuristic_result_dtype) != fake.matmul_heuristic_result_dtype:
    unlike.append("heuristic result")

def read(handle, kind, attributes, name):
    attribute = getattr(lt, attributes)[name]
    value = np.zeros(1, getattr(lt, f"get_{kind}_attribute_dtype")(attribute))
    written = np.zeros(1, np.uint64)
    getattr(lt, f"{kind}_get_attribute")(handle, attribute, value.ctypes.data, value.nbytes, written.ctypes.data)
    return int(value[0])

graph = dense_graph([(5, 37, 65), (48, 65), (48,)], build.linear, f16)
batched = dense_graph([(5, 37, 65), (5, 65, 48)], build.matmul, f16)
call, other = library_call(graph), library_call(batched)
layouts = [cublaslt._layout(lt, call.b, call.k, call.n, call.batch), cublaslt._layout(lt, call.a, call.m, call.k, 1),
           cublaslt._layout(lt, other.d, other.m, other.n, other.batch)]
fields = ("TYPE", "ROWS", "COLS", "LD", "BATCH_COUNT", "STRIDED_BATCH_OFFSET")
description = cublaslt._description(lt, call)
described = ("COMPUTE_TYPE", "SCALE_TYPE", "TRANSA", "TRANSB", "EPILOGUE", "BIAS_POINTER", "BIAS_DATA_TYPE")
preference = lt.matmul_preference_create()
for name, value in cublaslt._preferences(lt, call).items():
    cublaslt._prefer(lt, preference, name, value)
print(json.dumps({
    "unlike": unlike,
    "version": cublaslt.library_version(),
    "layouts": [[read(x, "matrix_layout", "MatrixLayoutAttribute", f) for f in fields] for x in layouts],
    "description": [read(description, "matmul_desc", "MatmulDescAttribute", f) for f in described],
    "preference": [read(preference, "matmul_preference", "MatmulPreferenceAttribute", f)
                   for f in cublaslt._preferences(lt, call)],
}))
"""


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[object]]:
    compiler = os.environ.get("CXX") or shutil.which("gcc") or shutil.which("g++")
    if importlib.util.find_spec("nvmath") is None or compiler is None:
        pytest.skip("nvmath-python is not installed (extra cublas13), or there is no compiler")
    folder = tmp_path_factory.mktemp("driver")
    (folder / "driver.c").write_text(DRIVER)
    command = [compiler, "-xc", "-shared", "-fPIC", "-o", str(folder / "libcuda.so.1"), str(folder / "driver.c")]
    subprocess.run(command, check=True)
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {**os.environ, "LD_LIBRARY_PATH": str(folder), "PYTHONPATH": os.pathsep.join(paths)}
    ran = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=False)
    if "libcublasLt" in ran.stderr:
        pytest.skip("cuBLAS is not installed (extra cublas13)")
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_the_stand_in_of_the_tests_is_like_the_bindings(answer: dict[str, list[object]]) -> None:
    assert answer["unlike"] == []
    assert str(answer["version"]).startswith("cuBLASLt 1")


def test_layouts(answer: dict[str, list[object]]) -> None:
    # f16 is 2. w[48, 65] lies turned: columns of 65; x[185, 65]: columns of 65; the result's columns are rows of 48.
    assert answer["layouts"] == [[2, 65, 48, 65, 1, 0], [2, 65, 185, 65, 1, 0], [2, 48, 37, 48, 5, 37 * 48]]


def test_description(answer: dict[str, list[object]]) -> None:
    # Sums in f32 (68, 0), the first operand transposed, a bias (4) of f16 at an address aligned to 2.
    assert answer["description"] == [68, 0, 1, 0, 4, 2, 2]
    assert answer["preference"] == [0, 2, 2, 2, 64, 2]
