"""Tensor maps as records, as the driver gets them, and as the emulator does."""

import ctypes
import struct
from typing import Any

import pytest
from pydantic import ValidationError

from codegen.child import tensor_maps
from codegen.launch.emulated_map import emulated_map
from fusion_ir.records import Ref, Step, TensorMapSpec

SPEC = TensorMapSpec(
    argument=1,
    offset_bytes=32,
    dtype="bf16",
    element_bytes=2,
    sizes=(72, 40, 3),
    strides_bytes=(144, 5760),
    box=(64, 32, 1),
)


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"sizes": (72, 40)}, "2 axes with 2 strides"),
        ({"sizes": (1 << 32, 40, 3)}, "between 1 and 2\\^32"),
        ({"strides_bytes": (144, 8)}, "multiples of 16"),
        ({"strides_bytes": (144, 1 << 40)}, "below 2\\^40"),
        ({"offset_bytes": 2}, "no multiple of 16"),
        ({"box": (64, 0, 1)}, "between 1 and 256"),
        ({"box": (72, 32, 1)}, "144 bytes"),
        ({"swizzle": 48}, "Input should be 0, 32, 64 or 128"),
    ],
)
def test_what_the_hardware_cannot_do_is_refused(changed: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        TensorMapSpec.model_validate(SPEC.model_dump() | changed)


class Driver:
    """Takes down what it is told to encode, and fills the map with the number of the call."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.status = 0

    def cuTensorMapEncodeTiled(self, place: Any, *rest: Any) -> int:
        self.calls.append(tuple(list(x) if isinstance(x, ctypes.Array) else x.value for x in rest))
        assert place.value % 64 == 0
        ctypes.memset(place.value, len(self.calls), tensor_maps.MAP_BYTES)
        return self.status


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    found = Driver()
    monkeypatch.setattr(tensor_maps, "_driver", lambda: found)
    tensor_maps._encoded.cache_clear()
    return found


def test_the_driver_gets_every_field(driver: Driver) -> None:
    tensor_maps.encoded(SPEC, 0x10000)
    bf16, three, swizzled_128 = 9, 3, 3
    assert driver.calls == [
        (bf16, three, 0x10020, [72, 40, 3], [144, 5760], [64, 32, 1], [1, 1, 1], 0, swizzled_128, 3, 0)
    ]


def test_maps_are_encoded_once_for_each_place(driver: Driver) -> None:
    first, again, other = (tensor_maps.encoded(SPEC, at) for at in (4096, 4096, 8192))
    assert (first == again, first == other, len(driver.calls)) == (True, False, 2)
    assert ctypes.string_at(other, tensor_maps.MAP_BYTES) == bytes([2]) * tensor_maps.MAP_BYTES


def test_a_refusal_of_the_driver_is_an_error(driver: Driver) -> None:
    driver.status = 1
    with pytest.raises(tensor_maps.TensorMapError, match="says 1"):
        tensor_maps.encoded(SPEC, 4096)


def test_parameters_are_addresses_then_maps(driver: Driver) -> None:
    parameters = tensor_maps.Parameters([0x1000, 0x2000], [SPEC])
    pointers = (ctypes.c_void_p * 3).from_address(parameters.address)
    values = [ctypes.c_uint64.from_address(p or 0).value for p in pointers[:2]]
    assert values == [0x1000, 0x2000]
    assert ctypes.string_at(pointers[2] or 0, tensor_maps.MAP_BYTES) == bytes([1]) * tensor_maps.MAP_BYTES
    assert driver.calls[0][2] == 0x2020, "argument 1, and the offset"


def test_the_emulator_gets_every_field() -> None:
    data = emulated_map(SPEC, 0x10000)
    assert len(data) == tensor_maps.MAP_BYTES
    numbers = struct.unpack("<10Q8I", data[:112])
    assert numbers == (0x10020, 72, 40, 3, 0, 0, 144, 5760, 0, 0, 3, 2, 128, 64, 32, 1, 0, 0)


def test_steps_without_maps_are_written_as_before_there_were_any() -> None:
    step = Step(
        family="pointwise", schedule="", binary="", entry="k", reads=(), writes=(Ref(place="out", index=0),),
        time_us=None, bound_us=1.0, bytes=1, operations=1.0, nodes=(), segment_key="",
    )  # fmt: skip
    text = step.model_dump_json()
    assert "tensor_maps" not in text
    assert "cluster" not in text
    assert Step.model_validate_json(text) == step
    mapped = step.model_copy(update={"tensor_maps": (SPEC,), "cluster": 2})
    assert Step.model_validate_json(mapped.model_dump_json()) == mapped
