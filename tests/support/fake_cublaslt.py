"""A stand-in for nvmath-python's bindings of cuBLASLt that computes on the host: columns, as cuBLAS documents them.

Functions, attributes and their types are those of the real bindings; whatever has no place in them fails. Pointers are
addresses of the host's memory.
"""

import ctypes
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np

from fusion_ir.arithmetic.conversions import round_to
from fusion_ir.dtype import DTYPES, DType

# cudaDataType_t and cublasComputeType_t, from library_types.h and cublas_api.h.
OF_DATA_TYPE = {0: DTYPES["f32"], 1: DTYPES["f64"], 2: DTYPES["f16"], 14: DTYPES["bf16"]}
OF_COMPUTE_TYPE = {68: DTYPES["f32"], 70: DTYPES["f64"], 77: DTYPES["f32"]}
KNOWN = 5  # algorithms for every problem


class cuBLASLtError(Exception):
    """The error that the bindings of cuBLASLt raise."""


class Epilogue(IntEnum):
    """cublasLtEpilogue_t, of those that are used."""

    DEFAULT = 1
    BIAS = 4


class ReductionScheme(IntEnum):
    """cublasLtReductionScheme_t."""

    NONE = 0
    INPLACE = 1
    COMPUTE_TYPE = 2
    OUTPUT_TYPE = 4


class MatrixLayoutAttribute(IntEnum):
    """cublasLtMatrixLayoutAttribute_t."""

    BATCH_COUNT = 5
    STRIDED_BATCH_OFFSET = 6


class MatmulDescAttribute(IntEnum):
    """cublasLtMatmulDescAttributes_t."""

    TRANSA = 3
    TRANSB = 4
    EPILOGUE = 7
    BIAS_POINTER = 8
    BIAS_DATA_TYPE = 26


class MatmulPreferenceAttribute(IntEnum):
    """cublasLtMatmulPreferenceAttributes_t."""

    MAX_WORKSPACE_BYTES = 1
    REDUCTION_SCHEME_MASK = 3
    MIN_ALIGNMENT_A_BYTES = 5
    MIN_ALIGNMENT_B_BYTES = 6
    MIN_ALIGNMENT_C_BYTES = 7
    MIN_ALIGNMENT_D_BYTES = 8


TYPES: dict[str, type[np.generic]] = {  # by name: equal numbers of different enums are equal keys
    "BATCH_COUNT": np.int32,
    "STRIDED_BATCH_OFFSET": np.int64,
    "TRANSA": np.int32,
    "TRANSB": np.int32,
    "EPILOGUE": np.uint32,
    "BIAS_POINTER": np.int64,
    "BIAS_DATA_TYPE": np.int32,
    "MAX_WORKSPACE_BYTES": np.uint64,
    "REDUCTION_SCHEME_MASK": np.uint32,
    "MIN_ALIGNMENT_A_BYTES": np.uint32,
    "MIN_ALIGNMENT_B_BYTES": np.uint32,
    "MIN_ALIGNMENT_C_BYTES": np.uint32,
    "MIN_ALIGNMENT_D_BYTES": np.uint32,
}
matmul_heuristic_result_dtype = np.dtype(
    [("algo", [("data_", "<u8", (8,))]), ("workspace_size", "<u8"), ("state", "<i4"), ("waves_count", "<f4"),
     ("reserved", "<i4", (4,))]
)  # fmt: skip


@dataclass
class Layout:
    """cublasLtMatrixLayout_t: columns of `leading` elements."""

    dtype: DType
    rows: int
    columns: int
    leading: int
    batch: int = 1
    batch_stride: int = 0


@dataclass
class Description:
    """cublasLtMatmulDesc_t."""

    compute: DType
    scale: DType
    attributes: dict[str, int] = field(default_factory=dict)


class MatmulHeuristicResult:
    """An array of answers."""

    def __init__(self, size: int = 1) -> None:
        self.data = np.zeros(size, matmul_heuristic_result_dtype)

    @property
    def ptr(self) -> int:
        return int(self.data.ctypes.data)

    def __getitem__(self, i: int) -> Any:
        return self.data[i : i + 1].view(np.recarray)[0]


class FakeBindings:
    """One stand-in, with a record of the calls that were made: streams and algorithms in `calls`, what was asked for in
    `preferences`."""

    cuBLASLtError = cuBLASLtError
    Epilogue = Epilogue
    ReductionScheme = ReductionScheme
    MatrixLayoutAttribute = MatrixLayoutAttribute
    MatmulDescAttribute = MatmulDescAttribute
    MatmulPreferenceAttribute = MatmulPreferenceAttribute
    MatmulHeuristicResult = MatmulHeuristicResult
    matmul_heuristic_result_dtype = matmul_heuristic_result_dtype

    def __init__(self) -> None:
        self.objects: dict[int, Any] = {}
        self.calls: list[dict[str, int]] = []
        self.preferences: dict[str, int] = {}

    def _new(self, thing: Any) -> int:
        self.objects[len(self.objects) + 1000] = thing
        return len(self.objects) + 999

    def create(self) -> int:
        return self._new("handle")

    def get_version(self) -> int:
        return 130100

    def matrix_layout_create(self, type_: int, rows: int, cols: int, ld: int) -> int:
        if ld < rows:
            raise cuBLASLtError("CUBLAS_STATUS_INVALID_VALUE")
        return self._new(Layout(OF_DATA_TYPE[type_], rows, cols, ld))

    def matrix_layout_set_attribute(self, layout: int, attribute: IntEnum, address: int, size: int) -> None:
        names = {"BATCH_COUNT": "batch", "STRIDED_BATCH_OFFSET": "batch_stride"}
        setattr(self.objects[layout], names[attribute.name], self._read(attribute, address, size))

    def matmul_desc_create(self, compute: int, scale: int) -> int:
        return self._new(Description(OF_COMPUTE_TYPE[compute], OF_DATA_TYPE[scale]))

    def matmul_desc_set_attribute(self, description: int, attribute: IntEnum, address: int, size: int) -> None:
        self.objects[description].attributes[attribute.name] = self._read(attribute, address, size)

    def matmul_preference_create(self) -> int:
        self.preferences = {}
        return self._new("preference")

    def matmul_preference_destroy(self, preference: int) -> None:
        assert self.objects[preference] == "preference"
        self.objects[preference] = None

    def matmul_preference_set_attribute(self, preference: int, attribute: IntEnum, address: int, size: int) -> None:
        self.preferences[attribute.name] = self._read(attribute, address, size)

    @staticmethod
    def _type(attribute: IntEnum) -> type[np.generic]:
        return TYPES[attribute.name]

    get_matrix_layout_attribute_dtype = _type
    get_matmul_desc_attribute_dtype = _type
    get_matmul_preference_attribute_dtype = _type

    @staticmethod
    def _read(attribute: IntEnum, address: int, size: int) -> int:
        kind = np.dtype(TYPES[attribute.name])
        assert size == kind.itemsize
        return int(np.frombuffer(ctypes.string_at(address, size), kind)[0])

    def matmul_algo_get_heuristic(
        self, handle: int, description: int, a: int, b: int, c: int, d: int, preference: int, wanted: int,
        answers: int, count: int,
    ) -> None:  # fmt: skip
        assert self.objects[handle] == "handle"
        assert all(isinstance(self.objects[x], Layout) for x in (a, b, c, d))
        found = np.zeros(min(wanted, KNOWN), matmul_heuristic_result_dtype)
        found["algo"]["data_"][:, 0] = np.arange(len(found)) + 70
        found["state"][1:2] = 15  # CUBLAS_STATUS_NOT_SUPPORTED: an answer that is none
        ctypes.memmove(answers, found.ctypes.data, found.nbytes)
        ctypes.memmove(count, np.array([len(found)], np.int32).ctypes.data, 4)

    def matmul(
        self, handle: int, description: int, alpha: int, a: int, a_layout: int, b: int, b_layout: int, beta: int,
        c: int, c_layout: int, d: int, d_layout: int, algorithm: int, workspace: int, workspace_bytes: int, stream: int,
    ) -> None:  # fmt: skip
        about: Description = self.objects[description]
        said = about.attributes
        compute = about.compute
        factors = [float(_memory(address, about.scale, 1)[0]) for address in (alpha, beta)]
        left = self._matrices(a, a_layout, said.get("TRANSA", 0))
        right = self._matrices(b, b_layout, said.get("TRANSB", 0))
        into = self._matrices(d, d_layout, 0)
        with np.errstate(all="ignore"):
            product = np.matmul(round_to(left, compute), round_to(right, compute))
            value = compute.numpy.type(factors[0]) * product
            if factors[1]:
                value = value + compute.numpy.type(factors[1]) * round_to(self._matrices(c, c_layout, 0), compute)
            epilogue = said.get("EPILOGUE", int(Epilogue.DEFAULT))
            if epilogue == int(Epilogue.BIAS):
                rows = self.objects[d_layout].rows
                bias = _memory(said["BIAS_POINTER"], OF_DATA_TYPE[said["BIAS_DATA_TYPE"]], rows)
                value = value + round_to(bias, compute)[None, :, None]
        rounded = round_to(np.ascontiguousarray(value), self.objects[d_layout].dtype)
        into.view(f"u{into.itemsize}")[...] = rounded.view(f"u{into.itemsize}")
        chosen = int(np.frombuffer(ctypes.string_at(algorithm, 8), np.uint64)[0])
        self.calls.append(
            {"algorithm": chosen, "workspace": workspace, "workspace_bytes": workspace_bytes, "stream": stream}
        )

    def _matrices(self, address: int, layout: int, turned: int) -> np.ndarray:
        """[batch, rows, columns] of op(X)."""
        at: Layout = self.objects[layout]
        span = (at.batch - 1) * at.batch_stride + (at.columns - 1) * at.leading + at.rows
        flat = _memory(address, at.dtype, span)
        size = flat.itemsize
        words = np.lib.stride_tricks.as_strided(
            flat.view(f"u{size}"), (at.batch, at.rows, at.columns), (at.batch_stride * size, size, at.leading * size)
        )
        whole = words.view(at.dtype.numpy)
        return whole.transpose(0, 2, 1) if turned else whole


def _memory(address: int, dtype: DType, count: int) -> np.ndarray:
    raw = (ctypes.c_uint8 * (count * dtype.bytes)).from_address(address)
    return np.frombuffer(raw, np.uint8).view(dtype.numpy)
