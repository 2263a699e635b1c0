"""The calls that `LibraryCall` describes, made by cuBLASLt through nvmath-python's bindings. For child processes.

The library is column-major: it is given the transposed problem D^T = B^T A^T, so that a row here is a column there, and
its bias, which runs along its rows, runs along the columns here (cuBLAS, "cublasLtMatmul").
"""

import importlib
from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np

from fusion_ir.dtype import DTYPES
from fusion_ir.records import CallMatrix, LibraryCall

# Values of cudaDataType_t (library_types.h) and cublasComputeType_t (cublas_api.h).
DATA_TYPES = {"f32": 0, "f64": 1, "f16": 2, "bf16": 14}
COMPUTE_TYPES = {"f32": 68, "f64": 70, "tf32": 77}
MOST_ALGORITHMS = 32  # that the library is asked for
NOT_TURNED, TURNED = 0, 1  # cublasOperation_t


class CallError(RuntimeError):
    """A library call that cannot be made: the library has no such algorithm for it, or refuses it."""


@lru_cache(maxsize=1)
def bindings() -> Any:
    """nvmath-python's bindings of cuBLASLt. Raises ImportError."""
    return importlib.import_module("nvmath.bindings.cublasLt")


def library_version() -> str:
    """Version of cuBLASLt, such as "cuBLASLt 13.1.0". Raises whatever a broken installation raises."""
    number = int(bindings().get_version())
    return f"cuBLASLt {number // 10000}.{number // 100 % 100}.{number % 100}"


@lru_cache(maxsize=8)
def _handle(device: int) -> int:
    """The library's context on the current device, whose number is `device`."""
    return int(bindings().create())


class CublasLtCall:
    """A described call made ready on the current device. Raises CallError."""

    def __init__(self, call: LibraryCall, device: int) -> None:
        self.call = call
        lt = bindings()
        scale = np.float64 if call.compute == "f64" else np.float32
        self._alpha, self._beta = np.array([call.alpha], scale), np.array([call.beta], scale)
        try:
            self._handle = _handle(device)
            # Its first operand is our B, its second our A.
            self._b = _layout(lt, call.b, call.k, call.n, call.batch)
            self._a = _layout(lt, call.a, call.m, call.k, call.batch)
            self._d = _layout(lt, call.d, call.m, call.n, call.batch)
            self._c = _layout(lt, call.c, call.m, call.n, call.batch) if call.c else self._d
            self._description = _description(lt, call)
            self._answers, self._algorithm = self._chosen(lt)
        except lt.cuBLASLtError as e:
            raise CallError(f"cuBLASLt takes no such call: {e}") from e

    def launch(self, addresses: Sequence[int], stream: int) -> None:
        """Queues the call. addresses: of the step's arguments, scratch last where the call has a workspace. stream: a
        cudaStream_t as a number. Raises CallError."""
        call, lt = self.call, bindings()
        workspace = addresses[-1] if call.workspace_bytes else 0
        for point in product(*(range(loop.extent) for loop in call.loops)):
            pairs = list(zip(point, call.loops, strict=True))
            a = _address(addresses, call.a, sum(i * loop.a for i, loop in pairs))
            b = _address(addresses, call.b, sum(i * loop.b for i, loop in pairs))
            d = _address(addresses, call.d, sum(i * loop.d for i, loop in pairs))
            c = _address(addresses, call.c, sum(i * loop.c for i, loop in pairs)) if call.c else d
            if call.bias:
                start = call.bias.offset + sum(i * loop.bias for i, loop in pairs)
                bias = addresses[call.bias.tensor] + start * DTYPES[call.bias.dtype].bytes
                _describe(lt, self._description, "BIAS_POINTER", bias)
            try:
                lt.matmul(
                    self._handle, self._description,
                    self._alpha.ctypes.data, b, self._b, a, self._a,
                    self._beta.ctypes.data, c, self._c, d, self._d,
                    self._algorithm, workspace, call.workspace_bytes, stream,
                )  # fmt: skip
            except lt.cuBLASLtError as e:
                raise CallError(f"cuBLASLt refuses the call: {e}") from e

    def _chosen(self, lt: Any) -> tuple[Any, int]:
        """The library's answers, which own the algorithm, and the algorithm's address."""
        call = self.call
        answers, count = lt.MatmulHeuristicResult(MOST_ALGORITHMS), np.zeros(1, np.int32)
        preference = lt.matmul_preference_create()
        try:
            for name, value in _preferences(lt, call).items():
                _prefer(lt, preference, name, value)
            lt.matmul_algo_get_heuristic(
                self._handle, self._description, self._b, self._a, self._c, self._d,
                preference, MOST_ALGORITHMS, answers.ptr, count.ctypes.data,
            )  # fmt: skip
        finally:
            lt.matmul_preference_destroy(preference)
        usable = [i for i in range(int(count[0])) if int(answers[i].state) == 0]
        if call.algorithm >= len(usable):
            raise CallError(f"cuBLASLt has {len(usable)} algorithms for this call, not {call.algorithm + 1}")
        size = np.dtype(lt.matmul_heuristic_result_dtype).itemsize
        return answers, int(answers.ptr) + usable[call.algorithm] * size  # a result begins with its algorithm


def _preferences(lt: Any, call: LibraryCall) -> dict[str, int]:
    """Attributes that restrict the choice of an algorithm, by name: bytes of workspace and alignments, and the way of
    adding parts of a sum, which are added in the compute type: in the result's type each would be rounded."""
    added = call.c.alignment_bytes if call.c else call.d.alignment_bytes
    stored = min(call.d.alignment_bytes, call.bias.alignment_bytes) if call.bias else call.d.alignment_bytes
    return {
        "MAX_WORKSPACE_BYTES": call.workspace_bytes,
        "REDUCTION_SCHEME_MASK": int(lt.ReductionScheme.COMPUTE_TYPE),
        "MIN_ALIGNMENT_A_BYTES": call.b.alignment_bytes,
        "MIN_ALIGNMENT_B_BYTES": call.a.alignment_bytes,
        "MIN_ALIGNMENT_C_BYTES": added,
        "MIN_ALIGNMENT_D_BYTES": stored,
    }


def _description(lt: Any, call: LibraryCall) -> int:
    scale = DATA_TYPES["f64" if call.compute == "f64" else "f32"]
    description = int(lt.matmul_desc_create(COMPUTE_TYPES[call.compute], scale))
    _describe(lt, description, "TRANSA", TURNED if call.b.turned else NOT_TURNED)
    _describe(lt, description, "TRANSB", TURNED if call.a.turned else NOT_TURNED)
    _describe(lt, description, "EPILOGUE", int(lt.Epilogue["BIAS" if call.bias else "DEFAULT"]))
    if call.bias:
        _describe(lt, description, "BIAS_DATA_TYPE", DATA_TYPES[call.bias.dtype])
        # Stands in for the address until there is one: as well aligned, and not null.
        _describe(lt, description, "BIAS_POINTER", call.bias.alignment_bytes)
    return description


def _layout(lt: Any, matrix: CallMatrix, rows: int, columns: int, batch: int) -> int:
    """A matrix of ours as the library sees its memory: columns of `leading`, with unit stride down them."""
    down, along = (rows, columns) if matrix.turned else (columns, rows)
    layout = int(lt.matrix_layout_create(DATA_TYPES[matrix.dtype], down, along, matrix.leading))
    if batch > 1:
        for name, value in (("BATCH_COUNT", batch), ("STRIDED_BATCH_OFFSET", matrix.batch_stride)):
            attribute = lt.MatrixLayoutAttribute[name]
            data = np.array([value], lt.get_matrix_layout_attribute_dtype(attribute))
            lt.matrix_layout_set_attribute(layout, attribute, data.ctypes.data, data.nbytes)
    return layout


def _describe(lt: Any, description: int, name: str, value: int) -> None:
    attribute = lt.MatmulDescAttribute[name]
    data = np.array([value], lt.get_matmul_desc_attribute_dtype(attribute))
    lt.matmul_desc_set_attribute(description, attribute, data.ctypes.data, data.nbytes)


def _prefer(lt: Any, preference: int, name: str, value: int) -> None:
    attribute = lt.MatmulPreferenceAttribute[name]
    data = np.array([value], lt.get_matmul_preference_attribute_dtype(attribute))
    lt.matmul_preference_set_attribute(preference, attribute, data.ctypes.data, data.nbytes)


def _address(addresses: Sequence[int], matrix: CallMatrix, start: int) -> int:
    return addresses[matrix.tensor] + (matrix.offset + start) * DTYPES[matrix.dtype].bytes
