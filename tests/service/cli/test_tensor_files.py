"""safetensors files keep every dtype of the language, bit for bit."""

from pathlib import Path

import numpy as np
import pytest

from fusion_ir.core.extent import shape_of
from fusion_ir.core.graph import InputSpec
from fusion_ir.dtype import DTYPES
from service.cli.errors import CommandError
from service.cli.tensor_files import read_tensors, select, write_tensors


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3), (1,)])
def test_there_and_back(tmp_path: Path, dtype, shape: tuple[int, ...]) -> None:  # type: ignore[no-untyped-def]
    count = int(np.prod(shape))
    patterns = np.random.default_rng(0).integers(0, 2 if dtype.kind == "bool" else 256, count * dtype.bytes, np.uint8)
    array = patterns.view(dtype.numpy).reshape(shape)
    path = tmp_path / "t.safetensors"
    write_tensors(path, {"a": array, 'odd "name"\n': array})
    read = read_tensors(path)
    assert set(read) == {"a", 'odd "name"\n'}
    assert read["a"].dtype == dtype.numpy
    assert read["a"].shape == shape
    assert read["a"].tobytes() == array.tobytes()


def test_tensors_that_are_not_contiguous_are_written_in_order(tmp_path: Path) -> None:
    array = np.arange(12, dtype=np.int32).reshape(3, 4).T
    path = tmp_path / "t.safetensors"
    write_tensors(path, {"a": array})
    assert np.array_equal(read_tensors(path)["a"], array)


def test_values_must_repeat_where_the_stride_is_0() -> None:
    spec = InputSpec(shape_of((3, 2)), DTYPES["bf16"], (0, 1))
    row = np.array([1.0, np.nan], DTYPES["bf16"].numpy)
    repeated = np.broadcast_to(row, (3, 2))
    assert select({"x": repeated}, ("x",), (spec,), Path("f"))[0].shape == (3, 2)
    other = repeated.copy()
    other[2, 0] = 2.0
    with pytest.raises(CommandError, match="'x' must repeat"):
        select({"x": other}, ("x",), (spec,), Path("f"))


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(CommandError) as caught:
        write_tensors(tmp_path / "none" / "t", {"a": np.zeros(1, np.float32)})
    assert caught.value.code == 1
