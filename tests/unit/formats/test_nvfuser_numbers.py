"""In which dtype nvFuser's ops compute, as tables; scalars, arithmetic on them, and calls within calls."""

import re
from itertools import product

import numpy as np
import pytest

from fusion_ir import building as build
from fusion_ir.core.graph import Graph
from fusion_ir.dtype import DTYPES, f32, f64, i64
from fusion_ir.errors import FormatError
from fusion_ir.formats import SideFile, read
from fusion_ir.formats.nvfuser.reader import read_nvfuser
from fusion_ir.ops import make_input
from fusion_ir.reference.interpreter import interpret
from testing.tensors import same_bits, spec
from tests.support.whole import in_turn

NAMES = {"D": "Double", "F": "Float", "H": "Half", "B": "BFloat16", "I": "Int", "i": "Int32", "b": "Bool"}
OURS = {"D": "f64", "F": "f32", "H": "f16", "B": "bf16", "I": "i64", "i": "i32", "b": "bool"}
ORDER = "DFHBIib"
# Two tensors, with axes or without: halves are computed in Float.
TENSORS = dict(
    zip(
        ORDER,
        ("DDDDDDD", "DFFFFFF", "DFFFFFF", "DFFFFFF", "DFFFIII", "DFFFIii", "DFFFIib"),
        strict=True,
    )
)
# The same where nothing is computed.
CHOSEN = dict(
    zip(
        ORDER,
        ("DDDDDDD", "DFFFFFF", "DFHFHHH", "DFFBBBB", "DFHBIII", "DFHBIii", "DFHBIib"),
        strict=True,
    )
)
# A tensor and a number: Python's, or of `define_scalar`. Rows are numbers, columns tensors.
NUMBERS = {
    "0.5": "DFFFDDD",
    "2": "DFFFIiI",
    "True": "DFFFIib",
    "D": "DFFFDDD",
    "F": "DFFFFFF",
    "H": "DFFFFFF",
    "I": "DFFFIiI",
    "i": "DFFFIii",
    "b": "DFFFIib",
}
FLOATING = str.maketrans("Iib", "FFF")
ARITHMETIC = ("add", "div", "fmod", "maximum", "minimum", "mod", "mul", "pow", "remainder", "sub")
NOT_ON_BOOL = ("div", "fmod", "mod", "remainder", "sub")
COMPARISONS = ("eq", "ge", "gt", "le", "lt", "ne")
FUNCTIONS = (
    "acos acosh asin asinh atan atanh cos cosh erf erfc exp exp2 expm1 log log10 log1p log2 reciprocal rsqrt sigmoid "
    "sin sinh sqrt tan tanh"
).split()
KEEPING = "abs ceil floor frac neg relu round set sign silu trunc".split()
TESTS = "isfinite isinf isnan isneginf isposinf".split()


def graph(line: str, *tensors: str, scalar: str = "") -> Graph:
    """T2 = line, over T0, T1: letters of dtypes, with a bracket where they have no axes; S is a scalar of a dtype."""
    lines = []
    for position, letters in enumerate(tensors):
        shape = "[]" if letters.endswith("[]") else "[2, 3]"
        lines.append(
            f"T{position} = fd.define_tensor(shape={shape}, contiguity=True, dtype=DataType.{NAMES[letters[0]]})"
        )
    if scalar:
        value = {"D": "0.0123", "F": "0.0123", "H": "0.5", "b": "True"}.get(scalar, "3")
        lines.append(f"S = fd.define_scalar({value}, dtype=DataType.{NAMES[scalar]})")
    lines += [f"T2 = {line}", "fd.add_output(T2)"]
    return read_nvfuser("def f(fd):\n" + "".join(f"    {text}\n" for text in lines)).graph


def given(line: str, *tensors: str, scalar: str = "") -> str:
    return graph(line, *tensors, scalar=scalar).outputs[0].node.dtype.name


@pytest.mark.soak
@pytest.mark.parametrize("kinds", in_turn(product(("", "[]"), repeat=2), 1))
def test_tensors_meet_by_nvfusers_table(kinds: tuple[str, str]) -> None:
    for a, (column, b) in product(ORDER, enumerate(ORDER)):
        operands = (a + kinds[0], b + kinds[1])
        meet = TENSORS[a][column]
        for op in ARITHMETIC:
            if meet != "b" or op not in NOT_ON_BOOL:
                assert given(f"fd.ops.{op}(T0, T1)", *operands) == OURS["F" if meet + op == "bpow" else meet], (
                    op,
                    a,
                    b,
                )
        for op in ("truediv", "atan2"):
            assert given(f"fd.ops.{op}(T0, T1)", *operands) == OURS[meet.translate(FLOATING)], (op, a, b)
        for op in COMPARISONS:
            assert given(f"fd.ops.{op}(T0, T1)", *operands) == "bool"
        where = "fd.ops.where(fd.ops.eq(T0, T1), T0, T1)"
        assert given(where, *operands) == OURS[CHOSEN[a][column]], (a, b)
        assert given("fd.ops.addcmul(T0, T1, T1)", *operands) == OURS[meet]
        assert given("fd.ops.lerp(T0, T0, T1)", *operands) == OURS[meet.translate(FLOATING)]


@pytest.mark.parametrize("number", NUMBERS)
def test_numbers_meet_tensors_by_nvfusers_table(number: str) -> None:
    scalar, operand = (number, "S") if number in NAMES else ("", number)
    for a, meet in zip(ORDER, NUMBERS[number], strict=True):
        for shape, order in product(("", "[]"), (f"T0, {operand}", f"{operand}, T0")):
            for op in ("add", "mul", "maximum"):
                assert given(f"fd.ops.{op}({order})", a + shape, scalar=scalar) == OURS[meet], (op, a)
            assert given(f"fd.ops.truediv({order})", a + shape, scalar=scalar) == OURS[meet.translate(FLOATING)]
            assert given(f"fd.ops.lt({order})", a + shape, scalar=scalar) == "bool"
        halves = a if a in "HB" else meet
        assert given(f"fd.ops.where(fd.ops.isnan(T0), T0, {operand})", a, scalar=scalar) == OURS[halves]
        assert given(f"fd.ops.clamp(T0, {operand})" if a != "b" else "fd.ops.set(T0)", a, scalar=scalar) == OURS[a]


@pytest.mark.parametrize("letter", ORDER)
def test_unary_ops_by_nvfusers_table(letter: str) -> None:
    for op in FUNCTIONS:
        expected = "D" if letter == "D" else "F"
        assert given(f"fd.ops.{op}(T0)", letter) == OURS[expected], op
    for op in KEEPING:
        if letter != "b" and (op != "silu" or letter not in "Ii"):
            assert given(f"fd.ops.{op}(T0)", letter) == OURS[letter], op
    for op in TESTS:
        assert given(f"fd.ops.{op}(T0)", letter) == "bool"
    assert given("fd.ops.logical_not(T0)", letter) == "bool"
    for op in ("sum", "prod"):
        assert given(f"fd.ops.{op}(T0, [0])", letter) == OURS["I" if letter in "Iib" else letter]
    for op in ("max", "min", "cumsum"):
        if letter != "b":
            dims = "0" if op == "cumsum" else "[0]"
            assert given(f"fd.ops.{op}(T0, {dims})", letter) in (OURS[letter], "i64")
    assert given("fd.ops.var(T0, [0])", letter) == OURS["D" if letter == "D" else "F"]


def test_two_numbers_of_a_where_are_double() -> None:
    assert given("fd.ops.where(fd.ops.isnan(T0), -0.0, 0.0)", "F") == "f64"
    assert given("fd.ops.where(fd.ops.isnan(T0), 1, 0)", "F") == "i64"
    assert given("fd.ops.where(fd.ops.isnan(T0), S, 0)", "F", scalar="F") == "f32"


@pytest.mark.parametrize("letter", "HB")
def test_halves_are_not_rounded_until_they_are_cast_back(letter: str) -> None:
    dtype = DTYPES[OURS[letter]]
    a, b = (np.array(v, np.float32).astype(dtype.numpy).reshape(2, 3) for v in ([1.1, 2.3, 3.7, 0.3, 5, 6], [7e-3] * 6))
    wide = a.astype(np.float32), b.astype(np.float32)
    (found,) = interpret(graph("fd.ops.mul(T0, T1)", letter, letter), [a, b])
    assert same_bits(found, wide[0] * wide[1])
    (found,) = interpret(
        graph("fd.ops.cast(fd.ops.mul(T0, 0.0123), dtype=DataType." + NAMES[letter] + ")", letter), [a]
    )
    assert same_bits(found, (wide[0] * np.float32(0.0123)).astype(dtype.numpy))


# Scalars


T0 = make_input(0, spec((2, 6), f32))


def built(*lines: str, values: dict[str, float] | None = None) -> object:
    """T1 of the lines, over T0: f32[2, 6]."""
    head = "T0 = fd.define_tensor(shape=[2, 6], contiguity=True, dtype=DataType.Float)"
    text = "def f(fd):\n" + "".join(f"    {line}\n" for line in (head, *lines, "fd.add_output(T1)"))
    return read(text, "nvfuser", beside=SideFile(values=values or {})).graph.outputs[0].node


SIZES = {
    "reshape by division": "T1 = fd.ops.reshape(T0, new_shape=[fd.ops.mul(fd.ops.size(T0, 0), 2), 3])",
    "reshape by names": "A = fd.ops.size(T0, dim=1)\nB = fd.ops.div(A, 2)\nT1 = fd.ops.reshape(T0, [4, B])",
    "reshape by a vector": "V = fd.define_vector([fd.ops.add(1, 3), 3])\nT1 = fd.ops.reshape(T0, new_shape=V)",
    "reshape by python": "A = fd.ops.size(T0, 1)\nT1 = fd.ops.reshape(T0, [2 * 2, A - 3])",
    "reshape by operators": "V = fd.ops.shape(T0)\nT1 = fd.ops.reshape(T0, [V[0] * 2, V[1] / 2])",
    "reshape by scalars": "S = fd.define_scalar(4, dtype=DataType.Int)\nT1 = fd.ops.reshape(T0, [S, 12 // 4])",
    "reshape by a cast": "S = fd.ops.cast(4.7, DataType.Int)\nT1 = fd.ops.reshape(T0, [S, 3])",
    "reshape by a scalar beside": "S = fd.define_scalar(None, dtype=DataType.Int)\nT1 = fd.ops.reshape(T0, [S, 3])",
}


@pytest.mark.parametrize("case", SIZES)
def test_sizes_are_arithmetic_on_scalars(case: str) -> None:
    values = {"S": 4.0} if "beside" in case else None
    assert built(*SIZES[case].split("\n"), values=values) is build.reshape(T0, [4, 3])


def test_pads_slices_and_expands_of_computed_sizes() -> None:
    line = "T1 = fd.ops.pad(T0, [fd.ops.sub(3, 2), fd.ops.size(T0, 0)], fd.ops.neg(1.5))"
    assert built(line) is build.pad(T0, [0, 1], [0, 2], -1.5)
    line = "T1 = fd.ops.slice(T0, [0, fd.ops.div(S, 2)], [2, S], [1, 1])"
    assert built("S = fd.ops.size(T0, 1)", line) is build.slice_(T0, [0, 3], [2, 6])
    line = "T1 = fd.ops.expand(fd.ops.broadcast(T0, [True, False, False]), [S, 2, -1])"
    repeated = build.broadcast_to(build.unsqueeze(T0, 0), [5, 2, 6])
    assert built("S = fd.ops.add(2, 3)", line) is repeated
    line = "T1 = fd.ops.broadcast_in_dim(T0, shape=[S, 2, 6], broadcast_dims=[1, 2])"
    assert built("S = fd.ops.maximum(2, 3)", line) is build.broadcast_to(T0, [3, 2, 6])
    assert built("S = fd.ops.mod(17, 12)", "T1 = fd.ops.full(shape=[S], fill_value=S, dtype=DataType.Double)") is (
        build.full([5], 5, f64)
    )


def test_select() -> None:
    assert built("T1 = fd.ops.select(T0, 1, dim=0)") is build.squeeze(build.slice_(T0, [1, 0], [2, 6]), 0)
    assert built("T1 = fd.ops.select(T0, index=fd.ops.sub(6, 1), dim=-1)").sizes == (2,)
    text = (
        "def f(fd):\n    T0 = fd.define_tensor(shape=[2, 6], dtype=DataType.Float)\n"
        "    T1 = fd.define_tensor(shape=[], dtype=DataType.Int)\n"
        "    T2 = fd.ops.select(T0, T1, 1)\n    fd.add_output(T2)\n"
    )
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    assert interpret(read(text).graph, [x, np.array(4)])[0].tolist() == [4.0, 10.0]


def test_reductions_over_all_axes_and_dtypes_in_place() -> None:
    assert built("T1 = fd.ops.sum(T0)") is build.sum_(T0)
    assert built("T1 = fd.ops.prod(T0, DataType.Double)") is build.prod(build.cast(T0, f64))
    assert built("T1 = fd.ops.sum(T0, dtype=DataType.Double)") is build.sum_(build.cast(T0, f64))
    assert built("T1 = fd.ops.sum(T0, 1)") is build.sum_(T0, [1])
    assert built("T1 = fd.ops.sum(T0, dim=-1, keepdim=True)") is build.sum_(T0, [1], True)
    assert built("T1 = fd.ops.max(T0)") is build.max_(T0)
    half = "T1 = fd.ops.sum(T0, [0], False, DataType.Half)"  # cast before it is summed, as nvFuser does
    assert built(half) is build.sum_(build.cast(T0, DTYPES["f16"]), [0])
    assert built("T2, T1 = fd.ops.var_mean(T0, 1)") is build.mean(T0, [1])


def test_calls_within_calls() -> None:
    nested = "T1 = fd.ops.mul(fd.ops.neg(T0), fd.ops.add(fd.ops.exp(T0), fd.ops.sum(T0)))"
    assert built(nested) is build.mul(build.neg(T0), build.add(build.exp(T0), build.sum_(T0)))
    assert built("T1 = -T0 * 2.0 + T0 / 4") is build.add(build.mul(build.neg(T0), 2.0), build.div(T0, 4))
    assert built("T1 = fd.ops.cat([fd.ops.neg(T0), T0], dim=0)") is build.cat([build.neg(T0), T0])


def test_scalars_are_computed_as_nvfuser_does() -> None:
    for line, value, dtype in (
        ("fd.ops.div(7, 2)", 3, i64),
        ("fd.ops.div(-7, 2)", -3, i64),
        ("fd.ops.truediv(7, 2)", 3.5, f32),
        ("fd.ops.mul(0.1, 3)", 0.1 * 3, f64),
        ("fd.ops.reciprocal(3.0)", 1 / 3, f64),
        ("fd.ops.cast(2.9, dtype=DataType.Int)", 2, i64),
        ("fd.ops.where(fd.ops.lt(1, 2), 0.25, 4.0)", 0.25, f64),
        ("fd.ops.clamp(5, 0, 3)", 3, i64),
    ):
        text = f"T1 = fd.ops.full([2], {line}, dtype=DataType.{'Int' if dtype == i64 else 'Double'})"
        assert built(text) is build.full([2], value, i64 if dtype == i64 else f64), line


def test_values_of_scalar_inputs_stand_beside() -> None:
    lines = ("S = fd.define_scalar(dtype=DataType.Double)", "T1 = fd.ops.mul(T0, S)")
    assert built(*lines, values={"S": 0.5}) is build.mul(T0, 0.5)
    with pytest.raises(FormatError, match=r"^3:9: 'S' has no value in the text: state it beside the text"):
        built(*lines)
    with pytest.raises(FormatError, match=r"^3:9: 0.5 is not a value of i64"):
        built("S = fd.define_scalar(None, dtype=DataType.Int)", "T1 = fd.ops.mul(T0, S)", values={"S": 0.5})
    with pytest.raises(FormatError, match=r"^shapes/values/R: 'R' is no scalar that the definition leaves open"):
        built("T1 = fd.ops.neg(T0)", values={"R": 0.5})


REFUSED = {
    "deep calls": ("T1 = " + "fd.ops.neg(" * 80 + "T0" + ")" * 80, "more than 64 calls"),
    "deep arithmetic": ("T1 = fd.ops.mul(T0, " + "1+" * 200 + "1)", "more than 64 calls, operators and lists"),
    "a tensor defined within": (
        "T1 = fd.ops.neg(fd.define_tensor(shape=[2], dtype=DataType.Float))",
        "a call of fd.ops.NAME",
    ),
    "two results within": ("T1 = fd.ops.neg(fd.ops.var_mean(T0, [0]))", "3:21: fd.ops.var_mean has 2 results"),
    "unknown within": ("T1 = fd.ops.neg(fd.ops.nag(T0))", "3:21: unknown op 'nag'"),
    "division by zero": ("T1 = fd.ops.mul(T0, 1 / 0)", "3:25: division by zero"),
    "a large power": ("T1 = fd.ops.mul(T0, 10 ** 99)", "3:25: the integer does not fit 64 bits"),
    "floor of names": ("T1 = T0 // 2", "3:10: arithmetic is not allowed here, expected a call"),
    "too large": ("T1 = fd.ops.mul(T0, 4611686018427387904 * 4)", "3:25: the integer does not fit 64 bits"),
    "a fraction as size": ("T1 = fd.ops.reshape(T0, [fd.ops.truediv(8, 2), 3])", "3:29: argument new_shape: expected"),
    "select out of range": ("T1 = fd.ops.select(T0, 6, 1)", "3:10: select: index 6 is out of range"),
    "two dtypes": ("T1 = fd.ops.sum(T0, DataType.Float, dtype=DataType.Half)", "3:10: sum: a dtype is given twice"),
    "two lists": ("T1 = fd.ops.sum(T0, [0], dim=1)", "3:10: sum: dims and dim are both given"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    line, message = REFUSED[case]
    with pytest.raises(FormatError, match=re.escape(message) if not message[0].isdigit() else f"^{re.escape(message)}"):
        built(line)


def test_ops_that_make_many_nodes_are_counted_as_they_are_read() -> None:
    line = "T1 = fd.ops.pow(fd.ops.cast(T0, DataType.Int), fd.ops.cast(fd.ops.mul(T0, {}.0), DataType.Int))"
    with pytest.raises(FormatError, match=r"^\d+:\d+: 20,001 nodes after composite ops were taken apart"):
        built(*(line.format(i) for i in range(1000)))
