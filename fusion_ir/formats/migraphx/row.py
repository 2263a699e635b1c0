"""The row of an op in the table of MIGraphX ops, and the binding of an instruction's attributes to its parameters."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from fusion_ir.core.node import Node
from fusion_ir.dtype import DType
from fusion_ir.errors import FormatError, counted, excerpt
from fusion_ir.formats.migraphx.lines import Instruction, Word, integers
from fusion_ir.formats.migraphx.types import number
from fusion_ir.formats.signature import Parameter, parameters

Strides = tuple[int, ...]
Attributes = Mapping[str, object]  # by name, as `bind` gives them: integers are tuples

# Parameters that are no attributes: the printed strides of the first and of the second operand.
STRIDES_OF: dict[str, int] = {"strides": 0, "index_strides": 1}

_TENSORS = ("tensor", "operand", "tensors")


@dataclass(frozen=True, slots=True)
class View:
    """A result that lies in its operand's memory: its value, and the strides that it can have there."""

    node: Node
    strides: tuple[Strides, ...]


@dataclass(frozen=True, slots=True)
class Known:
    """The type of a value that the text does not define, as far as the text determines it; None: open."""

    sizes: tuple[int, ...] | None = None
    dtype: DType | None = None
    strides: Strides | None = None

    @property
    def complete(self) -> bool:
        return self.sizes is not None and self.dtype is not None


# Types that an instruction determines: (result, operands as far as known, attributes) -> one per operand.
Missing = Callable[[Known, Sequence[Known], Attributes], Sequence[Known]]


@dataclass(frozen=True, slots=True)
class Row:
    """One op.

    value:    over the operands' nodes and the attributes by name; annotations say what the text must give (see
              `signature`). Gives the result, as a `View` where the op moves no data.
    missing:  what the instruction tells of operands that the text does not define.
    each:     pointwise: all operands have the result's extents and, conditions aside, one dtype.
    cast:     "truth": computed as bool and given in the operands' dtype, or as bool, whichever is printed. "any": the
              printed type is the result's.
    lowered:  may also be spelled `gpu::NAME`, with a last argument that is the buffer of the result.
    """

    value: Callable[..., Node | View]
    missing: Missing
    each: bool = False
    cast: Literal["", "truth", "any"] = ""
    lowered: bool = True


def bind(instruction: Instruction, row: Row) -> dict[str, object]:
    """The instruction's attributes as the row's parameters. Raises FormatError for unknown and missing ones."""
    expected = {p.name: p for p in parameters(row.value) if p.kind not in _TENSORS and p.name not in STRIDES_OF}
    bound: dict[str, object] = {}
    for name, word in instruction.attributes.items():
        if name not in expected:
            raise FormatError(
                word.place, f"{instruction.op.text} has no attribute {excerpt(name)}, expected {[*expected]}"
            )
        bound[name] = _convert(word, expected[name])
    for name, parameter in expected.items():
        if parameter.required and name not in bound:
            raise FormatError(instruction.op.place, f"{instruction.op.text}: attribute {name} is missing")
    return bound


def bind_tensors(place: str, op: str, row: Row, nodes: Sequence[Node]) -> dict[str, object]:
    """The operands as the row's parameters. Raises FormatError for a wrong number of them."""
    expected = [p for p in parameters(row.value) if p.kind in _TENSORS]
    if len(expected) == 1 and expected[0].kind == "tensors":
        if not nodes:
            raise FormatError(place, f"{op} has no operands, expected one or more")
        return {expected[0].name: tuple(nodes)}
    least = sum(p.required for p in expected)
    if not least <= len(nodes) <= len(expected):
        counts = counted(least, "operand") if least == len(expected) else f"{least} to {len(expected)} operands"
        raise FormatError(place, f"{op} takes {counts}, got {len(nodes)}")
    return {p.name: node for p, node in zip(expected, nodes, strict=False)}


def takes_strides(row: Row) -> dict[str, int]:
    """The row's parameters that are strides of an operand, with the operand's position."""
    return {p.name: STRIDES_OF[p.name] for p in parameters(row.value) if p.name in STRIDES_OF}


def _convert(word: Word, parameter: Parameter) -> object:
    """The attribute as its parameter's kind. Raises FormatError."""
    match parameter.kind:
        case "ints":
            return integers(word)
        case "int":
            value = number(word)
            if value != value // 1 or abs(value) >= 2**53:
                raise FormatError(word.place, f"attribute {parameter.name}: expected an integer, got {word.text}")
            return int(value)
        case "bool":
            if word.text not in ("0", "1", "true", "false"):
                raise FormatError(word.place, f"attribute {parameter.name}: expected 0 or 1, got {excerpt(word.text)}")
            return word.text in ("1", "true")
        case "float" | "number":
            return number(word)
        case _:
            return word.text
