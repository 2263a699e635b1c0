"""Tensors in the machine's memory as addresses with shapes: NumPy arrays, and all that has DLPack, as PyTorch's
tensors."""

from typing import Any

import numpy as np

from fuseplan_client.fill import CARRIERS
from fuseplan_client.plan import ITEM_BYTES, Tensor
from fuseplan_client.tensors import View, of_capsule

HOST = 1  # kDLCPU
ALIGNMENT = 64
# NumPy's names of dtypes, and of those that packages add to it (ml_dtypes). Unsigned integers stand in for what it
# lacks.
NUMPY_TYPES = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "float8_e4m3fn": "f8e4m3", "float8_e5m2":
    "f8e5m2", "int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8", "uint8": "u8", "bool": "bool", "uint16":
    "u16", }  # fmt: skip


def host_view(tensor: Any, *, written: bool = False) -> View:
    """The address and layout of a tensor in the machine's memory. Raises TypeError for an object that is none, for one
    of a type that plans do not know, or for one that is to be `written` and is read-only."""
    if isinstance(tensor, np.ndarray):
        return _of_array(tensor, written)
    if not hasattr(tensor, "__dlpack__"):
        raise TypeError(f"expected a NumPy array or a tensor with DLPack, got {type(tensor).__name__}")
    kind = int(tensor.__dlpack_device__()[0])
    if kind != HOST:
        raise TypeError(f"expected a tensor in the machine's memory, got one on a DLPack device of type {kind}")
    if getattr(tensor, "requires_grad", False):
        tensor = tensor.detach()
    return of_capsule(tensor.__dlpack__())


def empty(spec: Tensor) -> np.ndarray[Any, Any]:
    """Memory of a tensor as a NumPy array with its strides; types that NumPy lacks as unsigned integers."""
    size = ITEM_BYTES[spec.dtype]
    alignment = max(ALIGNMENT, spec.alignment_bytes)
    memory = np.empty(max(spec.span, 1) * size + alignment, np.uint8)
    start = -memory.ctypes.data % alignment
    flat = memory[start : start + max(spec.span, 1) * size].view(CARRIERS[spec.dtype])
    return np.lib.stride_tricks.as_strided(flat, spec.shape, tuple(s * size for s in spec.strides))


def _of_array(array: np.ndarray[Any, Any], written: bool) -> View:
    dtype = NUMPY_TYPES.get(array.dtype.name)
    if dtype is None or not array.dtype.isnative:
        raise TypeError(f"plans know no arrays of dtype {array.dtype}")
    if written and not array.flags.writeable:
        raise TypeError("expected an array to write to, got a read-only one")
    size = array.dtype.itemsize
    if any(s % size for s in array.strides):
        raise TypeError(f"plans know no arrays with strides of {array.strides} bytes for elements of {size}")
    return View(array.ctypes.data, array.shape, dtype, tuple(s // size for s in array.strides))
