"""Constants by their bits: -0.0 and 0.0 differ, NaNs equal themselves, and a kernel gets exactly what was sent."""

import re
from dataclasses import dataclass

import numpy as np

from fusion_ir.arithmetic.conversions import narrowed
from fusion_ir.core.aliases import dtype_hint
from fusion_ir.dtype import DTYPES, DType
from fusion_ir.errors import excerpt

_DIGITS = re.compile(r"0x[0-9a-fA-F]+")


@dataclass(frozen=True, slots=True)
class Scalar:
    """One value of a dtype. `bits` is the little-endian unsigned integer with the value's bit pattern."""

    dtype: DType
    bits: int

    @staticmethod
    def of(value: float | int | bool, dtype: DType) -> "Scalar":
        """Rounds a Python number to `dtype` (f16, bf16, f8 by way of f32). Integers out of range raise ValueError."""
        if dtype.kind == "bool":
            array = np.array(bool(value))
        elif dtype.is_integer:
            info = np.iinfo(dtype.numpy)
            if int(value) != value or not info.min <= int(value) <= info.max:
                raise ValueError(f"{value} is not a value of {dtype}")
            array = np.array(int(value), dtype.numpy)
        else:
            with np.errstate(over="ignore", invalid="ignore"):
                wide = np.array(float(value), np.float64)
                array = wide if dtype.name == "f64" else narrowed(wide.astype(np.float32), dtype)
        return Scalar(dtype, int.from_bytes(array.tobytes(), "little"))

    @property
    def value(self) -> float | int | bool:
        """The value as a Python number."""
        array = self.array()
        if self.dtype.kind == "bool":
            return bool(array)
        with np.errstate(invalid="ignore"):  # signalling NaNs
            return int(array) if self.dtype.is_integer else float(array.astype(np.float64))

    def array(self) -> np.ndarray:
        """The value as an array of rank 0."""
        return np.frombuffer(self.bits.to_bytes(self.dtype.bytes, "little"), self.dtype.numpy).reshape(())

    def __repr__(self) -> str:
        return f"{self.dtype}:0x{self.bits:0{2 * self.dtype.bytes}x}"

    @staticmethod
    def parse(text: str) -> "Scalar":
        """Inverse of `repr`. Raises ValueError."""
        name, _, digits = text.partition(":")
        if name not in DTYPES or not _DIGITS.fullmatch(digits):
            hint = dtype_hint(name, DTYPES) if name not in DTYPES else ""
            raise ValueError(f"not a constant: {excerpt(text)}{hint}")
        dtype, bits = DTYPES[name], int(digits, 16)
        if bits >> (8 * dtype.bytes) or (dtype.kind == "bool" and bits > 1):
            raise ValueError(f"{excerpt(text)} has more bits than {name}")
        return Scalar(dtype, bits)
