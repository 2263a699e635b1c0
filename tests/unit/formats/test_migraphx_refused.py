"""MIGraphX dumps that the reader refuses, with line and column, and broken texts of every kind."""

import itertools
import random
import re

import pytest

from fusion_ir.core.limits import LIMITS
from fusion_ir.errors import FormatError
from fusion_ir.formats.migraphx.reader import read_migraphx
from fusion_ir.verify import verify
from tests.support.whole import WHOLE
from tests.unit.formats.test_migraphx import BODY, EXCERPT, HEAD, lines

F = "float_type, {2, 3}, {3, 1}"
CALL = lines(
    'module: "main"',
    f"y = @param:y -> {F}",
    "main:@1 = pointwise(y,y), [main:pointwise0] -> half_type, {2, 3}, {3, 1}",
)


def test_sound_pieces() -> None:
    """The texts that the cases below spoil."""
    for text in (HEAD + f"@1 = add(x,x) -> {F}", CALL + BODY):
        verify(read_migraphx(text).graph)


# Behind HEAD, so that these stand in line 3
LINE = [
    # the line itself
    ("hello", "3:1: expected an instruction such as .*, got 'hello'"),
    ("@1 add(x,x)", "3:1: expected an instruction"),
    ("@1 = ", "3:6: expected the name of an op, got the end of the line"),
    ("@1 = (x)", "3:6: expected the name of an op, got"),
    ("@1 = add(x,x", "3:13: expected the bracket that closes '\\(', got the end of the line"),
    ("@1 = add(x,x]", "3:13: expected the brackets to nest, got '\\]'"),
    ("@1 = softmax[axis=1(x) -> " + F, "3:\\d+: expected the bracket that closes '\\['"),
    ("@1 = softmax[axis=1](x)", "3:24: expected the result's type, such as .*, got the end of the line"),
    ("@1 = add(x,x) -> ", "3:18: expected an element type such as half_type, got the end of the line"),
    ("@1 = add(x,x) -> float_type", "3:28: expected a comma and extents .*, got the end of the line"),
    ("@1 = add(x,x) -> float_type, {2, 3", "3:30: expected extents such as {348, 768}, got '{2, 3'"),
    ("@1 = add(x,x) -> float_type, {2, 3}", "3:36: expected a comma and strides"),
    ("@1 = add(x,x) -> float_type, {2, 3}, {3, 1", "3:38: expected strides"),
    ("@1 = add(x,x) -> float_type, {2, 3}, {3, 1} more", "3:44: expected the end of the line, got ' more'"),
    ("@1 = add(x,) -> " + F, "3:12: expected the name of an instruction, got ''"),
    ("@1 = add(x, ?) -> " + F, "3:13: expected the name of an instruction, got '\\?'"),
    ("@1 = add(x,x) -> float_type, {2, 9999999999999999999}, {3, 1}", "3:30: expected extents"),
    ("@1 = add(x,x) -> [float_type, {2}, {1}]", "3:18: results that are tuples are not read"),
    ("@1 = add(x,x) -> dynamic, float_type, {}", "3:18: dynamic extents are not read"),
    ('module: "main"', "3:1: module 'main' is printed twice, first at line 1"),
    # types
    ("@1 = add(x,x) -> flat_type, {2, 3}, {3, 1}", "3:18: element type 'flat_type' .*'float_type'"),
    ("@1 = add(x,x) -> uint64_type, {2, 3}, {3, 1}", "3:18: element type 'uint64_type' is not read"),
    ("@1 = add(x,x) -> float_type, {-2, 3}, {3, 1}", "3:18: axis 0 has extent -2"),
    ("@1 = add(x,x) -> float_type, {2, 3}, {3}", "3:18: expected 2 strides, got 1"),
    ("@1 = add(x,x) -> float_type, {2, 3}, {2, 1}", "3:18: strides overlap"),
    ("@1 = add(x,x) -> float_type, {2, 1099511627776}, {3, 1}", "3:18: shape .* elements"),
    ("@1 = add(x,x) -> float_type, {" + "1, " * 12 + "2}, {" + "1, " * 12 + "1}", "3:18: rank 13 is above the limit"),
    # names
    ("x = neg(x) -> " + F, "3:1: 'x' is defined twice, first at line 2"),
    ("@1 = neg(@1) -> " + F, "3:10: @1 is used before it is defined, at line 3"),
    ("@1 = neg(@2) -> " + F + "\n@2 = neg(@1) -> " + F, "3:10: @2 is used before it is defined, at line 4"),
    ("@1 = load[offset=0](@0) -> " + F + "\n@2 = neg(@1) -> " + F, "4:10: @1 is a buffer \\(load, line 3\\)"),
    ("@1 = @param:z -> " + F, "3:6: expected the parameter '@1', got 'z'"),
    ("a" * 257 + " = neg(x) -> " + F, "3:1: a name has 1 to 256 characters, got 257"),
    # ops, attributes, operands
    ("@1 = relux(x) -> " + F, "3:6: unknown op 'relux'; did you mean 'relu'"),
    ("@1 = gpu::gem(x,x,@0) -> " + F, "3:6: unknown op 'gpu::gem'; did you mean 'gpu::gemm'"),
    ("@1 = gemm(x,x) -> " + F, "3:6: unknown op 'gemm'; did you mean 'gpu::gemm'"),
    ("@1 = gpu::transpose[permutation={1, 0}](x,@0) -> " + F, "3:6: unknown op 'gpu::transpose'"),
    ("@1 = gpu::code_object[code_object=4,](x,@0) -> " + F, "3:6: gpu::code_object is a compiled kernel, .*: print "
     "the program before it is lowered"),
    ("@1 = softmax[axes=1](x) -> " + F, "3:14: softmax has no attribute 'axes', expected \\['axis'\\]"),
    ("@1 = softmax[1](x) -> " + F, "3:14: expected an attribute such as axis=1, got '1'"),
    ("@1 = softmax[axis=1,axis=0](x) -> " + F, "3:21: attribute 'axis' is given twice"),
    ("@1 = softmax[axis={1}](x) -> " + F, "3:14: expected a number, got '.1.'"),
    ("@1 = softmax[axis=0.5](x) -> " + F, "3:14: attribute axis: expected an integer, got 0.5"),
    ("@1 = softmax[axis=nan](x) -> " + F, "3:14: attribute axis: expected an integer, got nan"),
    ("@1 = softmax[axis=2](x) -> " + F, "3:6: softmax: axis 2 is out of range for rank 2"),
    ("@1 = transpose[permutation=1](x) -> " + F, "3:16: expected integers such as {0, 1}, got '1'"),
    ("@1 = transpose(x) -> " + F, "3:6: transpose: attribute permutation is missing"),
    ("@1 = transpose[permutation={0, 0}](x) -> " + F, "3:6: .*dims \\[0, 0\\] is not a permutation"),
    ("@1 = add(x) -> " + F, "3:6: add takes 2 operands, got 1"),
    ("@1 = clip(x,x,x,x) -> " + F, "3:6: clip takes 1 to 3 operands, got 4"),
    ("@1 = gpu::add(x,x) -> " + F, "3:6: gpu::add takes 2 operands, got 1"),
    ("@1 = concat[axis=0] -> " + F, "3:6: concat has no operands"),
    ("@1 = add(x,x), [main:pointwise0] -> " + F, "3:17: add takes no modules"),
    ("@1 = where(x,x,o) -> " + F + "\no = @param:o -> " + F, "3:16: o is used before"),
    # what the op gives
    ("@1 = neg(x) -> float_type, {3, 2}, {2, 1}", "3:10: x is float_type, {2, 3}, expected the result's extents"),
    ("@1 = neg(x) -> half_type, {2, 3}, {3, 1}", "3:16: neg gives float_type, {2, 3} here, the text says half_type, "
     "{2, 3}"),
    ("@1 = equal(x,x) -> half_type, {2, 3}, {3, 1}", "3:20: equal gives bool_type, {2, 3} here"),
    ("@1 = convert[target_type=1](x) -> bf16_type, {2, 3}, {3, 1}", "3:14: target_type=1 is f16, the printed result "
     "bf16"),
    ("@1 = reduce_sum[axes={1}](x) -> float_type, {2}, {1}", "3:33: reduce_sum gives float_type, {2, 1} here"),
    ("@1 = dot(x,x) -> float_type, {2, 2}, {2, 1}", "3:6: dot: expected .* got \\[2, 3\\] and"),
    ("@1 = transpose[permutation={1, 0}](x) -> float_type, {3, 2}, {1, 3}", "3:42: transpose gives float_type, {3, 2}, "
     "{2, 1} here, the text says float_type, {3, 2}, {1, 3}"),
    ("@1 = slice[axes={1},starts={0},ends={2}](x) -> float_type, {2, 2}, {2, 1}", "3:48: slice gives float_type, "
     "{2, 2}, {1, 2} here, the text says float_type, {2, 2}, {2, 1}"),
    ("@1 = slice[axes={1},starts={0},ends={2}](x) -> float_type, {2, 3}, {1, 2}", "3:48: slice gives float_type, "
     "{2, 2} here, the text says float_type, {2, 3}"),
    ("@1 = slice[axes={1},starts={0, 1},ends={2}](x) -> " + F, "3:6: slice: 1 axes, 2 starts and 1 ends"),
    ("@1 = contiguous(x) -> float_type, {2, 3}, {1, 2}", "3:23: contiguous gives float_type, {2, 3}, {3, 1} here"),
    ("@1 = reshape_lazy[dims={6}](x) -> float_type, {6}, {1}", "3:6: reshape_lazy: \\[2, 3\\] with strides \\[1, 2\\] "
     "cannot become \\[6\\] without a copy"),
    ("@1 = reshape[dims={6}](x) -> float_type, {6}, {2}", "3:30: reshape gives float_type, .6., .1. here"),
    ("@1 = reshape[dims={4}](x) -> float_type, {4}, {1}", "3:6: reshape: .*6 elements"),
    ("@1 = multibroadcast[out_lens={4, 2, 3}](x) -> float_type, {4, 2, 3}, {6, 1, 2}", "3:47: multibroadcast gives "
     "float_type, {4, 2, 3}, {0, 1, 2} here"),
    ("@1 = multibroadcast[out_lens={4, 2, 3}](x) -> float_type, {4, 2, 3}, {0, 1, 2}", "3:1: strides overlap: "
     "axis 0 .extent 4, stride 0."),
    ("@1 = broadcast[axis=2,dims={4, 2, 3}](x) -> float_type, {4, 2, 3}, {0, 1, 2}", "3:6: broadcast: \\[2, 3\\] does "
     "not stand in \\[4, 2, 3\\] from axis 2 on"),
    ("@1 = unsqueeze[axes={0},steps={2}](x) -> float_type, {2, 1, 3}, {1, 1, 2}\n@2 = unsqueeze[axes={0},steps={3}](x)"
     " -> " + F, "4:6: unsqueeze: step 3 at axis 0 does not divide \\[2, 3\\]"),
    ("@1 = quantizelinear(x,x,x) -> " + F, "3:6: quantizelinear: the result is f32, expected integers or 8-bit floats"),
    ("@1 = quantizelinear[out_type=7](x,x) -> int8_type, {2, 3}, {1, 2}", "3:41: quantizelinear gives int16_type"),
    ("@1 = quantizelinear[out_type=word](x,x) -> " + F, "3:6: quantizelinear: out_type is word, expected one of"),
    ("@1 = quantizelinear(x) -> " + F, "3:6: quantizelinear takes 2 to 3 operands, got 1"),
    ("@1 = convert(x) -> int8_type, {2, 3}, {1, 2}\n@2 = dequantizelinear(x,@1) -> " + F, "4:6: dequantizelinear: the "
     "scale is i8, expected a floating-point dtype"),
    ("@1 = convert(x) -> int8_type, {2, 3}, {1, 2}\n@2 = dequantizelinear(x,x,@1) -> " + F, "4:6: dequantizelinear: "
     "the zero point is i8, expected f32 as the operand is"),
    ("@1 = pad[mode=1,pads={0, 0, 1, 1}](x) -> float_type, {3, 4}, {4, 1}", "3:6: pad: mode is 1"),
    # literals
    ("@1 = @literal -> " + F + "\n@2 = neg(@1) -> " + F, "3:6: expected the literal's values"),
    ("@1 = @literal{1, 2} -> " + F + "\n@2 = neg(@1) -> " + F, "3:15: the literal has 2 values, .* want 6"),
    ("@1 = @literal{one} -> float_type, {1}, {0}\n@2 = neg(@1) -> float_type, {1}, {0}", "3:15: expected a number"),
    ("@1 = @literal{200} -> int8_type, {1}, {0}\n@2 = neg(@1) -> int8_type, {1}, {0}", "3:15: 200 is not a value"),
    ("@1 = @literal{2} -> bool_type, {1}, {0}\n@2 = not(@1) -> bool_type, {1}, {0}", "3:15: 2 is not a value of bool"),
    ("@1 = hip::hip_copy_literal -> " + F + "\n@2 = neg(@1) -> " + F, "3:6: hip::hip_copy_literal: attribute id is"),
    # results
    ("@1 = @return", "3:6: the program has no outputs"),
    ("@1 = @return(x)\n@2 = neg(x) -> " + F, "4:1: expected nothing behind the @return of line 3"),
    ("@1 = @return(@7)", "3:14: @7 is not defined in the text"),
    ("@1 = @literal{1} -> float_type, {1}, {0}", "3:1: the program has no outputs"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "message"), LINE, ids=[line[:60] for line, _ in LINE])
def test_refused(line: str, message: str) -> None:
    with pytest.raises(FormatError, match=f"^(?:{message})"):
        read_migraphx(HEAD + line)


def test_buffers_that_hold_data() -> None:
    """A result may go where only its own instruction still reads."""
    text = HEAD + f"@1 = neg(x) -> {F}\n@2 = gpu::add(x,@1,@1) -> {F}\n"
    assert read_migraphx(text).output_names == ("@2",)
    assert read_migraphx(text.replace("x,@1,@1", "x,x,@1")).output_names == ("@2",)  # @1 is lost
    with pytest.raises(FormatError, match=r"^4:20: the last argument of gpu::add is the buffer .* @1 holds .* line 5"):
        read_migraphx(text + f"@3 = add(@1,@2) -> {F}")
    with pytest.raises(FormatError, match=r"^4:17: the last argument of gpu::neg .* @1 holds the result of identity"):
        read_migraphx(HEAD + "@1 = identity(x) -> float_type, {2, 3}, {1, 2}\n" + f"@2 = gpu::neg(x,@1) -> {F}")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[main:pointwise0] ->", "[main:pointwise1] ->", "3:28: expected one module .*'main:pointwise0'.*, got"),
        (", [main:pointwise0]", "", "3:11: expected one module whose body is printed"),
        ("pointwise(y,y)", "pointwise(y)", "3:11: pointwise: module main:pointwise0 has 2 parameters, got 1 operand"),
        ("half_type, {2, 3}, {3, 1}", F, "3:48: module main:pointwise0 gives half_type"),
        ("half_type, {2, 3}, {3, 1}", "half_type, {3, 2}, {2, 1}", "3:21: y is float_type, {2, 3}, expected"),
        ("x0 = @param:x0 -> float", "x0 = @param:x0 -> half", "3:21: y is float_type, {2, 3}, expected half_type"),
        ("x1", "x10", "4:1: the order of the parameters"),
        ("mul(x0", "mul(x3", "9:26: x3 is not defined before this line of module main:pointwise0"),
        ("main:pointwise0:@5 =", "main:pointwise0:@4 =", "10:1: 'main:pointwise0:@4' is defined twice"),
        ("main:pointwise0:@8 = @return(main:pointwise0:@7)\n", "", "4:1: module main:pointwise0 has no @return"),
        ("@return(main:pointwise0:@7)", "@return(x0,x1)", "13:1: expected one result, got 2"),
        ("convert[target_type=1](", "softmax[axis=0](", "12:\\d+: softmax is not pointwise"),
        ("{0.5} -> float_type, {1}, {0}", "{1, 2} -> float_type, {2}, {1}", "7:1: expected a literal of one element"),
    ],
)  # fmt: skip
def test_refused_modules(old: str, new: str, message: str) -> None:
    text = CALL + BODY
    assert old in text
    body = text.replace(old, new) if old == "x1" else text.replace(old, new, 1)
    if old == "x1":
        body = body.replace("x0", "x2")
    with pytest.raises(FormatError, match=f"^{message}"):
        read_migraphx(body)


def test_limits() -> None:
    """Bodies count as often as they are used; long lists of open names are looked at once."""
    many = "".join(f"@{i} = pointwise(y,y), [m] -> float_type, {{1}}, {{0}}\n" for i in range(2000))
    chain = "".join(f"@{i} = add(x0,x1) -> float_type, {{1}}, {{0}}\n" for i in range(20))
    type_ = "float_type, {1}, {0}"
    body = f'module: "m"\nx0 = @param:x0 -> {type_}\nx1 = @param:x1 -> {type_}\n{chain}@20 = @return(@19)\n'
    with pytest.raises(FormatError, match=r"^\d+:1: 20,001 instructions, at most 20,000 are allowed"):
        read_migraphx(f'module: "main"\ny = @param:y -> {type_}\n{many}{body}')
    with pytest.raises(FormatError, match=r"^20001:1: 20,001 instructions"):
        read_migraphx("@0 = neg(x) -> float_type, {1}, {0}\n" * 20_001)
    names = ",".join(f"n{i}" for i in range(LIMITS.inputs))
    adds = "".join(f"@{i} = add(n{i},n{i + 1}) -> {type_}\n" for i in range(1, LIMITS.inputs - 1))
    sums = ",".join(f"@{i}" for i in range(1, LIMITS.inputs - 1))
    joined = f"@c = concat[axis=0]({names}) -> float_type, {{4096}}, {{1}}\n"
    named = read_migraphx(f"{joined}{adds}@d = concat[axis=0]({sums}) -> float_type, {{4094}}, {{1}}\n"
                          f"@e = neg(n0) -> {type_}\n")  # fmt: skip
    assert len(named.input_names) == LIMITS.inputs
    with pytest.raises(FormatError, match="4,097 names that are not defined"):
        read_migraphx(joined + f"@d = neg(m) -> {type_}\n")


# Broken texts

TEXTS = [EXCERPT, CALL + BODY, HEAD + f"@1 = @literal{{0.5, 2, -1e-05, inf, nan, 3}} -> {F}\n@2 = add(@1,@9) -> {F}\n"]


def refusal(text: str) -> FormatError | None:
    """The error that the text is refused with, which names a line; None where it is read, as a sound graph."""
    try:
        named = read_migraphx(text)
    except FormatError as error:
        refused = error
    else:
        verify(named.graph)
        return None
    assert re.match(r"\d+:\d+$", refused.place), refused
    assert len(str(refused)) < 2000
    return refused


@pytest.mark.parametrize("text", TEXTS, ids=["excerpt", "module", "literal"])
def test_cut_anywhere(text: str) -> None:
    """Cut at any character the text is read, or refused at a line."""
    for end in range(len(text)):
        refusal(text[:end])


def test_excerpt_cut_inside_a_line() -> None:
    """The line that is cut is the one that is named."""
    for end in range(len(EXCERPT)):
        last = EXCERPT[:end].rpartition("\n")[2]
        if last and EXCERPT[end] != "\n":
            error = refusal(EXCERPT[:end])
            assert error is not None, last
            assert int(error.place.partition(":")[0]) == EXCERPT.count("\n", 0, end) + 1, error


@pytest.mark.soak
def test_changed_anywhere() -> None:
    """Characters exchanged, dropped and doubled: read, or refused at a line."""
    rng = random.Random(3)
    pieces = ["@", "{", "}", "[", "]", "(", ")", ",", " ", "=", "-", "0", "9", "x", "\n", "é", "\x00", "\ud800", "->"]
    refused = 0
    count = 3000 if WHOLE else 800
    for _ in range(count):
        text = rng.choice(TEXTS)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(text))
            text = text[:at] + rng.choice(["", text[at] * 2, rng.choice(pieces)]) + text[at + rng.randint(0, 3) :]
        refused += refusal(text) is not None
    assert count // 60 < refused < count - count // 60


def test_lines_exchanged() -> None:
    """Any line before any other: only what is defined before it is used is read."""
    rows = EXCERPT.splitlines()
    read_ = 0
    for first, second in itertools.combinations(range(len(rows)), 2):
        order = [*rows]
        order[first], order[second] = order[second], order[first]
        error = refusal("\n".join(order))
        read_ += error is None
        assert error is None or "is used before it is defined" in str(error)
    assert read_ == 6  # of the literals, the buffer and the product between them
