"""Element types: storage, arithmetic and accumulation of each."""

from dataclasses import dataclass
from typing import Literal

import ml_dtypes
import numpy as np

Kind = Literal["float", "int", "uint", "bool"]


@dataclass(frozen=True, slots=True)
class DType:
    """One element type. Instances are the rows of `DTYPES`; compare them with `is` or `==`.

    `compute` names the type in which arithmetic on it happens before the result is rounded back at the node;
    `accumulate` the type in which sums, products and contractions of it run.
    """

    name: str
    bytes: int
    kind: Kind
    compute: str
    accumulate: str
    numpy: np.dtype

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return self.name

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")


DTYPES: dict[str, DType] = {
    row.name: row
    for row in (
        #     name     bytes kind    compute accumulate numpy
        DType("f64", 8, "float", "f64", "f64", np.dtype(np.float64)),
        DType("f32", 4, "float", "f32", "f32", np.dtype(np.float32)),
        DType("f16", 2, "float", "f32", "f32", np.dtype(np.float16)),
        DType("bf16", 2, "float", "f32", "f32", np.dtype(ml_dtypes.bfloat16)),
        DType("f8e4m3", 1, "float", "f32", "f32", np.dtype(ml_dtypes.float8_e4m3fn)),
        DType("f8e5m2", 1, "float", "f32", "f32", np.dtype(ml_dtypes.float8_e5m2)),
        DType("i8", 1, "int", "i8", "i64", np.dtype(np.int8)),
        DType("i16", 2, "int", "i16", "i64", np.dtype(np.int16)),
        DType("i32", 4, "int", "i32", "i64", np.dtype(np.int32)),
        DType("i64", 8, "int", "i64", "i64", np.dtype(np.int64)),
        DType("u8", 1, "uint", "u8", "i64", np.dtype(np.uint8)),
        DType("bool", 1, "bool", "bool", "i64", np.dtype(np.bool_)),
    )
}

f64, f32, f16, bf16 = (DTYPES[n] for n in ("f64", "f32", "f16", "bf16"))
f8e4m3, f8e5m2 = DTYPES["f8e4m3"], DTYPES["f8e5m2"]
i8, i16, i32, i64, u8 = (DTYPES[n] for n in ("i8", "i16", "i32", "i64", "u8"))
bool_ = DTYPES["bool"]


def compute_dtype(dtype: DType) -> DType:
    """The type in which arithmetic on `dtype` happens: f32 for the 16- and 8-bit floats, itself otherwise."""
    return DTYPES[dtype.compute]


def accumulate_dtype(dtype: DType) -> DType:
    """The type in which sums over `dtype` run."""
    return DTYPES[dtype.accumulate]
