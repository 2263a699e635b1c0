"""Tensors of a plan that is run: files that parent and timing child exchange."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fusion_ir.dtype import DTYPES
from fusion_ir.records import Plan, TensorSpec

Array = np.ndarray[Any, Any]


def check_inputs(plan: Plan, inputs: Sequence[Array]) -> None:
    """Raises ValueError for inputs that a plan was not made for."""
    if len(inputs) != len(plan.inputs):
        raise ValueError(f"expected {len(plan.inputs)} inputs, got {len(inputs)}")
    for i, (array, spec) in enumerate(zip(inputs, plan.inputs, strict=True)):
        if array.dtype != DTYPES[spec.dtype].numpy or tuple(array.shape) != spec.shape:
            raise ValueError(
                f"input {i}: expected {spec.dtype}{list(spec.shape)}, got {array.dtype}{list(array.shape)}"
            )


def constant_version(array: Array, told: str | None) -> str:
    """A text that changes when a constant does: the version that its owner names (`told`), or a hash of its
    content."""
    if told is not None:
        return f"version {told}"
    content = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    return f"content {hashlib.blake2b(content, digest_size=32).hexdigest()}"


def tensor_file(spec: TensorSpec, file: str) -> dict[str, Any]:
    """The description of a tensor for the timing child; the file holds it dense, row-major."""
    return {"file": file, "dtype": spec.dtype, "shape": spec.shape, "strides": spec.strides}


def read_tensor(spec: TensorSpec, file: Path) -> Array:
    """The tensor that the timing child wrote."""
    return np.fromfile(file, DTYPES[spec.dtype].numpy).reshape(spec.shape)
