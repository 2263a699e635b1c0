"""Element types: storage, arithmetic and accumulation of each."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import ml_dtypes
import numpy as np

Kind = Literal["float", "int", "uint", "bool"]


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """One element type. Instances are the rows of `DTYPES`, one each: compare them with `is` or `==`.

    `compute` names the type in which arithmetic on it happens before the result is rounded back at the node;
    `accumulate` the type in which sums, products and contractions of it run.
    digits: bits of the significand, with the implicit one; of an integer's magnitude, without the sign.
    lowest, highest: exponents of the smallest positive value (subnormals included) and of the largest magnitude.
    """

    name: str
    bytes: int
    kind: Kind
    compute: str
    accumulate: str
    numpy: np.dtype
    digits: int
    lowest: int
    highest: int

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Callable[[str], "DType"], tuple[str]]:
        """Copies, and what another process unpickles, are the row of DTYPES itself."""
        return _named, (self.name,)

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")

    @property
    def least_normal(self) -> int:
        """The exponent below which an ulp of a float type gets no smaller."""
        return self.lowest + self.digits - 1

    def holds(self, other: "DType") -> bool:
        """Whether every value of `other` is a value of this type, so that a cast to it and back changes nothing.

        Bits of NaNs aside; f8e4m3, which has no infinities, holds those of no other type.
        """
        if self is other:
            return True
        signed = self.kind in ("float", "int") or other.kind in ("uint", "bool")
        infinite = self.is_float or not other.is_float
        within = self.digits >= other.digits and self.lowest <= other.lowest and self.highest >= other.highest
        return signed and infinite and within


DTYPES: dict[str, DType] = {
    row.name: row
    for row in (
        #     name     bytes kind    compute accumulate numpy, digits, lowest, highest
        DType("f64", 8, "float", "f64", "f64", np.dtype(np.float64), 53, -1074, 1023),
        DType("f32", 4, "float", "f32", "f32", np.dtype(np.float32), 24, -149, 127),
        DType("f16", 2, "float", "f32", "f32", np.dtype(np.float16), 11, -24, 15),
        DType("bf16", 2, "float", "f32", "f32", np.dtype(ml_dtypes.bfloat16), 8, -133, 127),
        DType("f8e4m3", 1, "float", "f32", "f32", np.dtype(ml_dtypes.float8_e4m3fn), 4, -9, 8),
        DType("f8e5m2", 1, "float", "f32", "f32", np.dtype(ml_dtypes.float8_e5m2), 3, -16, 15),
        DType("i8", 1, "int", "i8", "i64", np.dtype(np.int8), 7, 0, 7),
        DType("i16", 2, "int", "i16", "i64", np.dtype(np.int16), 15, 0, 15),
        DType("i32", 4, "int", "i32", "i64", np.dtype(np.int32), 31, 0, 31),
        DType("i64", 8, "int", "i64", "i64", np.dtype(np.int64), 63, 0, 63),
        DType("u8", 1, "uint", "u8", "i64", np.dtype(np.uint8), 8, 0, 7),
        DType("bool", 1, "bool", "bool", "i64", np.dtype(np.bool_), 1, 0, 0),
    )
}

f64, f32, f16, bf16 = (DTYPES[n] for n in ("f64", "f32", "f16", "bf16"))
f8e4m3, f8e5m2 = DTYPES["f8e4m3"], DTYPES["f8e5m2"]
i8, i16, i32, i64, u8 = (DTYPES[n] for n in ("i8", "i16", "i32", "i64", "u8"))
bool_ = DTYPES["bool"]


def _named(name: str) -> DType:
    return DTYPES[name]


def compute_dtype(dtype: DType) -> DType:
    """The type in which arithmetic on `dtype` happens: f32 for the 16- and 8-bit floats, itself otherwise."""
    return DTYPES[dtype.compute]


def accumulate_dtype(dtype: DType) -> DType:
    """The type in which sums over `dtype` run."""
    return DTYPES[dtype.accumulate]
