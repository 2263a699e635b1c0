"""The table of ops: every row by its own facts, and the rules by what they reject."""

import math
from fractions import Fraction

import numpy as np
import pytest

from fusion_ir.arithmetic.conversions import round_to, ulp
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import InputSpec
from fusion_ir.core.node import Node
from fusion_ir.core.scalar import Scalar
from fusion_ir.dtype import DTYPES, DType, bf16, bool_, compute_dtype, f16, f32, f64, i8, i32, i64, u8
from fusion_ir.ops import OPS, OpKind, RuleError, kind_of, make, make_input
from fusion_ir.ops.contract import contract_accumulator, contract_arrays, sums_in_any_order
from testing.tensors import evaluate_one, same_bits, tensor

POINTWISE = [row for row in OPS.values() if row.kind is OpKind.POINTWISE]
INTEGERS = [d for d in DTYPES.values() if d.is_integer]
FLOATS = [d for d in DTYPES.values() if d.is_float]


def operands(op: str, dtype: DType, sizes: tuple[int, ...]) -> list[Node]:
    count = OPS[op].arity
    assert isinstance(count, int)
    return [tensor(i, sizes, bool_ if op == "where" and i == 0 else dtype) for i in range(count)]


def accepted(op: str) -> list[DType]:
    """The dtypes that a pointwise op takes."""
    found: list[DType] = []
    for dtype in DTYPES.values():
        try:
            make(op, operands(op, dtype, (3,)), {"dtype": dtype} if op == "cast" else {})
        except RuleError:
            continue
        found.append(dtype)
    return found


def on_domain(op: str, dtype: DType, count: int, seed: int = 0) -> list[np.ndarray]:
    """Operands from the row's domain."""
    low, high = OPS[op].domain
    rng = np.random.default_rng(seed)
    arrays: list[np.ndarray] = []
    for node in operands(op, dtype, (count,)):
        if node.dtype == bool_:
            arrays.append(rng.random(count) < 0.5)
        else:
            arrays.append(round_to(rng.uniform(low, high, count), node.dtype))
    return arrays


# Every row


@pytest.mark.parametrize("row", OPS.values(), ids=OPS)
def test_rows_are_complete(row) -> None:
    assert row.doc
    assert row.cost >= 0
    assert row.domain[0] < row.domain[1]
    assert row.ulps >= 0
    assert row.kind is not OpKind.INPUT
    assert bool(row.cpp) == (row.kind is OpKind.POINTWISE)
    if row.kind is OpKind.POINTWISE:
        assert all(f"{{{i}}}" in row.cpp for i in range(row.arity))
        assert f"{{{row.arity}}}" not in row.cpp


@pytest.mark.parametrize("row", POINTWISE, ids=lambda r: r.name)
def test_every_pointwise_row_evaluates_on_its_domain(row) -> None:
    dtypes = accepted(row.name)
    assert dtypes
    for dtype in dtypes:
        attrs = {"dtype": f32} if row.name == "cast" else {}
        arrays = on_domain(row.name, dtype, 64)
        got = evaluate_one(lambda *x, a=attrs: make(row.name, x, a), *arrays)
        assert got.shape == (64,)
        divides_by_zero = row.name in ("fmod", "remainder", "floordiv") and bool((arrays[-1] == 0).any())
        if dtype.is_float and not divides_by_zero:
            assert not np.isnan(got.astype(np.float64)).any(), f"{row.name} gives NaN on its domain in {dtype}"


@pytest.mark.parametrize("row", [r for r in POINTWISE if r.commutative], ids=lambda r: r.name)
def test_commutative_rows_commute(row) -> None:
    for dtype in accepted(row.name):
        special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1, 2, 3] * 8, np.float32)
        x, y = on_domain(row.name, dtype, 64)
        if dtype.is_float:
            x, y = round_to(special, dtype), round_to(special.reshape(8, 8).T.reshape(-1), dtype)
        one = evaluate_one(lambda a, b: make(row.name, [a, b]), x, y)
        other = evaluate_one(lambda a, b: make(row.name, [b, a]), x, y)
        assert same_bits(one, other), dtype


def test_which_rows_take_what() -> None:
    every = set(DTYPES)
    numbers, floats, ints = every - {"bool"}, {d.name for d in FLOATS}, {d.name for d in INTEGERS}
    expected = dict.fromkeys("neg abs sign relu square add sub mul div floordiv fmod remainder".split(), numbers)
    expected |= dict.fromkeys("maximum minimum clamp lt le gt ge".split(), numbers)
    expected |= dict.fromkeys("eq ne where cast".split(), every)
    expected |= dict.fromkeys("logical_and logical_or logical_xor logical_not".split(), every - numbers)
    expected |= dict.fromkeys("bitwise_and bitwise_or bitwise_xor bitwise_not".split(), ints | {"bool"})
    expected |= dict.fromkeys("shift_left shift_right shift_right_logical".split(), ints)
    for row in POINTWISE:
        assert {d.name for d in accepted(row.name)} == expected.get(row.name, floats), row.name


# Values of single rows

MATH = {
    "exp": math.exp, "exp2": math.exp2, "expm1": math.expm1, "log": math.log, "log2": math.log2, "log10": math.log10,
    "log1p": math.log1p, "rsqrt": lambda v: 1 / math.sqrt(v), "sin": math.sin, "cos": math.cos, "tan": math.tan,
    "asin": math.asin, "acos": math.acos, "atan": math.atan, "atan2": math.atan2, "sinh": math.sinh, "cosh": math.cosh,
    "tanh": math.tanh, "asinh": math.asinh, "acosh": math.acosh, "atanh": math.atanh, "erf": math.erf,
    "erfc": math.erfc, "sigmoid": lambda v: 1 / (1 + math.exp(-v)),
    "pow": math.pow, "sqrt": math.sqrt, "reciprocal": lambda v: 1 / v,
    "floor": math.floor, "ceil": math.ceil, "trunc": math.trunc, "round": round, "fmod": math.fmod,
}  # fmt: skip


def test_every_inexact_row_is_compared_with_the_math_module() -> None:
    assert {r.name for r in POINTWISE if r.ulps} <= MATH.keys()


@pytest.mark.parametrize("op", MATH)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_float_rows_against_the_math_module(op: str, dtype: DType) -> None:
    """Within one ulp of the compute dtype before rounding to the dtype; f32 and narrower nearly always to the bit."""
    arrays = on_domain(op, dtype, 500)
    got = evaluate_one(lambda *x: make(op, x), *arrays)
    expected = np.array(
        [MATH[op](*v) for v in zip(*(a.astype(np.float64).tolist() for a in arrays), strict=True)], np.float64
    )
    if dtype == f64:
        assert (np.abs(got - expected) <= 4 * ulp(expected)).all()
        return
    rounded = round_to(expected, dtype)
    assert (np.abs(got.astype(np.float64) - expected) <= ulp(rounded)).all()
    assert (got == rounded).mean() > 0.99


def test_exact_rows_on_special_floats() -> None:
    nan, inf = math.nan, math.inf
    table = [
        ("maximum", (-0.0, 0.0), 0.0), ("maximum", (0.0, -0.0), 0.0), ("minimum", (0.0, -0.0), -0.0),
        ("minimum", (-0.0, 0.0), -0.0), ("maximum", (nan, 1.0), nan), ("minimum", (1.0, nan), nan),
        ("relu", (-0.0,), 0.0), ("relu", (nan,), nan), ("relu", (-inf,), 0.0), ("sign", (-0.0,), 0.0),
        ("sign", (-3.0,), -1.0), ("sign", (nan,), 0.0), ("round", (2.5,), 2.0), ("round", (3.5,), 4.0),
        ("round", (-0.4,), -0.0), ("ceil", (-0.5,), -0.0), ("trunc", (-0.5,), -0.0), ("floor", (-0.5,), -1.0),
        ("remainder", (-1.0, 3.0), 2.0), ("remainder", (1.0, -3.0), -2.0), ("remainder", (5.0, 3.0), 2.0),
        ("remainder", (-1.0, inf), inf), ("remainder", (1.0, inf), 1.0), ("fmod", (-5.0, 3.0), -2.0),
        ("fmod", (1.0, 0.0), nan), ("fmod", (inf, 1.0), nan), ("floordiv", (-7.0, 2.0), -4.0),
        ("div", (1.0, -0.0), -inf), ("reciprocal", (-0.0,), -inf), ("sqrt", (-0.0,), -0.0), ("sqrt", (-1.0,), nan),
        ("square", (-3.0,), 9.0),
        ("clamp", (5.0, 1.0, 3.0), 3.0), ("clamp", (2.0, 3.0, 1.0), 1.0), ("clamp", (nan, 0.0, 1.0), nan),
        ("lerp", (1.0, 3.0, 0.25), 1.5), ("lerp", (1.0, 3.0, 1.0), 3.0), ("neg", (0.0,), -0.0), ("abs", (-0.0,), 0.0),
    ]  # fmt: skip
    for op, values, expected in table:
        for dtype in (f32, f64, bf16, f16):
            arrays = [round_to(np.array([v]), dtype) for v in values]
            got = evaluate_one(lambda *x, o=op: make(o, x), *arrays)
            assert same_bits(got, round_to(np.array([expected]), dtype)), f"{op}{values} in {dtype} is {got}"


def test_tests_of_floats() -> None:
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1.0, -1.0], np.float32)
    expected = {
        "isfinite": [1, 1, 0, 0, 0, 0, 1, 1], "isinf": [0, 0, 1, 1, 0, 0, 0, 0], "isnan": [0, 0, 0, 0, 1, 1, 0, 0],
        "isneginf": [0, 0, 0, 1, 0, 0, 0, 0], "isposinf": [0, 0, 1, 0, 0, 0, 0, 0], "signbit": [0, 1, 0, 1, 0, 0, 0, 1],
    }  # fmt: skip
    for op, bits in expected.items():
        assert evaluate_one(lambda a, o=op: make(o, [a]), x).tolist() == [bool(b) for b in bits], op


def test_comparisons_with_nan() -> None:
    x, y = np.array([1, np.nan, np.nan, 0.0], np.float32), np.array([np.nan, 1, np.nan, -0.0], np.float32)
    expected = {
        "eq": [0, 0, 0, 1],
        "ne": [1, 1, 1, 0],
        "lt": [0] * 4,
        "le": [0, 0, 0, 1],
        "gt": [0] * 4,
        "ge": [0, 0, 0, 1],
    }
    for op, bits in expected.items():
        assert evaluate_one(lambda a, b, o=op: make(o, [a, b]), x, y).tolist() == [bool(b) for b in bits], op


def integer_pairs(dtype: DType) -> tuple[np.ndarray, np.ndarray]:
    info = np.iinfo(dtype.numpy)
    edges = [
        v for v in (info.min, info.min + 1, -7, -3, -1, 0, 1, 2, 3, 7, 100, info.max - 1, info.max) if v >= info.min
    ]
    x, y = np.meshgrid(np.array(edges, dtype.numpy), np.array(edges, dtype.numpy))
    return x.reshape(-1), y.reshape(-1)


def wrapped(value: int, dtype: DType) -> int:
    bits = 8 * dtype.bytes
    value %= 1 << bits
    return value - (1 << bits) if dtype.kind == "int" and value >> (bits - 1) else value


def truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


INTEGER_MEANING = {
    "add": lambda a, b, w: a + b,
    "sub": lambda a, b, w: a - b,
    "mul": lambda a, b, w: a * b,
    "div": lambda a, b, w: truncated(a, b) if b else 0,
    "floordiv": lambda a, b, w: a // b if b else 0,
    "fmod": lambda a, b, w: a - truncated(a, b) * b if b else a,
    "remainder": lambda a, b, w: a % b if b else a,
    "maximum": lambda a, b, w: max(a, b),
    "minimum": lambda a, b, w: min(a, b),
    "bitwise_and": lambda a, b, w: a & b,
    "bitwise_or": lambda a, b, w: a | b,
    "bitwise_xor": lambda a, b, w: a ^ b,
    "shift_left": lambda a, b, w: a << b if 0 <= b < w else 0,
    "shift_right": lambda a, b, w: a >> b if 0 <= b < w else (-1 if a < 0 else 0),
    "shift_right_logical": lambda a, b, w: (a % (1 << w)) >> b if 0 <= b < w else 0,
}


@pytest.mark.parametrize("op", INTEGER_MEANING)
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_rows_against_python_integers(op: str, dtype: DType) -> None:
    x, y = integer_pairs(dtype)
    got = evaluate_one(lambda a, b: make(op, [a, b]), x, y)
    for a, b, r in zip(x.tolist(), y.tolist(), got.tolist(), strict=True):
        assert r == wrapped(INTEGER_MEANING[op](a, b, 8 * dtype.bytes), dtype), f"{op}({a}, {b})"


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_rows_of_one_operand(dtype: DType) -> None:
    x, _ = integer_pairs(dtype)
    meaning = {"neg": lambda a: -a, "abs": abs, "square": lambda a: a * a, "bitwise_not": lambda a: ~a,
               "relu": lambda a: max(a, 0), "sign": lambda a: (a > 0) - (a < 0)}  # fmt: skip
    for op, function in meaning.items():
        got = evaluate_one(lambda a, o=op: make(o, [a]), x)
        assert got.tolist() == [wrapped(function(a), dtype) for a in x.tolist()], op


def test_bool_rows() -> None:
    x, y = np.array([False, False, True, True]), np.array([False, True, False, True])
    meaning = {"and": [0, 0, 0, 1], "or": [0, 1, 1, 1], "xor": [0, 1, 1, 0]}
    for name, bits in meaning.items():
        for op in (f"logical_{name}", f"bitwise_{name}"):
            assert evaluate_one(lambda a, b, o=op: make(o, [a, b]), x, y).tolist() == [bool(b) for b in bits]
    for op in ("logical_not", "bitwise_not"):
        assert evaluate_one(lambda a, o=op: make(o, [a]), x).tolist() == [True, True, False, False]


def test_lerp_rounds_every_step() -> None:
    rng = np.random.default_rng(0)
    a, b, w = (rng.random(2000, np.float32) for _ in range(3))
    got = evaluate_one(lambda *x: make("lerp", x), a, b, w)
    one = np.float32(1)
    near = np.array([x + t * (y - x) if t < 0.5 else y - (y - x) * (one - t) for x, y, t in zip(a, b, w, strict=True)])
    assert same_bits(got, near.astype(np.float32))


# Rules


def x_of(*sizes: int, dtype: DType = f32, position: int = 0) -> Node:
    return tensor(position, sizes, dtype)


def shape(*sizes: int):
    return shape_of(sizes)


ZERO = Scalar.of(0.0, f32)
REJECTED = [
    ("add", [x_of(2), x_of(3)], {}, "operand 0 has [2], operand 1 has [3]"),
    ("add", [x_of(2), x_of(2, dtype=bf16)], {}, "operand 0 is f32, operand 1 is bf16"),
    ("add", [x_of(2)], {}, "takes 2 operands, got 1"),
    ("add", [x_of(2), x_of(2)], {"axis": 1}, "takes attributes [], got ['axis']"),
    ("add", [x_of(2, dtype=bool_)] * 2, {}, "got bool"),
    ("exp", [x_of(2, dtype=i32)], {}, "floating-point"),
    ("shift_left", [x_of(2)] * 2, {}, "integer"),
    ("bitwise_and", [x_of(2)] * 2, {}, "integer dtype or bool"),
    ("logical_not", [x_of(2, dtype=i8)], {}, "expected bool, got i8"),
    ("where", [x_of(2), x_of(2), x_of(2)], {}, "condition must be bool"),
    ("where", [x_of(2, dtype=bool_), x_of(2), x_of(2, dtype=f16)], {}, "one dtype"),
    ("cast", [x_of(2)], {"dtype": "f32"}, "attribute dtype must be a dtype"),
    ("reshape", [x_of(2, 3)], {"shape": shape(5)}, "6 elements"),
    ("reshape", [x_of(2, 3)], {"shape": (6,)}, "must be extents"),
    ("permute", [x_of(2, 3)], {"dims": (0, 0)}, "not a permutation"),
    (
        "broadcast_in_dim",
        [x_of(2)],
        {"shape": shape(2, 3), "dims": (1,)},
        "axis 0 has extent 2, axis 1 of the result 3",
    ),
    ("broadcast_in_dim", [x_of(2, 3)], {"shape": shape(3, 2), "dims": (1, 0)}, "must increase"),
    ("broadcast_in_dim", [x_of(2)], {"shape": shape(2), "dims": (1,)}, "out of range"),
    ("broadcast_in_dim", [x_of(2)], {"shape": shape(2), "dims": ()}, "0 entries for rank 1"),
    ("expand", [x_of(2)], {"shape": shape(3, 2)}, "rank 2"),
    ("expand", [x_of(2)], {"shape": shape(3)}, "extent 2"),
    ("slice", [x_of(4)], {"start": (2,), "stop": (1,), "step": (1,)}, "cannot be cut by 2:1:1"),
    ("slice", [x_of(4)], {"start": (0,), "stop": (5,), "step": (1,)}, "extent 4"),
    ("slice", [x_of(4)], {"start": (0,), "stop": (4,), "step": (0,)}, "0:4:0"),
    ("slice", [x_of(4)], {"start": (-1,), "stop": (4,), "step": (1,)}, "-1:4:1"),
    ("slice", [x_of(4)], {"start": (0, 0), "stop": (4,), "step": (1,)}, "start has 2 entries"),
    ("pad", [x_of(4)], {"low": (-3,), "high": (-2,), "value": ZERO}, "cannot be cropped"),
    ("pad", [x_of(4, dtype=bf16)], {"low": (1,), "high": (0,), "value": ZERO}, "value is f32"),
    ("cat", [], {"axis": 0}, "got 0"),
    ("cat", [x_of(2, 3), x_of(2, 4)], {"axis": 0}, "axis 1 has extent 3 in operand 0, 4 in operand 1"),
    ("cat", [x_of(2), x_of(2, 2)], {"axis": 0}, "rank"),
    ("cat", [x_of(2), x_of(2)], {"axis": 1}, "out of range"),
    ("cat", [x_of(2), x_of(2, dtype=f16)], {"axis": 0}, "one dtype"),
    ("squeeze", [x_of(2, 1)], {"axes": (0,)}, "extent 2"),
    ("squeeze", [x_of(1, 1)], {"axes": (1, 0)}, "must be axes"),
    ("iota", [], {"shape": shape(3), "axis": 1, "start": ZERO, "step": ZERO}, "out of range"),
    ("iota", [], {"shape": shape(3), "axis": 0, "start": ZERO, "step": Scalar.of(1, i32)}, "one dtype"),
    ("iota", [], {"shape": shape(3), "axis": 0, "start": Scalar.of(1, bool_), "step": Scalar.of(1, bool_)}, "numbers"),
    ("sum", [x_of(2)], {"axes": ()}, "at least one axis"),
    ("sum", [x_of(2)], {"axes": (1,)}, "out of range"),
    ("sum", [x_of(2)], {"axes": (True,)}, "must be axes"),
    ("mean", [x_of(2, dtype=i32)], {"axes": (0,)}, "floating-point"),
    ("var", [x_of(2)], {"axes": (0,), "correction": True}, "must be an integer"),
    ("max", [x_of(0, 2)], {"axes": (0,)}, "extent 0"),
    ("min", [x_of(0, 2)], {"axes": (0, 1)}, "extent 0"),
    ("argmax", [x_of(2, 0)], {"axis": 1}, "extent 0"),
    ("any", [x_of(2)], {"axes": (0,)}, "expected bool"),
    ("cumsum", [x_of(2)], {"axis": 2}, "out of range"),
    ("gather", [x_of(2, 3), x_of(2, 3)], {"axis": 0}, "i32 or i64"),
    ("gather", [x_of(2, 3), x_of(2, 4, dtype=i64)], {"axis": 0}, "axis 1 has extent 4 in the index, only 3"),
    ("gather", [x_of(2, 3), x_of(2, dtype=i64)], {"axis": 0}, "rank"),
    ("gather", [x_of(0, 3), x_of(2, 3, dtype=i64)], {"axis": 0}, "nothing to read"),
    ("take_along_axis", [x_of(2, 3), x_of(5, 2, dtype=i64)], {"axis": 0}, "axis 1 has extent 2"),
    ("index_select", [x_of(2, 3), x_of(5, 2, dtype=i64)], {"axis": 0}, "rank 1"),
    ("uniform", [x_of(dtype=i32), x_of(dtype=i64)], {"shape": shape(3), "stream": 0}, "seed must be i64"),
    (
        "uniform",
        [x_of(dtype=i64), x_of(1, dtype=i64)],
        {"shape": shape(3), "stream": 0},
        "offset must be i64 of rank 0",
    ),
]


@pytest.mark.parametrize(("op", "args", "attrs", "message"), REJECTED, ids=lambda v: v if isinstance(v, str) else "")
def test_rules_reject_with_expected_and_actual(op: str, args, attrs, message: str) -> None:
    with pytest.raises(RuleError) as error:
        make(op, args, attrs)
    assert str(error.value).startswith(op)
    assert message in str(error.value)


def contract(a: Node, b: Node, a_axes, b_axes, reduced: int, acc: DType = f32, out: DType = f32) -> Node:
    attrs = {"a_axes": a_axes, "b_axes": b_axes, "reduced": reduced, "acc": acc, "out_dtype": out}
    return make("contract", [a, b], attrs)


A, B = x_of(2, 3), x_of(3, 4, position=1)
CONTRACT_REJECTED = [
    ((0, -1, 1), (-1, 1), 1, A, B, "a_axes has 3 entries, b_axes has 2"),
    ((0, -1, 1, -1), (-1, 1, 0, -1), 1, A, B, "root axis 3 is -1 in both"),
    ((0, -1, 2), (-1, 1, 0), 1, A, B, "a_axes: position 2 of root axis 2 is out of range for rank 2"),
    ((0, -1, 1), (-1, 1, -2), 1, A, B, "b_axes: position -2 of root axis 2 is out of range"),
    ((0, -1, 0), (-1, 1, 0), 1, A, B, "a_axes: axis 0 is used by root axes 0 and 2"),
    ((0, -1, 1), (-1, 1, 1), 1, A, B, "b_axes: axis 1 is used by root axes 1 and 2"),
    ((0, -1), (-1, 1), 0, A, B, "a_axes: operand axis 1 is not mentioned"),
    ((0, 1, -1), (-1, 0, -1), 0, A, x_of(3, 4), "b_axes: operand axis 1 is not mentioned"),
    ((0, -1, 1), (-1, 1, -1), 1, A, x_of(4, position=1), "out of range"),
    ((0, -1, 1), (-1, 0, -1), 1, A, x_of(4, position=1), "reduced root axis 2 is missing from operand b"),
    ((-1, 0, -1), (0, -1, 1), 1, x_of(2), B, "reduced root axis 2 is missing from operand a"),
    ((0, -1, 1), (-1, 0, 1), 1, A, B, "root axis 2 has extent 3 in a (axis 1) and 4 in b (axis 1)"),
    ((0, -1, 1), (-1, 1, 0), 4, A, B, "reduced is 4, expected 0 to 3"),
    ((0, -1, 1), (-1, 1, 0), -1, A, B, "reduced is -1"),
    ((0, -1, 1), (-1, 1, 0), 1, A, x_of(3, 4, dtype=bf16), "operand 0 is f32, operand 1 is bf16"),
    ((0, -1, 1), (-1, 1, 0), 1, x_of(2, 3, dtype=bool_), x_of(3, 4, dtype=bool_), "got bool"),
]


@pytest.mark.parametrize(("a_axes", "b_axes", "reduced", "a", "b", "message"), CONTRACT_REJECTED)
def test_contract_rejects_and_names_the_axis(a_axes, b_axes, reduced, a, b, message: str) -> None:
    with pytest.raises(RuleError) as error:
        contract(a, b, a_axes, b_axes, reduced)
    assert message in str(error.value)


def test_contract_fixes_the_accumulator() -> None:
    for dtype, acc in ((f16, f32), (f64, f64), (i8, i32), (u8, i64), (i32, i64)):
        a, b = x_of(2, 3, dtype=dtype), x_of(3, 4, dtype=dtype, position=1)
        assert contract(a, b, (0, -1, 1), (-1, 1, 0), 1, acc, dtype).sizes == (2, 4)
        wrong = f64 if acc == f32 else f32
        with pytest.raises(RuleError, match=f"acc is {wrong}"):
            contract(a, b, (0, -1, 1), (-1, 1, 0), 1, wrong, dtype)
    with pytest.raises(RuleError, match="out_dtype i32"):
        contract(A, B, (0, -1, 1), (-1, 1, 0), 1, f32, i32)


# Contractions


def test_contract_agrees_with_einsum_for_any_axes() -> None:
    rng = np.random.default_rng(0)
    letters = "abcdefgh"
    for _ in range(60):
        rank = int(rng.integers(1, 6))
        reduced = int(rng.integers(0, rank + 1))
        sizes = rng.integers(1, 5, rank)
        kinds = ["both" if r >= rank - reduced else rng.choice(["a", "b", "both"]) for r in range(rank)]
        in_a = [r for r in range(rank) if kinds[r] in ("a", "both")]
        in_b = [r for r in range(rank) if kinds[r] in ("b", "both")]
        a_order, b_order = rng.permutation(in_a).tolist(), rng.permutation(in_b).tolist()
        a = rng.integers(-4, 5, [sizes[r] for r in a_order]).astype(np.float32)
        b = rng.integers(-4, 5, [sizes[r] for r in b_order]).astype(np.float32)
        a_axes = tuple(a_order.index(r) if r in a_order else -1 for r in range(rank))
        b_axes = tuple(b_order.index(r) if r in b_order else -1 for r in range(rank))
        got = evaluate_one(lambda x, y, p=a_axes, q=b_axes, k=reduced: contract(x, y, p, q, k), a, b)
        terms = ["".join(letters[r] for r in o) for o in (a_order, b_order, range(rank - reduced))]
        expected = np.einsum(f"{terms[0]},{terms[1]}->{terms[2]}", a, b)
        np.testing.assert_array_equal(got, expected)


def test_short_sums_run_by_fma_in_index_order() -> None:
    """K = 16 over two reduced axes, in root order, from the first product."""
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((5, 4, 4), (4, 4, 7)))
    got = evaluate_one(lambda x, y: contract(x, y, (0, -1, 2, 1), (-1, 2, 0, 1), 2), a, b)
    for m in range(5):
        for n in range(7):
            pairs = [(a[m, j, i], b[i, j, n]) for i in range(4) for j in range(4)]
            total = np.float32(pairs[0][0] * pairs[0][1])
            for x, y in pairs[1:]:
                total = nearest_f32(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(total)))
            assert got[m, n] == total


def nearest_f32(value: Fraction) -> np.float32:
    near = np.float32(float(value))
    around = [near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(-np.inf))]
    return min(around, key=lambda n: (abs(Fraction(float(n)) - value), int(n.view(np.uint32)) % 2))


@pytest.mark.parametrize(
    ("dtype", "most"), [(bf16, 2), (f16, 2), (f32, 16), (f64, 16), (i8, None), (i64, None)], ids=str
)
def test_up_to_how_many_products_sums_are_ordered(dtype: DType, most: int | None) -> None:
    """Tensor cores take the products of narrow floats several at once; sums of integers are the same in any order."""

    def in_any_order(k: int) -> bool:
        acc = DTYPES[contract_accumulator(dtype)]
        out = dtype if dtype.is_float else acc
        a, b = tensor(0, (4, k), dtype), tensor(1, (k, 5), dtype)
        return sums_in_any_order(contract(a, b, (0, -1, 1), (-1, 1, 0), 1, acc, out))

    if most is None:
        assert not in_any_order(1000)
    else:
        assert not in_any_order(most)
        assert in_any_order(most + 1)


def test_contract_without_products_is_zero_and_with_one_is_the_product() -> None:
    a, b = np.empty((2, 0), np.float32), np.empty((0, 3), np.float32)
    assert evaluate_one(lambda x, y: contract(x, y, (0, -1, 1), (-1, 1, 0), 1), a, b).tolist() == [[0.0] * 3] * 2
    got = evaluate_one(lambda x, y: contract(x, y, (0, -1), (-1, 0), 0), np.float32([-0.0, 2]), np.float32([3, -0.0]))
    assert same_bits(got, np.array([[-0.0, 0.0], [6, -0.0]], np.float32))


def test_integer_contractions_wrap() -> None:
    a, b = np.full((1, 3), -128, np.int8), np.full((3, 1), -128, np.int8)
    assert evaluate_one(lambda x, y: contract(x, y, (0, -1, 1), (-1, 1, 0), 1, i32, i32), a, b).item() == 3 * 2**14
    assert evaluate_one(lambda x, y: contract(x, y, (0, -1, 1), (-1, 1, 0), 1, i32, i8), a, b).item() == 0
    a, b = np.full((1, 2), 2**62, np.int64), np.full((2, 1), 3, np.int64)
    wide = evaluate_one(lambda x, y: contract(x, y, (0, -1, 1), (-1, 1, 0), 1, i64, i64), a, b)
    assert wide.item() == wrapped(6 * 2**62, i64)


def test_kind_of_inputs() -> None:
    assert kind_of(A) is OpKind.INPUT
    assert kind_of(make("neg", [A])) is OpKind.POINTWISE


def test_compute_dtypes_are_closed() -> None:
    assert all(compute_dtype(compute_dtype(d)) == compute_dtype(d) for d in DTYPES.values())


@pytest.mark.parametrize(("batch", "rows", "columns"), [(1, 1500, 200), (300, 9, 70), (3, 515, 190), (2, 256, 512)])
@pytest.mark.parametrize("in_order", [True, False])
def test_large_products_are_taken_in_parts_that_miss_nothing(
    batch: int, rows: int, columns: int, in_order: bool
) -> None:
    """Parts are computed side by side; the sum of 64 products of small integers is exact in any order."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-8, 9, (batch, *s)).astype(np.float32) for s in ((rows, 64), (64, columns)))
    specs = [InputSpec(shape_of(x.shape), f32, dense_strides(x.shape)) for x in (a, b)]
    first, second = (make_input(i, spec) for i, spec in enumerate(specs))
    node = make("contract", (first, second), {
        "a_axes": (0, 1, -1, 2), "b_axes": (0, -1, 2, 1), "reduced": 1, "acc": f32, "out_dtype": f32,
    })  # fmt: skip
    wanted = np.einsum("bmk,bkn->bmn", a.astype(np.float64), b.astype(np.float64))
    np.testing.assert_array_equal(contract_arrays(node, a, b, in_order=in_order), wanted)
