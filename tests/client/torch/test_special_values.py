"""Pointwise ops on values where languages differ: NaN, infinities, zeros of both signs, the least and the largest."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.support.aten_graphs import outcome, traced
from tests.support.whole import in_turn, some

aten = torch.ops.aten
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool)

UNARY = """abs neg sign sgn relu floor ceil trunc round frac reciprocal sqrt rsqrt exp exp2 expm1 log log2 log10 log1p
sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc sigmoid isnan isinf isfinite isneginf isposinf
signbit logical_not silu gelu hardsigmoid hardswish mish softplus leaky_relu elu selu celu relu6 hardtanh logit
log_sigmoid_forward nan_to_num sinc square deg2rad erfinv""".split()
BINARY = """add.Tensor sub.Tensor mul.Tensor div.Tensor fmod.Tensor remainder.Tensor floor_divide maximum minimum fmax
fmin atan2 pow.Tensor_Tensor eq.Tensor ne.Tensor lt.Tensor le.Tensor gt.Tensor ge.Tensor logical_and logical_or
logical_xor copysign.Tensor heaviside hypot xlogy.Tensor logaddexp logaddexp2 nextafter bitwise_and.Tensor
bitwise_or.Tensor bitwise_xor.Tensor bitwise_left_shift.Tensor bitwise_right_shift.Tensor""".split()
REDUCTIONS = ("amax", "amin", "argmax", "argmin", "sum", "prod", "any", "all", "logsumexp")
BY_INTEGERS = ("fmod", "remainder", "floor_divide", "div")  # which PyTorch refuses to do by 0
NUMBERS = (0, 1, -1, 2, 3, -2, 0.5, -0.5, 0.1, 7, float("inf"), float("nan"), True)
BY_NUMBER = """add.Scalar sub.Scalar rsub.Scalar mul.Scalar div.Scalar fmod.Scalar remainder.Scalar pow.Tensor_Scalar
pow.Scalar eq.Scalar lt.Scalar ge.Scalar clamp_min clamp_max bitwise_and.Scalar copysign.Scalar
leaky_relu""".split()


def op(name: str) -> Any:
    """An overload by its name."""
    packet, _, overload = name.partition(".")
    return getattr(getattr(aten, packet), overload or "default")


def values(dtype: torch.dtype) -> torch.Tensor:
    """Values of a dtype at which something changes."""
    if dtype == torch.bool:
        return torch.tensor([False, True])
    if not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        near = [0, 1, 2, 3, 5, 7, 8, 31, 63, info.max, info.max - 1, info.min, info.min + 1]
        return torch.tensor(near + ([-1, -2, -3, -8] if info.min else []), dtype=dtype)
    info = torch.finfo(dtype)
    near = [0.0, 0.5, 1.0, 1.5, 2.5, 3.0, 6.0, 0.1, 1e-3, 7.75, info.tiny, info.smallest_normal, info.max, info.eps]
    signed = [s * v for v in near for s in (1.0, -1.0)]
    return torch.tensor([*signed, float("inf"), float("-inf"), float("nan")], dtype=torch.float64).to(dtype)


def agrees(function: Callable[..., Any], *tensors: torch.Tensor) -> None:
    """Eager and what is said agree. A call that PyTorch refuses does not count, nor one that is refused."""
    try:
        function(*tensors)
    except (RuntimeError, NotImplementedError, TypeError, ValueError):
        return
    for graph in traced(function, tensors):
        found = outcome(graph)
        assert found.state in ("said", "empty", "refused", "partly"), found


@pytest.mark.parametrize(("name", "dtype"), some(itertools.product(UNARY, FLOATS + INTEGERS), 16, "unary"))
def test_of_one_operand(name: str, dtype: torch.dtype) -> None:
    given = values(dtype)
    if name == "gelu":
        given = given[given != float("inf")]  # of which eager's in vectors makes NaN
    agrees(op(name), given)


@pytest.mark.parametrize(("name", "dtype"), some(itertools.product(BINARY, FLOATS + INTEGERS), 16, "binary"))
def test_of_two_operands(name: str, dtype: torch.dtype) -> None:
    given = values(dtype)
    x, y = given[:, None].expand(-1, len(given)).contiguous(), given[None, :].expand(len(given), -1).contiguous()
    if not dtype.is_floating_point and name.partition(".")[0] in BY_INTEGERS:
        kept = (y != 0) & (y != -1) if dtype.is_signed else y != 0  # the least by -1 is the machine's business
        x, y = x[kept], y[kept]
    if dtype.is_floating_point and name in ("fmod.Tensor", "remainder.Tensor"):
        kept = ~(x.double().abs() > 2**24 * y.double().abs()) | ~x.isfinite()  # beyond, eager's in vectors give NaN
        x, y = x[kept], y[kept]
    if name.endswith("shift.Tensor"):  # by fewer bits than there are: by more, PyTorch's kernels differ
        kept = (y >= 0) & (y < 8 * dtype.itemsize)
        x, y = x[kept], y[kept]
    agrees(op(name), x, y)


@pytest.mark.parametrize(
    ("name", "number", "dtype"),
    some(itertools.product(BY_NUMBER, NUMBERS, (*FLOATS, torch.int32, torch.uint8, torch.bool)), 16, "number"),
)
def test_of_a_tensor_and_a_number(name: str, number: float, dtype: torch.dtype) -> None:
    if number == 0 and not dtype.is_floating_point and name.partition(".")[0] in BY_INTEGERS:
        pytest.skip("PyTorch refuses to divide integers by 0")
    if (name, number, dtype) == ("pow.Tensor_Scalar", True, torch.bool):
        pytest.skip("eager gives bool, and PyTorch's own fake tensors say i64")
    given = values(dtype)
    if name == "pow.Scalar":
        agrees(lambda x: op(name)(number, x), given)
    else:
        agrees(lambda x: op(name)(x, number), given)


@pytest.mark.parametrize(("given", "wanted"), some(itertools.product(FLOATS + INTEGERS, repeat=2), 12, "casts"))
def test_casts(given: torch.dtype, wanted: torch.dtype) -> None:
    x = values(given)
    if given.is_floating_point and not wanted.is_floating_point and wanted != torch.bool:
        # Outside of the dtype's range the machine decides, differently in vectors and beside them.
        info = torch.iinfo(wanted)
        x = x[(x.double() > max(info.min, -(2**31)) - 1) & (x.double() < min(info.max, 2**31 - 1) + 1) & ~x.isnan()]
        x = x[(x.double().trunc() >= info.min) & (x.double().trunc() <= info.max)]
    agrees(lambda x: x.to(wanted), x)


def test_casts_to_and_from_8_bits() -> None:
    x = torch.tensor([0.0, -0.0, 1.0, 3.14, 448.0, 57344.0, -1e-3, 1e-9, float("inf"), float("nan")])
    for eight in (torch.float8_e5m2, torch.float8_e4m3fn):
        agrees(lambda x: x.to(torch.float32) * 2, x.to(eight))
    (graph,) = traced(lambda x: x.to(torch.float8_e4m3fn), [x])
    assert outcome(graph).detail == "a cast to f8e4m3"


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", in_turn(REDUCTIONS, 2, "reductions"))
def test_reductions_of_nan_and_infinities(name: str, dtype: torch.dtype) -> None:
    rows = torch.tensor([[1.0, float("nan"), 2.0], [float("inf"), 1.0, float("-inf")], [-0.0, 0.0, -0.0], [1, 1, 1]])
    agrees(lambda x: getattr(torch, name)(x, 1), rows.to(dtype))
    agrees(lambda x: getattr(torch, name)(x, 0), rows.to(dtype))


@pytest.mark.parametrize("name", ["sum", "prod"])
@pytest.mark.parametrize("dtype", in_turn(INTEGERS, 2, "sums"))
def test_sums_and_products_of_integers(name: str, dtype: torch.dtype) -> None:
    x = values(dtype)[:6].view(2, -1)
    agrees(lambda x: getattr(torch, name)(x, 1), x)
    for wanted in (torch.int32, torch.float32, torch.uint8):
        agrees(lambda x, d=wanted: getattr(torch, name)(x, 1, dtype=d), x)
