"""Values at which functions break, of every dtype, and tensors of PyTorch with the same bits."""

from typing import Any

import numpy as np

from fusion_ir.dtype import DTYPES, DType

_BITS = {"bf16": np.int16, "f8e4m3": np.uint8, "f8e5m2": np.uint8}  # of what NumPy has no type of its own for
_TORCH = {
    "f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "f8e4m3": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8",
    "bool": "bool",
}  # fmt: skip


def special_values(dtype: DType) -> np.ndarray:
    """Zeros, ones, infinities, NaN, subnormals, the smallest normal and the largest numbers; edges of integers."""
    if dtype.kind == "bool":
        return np.array([False, True])
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        width = 8 * dtype.bytes
        edges = [info.min, info.min + 1, -3, -2, -1, 0, 1, 2, 3, 7, width - 1, width, info.max // 2, info.max]
        return np.array(sorted({v for v in edges if info.min <= v <= info.max}), dtype.numpy)
    largest = 448.0 if dtype.name == "f8e4m3" else 2.0**dtype.highest * (2 - 2.0 ** (1 - dtype.digits))
    normal, subnormal = 2.0**dtype.least_normal, 2.0**dtype.lowest
    positive = [
        0.0, subnormal, 2 * subnormal, normal - subnormal, normal, 0.1, 0.25, 1 / 3, 0.5, 0.7,
        1 - 2.0**-dtype.digits, 1.0, 1 + 2.0 ** (1 - dtype.digits), 1.5, 2.0, 2.5, 3.0, 7.0, 80.0, largest / 2, largest,
    ]  # fmt: skip
    infinities = [] if dtype.name == "f8e4m3" else [np.inf, -np.inf]
    wide = np.array([*positive, *(-v for v in positive), *infinities, np.nan])
    return (wide if dtype.name == "f64" else wide.astype(np.float32)).astype(dtype.numpy)


def to_torch(torch: Any, array: np.ndarray, name: str) -> Any:
    """The tensor with the array's bits."""
    given = np.ascontiguousarray(array)
    if name in _BITS:
        return torch.from_numpy(given.view(_BITS[name]).copy()).view(getattr(torch, _TORCH[name]))
    return torch.from_numpy(given.copy())


def from_torch(torch: Any, tensor: Any) -> tuple[np.ndarray, str]:
    """The tensor's bits as an array, and the name of its dtype."""
    name = next(ours for ours, theirs in _TORCH.items() if tensor.dtype == getattr(torch, theirs))
    if name in _BITS:
        bits = tensor.contiguous().view(torch.int16 if name == "bf16" else torch.uint8).numpy()
        return bits.view(DTYPES[name].numpy), name
    return tensor.contiguous().numpy(), name
