"""Statements of a %kernel_math dump: T3_l_float[iS7{64}] = ... , in each of the forms that nvFuser prints.

What an op gives is held against its result as it is written: shape, dtype, and which axes may be written as reduced.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from fusion_ir import building as build
from fusion_ir.core.aliases import op_hint
from fusion_ir.core.limits import LIMITS, check_count, check_sizes
from fusion_ir.core.node import Node
from fusion_ir.core.node_quota import keep
from fusion_ir.errors import FormatError, counted, excerpt
from fusion_ir.formats.kernel_math.calls import Argument, MathCall, Operands, Padding, Tensor
from fusion_ir.formats.kernel_math.ops import (
    CALLS,
    CAST_WORDS,
    INFIX,
    POINTWISE_NAMES,
    PREFIXES,
    Results,
    cast_named,
    pointwise,
)
from fusion_ir.formats.kernel_math.scalars import SCALAR_NAME, Number
from fusion_ir.formats.kernel_math.tensors import TENSOR, Mention, read_mention
from fusion_ir.formats.kernel_math.tokens import Cursor

T = TypeVar("T")

_REDUCING = ("reduction", "Welford", "matmul", "linear")
_COPIES_PADDING = ("cat", "Set", "SegmenterSet")


class Statements:
    """Reads one statement after the other; tensors and scalars so far are in `operands`.

    `stated` are the numbers of the side file by name; `filled` the pads whose fill some op reads as a value.
    """

    def __init__(self, cursor: Cursor, operands: Operands, stated: Mapping[str, Number]) -> None:
        self.cursor = cursor
        self.operands = operands
        self.scalars = operands.scalars
        self.stated = stated
        self.filled: set[str] = set()

    def statement(self) -> list[Tensor]:
        """The tensors that the next statement defines; none where it gives a scalar a value."""
        cursor, token = self.cursor, self.cursor.peek()
        if SCALAR_NAME.match(token.text) and cursor.at("=", 1):
            self._scalar()
            return []
        if not TENSOR.match(token.text):
            raise cursor.error("a statement such as T2_l_float[iS4{64}] = ... or the closing '}'")
        results = [read_mention(cursor, self.scalars)]
        while cursor.skip(","):
            if not cursor.at("="):  # an embedding is printed with a comma behind its one result
                results.append(read_mention(cursor, self.scalars))
            check_count(token.place, "results", len(results), LIMITS.operands)
        cursor.expect("=")
        call = MathCall(cursor.peek().text, cursor.peek().place, results, self.stated)
        found = self._right_side(call)
        call.end()
        self._fills(call)
        nodes = found if isinstance(found, list) else [found]
        if len(nodes) != len(results):
            tensors = counted(len(results), "tensor")
            raise call.error(f"{call.name} has {counted(len(nodes), 'result')}, assigned to {tensors}")
        defined = [_defined(call, m, n) for m, n in zip(results, nodes, strict=True)]
        for tensor in defined:
            keep(call.place, tensor.node)
        return defined

    def _scalar(self) -> None:
        """`i85 = 0 + 64;`."""
        token = self.cursor.take()
        if token.text in self.scalars.values:
            raise FormatError(token.place, f"{token.text} has a value already: {self.scalars.values[token.text]}")
        self.cursor.expect("=")
        self.scalars.values[token.text] = self.scalars.expression(self.cursor)
        self.scalars.used.add(token.text)
        self._semicolon()

    def _right_side(self, call: MathCall) -> Results:
        """Everything behind the equals sign."""
        cursor, token = self.cursor, self.cursor.peek()
        if token.text in PREFIXES and token.kind == "mark" and TENSOR.match(cursor.peek(1).text):
            cursor.take()
            call.positional = [self.operands.tensor(cursor)]
            result = self._elementwise(call, PREFIXES[token.text])
            self._semicolon()
        elif cursor.at("(") and cursor.peek(1).text in CAST_WORDS and cursor.at(")", 2):
            result = self._cast(call)
            cursor.skip(";")
        elif token.kind == "word" and token.text not in CAST_WORDS and cursor.at("(", 1):
            cursor.take()
            cursor.take()
            self.operands.arguments(cursor, call)
            result = self._call(call)
            cursor.skip(";")
        else:
            result = self._infix(call)
            self._semicolon()
        return result

    def _semicolon(self) -> None:
        """nvFuser ends these statements with one. Where it is missing at the end of the text, more may be."""
        if not self.cursor.skip(";") and self.cursor.peek().kind == "end":
            raise self.cursor.error("';'")

    def _infix(self, call: MathCall) -> Results:
        """`a + b`."""
        left = self.operands.operand(self.cursor)
        token = self.cursor.peek()
        if token.text not in INFIX or token.kind != "mark":
            raise self.cursor.error(f"one of {' '.join(INFIX)}, or a call")
        self.cursor.take()
        call.name, call.place = token.text, token.place
        call.positional = [left, self.operands.operand(self.cursor)]
        return self._elementwise(call, INFIX[token.text])

    def _cast(self, call: MathCall) -> Results:
        """`(float)(x)`."""
        self.cursor.take()
        word = self.cursor.take().text
        self.cursor.take()
        self.cursor.expect("(")
        call.name = f"({word})"
        call.positional = [self.operands.tensor(self.cursor)]
        self.cursor.expect(")")
        if CAST_WORDS[word] != call.result.dtype:
            raise call.error(f"{call.name} gives {CAST_WORDS[word]}, but {call.result.dtype} is written")
        return build.cast(call.tensor(0).node, call.result.dtype)

    def _call(self, call: MathCall) -> Results:
        """A function by its name."""
        if (function := CALLS.get(call.name)) is not None:
            return _guarded(call, lambda: function(call))
        if (cast := cast_named(call)) is not None:
            return cast
        found = pointwise(call.name, call.result.dtype)
        if found is None:
            raise call.error(f"unknown op {excerpt(call.name)}{op_hint(call.name, (*CALLS, *POINTWISE_NAMES))}")
        call.count(found[1])
        return self._elementwise(call, found[0])

    def _elementwise(self, call: MathCall, function: Callable[..., Node]) -> Node:
        """A pointwise op. Tensors have one rank, and only a broadcast axis of extent 1 may meet a longer one."""
        tensors = [a for a in call.positional if isinstance(a.value, Tensor)]
        if not tensors:
            raise call.error(f"{call.name} takes a tensor")
        for argument in tensors:
            _check_axes(call, argument)
        _check_dtypes(call, tensors)
        operands = [call.operand(position) for position in range(len(call.positional))]
        if call.name == "where" and not any(isinstance(operand, Node) for operand in operands[1:]):
            dtype = call.result.dtype
            operands[1:] = [o if isinstance(o, Node) else build.full((), o, dtype) for o in operands[1:]]
        return _guarded(call, lambda: function(*operands))

    def _fills(self, call: MathCall) -> None:
        """Remembers the pads among the operands; what a cat reads of them is never their fill."""
        if call.name not in _COPIES_PADDING:
            self.filled |= {
                a.value.padding.name
                for a in call.positional
                if isinstance(a.value, Tensor) and a.value.padding is not None
            }


def _check_dtypes(call: MathCall, tensors: Sequence[Argument]) -> None:
    """nvFuser prints every cast, so that tensors which meet have one dtype, conditions aside. Raises FormatError."""
    known = [(a, a.value.node.dtype) for a in tensors if isinstance(a.value, Tensor)]
    if call.name == "where" and known and known[0][0] is call.positional[0]:
        known = known[1:]
    for argument, dtype in known:
        if dtype != known[0][1]:
            found = f"an operand is {dtype}, another {known[0][1]}"
            raise FormatError(argument.place, f"{call.name}: {found}{call.describe_operands()}")


def _check_axes(call: MathCall, argument: Argument) -> None:
    assert isinstance(argument.value, Tensor)
    mention, written = argument.value.mention, call.result.kept
    if len(mention.kept) != len(written):
        ranks = f"has rank {len(mention.kept)}, its result {call.result.name} {len(written)}"
        raise FormatError(argument.place, f"{call.name}: operand {mention.name} {ranks}{call.describe_operands()}")
    for axis, of_result in zip(mention.kept, written, strict=True):
        if axis.extent != of_result.extent and (axis.extent != 1 or axis.kind != "b"):
            met = f"axis {axis} of {mention.name} meets {of_result} of {call.result.name}"
            raise FormatError(argument.place, f"{call.name}: {met}{call.describe_operands()}")


def _guarded(call: MathCall, action: Callable[[], T]) -> T:
    """The action's result; what the language's own rules refuse is refused at the call's place."""
    try:
        return action()
    except FormatError:
        raise
    except (ValueError, OverflowError) as error:
        reason = str(error) if str(error).startswith(call.name) else f"{call.name}: {error}"
        raise call.error(f"{reason}{call.describe_operands()}") from None


def _defined(call: MathCall, mention: Mention, result: Node | tuple[Node, Padding]) -> Tensor:
    """The tensor that a statement defines. Raises FormatError where the op gives something else than is written."""
    node, padding = result if isinstance(result, tuple) else (result, None)
    check_sizes(call.place, node.sizes)
    if any(axis.kind == "r" for axis in mention.axes) and call.name not in _REDUCING:
        raise FormatError(
            mention.place, f"{mention.name} has an axis written as reduced (r), but {call.name} reduces none"
        )
    if (node.dtype, node.sizes) != (mention.dtype, mention.sizes):
        given, written = f"{node.dtype}{list(node.sizes)}", f"{mention.dtype}{list(mention.sizes)}"
        raise FormatError(mention.place, f"{call.name} gives {given}, but {mention.name} is written as {written}")
    inherited: tuple[int, ...] = ()
    if call.name == "Set.Permute":
        inherited = tuple(axis.number for axis in call.tensor(0).mention.kept)
    return Tensor(node, mention, padding, inherited)
