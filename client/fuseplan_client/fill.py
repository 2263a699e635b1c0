"""Values for a plan's inputs: random ones, or those of a safetensors file.

The values of a tensor are a flat NumPy array of the memory from its first element to behind its last; types that NumPy
lacks are unsigned integers of their width.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fuseplan_client.plan import ITEM_BYTES, Tensor

Flat = np.ndarray[Any, Any]

# By dtype of plans: what NumPy and CuPy hold it as.
CARRIERS = {
    "f64": "f8", "f32": "f4", "f16": "f2", "i64": "i8", "i32": "i4", "i16": "i2", "i8": "i1", "u8": "u1", "bool": "?",
    "bf16": "u2", "f8e4m3": "u1", "f8e5m2": "u1",
}  # fmt: skip
# By dtype of plans: its name in files.
FILE_TYPES = {
    "f64": "F64", "f32": "F32", "f16": "F16", "bf16": "BF16", "f8e4m3": "F8_E4M3", "f8e5m2": "F8_E5M2",
    "i64": "I64", "i32": "I32", "i16": "I16", "i8": "I8", "u8": "U8", "bool": "BOOL",
}  # fmt: skip
# 8-bit floats: bits of the mantissa, and the first of four exponents whose values are 0.25 to below 4.
EIGHT_BITS = {"f8e4m3": (3, 5), "f8e5m2": (2, 13)}
MOST_HEADER_BYTES = 100 << 20


class InputsError(ValueError):
    """A file holds no inputs of the plan; says which, what was expected and what was found."""


def random_values(spec: Tensor, generator: np.random.Generator) -> Flat:
    """Random values of a tensor: floats from a normal distribution, 8-bit floats from 0.25 to 4 with either sign,
    integers 0 and 1, which index any axis."""
    count, dtype = spec.span, spec.dtype
    if dtype in EIGHT_BITS:
        mantissa, first = EIGHT_BITS[dtype]
        sign, exponent = generator.integers(0, 2, count), generator.integers(first, first + 4, count)
        bits = sign << 7 | exponent << mantissa | generator.integers(0, 1 << mantissa, count)
        return bits.astype("u1")
    if not dtype.startswith(("f", "bf")):
        return generator.integers(0, 2, count).astype(CARRIERS[dtype])
    drawn = generator.standard_normal(count)
    if dtype == "bf16":
        return (drawn.astype("f4").view("u4") >> np.uint32(16)).astype("u2")
    return drawn.astype(CARRIERS[dtype])


def read_values(file: Path | str, names: Sequence[str], specs: Sequence[Tensor]) -> list[Flat]:
    """Values of the tensors with these names in a safetensors file, laid out as the plan reads them. Raises
    InputsError, OSError."""
    data = Path(file).read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    if len(data) < 8 or start > min(len(data), MOST_HEADER_BYTES):
        raise InputsError(f"{file}: no safetensors file")
    try:
        header = json.loads(data[8:start])
    except ValueError as e:
        raise InputsError(f"{file}: no safetensors file: {e}") from e
    if not isinstance(header, dict):
        raise InputsError(f"{file}: no safetensors file")
    found: list[Flat] = []
    for name, spec in zip(names, specs, strict=True):
        if name not in header:
            there = ", ".join(repr(n) for n in header if n != "__metadata__")
            raise InputsError(f"{file}: expected a tensor named {name!r}, found {there or 'none'}")
        expected = f"{FILE_TYPES[spec.dtype]}{list(spec.shape)}"
        try:
            got = f"{header[name]['dtype']}{list(header[name]['shape'])}"
            first, end = map(int, header[name]["data_offsets"])
        except (KeyError, TypeError, ValueError) as e:
            raise InputsError(f"{file}: {name!r} says nothing of its dtype, shape and place: {e}") from e
        if got != expected:
            raise InputsError(f"{file}: expected {name!r} to be {expected}, found {got}")
        elements = int(np.prod(spec.shape, dtype=np.int64))
        if end - first != elements * ITEM_BYTES[spec.dtype] or not 0 <= first <= end <= len(data) - start:
            raise InputsError(f"{file}: {name!r} has other bytes than its shape says, or lies outside of the file")
        values = np.frombuffer(data, CARRIERS[spec.dtype], elements, start + first).reshape(spec.shape)
        found.append(_laid_out(values, spec))
    return found


def _laid_out(values: Flat, spec: Tensor) -> Flat:
    flat = np.zeros(spec.span, values.dtype)
    if spec.span:
        bytes_ = tuple(s * values.dtype.itemsize for s in spec.strides)
        np.lib.stride_tricks.as_strided(flat, spec.shape, bytes_)[...] = values
    return flat
