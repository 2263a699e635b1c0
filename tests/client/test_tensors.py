"""Tensors of other packages: by the CUDA array interface, and by DLPack, of which NumPy's and PyTorch's are real."""

import numpy as np
import pytest
from fuseplan_client import tensors
from fuseplan_client.tensors import View, dense, view

from tests.support.fake_cupy import FakeArray

ON_THE_CPU = 1


class Dlpack:
    """An array of another package as if it were on a CUDA device: its capsule says CPU, which nobody looks at."""

    def __init__(self, array: object) -> None:
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return tensors.CUDA_DEVICES[0], 0

    def __dlpack__(self, stream: int | None = None) -> object:
        assert stream == -1
        return self.array.__dlpack__()  # type: ignore[attr-defined]


def test_the_array_interface() -> None:
    assert view(FakeArray(4096, (3, 5), "<f2")) == View(4096, (3, 5), "f16", (5, 1))
    assert view(FakeArray(4096, (3, 5), "|b1", (1, 3))) == View(4096, (3, 5), "bool", (1, 3))


TYPES = {"f8": "f64", "f4": "f32", "f2": "f16", "i8": "i64", "i4": "i32", "i2": "i16", "i1": "i8", "u1": "u8"}


@pytest.mark.parametrize(("numpy_type", "name"), TYPES.items())
def test_dlpack(numpy_type: str, name: str) -> None:
    array = np.zeros((6, 5, 4), numpy_type)[::2, 1:, :].transpose(2, 0, 1)
    found = view(Dlpack(array))
    strides = tuple(s // array.itemsize for s in array.strides)
    assert found == View(array.ctypes.data, (4, 3, 4), name, strides, 0)


def test_dlpack_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    for kind, name in ((torch.bfloat16, "bf16"), (torch.float16, "f16"), (torch.bool, "bool"), (torch.int64, "i64")):
        tensor = torch.zeros(4, 6, dtype=kind)[1:, ::2]
        found = view(Dlpack(tensor))
        assert (found.address, found.dtype) == (tensor.data_ptr(), name)
        assert (found.shape, found.strides) == (tuple(tensor.shape), tuple(tensor.stride()))


def test_tensors_elsewhere_and_of_other_types() -> None:
    with pytest.raises(TypeError, match="expected a tensor on a CUDA device, got one on a DLPack device of type 1"):
        view(np.zeros(3, np.float32))
    with pytest.raises(TypeError, match="plans know no tensors of DLPack type"):
        view(Dlpack(np.zeros(3, np.complex64)))


def test_dense_strides() -> None:
    assert (dense((2, 3, 4)), dense((5,)), dense(())) == ((12, 4, 1), (1,), ())
