"""Faults for which %kernel_math dumps are refused, each with its line: ambiguities with both readings, and
contradictions."""

import pytest

from fusion_ir.errors import FormatError
from fusion_ir.formats import SideFile
from fusion_ir.formats.kernel_math.reader import read_kernel_math
from tests.unit.formats.test_kernel_math_ops import LEFT, RIGHT, F, X, Y, cat, dump

R = f"T2_g_float{F}"
COPY = dump(R, f"Set( {X} )")
SUM = "T2_g_float[iS20{4}, rS21{8}]"


def copied(before: str) -> str:
    """COPY with statements before it."""
    return dump(R, f"Set( {X} )", scalars=before)


def reduced(result: str, op: str = "add", start: int = 0) -> str:
    return dump(result, f"reduction( {X}, op = {op}, initial value = double({start}), allreduce = false )")


AMBIGUOUS: dict[str, tuple[str, str]] = {
    "old and new axes": (
        dump(
            "T2_g_float[iS40{4}, iS31{4}]",
            "Set.Permute( T0_g_float[iS30{4}, iS31{4}] )",
            "T0_g_float[iS30{4}, iS31{4}]",
        ),
        r"8:6: ambiguous: iS40\{4\} can be iS30\{4\} or iS31\{4\} of the operand, as axes old and new",
    ),
    "cat of a computed tensor": (
        cat(LEFT, ("T6_l_float[iS60{4}, iS61{16}]", f"-{LEFT[0]};")),
        r"12:42: cat: T6 is made by no pad, so which part of the result it gives is not in the text",
    ),
    "cat with a gap": (
        cat(("T5_l_float[iS50{4}, iS51{16}]", f"pad( {X}, {{0, 0, 1, 7}} )"), RIGHT),
        r"12:11: cat: T5 is padded by 1 before and 7 behind, expected 0 and 8",
    ),
    "cat of one part twice": (
        cat(LEFT, LEFT).replace("T5_l", "T4_l", 1).replace("iS50", "iS40", 1).replace("iS51", "iS41", 1),
        r"12:42: cat: T5 is padded by 0 before and 8 behind, expected 8 and 0",
    ),
    "cat along another axis": (
        cat(LEFT, RIGHT, result="T9_g_float[iS90{4}, iS91{16}]", axis=0),
        r"12:11: cat: T5 is padded along another axis than 0",
    ),
    "cat of unpadded tensors": (
        dump("T9_g_float[iS90{4}, iS91{16}]", f"cat( {X}, {Y}, 1 )", X, Y),
        r"9:11: cat: T0 has shape \[4, 8\], expected it padded to \[4, 16\]",
    ),
}

CONTRADICTIONS: dict[str, tuple[str, str]] = {
    "shape": (
        dump("T2_g_float[iS20{4}, iS21{7}]", f"Set( {X} )"),
        r"7:1: Set gives f32\[4, 8\], but T2 is written as f32\[4, 7\]",
    ),
    "dtypes that meet": (
        dump(R, f"{X} + T1_g_double[iS2{{4}}, iS3{{8}}]", X, "T1_g_double[iS2{4}, iS3{8}]"),
        r"9:\d+: \+: an operand is f64, another f32",
    ),
    "halves that are not cast": (
        dump(
            f"T2_g___half{F}",
            "T0_g_float[iS0{4}, iS1{8}] * T1_g___half[iS2{4}, iS3{8}]",
            X,
            "T1_g___half[iS2{4}, iS3{8}]",
        ),
        r"9:\d+: \*: an operand is f16, another f32",
    ),
    "dtype": (dump(f"T2_g_double{F}", f"Set( {X} )"), r"7:1: Set gives f32\[4, 8\], but T2 is written as f64"),
    "permuted extents": (
        dump("T2_g_float[iS21{4}, iS20{8}]", f"Set.Permute( {X} )"),
        r"7:1: Set.Permute gives f32\[8, 4\], but T2 is written as f32\[4, 8\]",
    ),
    "permuted extents of a mixture": (
        dump("T2_g_float[iS1{8}, iS20{5}]", f"Set.Permute( {X} )"),
        r"8:6: no axis of the operand has extent 5",
    ),
    "rank of a permutation": (
        dump("T2_g_float[iS20{32}]", f"Set.Permute( {X} )"),
        r"8:6: Set.Permute of rank 2 gives rank 1",
    ),
    "an axis of two tensors": (
        dump("T2_g_float[iS0{4}, iS1{8}]", f"Set( {X} )"),
        r"7:1: axis iS0\{4\} of T2 is an axis of T0",
    ),
    "an axis twice": (dump("T2_g_float[iS20{4}, iS20{8}]", f"Set( {X} )"), r"4:3: T2 has an axis number twice"),
    "elements": (dump("T2_g_float[iS20{5}, iS21{8}]", f"view( {X} )"), r"8:6: view: reshape"),
    "mention": (
        dump(R, f"Set( {X.replace('8', '9')} )"),
        r"8:11: T0_g f32\[iS0\{4\}, iS1\{9\}\] is written here, but its definition",
    ),
    "memory of a mention": (dump(R, f"Set( {X.replace('_g', '_l')} )"), r"8:11: T0_l .* but its definition has T0_g"),
    "dtype of a mention": (dump(R, f"Set( {X.replace('float', 'double')} )"), r"8:11: T0_g f64"),
    "output": (COPY.replace("iS21{8}", "iS21{9}", 1), r"7:1: .* is written here, but .* in the list of outputs"),
    "use before definition": (dump(R, "Set( T7_l_float[iS70{4}, iS71{8}] )"), r"8:11: T7 is used before it is defined"),
    "redefinition": (copied(f"{R}\n = Set( {X} )\n"), r"9:1: T2 is defined twice, first in 7:1"),
    "input redefined": (copied(f"{X}\n = Set( {X} )\n"), r"7:1: T0 is defined twice, first in 2:3"),
    "scalar redefined": (copied("i5 = 1;\ni5 = 2;\n"), r"8:1: i5 has a value already: 1"),
    "scalar before definition": (dump(R, f"{X}\n + d7;"), r"9:4: d7 is symbolic, .*\{\"values\": \{\"d7\": 64\}\}"),
    "output listed twice": (COPY.replace(f"  {R}\n", f"  {R}\n  {R}\n"), r"5:3: output T2 is listed twice"),
    "cast from another dtype": (dump(R, f"__bfloat2float({X});"), r"8:6: __bfloat2float is applied to f32"),
    "cast to another dtype": (dump(R, f"__float2half({X});"), r"8:6: __float2half gives f16, but f32 is written"),
    "C cast to another dtype": (dump(R, f"(double)({X});"), r"8:6: \(double\) gives f64, but f32 is written"),
    "ranks": (
        dump(R, f"{X}\n + T1_g_float[iS2{{8}}];", X, "T1_g_float[iS2{8}]"),
        r"10:4: \+: operand T1 has rank 1, its result T2 2",
    ),
    "an ordinary axis broadcast": (
        dump(R, f"{X}\n + T1_g_float[iS2{{1}}, iS3{{8}}];", X, "T1_g_float[iS2{1}, iS3{8}]"),
        r"10:4: \+: axis iS2\{1\} of T1 meets iS20\{4\}",
    ),
    "a reduced axis that nothing reduced": (dump(SUM, f"Set( {X} )"), r"7:1: T2 has an axis written as reduced"),
    "no reduced axis": (reduced(R), r"8:6: reduction: no axis of the result"),
    "reduced extents": (
        reduced("T2_g_float[iS20{4}, rS21{9}]"),
        r"8:6: reduction: axes of extent \[4, 9\] are written, expected \[4, 8\]",
    ),
    "initial value": (reduced(SUM, start=1), r"8:6: add starts from 1.0, expected 0"),
    "reduction of a kind": (reduced(SUM, "xor"), r"8:6: unknown reduction xor"),
    "no initial value": (dump(SUM, f"reduction( {X}, op = add )"), r"8:6: reduction has no initial value = a number"),
    "summed axis of a product": (
        dump(
            "T2_g_float[iS20{4}, iS21{6}, rS22{7}]",
            f"matmul({X}, T1_g_float[iS2{{8}}, iS3{{6}}])",
            X,
            "T1_g_float[iS2{8}, iS3{6}]",
        ),
        r"9:6: matmul sums over an axis of extent 8, but rS22\{7\} is written",
    ),
    "product of unlike extents": (
        dump("T2_g_float[iS20{4}, iS21{8}]", f"matmul({X}, {Y})", X, Y),
        r"9:6: matmul: \[4, 8\] @ \[4, 8\] sums",
    ),
    "width of a pad": (
        dump("T2_g_float[iS20{4}, iS21{9}]", f"pad( {X}, {{0, 1, 0, 0}} )"),
        r"7:1: pad gives f32\[5, 8\], but",
    ),
    "widths of a pad": (dump(R, f"pad( {X}, {{0, 1}} )"), r"8:6: pad has 2 widths, expected 4 for rank 2"),
    "flags": (
        dump("T2_g_float[bS20{1}, iS21{4}, iS22{8}]", f"broadcast( {X}, flags = {{true, false}} )"),
        r"8:6: broadcast has 2 flags for the 3",
    ),
    "flags of an ordinary axis": (
        dump("T2_g_float[bS20{1}, iS21{4}, iS22{8}]", f"broadcast( {X}, flags = {{false, true, false}} )"),
        r"8:6: new axis iS21\{4\} is no broadcast",
    ),
    "new axis without flags": (
        dump("T2_g_float[iS20{2}, iS21{4}, iS22{8}]", f"broadcast( {X} )"),
        r"8:6: new axis iS20\{2\} is no broadcast",
    ),
    "an axis lost in a broadcast": (
        dump("T2_g_float[iS20{4}, bS21{1}]", f"broadcast( {X} )"),
        r"8:6: axis iS1\{8\} of the operand is not found",
    ),
    "dropped axis": (dump("T2_g_float[iS20{8}]", f"squeeze( {X} )"), r"8:6: dropped axis iS0\{4\} is no broadcast"),
    "expanded ordinary axis": (
        dump("T2_g_float[iS20{4}, iS21{16}]", f"expand( {X} )"),
        r"8:6: expand: broadcast_in_dim",
    ),
    "slice beyond its axis": (
        dump(R, f"slice( {X}, {{ {{0, 4, 1}} {{0, 9, 1}} }} )"),
        r"8:6: slice 0:9 of axis 1, which has extent 8",
    ),
    "rows of a slice": (
        dump(R, f"slice( {X}, {{ {{0, 4, 1}} }} )"),
        r"8:6: slice takes 2 rows of start, stop and step",
    ),
    "axis of a select": (
        dump("T2_g_float[iS20{4}]", f"select( {X}, axis = iS9{{8}}, index = 0 )"),
        r"8:6: select: iS9\{8\} is no axis of T0",
    ),
    "index of a select": (
        dump("T2_g_float[iS20{4}]", f"select( {X}, axis = iS1{{8}}, index = 8 )"),
        r"8:6: select: index 8 is not below",
    ),
    "results": (
        dump(f"T2_g_float{F};T3_g_float[iS30{{4}}, iS31{{8}}]", f"cosf({X});"),
        r"10:6: cosf has 1 result, assigned to 2 tensors",
    ),
    "tags": (dump(R, f"cosf({X}(Avg));"), r"8:11: cosf takes no \(Avg\) behind its operands"),
}

UNREADABLE: dict[str, tuple[str, str]] = {
    "unknown op": (dump(R, f"cosh2({X});"), r"8:6: unknown op 'cosh2'; did you mean 'cosh"),
    "f where it gives double": (
        dump(f"T2_g_double{F}", "cosf(T0_g_double[iS0{4}, iS1{8}]);", "T0_g_double[iS0{4}, iS1{8}]"),
        r"8:6: unknown op 'cosf'",
    ),
    "random numbers": (dump(R, "rng_uniform({4, 8}, float);"), r"8:6: unknown op 'rng_uniform'"),
    "grouped reduction": (copied("GroupedReductionOp(\n"), r"7:1: expected a statement"),
    "two results in brackets": (copied("( T5_l_float[iS5{4}] ) = topk( x )\n"), r"7:1: expected a statement"),
    "scheduled axis": (
        COPY.replace("iS1{8}", "iblockIdx.x1{8}"),
        r"2:22: axis iblockIdx.x1 is bound to blockIdx.x: a scheduled dump",
    ),
    "inlined": (dump(R, f"Set( {X} ca_pos( 1 ) )"), r"8:38: T0 has ca_pos: a scheduled dump"),
    "produced": (COPY.replace(f"{R}\n   =", f"{R} produce_pos( 2 )\n   ="), r"7:30: T2 has produce_pos"),
    "padded to a warp": (COPY.replace("iS1{8}", "iS1{8}_p"), r"2:28: axis iS1 is followed by '_p'"),
    "device mesh": (dump(R, f"Set( {X} (DeviceMesh{{0 1}}) )"), r"8:38: expected ',' or '\)', got '\('"),
    "symbolic axis type": (COPY.replace("iS1{8}", "?S1{8}"), r"2:22: unexpected character '\?'"),
    "gather axis": (COPY.replace("iS1{8}", "nS1{8}"), r"2:22: axis nS1 is of type n, expected i, r or b"),
    "start of an axis": (COPY.replace("iS1{8}", "iS1{2 : 8}"), r"2:28: axis iS1 starts or stops inside its extent"),
    "negative extent": (COPY.replace("iS1{8}", "iS1{-8}"), r"2:26: axis iS1 has extent -8"),
    "extent of a float": (COPY.replace("iS1{8}", "iS1{8.0}"), r"2:26: expected an integer, got 8.0"),
    "symbolic extent": (
        COPY.replace("iS1{8}", "iS1{( i3 + 1 )}"),
        r"2:28: i3 is symbolic, .*\{\"extents\": \{\"i3\": 64\}\}",
    ),
    "unknown dtype": (
        COPY.replace("T0_g_float", "T0_g_floaty"),
        r"2:3: T0: unknown dtype 'floaty'; did you mean 'float'",
    ),
    "complex": (COPY.replace("T0_g_float", "T0_g_std::complex<float>"), r"2:3: T0: unknown dtype|2:\d+: expected"),
    "no dtype": (COPY.replace("T0_g_float", "T0_g"), r"2:3: expected an input such as"),
    "argument": (dump(R, f"Set( {X}, speed = 3 )"), r"8:47: Set takes no argument 'speed'"),
    "argument twice": (dump(R, f"indexSelect( {X}, dim = 0, dim = 1 )"), r"8:\d+: argument 'dim' is given twice"),
    "operands": (dump(R, f"Set( {X}, {X} )"), r"8:6: Set takes 1 operand, got 2"),
    "kind of an operand": (dump(R, "Set( 3 )"), r"8:11: Set: expected a tensor, got 3"),
    "kind of a list": (dump(R, f"pad( {X}, 3 )"), r"8:39: pad: expected a list in braces, got 3"),
    "items of a list": (dump(R, f"pad( {X}, {{0, 0, 0.5, 0}} )"), r"8:39: pad: expected a list of integers"),
    "only numbers": (dump(R, "double(1)\n + double(2);"), r"9:2: \+ takes a tensor"),
    "no op": (dump(R, f"{X};"), r"8:32: expected one of \+ .* got ';'"),
    "three operands": (dump(R, f"{X}\n + {X}\n + {X};"), r"10:2: expected a statement .* got '\+'"),
    "text behind the call": (dump(R, f"Set( {X} ) Set"), r"8:40: expected a statement .* got 'Set'"),
    "unknown function of scalars": (copied("i5 = sinf(3);\n"), r"7:6: unknown function of scalars 'sinf'"),
    "division by zero": (copied("i5 = 3 / 0;\n"), r"7:8: / has no value for 3, 0"),
    "overflow": (copied("i5 = 9223372036854775807 + 1;\n"), r"7:26: 9223372036854775808 does not fit"),
    "digits": (copied(f"i5 = {'9' * 5000};\n"), r"7:6: .* does not fit 64 bits"),
    "huge float": (copied("d5 = 1e999;\n"), r"7:6: the number is too large"),
    "operands of a function": (copied("i5 = ceilDiv(3);\n"), r"7:6: ceilDiv takes 2 operands, got 1"),
    "brackets": (copied("i5 = ( 3, 4 );\n"), r"7:9: expected '\)', got ','"),
    "metadata": (copied("a5 = getMetaData(T0)\n"), r"7:1: expected a statement"),
    "lone surrogate": (dump(R, f"Set( {X} )\ud800"), r"8:39: unexpected character '\\ud800'"),
    "null byte": (dump(R, f"Set( {X} )\x00"), r"8:39: unexpected character '\\x00'"),
}


@pytest.mark.parametrize("case", [*AMBIGUOUS, *CONTRADICTIONS, *UNREADABLE])
def test_refused(case: str) -> None:
    text, message = {**AMBIGUOUS, **CONTRADICTIONS, **UNREADABLE}[case]
    with pytest.raises(FormatError, match=f"(?s)^({message})") as caught:
        read_kernel_math(text)
    assert len(str(caught.value)) < 1000


def test_the_cases_are_refused_for_one_thing_each() -> None:
    """The dumps that the cases above spoil are read without their faults."""
    read_kernel_math(COPY)
    read_kernel_math(cat(LEFT, RIGHT))
    read_kernel_math(reduced(SUM))


# The side file against the dump

SYMBOLIC = dump(
    "T2_g_float[iS20{i0}, iS21{( i0 * 2 )}]",
    "Set( T0_g_float[iS0{i0}, iS1{( i0 * 2 )}] )",
    "T0_g_float[iS0{i0}, iS1{( i0 * 2 )}]",
)


@pytest.mark.parametrize(
    "beside",
    [
        SideFile(extents={"i0": 6}),
        SideFile(shapes={"T0": (6, 12)}),
        SideFile(extents={"i0": 6}, shapes={"T0": (6, 12)}),
    ],
)
def test_symbolic_extents(beside: SideFile) -> None:
    named = read_kernel_math(SYMBOLIC, beside)
    assert named.graph.inputs[0].sizes == named.graph.outputs[0].node.sizes == (6, 12)


def test_scalar_inputs() -> None:
    text = dump(R, f"{X}\n * d7;", X, "d7", "i9, int64_t")
    named = read_kernel_math(text, SideFile(values={"d7": 0.125}))
    assert named.input_names == ("T0",)
    assert named.graph.outputs[0].node.args[1].op == "full"


BESIDE: dict[str, tuple[str, SideFile, str]] = {
    "nothing": (SYMBOLIC, SideFile(), r"2:18: i0 is symbolic"),
    "another extent": (
        SYMBOLIC,
        SideFile(shapes={"T0": (6, 13)}),
        r"2:27: axis iS1 has extent 12, but 13 is stated beside",
    ),
    "another rank": (SYMBOLIC, SideFile(shapes={"T0": (6,)}), r"2:3: T0 has shape \[6, 12\], but \[6\] is stated"),
    "an extent that contradicts": (
        SYMBOLIC,
        SideFile(extents={"i0": 6}, shapes={"T0": (7, 14)}),
        r"2:18: axis iS0 has extent 6, but 7 is stated",
    ),
    "unused extent": (SYMBOLIC, SideFile(extents={"i0": 6, "i1": 2}), r"shapes/extents/i1: is not used by the dump"),
    "unused value": (
        SYMBOLIC,
        SideFile(extents={"i0": 6}, values={"T2": 0.0}),
        r"shapes/values/T2: is not used by the dump",
    ),
    "unknown input": (
        SYMBOLIC,
        SideFile(extents={"i0": 6}, shapes={"T7": (1,)}),
        r"shapes/inputs/T7: is not used by the dump",
    ),
    "no input": (
        SYMBOLIC,
        SideFile(extents={"i0": 6}, strides={"T2": (1, 1)}),
        r"shapes/inputs/T2: is not used by the dump",
    ),
    "strides of another rank": (
        SYMBOLIC,
        SideFile(extents={"i0": 6}, strides={"T0": (1,)}),
        r"2:3: expected 2 strides, got 1",
    ),
    "strides that overlap": (SYMBOLIC, SideFile(extents={"i0": 6}, strides={"T0": (2, 1)}), r"2:3: strides overlap"),
    "a scalar that is computed": (copied("i5 = 1;\n"), SideFile(extents={"i5": 1}), r"7:1: i5 has a value already: 1"),
    "a value that is no value of the dtype": (
        dump(
            "T2_g_int64_t[iS20{4}, iS21{9}]",
            "pad( T0_g_int64_t[iS0{4}, iS1{8}], {0, 0, 0, 1} )",
            "T0_g_int64_t[iS0{4}, iS1{8}]",
        ),
        SideFile(values={"T2": 0.5}),
        r"8:6: pad: 0.5 is not a value of i64",
    ),
}


@pytest.mark.parametrize("case", BESIDE)
def test_side_file_against_the_dump(case: str) -> None:
    text, beside, message = BESIDE[case]
    with pytest.raises(FormatError, match=f"^{message}"):
        read_kernel_math(text, beside)
