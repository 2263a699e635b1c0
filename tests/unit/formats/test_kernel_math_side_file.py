"""The side file: what it may say, and where it is wrong."""

import json

import pytest

from fusion_ir.dtype import DTYPES
from fusion_ir.errors import FormatError
from fusion_ir.formats import READERS, SideFile, read
from fusion_ir.formats.side_file import NOTHING
from fusion_ir.formats.side_json import SideModel, read_side_file

WHOLE = {
    "extents": {"i0": 4096},
    "values": {"d7": 0.125, "T21": -1.0, "i5": 3, "b2": True},
    "inputs": {"T0": {"shape": [2, 3], "strides": [4, 1], "dtype": "bf16"}, "T1": {"strides": [1]}},
    "outputs": ["T34", "T26"],
}


def test_whole() -> None:
    side = read_side_file(json.dumps(WHOLE).encode())
    assert side == SideFile(
        extents={"i0": 4096},
        values={"d7": 0.125, "T21": -1.0, "i5": 3, "b2": True},
        shapes={"T0": (2, 3)},
        strides={"T0": (4, 1), "T1": (1,)},
        dtypes={"T0": DTYPES["bf16"]},
        outputs=("T34", "T26"),
    )
    assert type(side.values["i5"]) is int and side.values["b2"] is True
    assert side.members == ("extents", "values", "inputs", "outputs")
    assert read_side_file("{}") == NOTHING and NOTHING.members == ()


def test_members_are_those_that_readers_name() -> None:
    named = {member for reader in READERS for member in reader.beside}
    assert named == set(SideModel.model_fields) == set(WHOLE)


BAD: dict[str, tuple[object, str]] = {
    "no object": ([], r"expected an object, got a list"),
    "unknown member": ({"extent": {}}, r"/extent: unknown field"),
    "unknown member of an input": ({"inputs": {"T0": {"stride": []}}}, r"/inputs/T0/stride: unknown field"),
    "negative extent": ({"extents": {"i0": -1}}, r"/extents/i0: expected 0 or more, got -1"),
    "extent beyond the limit": ({"extents": {"i0": 2**41}}, r"/extents/i0: expected at most"),
    "extent as text": ({"extents": {"i0": "4"}}, r"/extents/i0: expected an integer"),
    "extent as a truth value": ({"extents": {"i0": True}}, r"/extents/i0: expected an integer"),
    "extent as a float": ({"extents": {"i0": 4.0}}, r"/extents/i0: expected an integer"),
    "value as text": ({"values": {"d0": "4"}}, r"/values/d0"),
    "elements": ({"inputs": {"T0": {"shape": [2**30, 2**30]}}}, r"/inputs/T0/shape: shape .* at most"),
    "rank": ({"inputs": {"T0": {"shape": [1] * 13}}}, r"/inputs/T0/shape: .*at most 12 items"),
    "dtype": ({"inputs": {"T0": {"dtype": "float"}}}, r"/inputs/T0/dtype: expected 'f64'"),
    "empty name": ({"extents": {"": 1}}, r"/extents/"),
    "output twice": ({"outputs": ["T1", "T1"]}, r"/outputs: 'T1' is named twice"),
    "output of a number": ({"outputs": [1]}, r"/outputs/0: expected a string, got 1"),
}


@pytest.mark.parametrize("case", BAD)
def test_refused(case: str) -> None:
    value, message = BAD[case]
    with pytest.raises(FormatError, match=f"^({message})"):
        read_side_file(json.dumps(value))


def test_text_is_read_strictly() -> None:
    with pytest.raises(FormatError, match=r"^1:13: not JSON"):
        read_side_file('{"extents": ')
    with pytest.raises(FormatError, match=r"key 'i0' is given twice"):
        read_side_file('{"extents": {"i0": 1, "i0": 2}}')
    with pytest.raises(FormatError, match=r"^/values/d0"):
        read_side_file('{"values": {"d0": NaN}}')
    with pytest.raises(FormatError, match=r"byte 0xff is not UTF-8"):
        read_side_file(b"\xff")


def test_definitions_take_sizes_and_strides() -> None:
    """-1 in a definition, and contiguity False, are open too."""
    tensor = "fd.define_tensor(shape=[-1, 8], contiguity=[False, True], dtype=DataType.Float)"
    text = f"def f(fd):\n  x = {tensor}\n  fd.add_output(x)"
    side = read_side_file('{"inputs": {"x": {"shape": [4, 8], "strides": [32, 1], "dtype": "f32"}}}')
    spec = read(text, beside=side).graph.inputs[0]
    assert (spec.sizes, spec.strides) == ((4, 8), (32, 1))
