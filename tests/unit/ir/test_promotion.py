"""Promotion of operands to a common dtype, and the casts that lead there, held against PyTorch: op by op, dtype by
dtype, kind by kind."""

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

from fusion_ir import building as build
from fusion_ir.arithmetic.conversions import round_to
from fusion_ir.building import Operand
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import InputSpec, topological
from fusion_ir.core.node import Node
from fusion_ir.dtype import DTYPES
from fusion_ir.ops import make_input
from fusion_ir.reference.node_value import evaluate_node
from testing.tensors import same_bits

torch: Any = pytest.importorskip("torch", reason="needs PyTorch: the extra `bench`")

TORCH = {
    "f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i8": torch.int8,
    "i16": torch.int16, "i32": torch.int32, "i64": torch.int64, "u8": torch.uint8, "bool": torch.bool,
}  # fmt: skip
NAMES = {dtype: name for name, dtype in TORCH.items()}

# Op: ours, torch's. Where results are bit for bit, they are compared too.
BINARY: dict[str, tuple[Callable[[Operand, Operand], Node], Callable[..., Any]]] = {
    "add": (build.add, torch.add),
    "sub": (build.sub, torch.sub),
    "mul": (build.mul, torch.mul),
    "truediv": (build.truediv, torch.div),
    "floordiv": (build.floordiv, lambda a, b: torch.div(a, b, rounding_mode="floor")),
    "fmod": (build.fmod, torch.fmod),
    "remainder": (build.remainder, torch.remainder),
    "maximum": (build.maximum, torch.maximum),
    "minimum": (build.minimum, torch.minimum),
    "atan2": (build.atan2, torch.atan2),
    "pow": (build.pow_, torch.pow),
    "eq": (build.eq, torch.eq),
    "lt": (build.lt, torch.lt),
    "ge": (build.ge, torch.ge),
    "logical_and": (build.logical_and, torch.logical_and),
    "bitwise_or": (build.bitwise_or, torch.bitwise_or),
    "where": (lambda a, b: build.where(build.gt(a, 1), a, b), lambda a, b: torch.where(a > 1, a, b)),
    "lerp": (lambda a, b: build.lerp(a, a, b), lambda a, b: torch.lerp(a, a, b)),
    "clamp": (lambda a, b: build.clamp(a, b), lambda a, b: torch.clamp(a, min=b)),
    "addcmul": (lambda a, b: build.addcmul(a, a, b), lambda a, b: torch.addcmul(a, a, b)),
}
INEXACT = {"atan2", "pow", "addcmul"}
UNROUNDED = ("mul", "truediv", "floordiv")
NUMBERS = (True, 2, 3, 0.0123, 0.5, 2.5, 1 / 3)
PATTERN = np.array([1, 3, 5, 2, 7, 11, 1, 2, 9, 4, 6, 3], np.float64).reshape(3, 4)


def values(name: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Positive, and small enough for any dtype; fractions where it has some."""
    rows = PATTERN + (0.3 * seed + 0.0625 if DTYPES[name].is_float else seed)
    return (rows if shape else rows[1, seed % 4]).astype(DTYPES[name].numpy).reshape(shape)


def input_of(array: np.ndarray, name: str, position: int) -> Node:
    shape = array.shape
    return make_input(position, InputSpec(shape_of(shape), DTYPES[name], dense_strides(shape)))


def evaluate(root: Node, arrays: list[np.ndarray]) -> np.ndarray:
    made: dict[Node, np.ndarray] = {}
    for node in topological((root,)):
        if node.op == "input":
            made[node] = arrays[node.attr("position", int)]
        else:
            made[node] = evaluate_node(node, [made[a] for a in node.args])
    return made[root]


def as_torch(array: np.ndarray, name: str) -> Any:
    return torch.from_numpy(np.atleast_1d(array).astype(np.float64)).reshape(array.shape).to(TORCH[name])


def compare(op: str, arrays: list[np.ndarray], names: list[str], number: Any, first: bool) -> str:
    """How ours differs from torch's result, "" where it does not. `number` is the second operand, or the `first`."""
    ours, theirs = BINARY[op]
    nodes: list[Operand] = [input_of(x, n, i) for i, (x, n) in enumerate(zip(arrays, names, strict=True))]
    tensors = [as_torch(x, n) for x, n in zip(arrays, names, strict=True)]
    if number is not None:
        nodes.insert(0 if first else 1, number)  # type: ignore[arg-type]
        tensors.insert(0 if first else 1, number)
    try:
        expected = theirs(*tensors)
    except (RuntimeError, TypeError, NotImplementedError):
        return ""  # torch has no such function
    try:
        node = ours(*nodes)
    except ValueError as error:
        return f"refused: {error}"
    if node.dtype.name != NAMES[expected.dtype]:
        return f"gives {node.dtype}, torch {NAMES[expected.dtype]}"
    if op not in INEXACT or not node.dtype.is_float:
        found = evaluate(node, arrays).astype(np.float64)
        wanted = expected.to(torch.float64).numpy()
        if not np.array_equal(found, wanted, equal_nan=True):
            return f"gives {found.ravel()[:4]}, torch {wanted.ravel()[:4]}"
    return ""


@pytest.mark.parametrize("op", BINARY)
@pytest.mark.sweep(0.4)
def test_tensors_meet_as_in_torch(op: str) -> None:
    """Every pair of dtypes, with axes and without."""
    shapes = (((3, 4), (3, 4)), ((3, 4), ()), ((), (3, 4)))
    for a, b in product(TORCH, repeat=2):
        for first, second in shapes if a != b else shapes[:1]:
            given = [values(a, first, 0), values(b, second, 1)]
            assert not compare(op, given, [a, b], None, False), (a, first, b, second)


@pytest.mark.parametrize("op", BINARY)
@pytest.mark.sweep(0.4)
def test_numbers_meet_tensors_as_in_torch(op: str) -> None:
    """Python numbers as the second operand, and as the first."""
    for name, number, shape in product(TORCH, NUMBERS, ((3, 4), ())):
        assert not compare(op, [values(name, shape, 0)], [name], number, False), (name, number, shape)
        # 0.3 * x is x.mul(0.3) in torch, and 0.3 / x is x.reciprocal().mul(0.3): nobody writes torch.mul(0.3, x).
        if op not in UNROUNDED:
            assert not compare(op, [values(name, shape, 0)], [name], number, True), (number, name, shape)


@pytest.mark.parametrize("op", UNROUNDED)
@pytest.mark.parametrize("name", ["bf16", "f16", "f8e4m3", "f8e5m2"])
def test_numbers_are_not_rounded_before_they_are_multiplied(op: str, name: str) -> None:
    """Also as the first operand, and at 8 bits, where torch has no arithmetic."""
    x = values(name, (3, 4), 0)
    node = input_of(x, name, 0)
    wide = values(name, (3, 4), 0).astype(np.float32)
    for number in (0.0123, 1 / 3):
        for ours, theirs in (((node, number), (wide, number)), ((number, node), (number, wide))):
            function = {"mul": np.multiply, "truediv": np.divide, "floordiv": np.floor_divide}[op]
            expected = round_to(function(*(np.float32(v) for v in theirs)), DTYPES[name])
            assert same_bits(evaluate(BINARY[op][0](*ours), [x]), expected)
