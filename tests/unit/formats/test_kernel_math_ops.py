"""Every form of statement that %kernel_math dumps have, against the nodes that the builder gives."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fusion_ir import building as build
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import InputSpec
from fusion_ir.core.layout import normal_strides
from fusion_ir.core.named import NamedGraph
from fusion_ir.core.node import Node
from fusion_ir.dtype import bf16, bool_, f16, f32, f64, i32, i64
from fusion_ir.formats import SideFile
from fusion_ir.formats.kernel_math.ops import CALLS, INFIX, POINTWISE_NAMES, PREFIXES
from fusion_ir.formats.kernel_math.reader import read_kernel_math
from fusion_ir.formats.kernel_math.tensors import KERNEL_DTYPES
from fusion_ir.ops import make_input

X = "T0_g_float[iS0{4}, iS1{8}]"
Y = "T1_g_float[iS2{4}, iS3{8}]"
F = "[iS20{4}, iS21{8}]"  # the axes of a result like X


def dump(result: str, right_side: str, *inputs: str, scalars: str = "") -> str:
    """A dump with the inputs and one statement, which stands in line len(inputs) + 6 and the following."""
    lists = "".join(f"  {i}\n" for i in (inputs or (X,)))
    outputs = "".join(
        f"  {r}\n" for r in result.replace("(Avg)", "").replace("(Var)", "").replace("(Count)", "").split(";")
    )
    statement = f"{result.replace(';', ',' + chr(10))}\n   = {right_side}\n"
    return f"Inputs:\n{lists}Outputs:\n{outputs}\n%kernel_math {{\n{scalars}{statement}}} // %kernel_math\n"


def node(result: str, right_side: str, *inputs: str, scalars: str = "", beside: SideFile | None = None) -> Node:
    return named(result, right_side, *inputs, scalars=scalars, beside=beside).graph.outputs[0].node


def named(result: str, right_side: str, *inputs: str, scalars: str = "", beside: SideFile | None = None) -> NamedGraph:
    return read_kernel_math(dump(result, right_side, *inputs, scalars=scalars), beside or SideFile())


def given(position: int, dtype: str, *sizes: int, strides: tuple[int, ...] | None = None) -> Node:
    """The node of an input; dense unless strides are given."""
    spec = InputSpec(shape_of(sizes), KERNEL_DTYPES[dtype], normal_strides(sizes, strides or dense_strides(sizes)))
    return make_input(position, spec)


x = given(0, "float", 4, 8)
y = given(1, "float", 4, 8)


# Pointwise


@pytest.mark.parametrize("operator", INFIX)
def test_infix(operator: str) -> None:
    dtype = {"%": "int64_t"}.get(operator, "float")
    dtype = "bool" if operator in ("&&", "||") else "int64_t" if operator in ("&", "|", "^", "<<", ">>") else dtype
    a, b = (f"T{i}_g_{dtype}[iS{2 * i}{{4}}, iS{2 * i + 1}{{8}}]" for i in (0, 1))
    expected = INFIX[operator](given(0, dtype, 4, 8), given(1, dtype, 4, 8))
    result = next(word for word, row in KERNEL_DTYPES.items() if row == expected.dtype)
    assert node(f"T2_g_{result}{F}", f"{a}\n   {operator} {b};", a, b) is expected


INFIX_MEANS = {
    "+": "add",
    "-": "sub",
    "*": "mul",
    "/": "div",
    "%": "fmod",
    "<": "lt",
    ">=": "ge",
    "!=": "ne",
    "^": "bitwise_xor",
}


def test_infix_means_what_it_says() -> None:
    for operator, op in INFIX_MEANS.items():
        assert INFIX[operator](given(0, "int64_t", 2), given(1, "int64_t", 2)).op == op


@pytest.mark.parametrize(("prefix", "dtype"), [("-", "float"), ("!", "bool"), ("~", "int64_t")])
def test_prefix(prefix: str, dtype: str) -> None:
    a = f"T0_g_{dtype}[iS0{{4}}, iS1{{8}}]"
    assert node(f"T2_g_{dtype}{F}", f"{prefix}{a};", a) is PREFIXES[prefix](given(0, dtype, 4, 8))


CONSTANTS = {
    "double(0.5)": 0.5,
    "float(1e-05)": 1e-05,
    "double(-1.25)": -1.25,
    "float(-inf)": -math.inf,
    "double(1.0000000000000001e-05)": 1.0000000000000001e-05,
    "2": 2,
    "-1": -1,
    "d5": 0.75,
    "( 2 * d5 )": 1.5,
}


@pytest.mark.parametrize("text", CONSTANTS)
def test_constants_beside_an_operator(text: str) -> None:
    scalars = "d4 = double(1) / 2.;\nd5 = d4 + 0.25;\n"
    value = CONSTANTS[text]
    assert node(f"T2_g_float{F}", f"{X}\n * {text};", scalars=scalars) is build.mul(x, value)
    assert node(f"T2_g_float{F}", f"{text}\n - {X};", scalars=scalars) is build.sub(value, x)


UNARY = {
    "cosf": build.cos,
    "sinf": build.sin,
    "expf": build.exp,
    "rsqrtf": build.rsqrt,
    "tanhf": build.tanh,
    "erff": build.erf,
    "reciprocal": build.reciprocal,
    "relu": build.relu,
    "sigmoid": build.sigmoid,
    "silu": build.silu,
    "abs": build.abs_,
    "nearbyintf": build.round_,
    "log1pf": build.log1p,
    "log10f": build.log10,
    "exp2f": build.exp2,
    "frac": build.frac,
    "sqrt": build.sqrt,
    "acoshf": build.acosh,
}


@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str) -> None:
    assert node(f"T2_g_float{F}", f"{name}({X});") is UNARY[name](x)


def test_double_functions_have_no_f() -> None:
    a = "T0_g_double[iS0{4}, iS1{8}]"
    assert node(f"T2_g_double{F}", f"cos({a});", a) is build.cos(given(0, "double", 4, 8))


def test_tests_of_floats() -> None:
    for name in ("isnan", "isfinite", "isinf", "isneginf", "isposinf", "signbit"):
        assert node(f"T2_g_bool{F}", f"{name}({X});") is getattr(build, name)(x)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("fmax", build.maximum),
        ("fmin", build.minimum),
        ("max", build.maximum),
        ("pow", build.pow_),
        ("fmodf", build.fmod),
        ("atan2f", build.atan2),
        ("remainder", build.remainder),
    ],
)
def test_binary_functions(name: str, function: Callable[[Node, Node], Node]) -> None:
    assert node(f"T2_g_float{F}", f"{name}({X}\n  , {Y});", X, Y) is function(x, y)


def test_ternary_functions() -> None:
    b = "T2_g_bool[iS4{4}, iS5{8}]"
    mask = make_input(2, InputSpec(shape_of((4, 8)), bool_, (8, 1)))
    assert node(f"T3_g_float{F}", f"where({b}\n  , {X}\n  , {Y});", X, Y, b) is build.where(mask, x, y)
    assert node(f"T3_g_float{F}", f"where({b}, {X}, double(0));", X, Y, b) is build.where(mask, x, 0.0)
    both = node(f"T3_g_double{F}", f"where({b}, double(1), double(0));", X, Y, b)
    assert both is build.where(mask, build.full((), 1.0, f64), build.full((), 0.0, f64))
    assert node(f"T3_g_float{F}", f"clamp({X}, double(0), double(6));") is build.clamp(x, 0.0, 6.0)
    assert node(f"T3_g_float{F}", f"threshold({X}, double(0), double(2));") is build.threshold(x, 0.0, 2.0)
    assert node(f"T3_g_float{F}", f"lerp({X}, {Y}, double(0.25));", X, Y) is build.lerp(x, y, 0.25)


def test_broadcast_axes_meet_longer_ones() -> None:
    row = "T1_g_float[bS2{1}, iS3{8}]"
    assert node(f"T2_g_float{F}", f"{X}\n + {row};", X, row) is build.add(x, given(1, "float", 1, 8))


@pytest.mark.parametrize(
    ("before", "word", "after"),
    [
        ("__bfloat", "__bfloat2float", "float"),
        ("float", "__float2bfloat", "__bfloat"),
        ("__half", "__half2float", "float"),
        ("float", "__float2half", "__half"),
        ("float", "(double)", "double"),
        ("int64_t", "(float)", "float"),
        ("float", "(int32_t)", "int"),
        ("float", "__to_float", "float"),
        ("int", "__to_int64", "int64_t"),
        ("int", "__int2half", "__half"),
        ("__half", "__half2int32", "int"),
        ("__bfloat", "__bfloat2half", "__half"),
        ("float", "__float2e4m3", "__e4m3"),
        ("__e5m2", "__e5m22float", "float"),
        ("__e4m3", "__e4m32bfloat", "__bfloat"),
        ("bool", "(float)", "float"),
        ("float", "(bool)", "bool"),
        ("int64_t", "(nvfuser_index_t)", "nvfuser_index_t"),
        ("bool", "__bool2bfloat", "__bfloat"),
    ],
)
def test_casts(before: str, word: str, after: str) -> None:
    a = f"T0_g_{before}[iS0{{4}}, iS1{{8}}]"
    expected = build.cast(given(0, before, 4, 8), KERNEL_DTYPES[after])
    assert node(f"T2_g_{after}{F}", f"{word}({a});", a) is expected


# Views


def test_set_keeps_a_tensor() -> None:
    for call in (f"Set( {X}, cache_op=Streaming )", f"Set( {X} )", f"SegmenterSet( {X} )"):
        assert node(f"T2_g_float{F}", call) is x


PERMUTATIONS = {
    "sorted numbers": ("iS30{4}, iS31{4}, iS32{2}", "iS35{2}, iS33{4}, iS34{4}", (2, 0, 1)),
    "repeated extents": ("iS30{4}, iS31{4}, iS32{4}", "iS34{4}, iS35{4}, iS33{4}", (1, 2, 0)),
    "own numbers": ("iS30{4}, iS31{4}, iS32{2}", "iS32{2}, iS31{4}, iS30{4}", (2, 1, 0)),
    "identity": ("iS30{4}, iS31{4}, iS32{2}", "iS33{4}, iS34{4}, iS35{2}", (0, 1, 2)),
    "a mixture, by extents": ("iS30{4}, iS31{3}, iS32{2}", "iS32{2}, iS40{4}, iS31{3}", (2, 0, 1)),
    "a mixture with ones": ("iS30{4}, bS31{1}, bS32{1}", "bS40{1}, iS30{4}, bS41{1}", (1, 0, 2)),
}


@pytest.mark.parametrize("case", PERMUTATIONS)
def test_permutations(case: str) -> None:
    before, after, dims = PERMUTATIONS[case]
    sizes = [int(part.partition("{")[2].rstrip("}")) for part in before.split(", ")]
    a = f"T0_g_float[{before}]"
    source = given(0, "float", *sizes)
    assert node(f"T2_g_float[{after}]", f"Set.Permute( {a}, cache_op=Streaming )", a) is build.permute(source, dims)


def test_reshapes() -> None:
    for op in ("view", "reshape"):
        assert node("T2_g_float[iS20{2}rf, iS21{16}rf]", f"{op}( {X} )") is build.reshape(x, (2, 16))
    assert node("T2_g_float[iS20{( 4 * 8 )}rf]", f"view( {X} )") is build.reshape(x, (32,))


def test_broadcasts() -> None:
    one = "T0_g_float[bS0{1}, iS1{8}]"
    source = given(0, "float", 1, 8)
    after = "T2_g_float[bS20{1}, bS21{1}, iS22{8}]"
    assert node(after, f"broadcast( {one} )", one) is build.unsqueeze(source, [1])
    assert node(after, f"broadcast( {one}, flags = {{true, false, false}} )", one) is build.unsqueeze(source, [0])
    assert node("T2_g_float[iS20{4}, iS21{8}, bS22{1}]", f"broadcast( {X} )") is build.unsqueeze(x, [2])
    scalar = "T0_g_float[]"
    made = node("T2_g_float[bS20{1}, bS21{1}]", f"broadcast( {scalar}, flags = {{true, true}} )", scalar)
    assert made is build.unsqueeze(given(0, "float"), [0, 1])


def test_squeezes() -> None:
    a = "T0_g_float[bS0{1}, iS1{8}, bS2{1}]"
    source = given(0, "float", 1, 8, 1)
    assert node("T2_g_float[iS20{8}]", f"squeeze( {a} )", a) is build.squeeze(source, [0, 2])
    flags = "flags = {false, false, true}"
    assert node("T2_g_float[bS20{1}, iS21{8}]", f"squeeze( {a}, {flags} )", a) is build.squeeze(source, [2])
    expanded = "T0_g_float[bS0{1 ex 4}, iS1{8}]"
    first = build.slice_(given(0, "float", 4, 8, strides=(0, 1)), [0, 0], [1, 8])
    assert node("T2_g_float[iS20{8}]", f"squeeze( {expanded} )", expanded) is build.squeeze(first, [0])


def test_expand_and_repeat() -> None:
    a = "T0_g_float[bS0{1}, iS1{8}]"
    source = given(0, "float", 1, 8)
    for after, call in (
        ("bS20{1 ex 4}, iS21{8}", f"expand( {a} )"),
        ("bS20{4}, iS21{8}", f"expand( {a}, {{4, 8}} )"),
        ("iS20{4}, iS21{8}", f"repeat( {a} )"),
    ):
        assert node(f"T2_g_float[{after}]", call, a) is build.broadcast_to(source, (4, 8))


def test_expanded_inputs_repeat_themselves() -> None:
    for axis in ("bS0{1 ex 4}", "bS0{4}"):
        spec = named(
            "T2_g_float[iS20{4}, iS21{8}]", "cosf(T0_g_float[" + axis + ", iS1{8}]);", f"T0_g_float[{axis}, iS1{{8}}]"
        ).graph.inputs[0]
        assert (spec.sizes, spec.strides) == ((4, 8), (0, 1))


def test_pads_are_in_the_order_of_the_axes() -> None:
    after = "T2_g_float[iS20{7}, iS21{14}]"
    assert node(after, f"pad( {X}, {{1, 2, 0, 6}} )") is build.pad(x, (1, 0), (2, 6))
    assert node("T2_g_float[iS20{4}, iS21{6}]", f"pad( {X}, {{0, 0, -1, -1}} )") is build.pad(x, (0, -1), (0, -1))
    scalars = "i5 = 2 - 1;\n"
    assert node(after, f"pad( {X}, {{i5, 2, 0, ( i5 * 6 )}} )", scalars=scalars) is build.pad(x, (1, 0), (2, 6))


def test_fill_of_a_pad_is_stated_or_noted() -> None:
    after, call = "T2_g_float[iS20{4}, iS21{9}]", f"pad( {X}, {{0, 0, 0, 1}} )"
    assert "what a pad fills in: 0 is taken for T2" in named(after, call).notes[1]
    stated = named(after, call, beside=SideFile(values={"T2": -1.5}))
    assert stated.graph.outputs[0].node is build.pad(x, (0, 0), (0, 1), -1.5)
    assert len(stated.notes) == 1


def cat(*parts: tuple[str, str], result: str = "T9_g_float[iS90{4}, iS91{16}]", axis: int = 1) -> str:
    """A dump that concatenates X, padded as each of the parts says, and what they are written as."""
    lines = "".join(f"{written}\n   = {call}\n" for written, call in parts)
    operands = ", ".join(written for written, _ in parts)
    return dump(result, f"cat( {operands}, {axis} )", X, scalars=lines)


LEFT = ("T5_l_float[iS50{4}, iS51{16}]", f"pad( {X}, {{0, 0, 0, 8}} )")
RIGHT = ("T6_l_float[iS60{4}, iS61{16}]", f"pad( {X}, {{0, 0, 8, 0}} )")


def test_cat_undoes_the_pads() -> None:
    graph = read_kernel_math(cat(LEFT, RIGHT))
    assert graph.graph.outputs[0].node is build.cat([x, x], 1)
    assert len(graph.notes) == 1  # what the pads fill in does not matter
    whole = ("T5_l_float[iS50{4}, iS51{8}]", f"pad( {X}, {{0, 0, 0, 0}} )")
    assert read_kernel_math(cat(whole, result="T9_g_float[iS90{4}, iS91{8}]")).graph.outputs[0].node is x


def test_cat_of_copied_pads() -> None:
    copy = ("T7_l_float[iS70{4}, iS71{16}]", f"Set( {LEFT[0]}, cache_op=Streaming )")
    text = cat(LEFT, RIGHT, copy).replace(f"cat( {LEFT[0]}, {RIGHT[0]}, {copy[0]}", f"cat( {copy[0]}, {RIGHT[0]}")
    assert read_kernel_math(text).graph.outputs[0].node is build.cat([x, x], 1)


def test_slices() -> None:
    after = "T2_g_float[iS20{2}, iS21{4}]"
    assert node(after, f"slice( {X}, {{ {{0, 4, 2}} {{4, 8, 1}} }} )") is build.slice_(x, [0, 4], [4, 8], [2, 1])
    assert node(after, f"slice( {X}, {{{{0, 4, 2}}, {{4, 8, 1}}}} )") is build.slice_(x, [0, 4], [4, 8], [2, 1])


# Reductions, products, gathers, constants

NEUTRAL = {
    "add": "double(0)",
    "mul": "double(1)",
    "fmax": "float(-inf)",
    "max": "double(-3.4028234663852886e+38)",
    "fmin": "float(inf)",
}


@pytest.mark.parametrize("op", NEUTRAL)
def test_reductions(op: str) -> None:
    function = {"add": build.sum_, "mul": build.prod, "fmax": build.max_, "max": build.max_, "fmin": build.min_}[op]
    for allreduce in ("false", "true", "0"):
        call = f"reduction( {X}, op = {op}, initial value = {NEUTRAL[op]}, allreduce = {allreduce} )"
        assert node("T2_g_float[iS20{4}, rS21{8}]", call) is function(x, [1])
        assert node("T2_g_float[rS20{4}, rS21{8}]", call) is function(x, [0, 1])


def test_reductions_of_integers_and_bool() -> None:
    a = "T0_g_int64_t[iS0{4}, iS1{8}]"
    call = f"reduction( {a}, op = max, initial value = -9223372036854775808, allreduce = false )"
    assert node("T2_g_int64_t[iS20{4}, rS21{8}]", call, a) is build.max_(given(0, "int64_t", 4, 8), [1])
    b = "T0_g_bool[iS0{4}, iS1{8}]"
    call = f"reduction( {b}, op = logical_or, initial value = false, allreduce = false )"
    assert node("T2_g_bool[iS20{4}, rS21{8}]", call, b) is build.any_(given(0, "bool", 4, 8), [1])


def test_reduced_axes_stay_written() -> None:
    """T2 keeps its r axis wherever it is mentioned, and does not have it."""
    line = f"T2_l_float[iS20{{4}}, rS21{{8}}]\n = reduction( {X}, op = add, initial value = float(0) )\n"
    made = node("T3_g_float[iS30{4}, bS31{1}]", "broadcast( T2_l_float[iS20{4}, rS21{8}] )", scalars=line)
    assert made is build.unsqueeze(build.sum_(x, [1]), [1])


def test_welford() -> None:
    results = (
        "T2_g_float[iS20{4}, rS21{8}](Avg);T3_g_float[iS22{4}, rS23{8}](Var);T4_g_int64_t[iS24{4}, rS25{8}](Count)"
    )
    text = dump(results, f"Welford ( {X}(Avg), \n  allreduce = false )")
    mean, squares, count = (o.node for o in read_kernel_math(text).graph.outputs)
    assert mean is build.mean(x, [1])
    assert squares is build.sum_(build.square(build.sub(x, build.mean(x, [1], True))), [1])
    assert count is build.full((4,), 8, i64)


def test_scan() -> None:
    assert node(f"T2_g_float{F}", f"scan({X},\n  dim=1,\n  op_type=add,\n  init=float(0))") is build.cumsum(x, 1)


@pytest.mark.parametrize(("dtype", "out"), [("__bfloat", bf16), ("__half", f16), ("float", f32)])
@pytest.mark.parametrize("k", [1, 8])
def test_matmul(dtype: str, out: object, k: int) -> None:
    """One contract, as the reader of definitions gives it."""
    axis = f"{'b' if k == 1 else 'i'}S{{}}{{{{{k}}}}}"
    a = f"T0_g_{dtype}[iS0{{2}}, iS1{{4}}, {axis.format(2)}]"
    b = f"T1_g_{dtype}[iS3{{2}}, {axis.format(4)}, iS5{{6}}]"
    expected = build.matmul(given(0, dtype, 2, 4, k), given(1, dtype, 2, k, 6))
    for tail in ("", f", rS23{{{k}}}"):
        made = node(f"T2_g_{dtype}[iS20{{2}}, iS21{{4}}, iS22{{6}}{tail}]", f"matmul({a},\n  {b})", a, b)
        assert made is expected and made.dtype == out
    contracts = [
        n
        for n in read_kernel_math(
            dump(f"T2_g_{dtype}[iS20{{2}}, iS21{{4}}, iS22{{6}}]", f"matmul({a}, {b})", a, b)
        ).graph.nodes
        if n.op == "contract"
    ]
    assert [n.attr("reduced", int) for n in contracts] == [0 if k == 1 else 1]


def test_linear() -> None:
    w, c = "T1_g_float[iS2{6}, iS3{8}]", "T2_g_float[iS4{6}]"
    weight, bias = given(1, "float", 6, 8), given(2, "float", 6)
    after = "T3_g_float[iS20{4}, iS21{6}, rS22{8}]"
    assert node(after, f"linear({X},\n          {w})", X, w) is build.linear(x, weight)
    assert node(after, f"linear({X},\n          {w},\n          {c})", X, w, c) is build.linear(x, weight, bias)


def test_gathers() -> None:
    i1, i2 = "T1_g_int64_t[iS2{3}]", "T1_g_int64_t[iS2{4}, iS3{2}]"
    one, two = given(1, "int64_t", 3), given(1, "int64_t", 4, 2)
    for name in ("indexSelect", "index_select"):
        made = node("T2_g_float[iS20{4}, iS21{3}]", f"{name}( {X}, dim = 1, {i1} )", X, i1)
        assert made is build.index_select(x, 1, one)
    after = "T2_g_float[iS20{4}, iS21{2}]"
    assert node(after, f"torchGather( {X}, dim = 1, {i2} )", X, i2) is build.gather(x, 1, two)
    assert node(after, f"takeAlongAxis( {X}, {i2}, dim = 1 )", X, i2) is build.take_along_axis(x, two, 1)
    last = build.squeeze(build.slice_(x, [0, 7], [4, 8]), [1])
    assert node("T2_g_float[iS20{4}]", f"select( {X}, axis = iS1{{8}}, index = 7 )") is last
    index = "T1_g_int64_t[iS2{3}]"
    keywords = "padding_idx = -1,\n  norm_type = double(2),\n  scale_grad_by_freq = false,\n  sparse = false"
    call = f"embedding({index},\n  {X},\n  {keywords})"
    text = dump("T2_g_float[iS20{3}, iS21{8}]", call, X, index).replace("\n   = embedding", ",\n = embedding")
    assert read_kernel_math(text).graph.outputs[0].node is build.embedding(one, x)


def test_constants() -> None:
    assert node("T2_g_int[iS20{4}, iS21{8}]", "full({4, 8}, 3);") is build.full((4, 8), 3, i32)
    assert node("T2_g_float[]", "full({}float(2.5));") is build.full((), 2.5, f32)
    assert node("T2_g_bool[iS20{4}]", "full({4}, true);") is build.full((4,), True, bool_)
    assert node("T2_g_int64_t[iS20{6}]", "iota(6, 1, 2, int64_t);") is build.iota([6], 0, 1, 2, i64)


def test_every_op_of_the_tables_is_tested() -> None:
    """An op that is added to a table wants its form written down here."""
    text = Path(__file__).read_text()
    for name in (*CALLS, *(n for n in POINTWISE_NAMES if n in UNARY)):
        assert f"{name}(" in text or f"{name} (" in text or f'"{name}"' in text, name


# Scalars


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0 + 64", 64),
        ("2 + 3 * 4", 14),
        ("( 2 + 3 ) * 4", 20),
        ("( ( 0 + 64 ) + 64 )", 128),
        ("7 / 2", 3),
        ("-7 / 2", -3),
        ("-7 % 3", -1),
        ("ceilDiv(7, 2)", 4),
        ("ceilDiv(( ceilDiv(100, 8) ), 4)", 4),
        ("max(3, -4)", 3),
        ("fmin(3, 4)", 3),
        ("where(3 < 4, 5, 6)", 5),
        ("where(( 3 == 4 ) || ( 1 > 2 ), 5, 6)", 6),
        ("-( 3 )", -3),
        ("gcd(12, 18)", 6),
        ("8 - 2 - 1", 5),
        ("(nvfuser_index_t)(5)", 5),
        ("where(!( 1 != 2 ) && true, 5, 6)", 6),
        ("abs(-4)", 4),
        ("int64_t(9)", 9),
        ("- -2", 2),
    ],
)
def test_integer_expressions(text: str, value: int) -> None:
    scalars = f"i7 = {text};\n"
    made = node(f"T2_g_float{F}", f"{X}\n + i7;", scalars=scalars)
    assert made is build.add(x, value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("double(1) / 4", 0.25),
        ("reciprocal(d1)", 0.125),
        ("(double)(3)", 3.0),
        ("double(1) * (double)(3)", 3.0),
        ("sqrt(double(16))", 4.0),
        ("rsqrt(double(16))", 0.25),
        ("1e-3", 1e-3),
        ("-d1", -8.0),
    ],
)
def test_float_expressions(text: str, value: float) -> None:
    scalars = f"d1 = double(8);\nd7 = {text};\n"
    made = node(f"T2_g_float{F}", f"{X}\n * d7;", scalars=scalars)
    assert made is build.mul(x, value) and isinstance(value, float)


def test_constants_are_those_of_numpy() -> None:
    made = node(f"T2_g_float{F}", f"{X}\n * float(0.100000001);")
    assert made is build.mul(x, float(np.float32(0.1)))
