"""Steps that are calls of cuBLASLt, made through nvmath-python's bindings.

The step's binary is the call as JSON: D[m, n] = alpha A[m, k] B[k, n] + beta C[m, n] + bias[n], rows of consecutive
elements. The library thinks in columns, so it gets the transposed problem: its first operand is B, its
columns are our rows, and its bias, which runs along its rows, runs along our columns.
"""

import importlib
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np

from fuseplan_client.plan import ITEM_BYTES

NAME = "cublaslt"
DATA_TYPES = {"f32": 0, "f64": 1, "f16": 2, "bf16": 14}  # cudaDataType_t
COMPUTE_TYPES = {"f32": 68, "f64": 70, "tf32": 77}  # cublasComputeType_t
MOST_ALGORITHMS = 32
FIELDS = {
    "library", "m", "n", "k", "batch", "compute", "alpha", "beta", "a", "b", "c", "d", "bias", "loops", "algorithm",
    "workspace_bytes",
}  # fmt: skip

Fields = Mapping[str, Any]


class LibraryError(RuntimeError):
    """A library call of the plan cannot be made here."""


@lru_cache(maxsize=1)
def bindings() -> Any:
    """nvmath-python's bindings of cuBLASLt. Raises LibraryError."""
    try:
        return importlib.import_module("nvmath.bindings.cublasLt")
    except ImportError as e:
        raise LibraryError(
            f"the plan calls cuBLASLt, and nvmath-python is not installed ({e}): "
            "pip install 'fuseplan-client[cublas13]' or 'fuseplan-client[cublas12]'"
        ) from e


@lru_cache(maxsize=8)
def _handle(device: int) -> int:
    return int(bindings().create())


class Call:
    """One call, made ready on the current device, whose number is `device`. Raises LibraryError."""

    def __init__(self, text: bytes, device: int) -> None:
        lt = bindings()
        call = json.loads(text)
        if call.get("library") != NAME or call["compute"] not in COMPUTE_TYPES:
            raise LibraryError(f"expected a call of {NAME}, got {text[:80]!r}")
        if call.keys() != FIELDS:  # whatever it is, to leave it out would give another result
            unlike = ", ".join(sorted(call.keys() ^ FIELDS))
            raise LibraryError(
                f"expected a call with the fields of this client's version, not with or without {unlike}"
            )
        self._call: Fields = call
        try:
            self._handle = _handle(device)
            scale = np.float64 if call["compute"] == "f64" else np.float32
            self._alpha, self._beta = np.array([call["alpha"]], scale), np.array([call["beta"]], scale)
            m, n, k = call["m"], call["n"], call["k"]
            self._a = self._layout(call["a"], m, k)
            self._b = self._layout(call["b"], k, n)
            self._d = self._layout(call["d"], m, n)
            self._c = self._layout(call["c"], m, n) if call["c"] else self._d
            self._description = self._described()
            self._answers, self._algorithm = self._chosen()
        except lt.cuBLASLtError as e:
            raise LibraryError(f"cuBLASLt takes no such call: {e}") from e

    def launch(self, addresses: Sequence[int], stream: int) -> None:
        """Queues the call. addresses: of the step's arguments. Raises LibraryError."""
        lt, call = bindings(), self._call
        workspace_bytes = call["workspace_bytes"]
        workspace = addresses[-1] if workspace_bytes else 0
        for point in product(*(range(loop["extent"]) for loop in call["loops"])):
            pairs = list(zip(point, call["loops"], strict=True))
            at = {
                name: _address(addresses, call[name], sum(i * loop[name] for i, loop in pairs))
                for name in ("a", "b", "c", "d", "bias")
                if call[name]
            }
            if call["bias"]:
                self._describe("BIAS_POINTER", at["bias"])
            try:
                lt.matmul(
                    self._handle, self._description,
                    self._alpha.ctypes.data, at["b"], self._b, at["a"], self._a,
                    self._beta.ctypes.data, at.get("c", at["d"]), self._c, at["d"], self._d,
                    self._algorithm, workspace, workspace_bytes, stream,
                )  # fmt: skip
            except lt.cuBLASLtError as e:
                raise LibraryError(f"cuBLASLt refuses the call: {e}") from e

    def _layout(self, matrix: Fields, rows: int, columns: int) -> int:
        lt = bindings()
        down, along = (rows, columns) if matrix["turned"] else (columns, rows)
        layout = int(lt.matrix_layout_create(DATA_TYPES[matrix["dtype"]], down, along, matrix["leading"]))
        if self._call["batch"] > 1:
            values = {"BATCH_COUNT": self._call["batch"], "STRIDED_BATCH_OFFSET": matrix["batch_stride"]}
            for name, value in values.items():
                attribute = lt.MatrixLayoutAttribute[name]
                data = np.array([value], lt.get_matrix_layout_attribute_dtype(attribute))
                lt.matrix_layout_set_attribute(layout, attribute, data.ctypes.data, data.nbytes)
        return layout

    def _described(self) -> int:
        lt, call = bindings(), self._call
        scale = DATA_TYPES["f64" if call["compute"] == "f64" else "f32"]
        self._description = int(lt.matmul_desc_create(COMPUTE_TYPES[call["compute"]], scale))
        self._describe("TRANSA", int(call["b"]["turned"]))
        self._describe("TRANSB", int(call["a"]["turned"]))
        self._describe("EPILOGUE", int(lt.Epilogue["BIAS" if call["bias"] else "DEFAULT"]))
        if call["bias"]:
            self._describe("BIAS_DATA_TYPE", DATA_TYPES[call["bias"]["dtype"]])
            # Until there is an address: one as well aligned.
            self._describe("BIAS_POINTER", call["bias"]["alignment_bytes"])
        return self._description

    def _describe(self, name: str, value: int) -> None:
        lt = bindings()
        attribute = lt.MatmulDescAttribute[name]
        data = np.array([value], lt.get_matmul_desc_attribute_dtype(attribute))
        lt.matmul_desc_set_attribute(self._description, attribute, data.ctypes.data, data.nbytes)

    def _chosen(self) -> tuple[Any, int]:
        """The library's answers, which own the algorithm, and the algorithm's address."""
        lt, call = bindings(), self._call
        stored = [call["d"], *([call["bias"]] if call["bias"] else [])]
        limits = {
            "MAX_WORKSPACE_BYTES": call["workspace_bytes"],
            "REDUCTION_SCHEME_MASK": int(lt.ReductionScheme.COMPUTE_TYPE),
            "MIN_ALIGNMENT_A_BYTES": call["b"]["alignment_bytes"],
            "MIN_ALIGNMENT_B_BYTES": call["a"]["alignment_bytes"],
            "MIN_ALIGNMENT_C_BYTES": (call["c"] or call["d"])["alignment_bytes"],
            "MIN_ALIGNMENT_D_BYTES": min(x["alignment_bytes"] for x in stored),
        }
        answers, count = lt.MatmulHeuristicResult(MOST_ALGORITHMS), np.zeros(1, np.int32)
        preference = lt.matmul_preference_create()
        try:
            for name, value in limits.items():
                attribute = lt.MatmulPreferenceAttribute[name]
                data = np.array([value], lt.get_matmul_preference_attribute_dtype(attribute))
                lt.matmul_preference_set_attribute(preference, attribute, data.ctypes.data, data.nbytes)
            lt.matmul_algo_get_heuristic(
                self._handle, self._description, self._b, self._a, self._c, self._d,
                preference, MOST_ALGORITHMS, answers.ptr, count.ctypes.data,
            )  # fmt: skip
        finally:
            lt.matmul_preference_destroy(preference)
        usable = [i for i in range(int(count[0])) if int(answers[i].state) == 0]
        if call["algorithm"] >= len(usable):
            raise LibraryError(
                f"cuBLASLt has {len(usable)} algorithms for a call, the plan wants number {call['algorithm']}"
            )
        size = np.dtype(lt.matmul_heuristic_result_dtype).itemsize
        return answers, int(answers.ptr) + usable[call["algorithm"]] * size


def _address(addresses: Sequence[int], matrix: Fields, start: int) -> int:
    return addresses[matrix["tensor"]] + (matrix["offset"] + start) * ITEM_BYTES[matrix["dtype"]]
