"""Calls in a %kernel_math dump, f( operand, {1, 2}, dim = 3 ): their arguments, and typed access to them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn, TypeVar

from fusion_ir.core.limits import LIMITS
from fusion_ir.core.node import Node
from fusion_ir.core.operand_descriptions import describe_operands
from fusion_ir.errors import FormatError, counted, excerpt
from fusion_ir.formats.kernel_math.scalars import Number, Scalars
from fusion_ir.formats.kernel_math.tensors import TENSOR, Axis, Mention, axis_number, read_axis, read_mention
from fusion_ir.formats.kernel_math.tokens import Cursor

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Padding:
    """A pad: the tensor that it reads, and how many elements it puts before and behind each axis. `name`: of its
    result."""

    name: str
    source: Node
    low: tuple[int, ...]
    high: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor that is known: its node, how its definition is written, and its padding where a pad made it.

    `inherited`: numbers of axes that it may share with the operand it was made from.
    """

    node: Node
    mention: Mention
    padding: Padding | None = None
    inherited: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Word:
    """A word that stands for itself: Streaming, add, int64_t."""

    text: str


Value = Tensor | Number | Word | Axis | tuple["Argument", ...]


@dataclass(frozen=True, slots=True)
class Argument:
    """A value with its "line:column" and the tag behind it."""

    value: Value
    place: str
    tag: str = ""


@dataclass(slots=True)
class MathCall:
    """A statement's right side: the op, its arguments, and the tensors that it is assigned to as they are written."""

    name: str
    place: str
    results: Sequence[Mention]
    stated: Mapping[str, Number]
    positional: list[Argument] = field(default_factory=list[Argument])
    keywords: dict[str, Argument] = field(default_factory=dict[str, Argument])
    taken: set[str] = field(default_factory=set[str])

    @property
    def result(self) -> Mention:
        """The one tensor that the call is assigned to. Raises FormatError where there are several."""
        if len(self.results) != 1:
            raise self.error(f"{self.name} has 1 result, assigned to {len(self.results)} tensors")
        return self.results[0]

    def tensor(self, position: int) -> Tensor:
        return self._positional(position, Tensor, "a tensor")

    def operand(self, position: int) -> Node | Number:
        """A tensor's node, or a number."""
        value = self._argument(position).value
        return value.node if isinstance(value, Tensor) else self.number(position)

    def number(self, position: int) -> Number:
        argument = self._argument(position)
        if isinstance(argument.value, Tensor | Word | Axis | tuple):
            self._refuse(argument, "a number")
        return argument.value

    def word(self, position: int) -> str:
        return self._positional(position, Word, "a word").text

    def numbers(self, position: int) -> tuple[Number, ...]:
        """A list of numbers in braces."""
        return self._numbers(self._argument(position))

    def integers(self, position: int) -> tuple[int, ...]:
        """A list of integers in braces."""
        return self._integers(self._argument(position))

    def rows(self, position: int) -> tuple[tuple[int, ...], ...]:
        """A list of lists of integers: { {0, 4, 1} {2, 8, 1} }."""
        argument = self._argument(position)
        if not isinstance(argument.value, tuple):
            self._refuse(argument, "a list of lists")
        return tuple(self._integers(row) for row in argument.value)

    def keyword(self, name: str, kind: type[T], expected: str) -> T | None:
        """The value of `name = value`, None where it is left out."""
        self.taken.add(name)
        argument = self.keywords.get(name)
        if argument is None:
            return None
        if not isinstance(argument.value, kind):
            self._refuse(argument, expected)
        return argument.value

    def required(self, name: str, kind: type[T], expected: str) -> T:
        value = self.keyword(name, kind, expected)
        if value is None:
            raise self.error(f"{self.name} has no {name} = {expected}")
        return value

    def integer(self, name: str, expected: str) -> int:
        """The value of `name = value`, which must be there."""
        value = self.required(name, int, expected)
        if isinstance(value, bool):
            self._refuse(self.keywords[name], expected)
        return value

    def flag(self, name: str) -> None:
        """Takes `name = true`, false, 1 or 0, which means nothing for values."""
        if self.keyword(name, object, "true or false") not in (None, True, False):
            self._refuse(self.keywords[name], "true or false")

    def flags(self, name: str) -> tuple[bool, ...] | None:
        """A list of true and false, None where it is left out."""
        self.taken.add(name)
        argument = self.keywords.get(name)
        if argument is None:
            return None
        values = self._numbers(argument)
        if not all(isinstance(v, bool) for v in values):
            self._refuse(argument, "a list of true and false")
        return tuple(bool(v) for v in values)

    def count(self, least: int, most: int | None = None) -> int:
        """The number of positional arguments. Raises FormatError unless from `least` to `most` (or just `least`)."""
        found, most = len(self.positional), least if most is None else most
        if not least <= found <= most:
            expected = counted(least, "operand") if least == most else f"{least} to {most} operands"
            raise self.error(f"{self.name} takes {expected}, got {found}")
        return found

    def end(self) -> None:
        """Raises FormatError for an argument that the op does not take."""
        for name, argument in self.keywords.items():
            if name not in self.taken:
                raise FormatError(argument.place, f"{self.name} takes no argument {excerpt(name)}")
        for argument in self.positional:
            if argument.tag and self.name != "Welford":
                raise FormatError(argument.place, f"{self.name} takes no ({argument.tag}) behind its operands")

    def describe_operands(self) -> str:
        """The tensors among the operands, as a message describes them, and where they are defined."""
        tensors = [a.value for a in self.positional if isinstance(a.value, Tensor)]
        return describe_operands((t.mention.name, t.node, t.mention.place) for t in tensors)

    def error(self, reason: str) -> FormatError:
        return FormatError(self.place, reason)

    def _argument(self, position: int) -> Argument:
        if position >= len(self.positional):
            raise self.error(f"{self.name} has no operand {position + 1}")
        return self.positional[position]

    def _positional(self, position: int, kind: type[T], expected: str) -> T:
        argument = self._argument(position)
        if not isinstance(argument.value, kind):
            self._refuse(argument, expected)
        return argument.value

    def _numbers(self, argument: Argument) -> tuple[Number, ...]:
        if not isinstance(argument.value, tuple):
            self._refuse(argument, "a list in braces")
        found: list[Number] = []
        for item in argument.value:
            if not isinstance(item.value, bool | int | float):
                self._refuse(item, "a number")
            found.append(item.value)
        return tuple(found)

    def _integers(self, argument: Argument) -> tuple[int, ...]:
        values = self._numbers(argument)
        if not all(isinstance(v, int) for v in values):
            self._refuse(argument, "a list of integers")
        return tuple(int(v) for v in values)

    def _refuse(self, argument: Argument, expected: str) -> NoReturn:
        raise FormatError(argument.place, f"{self.name}: expected {expected}, got {_describe(argument.value)}")


class Operands:
    """Reads arguments: finds tensors by name and holds every mention against the definition."""

    def __init__(self, scalars: Scalars) -> None:
        self.scalars = scalars
        self.tensors: dict[str, Tensor] = {}
        self.read: set[str] = set()

    def tensor(self, cursor: Cursor) -> Argument:
        mention = read_mention(cursor, self.scalars)
        tensor = self.tensors.get(mention.name)
        if tensor is None:
            raise FormatError(mention.place, f"{mention.name} is used before it is defined")
        if not tensor.mention.same(mention):
            raise FormatError(mention.place, f"{mention} is written here, but its definition has {tensor.mention}")
        self.read.add(mention.name)
        return Argument(tensor, mention.place, mention.tag)

    def operand(self, cursor: Cursor) -> Argument:
        """A tensor or a scalar, as they stand beside an operator."""
        if TENSOR.match(cursor.peek().text):
            return self.tensor(cursor)
        place = cursor.peek().place
        return Argument(self.scalars.operand(cursor), place)

    def arguments(self, cursor: Cursor, call: MathCall) -> None:
        """Everything up to the closing bracket, which is stepped over."""
        while not cursor.skip(")"):
            name = _keyword(cursor)
            argument = self._argument(cursor)
            if name is None:
                call.positional.append(argument)
            elif name in call.keywords:
                raise FormatError(argument.place, f"argument {excerpt(name)} is given twice")
            else:
                call.keywords[name] = argument
            if len(call.positional) + len(call.keywords) > LIMITS.operands:
                raise FormatError(argument.place, f"more than {LIMITS.operands:,} operands")
            # A list of no items is printed without the comma behind it, and so is the (Avg) of a Welford.
            if not cursor.at(")") and not cursor.skip(",") and argument.value != () and not argument.tag:
                raise cursor.error("',' or ')'")

    def _argument(self, cursor: Cursor) -> Argument:
        token = cursor.peek()
        if TENSOR.match(token.text):
            return self.tensor(cursor)
        if token.text == "{":
            return self._list(cursor)
        if axis_number(token) is not None and cursor.at("{", 1):
            return Argument(read_axis(cursor, self.scalars), token.place)
        if self.scalars.starts(cursor):
            return Argument(self.scalars.expression(cursor), token.place)
        if token.text in ("True", "False"):
            return Argument(cursor.take().text == "True", token.place)
        if token.kind == "word":
            return Argument(Word(cursor.take().text), token.place)
        raise cursor.error("an operand")

    def _list(self, cursor: Cursor) -> Argument:
        """Numbers in braces, or lists of them, which stand with or without commas between."""
        opened = cursor.expect("{")
        items: list[Argument] = []
        while not cursor.skip("}"):
            if items and not cursor.skip(",") and not cursor.at("{"):
                raise cursor.error("',' or '}'")
            place = cursor.peek().place
            if cursor.at("{"):
                items.append(self._row(cursor))
            else:
                items.append(Argument(self.scalars.expression(cursor), place))
            if len(items) > LIMITS.operands:
                raise FormatError(place, f"more than {LIMITS.operands:,} items")
        return Argument(tuple(items), opened.place)

    def _row(self, cursor: Cursor) -> Argument:
        opened = cursor.expect("{")
        items: list[Argument] = []
        while not cursor.skip("}"):
            if items:
                cursor.expect(",")
            place = cursor.peek().place
            items.append(Argument(self.scalars.expression(cursor), place))
            if len(items) > LIMITS.operands:
                raise FormatError(place, f"more than {LIMITS.operands:,} items")
        return Argument(tuple(items), opened.place)


def _keyword(cursor: Cursor) -> str | None:
    """Steps over `initial value =`, or `dim =`, and returns the name; None where no name comes next."""
    if cursor.peek().kind != "word":
        return None
    words = 2 if cursor.peek(1).kind == "word" else 1
    if not cursor.at("=", words):
        return None
    name = " ".join(cursor.take().text for _ in range(words))
    cursor.expect("=")
    return name


def _describe(value: Value) -> str:
    match value:
        case Tensor():
            return f"the tensor {value.mention.name}"
        case Axis():
            return f"the axis {value}"
        case Word():
            return excerpt(value.text)
        case tuple():
            return "a list"
        case _:
            return str(value)
