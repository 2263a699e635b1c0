"""The writer of wire graphs: constants by their bits, limits, views as the reader understands them."""

import math
import random

import pytest
import torch
from fuseplan_client.torch.wire import DTYPES as NAMES
from fuseplan_client.torch.wire import MOST_TENSORS, Refused, Writer, constant, rounded

from fusion_ir.core.scalar import Scalar
from fusion_ir.dtype import DTYPES
from fusion_ir.formats.json.wire import from_wire
from fusion_ir.reference.interpreter import interpret
from tests.support.aten_graphs import array_of, tensor_of
from tests.support.whole import seed

SPECIAL = [0.0, -0.0, 1.0, -2.5, 1e-45, 1e-8, 6e-8, 65504.0, 65520.0, 1e39, -1e300, math.inf, -math.inf, 3.3895e38]
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


@pytest.mark.parametrize("dtype", FLOATS)
def test_float_constants_are_rounded_as_pytorch_and_the_language_round_them(dtype: torch.dtype) -> None:
    rng = random.Random(seed())
    values = SPECIAL + [rng.gauss(0, 1) * 10.0 ** rng.randint(-12, 12) for _ in range(300)]
    for value in values:
        text = constant(value, dtype)
        assert text == repr(Scalar.of(value, DTYPES[NAMES[dtype]])), value
        assert rounded(value, dtype) == torch.tensor(value, dtype=torch.float64).to(dtype).double().item(), value
    assert math.isnan(float(Scalar.parse(constant(math.nan, dtype)).value))


@pytest.mark.parametrize("dtype", [d for d in NAMES if not d.is_floating_point])
def test_integer_constants_wrap_as_pytorchs_casts(dtype: torch.dtype) -> None:
    for value in (0, 1, -1, 127, 128, 255, 256, -129, 2**31, 2**63 - 1, -(2**63), True):
        expected = torch.tensor(value, dtype=torch.int64).to(dtype).item()
        assert Scalar.parse(constant(value, dtype)).value == expected, value


def test_a_dtype_that_the_wire_lacks_is_refused_by_name() -> None:
    with pytest.raises(Refused, match="dtype complex64"):
        Writer().input("x", (2,), torch.complex64)


def test_limits_are_refused_before_the_reader_sees_them() -> None:
    w = Writer()
    x = w.input("x", (2,), torch.float32)
    with pytest.raises(Refused, match="axes"):
        x.reshape((1,) * 12 + (2,))
    with pytest.raises(Refused, match="operands"):
        w.cat([x] * (MOST_TENSORS + 1), 0)


def test_equal_nodes_are_written_once_and_unread_ones_not_at_all() -> None:
    w = Writer()
    x = w.input("x", (3,), torch.float32)
    w.input("unread", (3,), torch.float32)
    y = (x * 2.0) + (x * 2.0)
    _ = x - 1.0
    w.output(y, (1,), "y")
    body = w.body()
    assert [n["op"] for n in body["nodes"]] == ["full", "mul", "add"]
    assert [i["name"] for i in body["inputs"]] == ["x"]


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.transposed(0, 2),
        lambda x: x.permute((1, -1, 0)),
        lambda x: x.sliced(1, -3, 9, 2),
        lambda x: x.select(-1, -2),
        lambda x: x.unsqueeze(-1).broadcast((2, 5, 4, 3)),
        lambda x: x.pad((1, 0, -1), (0, 2, 3), -1.5),
        lambda x: x.reduced("sum", (0, 2), keepdims=True),
        lambda x: x.compared("lt", 0.25),
        lambda x: 1.0 - x / 2.0,
        lambda x: -(1.0 / x) * 3.0,
    ],
)
def test_shapes_and_dtypes_are_those_that_the_reader_finds(view) -> None:
    w = Writer()
    y = view(w.input("x", (2, 5, 4), torch.float32))
    w.output(y, [math.prod(y.shape[i + 1 :]) for i in range(y.rank)], "y")
    graph = from_wire(w.body()).graph
    x = torch.arange(40.0).reshape(2, 5, 4)
    (found,) = interpret(graph, [array_of(x)])
    assert tuple(found.shape) == y.shape
    assert tensor_of(found, y.dtype).dtype == y.dtype
