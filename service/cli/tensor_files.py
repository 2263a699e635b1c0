"""Tensors on disk: safetensors files to and from numpy arrays with ml_dtypes, every dtype of the language."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, TensorSpec, deserialize, serialize_file

from fusion_ir.core.graph import InputSpec
from fusion_ir.dtype import DTYPES, DType
from service.cli.errors import bad_input, failed

# Names of the file format.
_DTYPE_OF = {
    "F64": "f64",
    "F32": "f32",
    "F16": "f16",
    "BF16": "bf16",
    "F8_E4M3": "f8e4m3",
    "F8_E5M2": "f8e5m2",
    "I64": "i64",
    "I32": "i32",
    "I16": "i16",
    "I8": "i8",
    "U8": "u8",
    "BOOL": "bool",
}


def read_tensors(path: Path) -> dict[str, np.ndarray]:
    """All tensors of the file by name. Raises CommandError for a file that is none, or holds a dtype unknown here."""
    try:
        raw: list[tuple[str, dict[str, Any]]] = deserialize(path.read_bytes())
    except OSError as error:
        raise bad_input(f"{path}: {error.strerror}") from error
    except (SafetensorError, json.JSONDecodeError) as error:
        raise bad_input(f"{path}: not a safetensors file: {error}") from error
    tensors: dict[str, np.ndarray] = {}
    for name, tensor in raw:
        if tensor["dtype"] not in _DTYPE_OF:
            raise bad_input(f"{path}: tensor {name!r} has dtype {tensor['dtype']}; known are {', '.join(_DTYPE_OF)}")
        dtype = DTYPES[_DTYPE_OF[tensor["dtype"]]]
        tensors[name] = np.frombuffer(tensor["data"], _carrier(dtype)).view(dtype.numpy).reshape(tensor["shape"])
    return tensors


def write_tensors(path: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """Writes the file. Raises CommandError where that is not possible."""
    dense = {name: np.ascontiguousarray(array) for name, array in tensors.items()}  # alive until written
    specs = {
        name: TensorSpec(
            dtype=array.dtype.name,
            shape=tensors[name].shape,  # ascontiguousarray makes rank 0 rank 1
            data_ptr=array.ctypes.data,
            data_len=array.nbytes,
        )
        for name, array in dense.items()
    }
    try:
        serialize_file(specs, path)
    except (OSError, SafetensorError) as error:
        raise failed(f"{path}: cannot be written: {error}") from error


def select(
    tensors: Mapping[str, np.ndarray], names: tuple[str, ...], specs: tuple[InputSpec, ...], file: Path
) -> list[np.ndarray]:
    """The graph's inputs in order. Raises CommandError naming the tensor that does not fit."""
    if missing := [n for n in names if n not in tensors]:
        raise bad_input(f"{file}: tensor {missing[0]!r} is missing; the graph's inputs are {', '.join(names)}")
    if unknown := sorted(set(tensors) - set(names)):
        raise bad_input(f"{file}: tensor {unknown[0]!r} is no input; the graph's inputs are {', '.join(names)}")
    arrays: list[np.ndarray] = []
    for name, spec in zip(names, specs, strict=True):
        array = tensors[name]
        if array.shape != spec.sizes or array.dtype != spec.dtype.numpy:
            got = f"{array.dtype.name}{list(array.shape)}"
            raise bad_input(f"{file}: tensor {name!r} is {got}, expected {spec.dtype.numpy.name}{list(spec.sizes)}")
        raw = np.ascontiguousarray(array).reshape(array.shape).view(_carrier(spec.dtype))
        once = tuple(slice(0, 1) if stride == 0 else slice(None) for stride in spec.strides)
        if not np.array_equal(raw, np.broadcast_to(raw[once], raw.shape)):
            strides = list(spec.strides)
            raise bad_input(f"{file}: tensor {name!r} must repeat along its axes of stride 0: strides {strides}")
        arrays.append(array)
    return arrays


def _carrier(dtype: DType) -> np.dtype:
    """A numpy-native type of the same size: `frombuffer` does not take every extension type."""
    return np.dtype(f"u{dtype.bytes}")
