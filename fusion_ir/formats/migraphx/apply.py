"""One MIGraphX instruction over the values of its operands: the op's result, held against the type that is printed."""

from collections.abc import Sequence
from dataclasses import dataclass

from fusion_ir import building as build
from fusion_ir.core.aliases import op_hint
from fusion_ir.core.extent import dense_strides
from fusion_ir.core.layout import normal_strides
from fusion_ir.core.node import Node
from fusion_ir.core.operand_descriptions import describe_operands
from fusion_ir.dtype import DTYPES, DType, bool_
from fusion_ir.errors import FormatError, excerpt
from fusion_ir.formats.migraphx.lines import Instruction, Type
from fusion_ir.formats.migraphx.operands import data_arguments
from fusion_ir.formats.migraphx.ops import BUFFERS, MIGRAPHX_OPS, OPAQUE, row_of
from fusion_ir.formats.migraphx.row import Row, Strides, View, bind, bind_tensors, takes_strides
from fusion_ir.formats.migraphx.types import MIGRAPHX_DTYPES, TYPE_NUMBERS, checked, spell


@dataclass(frozen=True, slots=True)
class Value:
    """The value of a name: its node, the strides that the text states for it, and where it is defined, if it is."""

    node: Node
    strides: Strides
    place: str = ""


def known_row(instruction: Instruction) -> Row:
    """The row of the instruction's op. Raises FormatError for an op that is not read."""
    op = instruction.op.text
    row = row_of(op)
    if row is not None:
        return row
    if op in OPAQUE:
        advice = "print the program before it is lowered, as `migraphx-driver read` does"
        raise FormatError(instruction.op.place, f"{op} is {OPAQUE[op]}: {advice}")
    known = [*MIGRAPHX_OPS, *BUFFERS, *(f"gpu::{name}" for name, r in MIGRAPHX_OPS.items() if r.lowered)]
    raise FormatError(instruction.op.place, f"unknown op {excerpt(op)}{op_hint(op, known)}")


def stated_type(instruction: Instruction) -> tuple[Type, DType]:
    """The printed type and its dtype, checked. Raises FormatError."""
    if instruction.type is None:
        raise FormatError(instruction.name.place, f"{instruction.op.text} has no result")
    return instruction.type, checked(instruction.type)


def apply(instruction: Instruction, operands: Sequence[Value], inside: Sequence[int] | None = None) -> Value:
    """The instruction's result.

    `inside`: in the body of a pointwise module, where types are those of one element, the extents that its operands
    have. Raises FormatError where the op does not take the operands, or does not give what is printed.
    """
    row = known_row(instruction)
    op, place = instruction.op.text, instruction.op.place
    type_, dtype = stated_type(instruction)
    sizes = tuple(type_.sizes if inside is None else inside)
    if instruction.modules:
        raise FormatError(instruction.modules[0].place, f"{op} takes no modules")
    if row.each:
        _check_pointwise(instruction, operands, sizes)
    elif inside is not None:
        raise FormatError(place, f"{op} is not pointwise, so it cannot stand in the body of a pointwise module")
    given = bind(instruction, row)
    given |= bind_tensors(place, op, row, [o.node for o in operands])
    given |= {name: operands[position].strides for name, position in takes_strides(row).items()}
    try:
        found = row.value(**given)
    except (ValueError, OverflowError) as error:
        reason = str(error) if str(error).startswith(f"{op}:") else f"{op}: {error}"
        raise FormatError(place, f"{reason}{_describe_operands(instruction, operands)}") from None
    node = _cast(instruction, row, found.node if isinstance(found, View) else found, operands, dtype)
    if node.sizes != sizes or node.dtype != dtype:
        expected, actual = spell(node.dtype, node.sizes), spell(dtype, sizes)
        raise FormatError(type_.place, f"{op} gives {expected} here, the text says {actual}")
    if inside is not None:
        return Value(node, dense_strides(sizes), instruction.name.place)
    if isinstance(found, View):
        possible = [normal_strides(sizes, s) for s in found.strides]
        if normal_strides(sizes, type_.strides) not in possible:
            expected = " or ".join(dict.fromkeys(spell(dtype, sizes, s) for s in found.strides))
            actual = spell(dtype, sizes, type_.strides)
            raise FormatError(type_.place, f"{op} gives {expected} here, the text says {actual}")
    return Value(node, type_.strides, instruction.name.place)


def _describe_operands(instruction: Instruction, operands: Sequence[Value]) -> str:
    """An instruction's operands, as a message describes them."""
    named = zip(data_arguments(instruction), operands, strict=True)
    return describe_operands((argument.text, operand.node, operand.place) for argument, operand in named)


def _check_pointwise(instruction: Instruction, operands: Sequence[Value], sizes: Sequence[int]) -> None:
    """Raises FormatError unless all operands have the result's extents and, the condition of `where` aside, one
    dtype."""
    arguments = data_arguments(instruction)
    first = 1 if instruction.op.text.endswith("where") else 0
    for position, (argument, operand) in enumerate(zip(arguments, operands, strict=True)):
        node = operand.node
        if node.sizes != tuple(sizes):
            expected = f"expected the result's extents {list(sizes)}{_describe_operands(instruction, operands)}"
            raise FormatError(argument.place, f"{argument.text} is {spell(node.dtype, node.sizes)}, {expected}")
        if position > first and node.dtype != operands[first].node.dtype:
            expected = f"expected {spell(operands[first].node.dtype, sizes)} as {arguments[first].text} is"
            expected += _describe_operands(instruction, operands)
            raise FormatError(argument.place, f"{argument.text} is {spell(node.dtype, node.sizes)}, {expected}")


def _cast(instruction: Instruction, row: Row, node: Node, operands: Sequence[Value], dtype: DType) -> Node:
    """The result in the printed dtype, where the op leaves that open. Raises FormatError."""
    if row.cast == "truth":
        return build.cast(node, dtype) if dtype in (bool_, operands[0].node.dtype) else node
    if row.cast != "any":
        return node
    word = instruction.attributes.get("target_type")
    if word is not None:
        ours = TYPE_NUMBERS.get(word.text) or MIGRAPHX_DTYPES.get(word.text)
        if ours is not None and DTYPES[ours] != dtype:
            raise FormatError(word.place, f"target_type={word.text} is {ours}, the printed result {dtype}")
    return build.cast(node, dtype)
