"""Library calls computed on NumPy arrays: for targets without the library, and to check descriptions of calls."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from fusion_ir.arithmetic.conversions import round_to
from fusion_ir.dtype import DTYPES
from fusion_ir.records import CallMatrix, CallVector, LibraryCall

Array = np.ndarray[Any, Any]
TF32_DROPPED_BITS = 13  # of the 23 of an f32's fraction


def compute_call(call: LibraryCall, memory: Sequence[Array]) -> None:
    """Makes the call. memory: for each of the step's tensors a one-dimensional array of its dtype, from its first
    element on; the result is written into the array of `call.d`. Raises ValueError where a matrix is not all within
    its memory."""
    scale = DTYPES["f64" if call.compute == "f64" else "f32"]
    alpha, beta = scale.numpy.type(call.alpha), scale.numpy.type(call.beta)
    for point in product(*(range(loop.extent) for loop in call.loops)):
        pairs = list(zip(point, call.loops, strict=True))
        a = _matrices(call, call.a, memory, call.m, call.k, sum(i * loop.a for i, loop in pairs))
        b = _matrices(call, call.b, memory, call.k, call.n, sum(i * loop.b for i, loop in pairs))
        d = _matrices(call, call.d, memory, call.m, call.n, sum(i * loop.d for i, loop in pairs))
        with np.errstate(all="ignore"):
            value: Array = alpha * np.matmul(_operand(call, a), _operand(call, b))
            if call.c is not None:
                c = _matrices(call, call.c, memory, call.m, call.n, sum(i * loop.c for i, loop in pairs))
                value = value + beta * round_to(c, scale)
            if call.bias is not None:
                bias = _vector(call.bias, memory, call.n, sum(i * loop.bias for i, loop in pairs))
                value = value + round_to(bias, scale)
        d.view(f"u{d.itemsize}")[...] = round_to(value, DTYPES[call.d.dtype]).view(f"u{d.itemsize}")


def _operand(call: LibraryCall, matrices: Array) -> Array:
    """The matrices in the type that products are computed in."""
    if call.compute == "f64":
        return matrices
    wide = round_to(matrices, DTYPES["f32"])
    return _to_tf32(wide) if call.compute == "tf32" else wide


def _to_tf32(x: Array) -> Array:
    """Rounds to 10 bits of fraction, ties to even; infinities and NaNs stay."""
    bits = np.ascontiguousarray(x).view(np.uint32)
    odd = (bits >> TF32_DROPPED_BITS) & 1
    rounded = (bits + (1 << TF32_DROPPED_BITS - 1) - 1 + odd) >> TF32_DROPPED_BITS << TF32_DROPPED_BITS
    return np.where(np.isfinite(x), rounded.astype(np.uint32).view(np.float32), x)


def _matrices(call: LibraryCall, at: CallMatrix, memory: Sequence[Array], rows: int, columns: int, start: int) -> Array:
    """The matrices at a place in memory, as a view [batch, rows, columns]."""
    down, along = (1, at.leading) if at.turned else (at.leading, 1)
    sizes, strides = (call.batch, rows, columns), (at.batch_stride, down, along)
    return _view(memory[at.tensor], at.dtype, at.offset + start, sizes, strides)


def _vector(at: CallVector, memory: Sequence[Array], count: int, start: int) -> Array:
    return _view(memory[at.tensor], at.dtype, at.offset + start, (count,), (1,))


def _view(memory: Array, dtype: str, start: int, sizes: tuple[int, ...], strides: tuple[int, ...]) -> Array:
    if memory.ndim != 1 or memory.dtype != DTYPES[dtype].numpy:
        raise ValueError(f"expected one-dimensional memory of {dtype}, got {memory.ndim} axes of {memory.dtype}")
    end = start + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
    if end >= memory.size:
        raise ValueError(f"a matrix ends at element {end} of a tensor of {memory.size}")
    raw = memory[start:].view(f"u{memory.itemsize}")  # as_strided does not know ml_dtypes' types
    steps = tuple(s * memory.itemsize for s in strides)
    return np.lib.stride_tricks.as_strided(raw, sizes, steps).view(memory.dtype)
