"""Where shapes do not go together, the message names both tensors, in every format: as they are called in the text,
with their types and where they come from."""

import json

import pytest

from fusion_ir.core.operand_descriptions import describe_operands
from fusion_ir.dtype import f32
from fusion_ir.errors import FormatError
from fusion_ir.formats import READERS, read
from testing.tensors import tensor
from tests.unit.formats.test_json import node, wire

TEXT = """fuseplan.graph 1
in0 left: f32[4, 8] align 16
in1 right: f32[4, 9] align 16
%0 = in0: f32[4, 8]
%1 = in1: f32[4, 9]
%2 = {}: f32[4, 8]
out0: %2
"""
DEFINITION = """def fusion(fd):
    left = fd.define_tensor(shape=[4, 8], contiguity=True, dtype=DataType.Float)
    right = fd.define_tensor(shape=[4, 9], contiguity=True, dtype=DataType.Float)
    out = {}
    fd.add_output(out)
"""
DUMP = """Inputs:
  T0_g_float[iS0{{4}}, iS1{{8}}]
  T1_g_float[iS2{{4}}, iS3{{9}}]
Outputs:
  T3_g_float[iS6{{4}}, iS7{{8}}]
%kernel_math {{
T2_l_float[iS4{{4}}, iS5{{9}}] = Set( T1_g_float[iS2{{4}}, iS3{{9}}] )
T3_g_float[iS6{{4}}, iS7{{8}}] = {}
}}
"""
PROGRAM = """module: "main"
left = @param:left -> float_type, {{4, 8}}, {{8, 1}}
right = @param:right -> float_type, {{4, 9}}, {{9, 1}}
main:@2 = {} -> float_type, {{4, 8}}, {{8, 1}}
main:@3 = @return(main:@2)
"""
X, T2 = "T0_g_float[iS0{4}, iS1{8}]", "T2_l_float[iS4{4}, iS5{9}]"
IN_LINES = "(left is f32[4, 8], line 2; right is f32[4, 9], line 3)"
CASES: dict[str, list[tuple[str, str, str]]] = {
    "text": [
        (TEXT.format("mul(%0, %1)"), "6:6: mul: ", "(%0 is f32[4, 8], line 4; %1 is f32[4, 9], line 5)"),
        (TEXT.format("cat(%1, %0) {axis=0}"), "6:6: cat: ", "(%1 is f32[4, 9], line 5; %0 is f32[4, 8], line 4)"),
    ],
    "nvfuser": [
        (DEFINITION.format(call), "4:11: ", IN_LINES)
        for call in ("fd.ops.mul(left, right)", "left + right", "fd.ops.cat([left, right], dim=0)")
    ]
    + [
        (DEFINITION.format("fd.ops.matmul(left, b=right)"), "4:11: matmul: ", IN_LINES),
        (
            DEFINITION.format("fd.ops.mul(fd.ops.neg(left), right)"),
            "4:11: mul: ",
            "(the operand is f32[4, 8], line 4; right is f32[4, 9], line 3)",
        ),
    ],
    "kernel_math": [
        (
            DUMP.format(f"{X} + {T2};"),
            "8:59: +: axis iS5{9} of T2 meets iS7{8} of T3",
            "(T0 is f32[4, 8], line 2; T2 is f32[4, 9], line 7)",
        ),
        (
            DUMP.format(f"matmul( {X}, {T2} )"),
            "8:30: matmul: [4, 8] @ [4, 9]",
            "(T0 is f32[4, 8], line 2; T2 is f32[4, 9], line 7)",
        ),
    ],
    "migraphx": [
        (PROGRAM.format("mul(left,right)"), "4:20: right is float_type, {4, 9}", IN_LINES),
        (PROGRAM.format("dot(left,right)"), "4:11: dot: ", IN_LINES),
    ],
    "json": [
        (
            json.dumps(
                wire(
                    inputs=[
                        {"name": "left", "shape": [4, 8], "dtype": "f32"},
                        {"name": "right", "shape": [4, 9], "dtype": "f32"},
                    ],
                    nodes=[node("n", "neg", "right"), node("y", op, "left", "n", **attrs)],
                    outputs=[{"node": "y"}],
                )
            ),
            f"/nodes/1: {op}: ",
            "(left is f32[4, 8], /inputs/0; n is f32[4, 9], /nodes/0)",
        )
        for op, attrs in (("mul", {}), ("matmul", {}), ("cat", {"axis": 0}), ("contract", {
            "a_axes": [0, 1, -1], "b_axes": [0, -1, 1], "reduced": 1, "acc": "f32", "out_dtype": "f32",
        }))
    ],
}  # fmt: skip


def test_every_format_is_here() -> None:
    assert CASES.keys() == {reader.name for reader in READERS}


@pytest.mark.parametrize(
    ("text", "begins", "ends"), [case for cases in CASES.values() for case in cases], ids=lambda v: v[-40:]
)
def test_both_tensors_are_named(text: str, begins: str, ends: str) -> None:
    with pytest.raises(FormatError) as caught:
        read(text)
    assert str(caught.value).startswith(begins)
    assert str(caught.value).endswith(ends)


def test_many_operands_and_long_names() -> None:
    names = ["t0" + "x" * 100, "t1\n", *(f"t{i}" for i in range(2, 7))]
    named = [(name, tensor(0, (i,), f32), "1:2") for i, name in enumerate(names)]
    words = describe_operands(named)
    assert words.startswith(f" (t0{'x' * 38}... is f32[0], line 1; ")
    assert "t1\\n is f32[1], line 1" in words and words.endswith("; and 3 more)")
    assert len(words) < 300
    assert describe_operands([]) == ""
    assert describe_operands([named[2], named[2]]) == " (t2 is f32[2], line 1)"
