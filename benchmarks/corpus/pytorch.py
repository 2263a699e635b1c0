"""PyTorch where it is installed: the corpus builds its graphs without, and says what they mean with it."""

import importlib
from typing import Any

import numpy as np

from fusion_ir.dtype import bf16

# Annotations of the functions over PyTorch's tensors; the checks must pass where its types are not installed.
Tensor = Any
Tensors = tuple[Any, ...]


class _Missing:
    """Stands for a module that is not installed."""

    def __getattr__(self, name: str) -> Any:
        raise ModuleNotFoundError(f"torch.{name} needs PyTorch: install the extra `bench`")


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return _Missing()


torch: Any = _module("torch")
F: Any = _module("torch.nn.functional")
HAS_TORCH = not isinstance(torch, _Missing)


def wide(x: Tensor) -> Tensor:
    """`x` where composites compute: x.float() of 16-bit tensors; f64 stays, so that references can run in it."""
    return x if x.dtype == torch.float64 else x.float()


def statistic(x: Tensor) -> Tensor:
    """A mean or reciprocal deviation as `native_batch_norm_backward` and `native_layer_norm_backward` want it: CUDA's
    take those of 16-bit tensors in f32, as its forward passes save them; the CPU's take them in the tensors' dtype."""
    return wide(x) if x.device.type != "cpu" else x


def to_torch(array: np.ndarray) -> Tensor:
    """The array as a tensor over the same memory, with its strides."""
    if array.dtype == bf16.numpy:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def to_numpy(tensor: Tensor) -> np.ndarray:
    """The tensor as an array of our element types, over the same memory."""
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(bf16.numpy)
    return tensor.numpy()
