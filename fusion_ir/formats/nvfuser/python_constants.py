"""The constants of a Python text: names assigned numbers, lists of them, and arithmetic on both.

    N, EPS = 4096, 1e-6                          N -> 4096, EPS -> 1e-06
    SHAPE = (2 * N, *REST)                       a list
    SCALE = 1 / math.sqrt(SHAPE[-1])             -> 0.0078125
    INPUTS = [torch.randn(N)]                    known to be there, and to have no value that can be read

Expressions are computed as they stand in the text, by what is written here; nothing of the text is executed. A name
that has no such value says where it came from, once something asks for it.
"""

import ast
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fusion_ir.core.limits import LIMITS
from fusion_ir.errors import FormatError, excerpt
from fusion_ir.formats.nvfuser.python_words import dotted, place, words

NESTED = 64  # calls, operators and lists within each other
_POWER_BITS = 64
_WHY_CHARS = 120  # of a reason that is told within another: names may be made of each other in thousands of lines


@dataclass(frozen=True, slots=True)
class Name:
    """A name that stands for a tensor, or for nothing that is known."""

    name: str


@dataclass(frozen=True, slots=True)
class Member:
    """`DataType.Float`: owner and name."""

    owner: str
    name: str


# Lists hold the same again, each item with its place.
Literal = bool | int | float | None | Name | Member | list["Argument"]


@dataclass(frozen=True, slots=True)
class Argument:
    """A value and its "line:column"."""

    value: Literal
    place: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """The mark of a name without a value that can be read: `reason` says why, with the line."""

    reason: str


class NoConstant(Exception):
    """An expression is none of constants alone. Never leaves this file but through `Constants.value`."""


_OPERATORS: Mapping[type[ast.operator], Callable[[int | float, int | float], int | float]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.Mod: lambda a, b: a % b,
    ast.FloorDiv: lambda a, b: a // b,
}
_FUNCTIONS: Mapping[str, Callable[[int | float], int | float]] = {
    "abs": abs, "int": int, "float": float, "math.ceil": math.ceil, "math.exp": math.exp, "math.floor": math.floor,
    "math.log": math.log, "math.log2": math.log2, "math.sqrt": math.sqrt,
}  # fmt: skip
_OF_SEVERAL: Mapping[str, Callable[[list[int | float]], int | float]] = {
    "max": max, "math.prod": math.prod, "min": min, "sum": sum,
}  # fmt: skip
_FLOATS: Mapping[str, float] = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
KNOWN: Mapping[str, float] = {
    "math.e": math.e, "math.inf": math.inf, "math.nan": math.nan, "math.pi": math.pi, "math.tau": math.tau,
}  # fmt: skip
_NOTHING = object()


class Constants:
    """The names of one block, as far as it has been read; others are looked up in the blocks around it.

    A function is called when all of the block around it has run: what that block assigns twice has no one value in it.
    """

    def __init__(self, around: "Constants | None" = None, called_later: bool = False) -> None:
        self._around = around
        self._called_later = called_later
        self._values: dict[str, Literal | Unknown] = {}
        self._lines: dict[str, list[int]] = {}

    def assign(self, targets: list[ast.expr], value: ast.expr | None, line: int) -> None:
        """`targets = value`: constants where they are, unknown names else."""
        found: Literal | Unknown
        try:
            if value is None:
                raise NoConstant
            found = self.value(value)
        except NoConstant:
            what = "it is only declared" if value is None else f"{words(value)} is assigned to it"
            found = Unknown(f"{what} in line {line}")
        except FormatError as error:
            why = error.reason if len(error.reason) <= _WHY_CHARS else f"{error.reason[:_WHY_CHARS]}..."
            found = Unknown(f"it is assigned in line {line}, where {why}")
        for target in targets:
            self._bind(target, found, line)

    def forget(self, target: ast.AST, what: str) -> None:
        """Every name that `target` binds has no value that can be read: `what` says why."""
        line = getattr(target, "lineno", 1)
        for name in names_in(target):
            self.put(name, Unknown(f"{what} in line {line}"), line)

    def forget_block(self, block: "Constants", what: str) -> None:
        """Every name that a block within this one assigns has no value that can be read behind it."""
        for name, lines in block._lines.items():
            self.put(name, Unknown(f"{what} in line {lines[0]}"), lines[0])

    def own(self) -> Mapping[str, Literal | Unknown]:
        """The names of this block alone."""
        return self._values

    def put(self, name: str, value: Literal | Unknown, line: int) -> None:
        self._values[name] = value
        lines = self._lines.setdefault(name, [])
        if len(lines) < 2:
            lines.append(line)

    def snapshot(self) -> "Constants":
        """The names as they are now, whatever is assigned later in the block and in those around it."""
        around = self._around
        if around is not None and not self._called_later:
            around = around.snapshot()
        copy = Constants(around, self._called_later)
        copy._values, copy._lines = dict(self._values), self._lines
        return copy

    def value(self, node: ast.expr, depth: int = 0) -> Literal:
        """The value of an expression of constants. Raises NoConstant where it is none, FormatError where it has no
        value, or one that no text of a graph can hold."""
        if depth > NESTED:
            raise FormatError(place(node), f"more than {NESTED} calls, operators and lists within each other")
        match node:
            case ast.Constant(value=bool() as value):
                return value
            case ast.Constant(value=int() | float() as value):
                return _checked(node, value)
            case ast.Constant(value=None):
                return None
            case ast.Name(id=name):
                return self._lookup(node, name)
            case ast.Attribute():
                return self._member(node)
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                return self._list(elements, depth)
            case ast.UnaryOp():
                return self._unary(node, depth)
            case ast.BinOp():
                return self._binary(node, depth)
            case ast.Subscript():
                return self._item(node, depth)
            case ast.Call():
                return self._call(node, depth)
            case _:
                raise NoConstant

    def _bind(self, target: ast.expr, found: Literal | Unknown, line: int) -> None:
        match target:
            case ast.Name(id=name):
                self.put(name, found, line)
            case ast.Attribute() if name := dotted(target):
                self.put(name, found, line)
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                plain = not any(isinstance(e, ast.Starred) for e in elements)
                if isinstance(found, list) and plain and len(found) == len(elements):
                    for element, item in zip(elements, found, strict=True):
                        self._bind(element, item.value, line)
                else:
                    unknown = found if isinstance(found, Unknown) else Unknown(f"it is unpacked in line {line}")
                    for name in names_in(target):
                        self.put(name, unknown, line)
            case _:
                return  # an item of a list or of a dictionary

    def _lookup(self, node: ast.expr, name: str) -> Literal:
        scope: Constants | None = self
        later = False
        while scope is not None:
            if name in scope._values:
                lines = scope._lines[name]
                found = scope._values[name]
                if later and len(lines) > 1:
                    found = Unknown(f"it is assigned in line {lines[0]} and again in line {lines[1]}")
                if isinstance(found, Unknown):
                    raise FormatError(place(node), f"{excerpt(name)} has no value that can be read: {found.reason}")
                if isinstance(found, Name):
                    raise NoConstant
                return found
            later = later or scope._called_later
            scope = scope._around
        raise NoConstant

    def _member(self, node: ast.Attribute) -> Literal:
        """A constant of a class, one of `math`'s, or a name such as DataType.Float."""
        name = dotted(node)
        try:
            return self._lookup(node, name)
        except NoConstant:
            if name in KNOWN:
                return KNOWN[name]
            owner = name.rpartition(".")[0].rpartition(".")[2]
            first = self._found(name.partition(".")[0])
            if isinstance(first, Unknown) and owner != "DataType":
                reason = f"{excerpt(name)} has no value that can be read: of {name.partition('.')[0]}, {first.reason}"
                raise FormatError(place(node), reason) from None
            if owner == "DataType" or (first is _NOTHING and isinstance(node.value, ast.Name)):
                return Member(owner, node.attr)
            raise

    def is_value(self, name: str) -> bool:
        """Whether the name stands for a tensor, or for a constant."""
        found = self._found(name)
        return found is not _NOTHING and not isinstance(found, Unknown)

    def _found(self, name: str) -> object:
        """The value of the name in this block or in one around it; `_NOTHING` where none assigns it."""
        scope: Constants | None = self
        while scope is not None:
            if name in scope._values:
                return scope._values[name]
            scope = scope._around
        return _NOTHING

    def _list(self, elements: list[ast.expr], depth: int) -> list[Argument]:
        items: list[Argument] = []
        for element in elements:
            if isinstance(element, ast.Starred):
                items += self._items(element.value, depth + 1)
            else:
                items.append(Argument(self.value(element, depth + 1), place(element)))
        return items if not elements else _short(elements[0], items)

    def _items(self, node: ast.expr, depth: int) -> list[Argument]:
        found = self.value(node, depth)
        if not isinstance(found, list):
            raise NoConstant
        return found

    def _number(self, node: ast.expr, depth: int) -> int | float:
        return _as_number(self.value(node, depth))

    def _integer(self, node: ast.expr, depth: int) -> int:
        found = self._number(node, depth)
        if not isinstance(found, int):
            raise NoConstant
        return found

    def _unary(self, node: ast.UnaryOp, depth: int) -> Literal:
        if isinstance(node.op, ast.Not):
            found = self.value(node.operand, depth + 1)
            if isinstance(found, bool):
                return not found
        elif isinstance(node.op, ast.USub | ast.UAdd):
            number = self._number(node.operand, depth + 1)
            return _checked(node, -number if isinstance(node.op, ast.USub) else number)
        raise NoConstant

    def _binary(self, node: ast.BinOp, depth: int) -> Literal:
        match self.value(node.left, depth + 1), node.op, self.value(node.right, depth + 1):
            case list() as first, ast.Add(), list() as second:
                return _short(node, first + second)
            case (list() as items, ast.Mult(), int() as times) | (int() as times, ast.Mult(), list() as items):
                fits = len(items) * max(times, 0) <= LIMITS.operands
                return _short(node, items * times if fits else None)
            case left, operator_, right:
                a, b = _as_number(left), _as_number(right)
        if isinstance(operator_, ast.Pow):
            return _power(node, a, b)
        if type(operator_) not in _OPERATORS:
            raise NoConstant
        return _computed(node, lambda: _OPERATORS[type(operator_)](a, b))

    def _item(self, node: ast.Subscript, depth: int) -> Literal:
        items = self._items(node.value, depth + 1)
        if isinstance(node.slice, ast.Slice):
            bounds = (node.slice.lower, node.slice.upper, node.slice.step)
            start, stop, step = (None if b is None else self._integer(b, depth + 1) for b in bounds)
            if step == 0:
                raise FormatError(place(node), "a slice has no step of 0")
            return items[start:stop:step]
        index = self._integer(node.slice, depth + 1)
        if not -len(items) <= index < len(items):
            raise FormatError(place(node), f"index {index} is out of range for {len(items)} values")
        return items[index].value

    def _call(self, node: ast.Call, depth: int) -> Literal:
        name = dotted(node.func)
        if node.keywords or not node.args:
            raise NoConstant
        if name == "float" and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str):
            word = node.args[0].value
            if word.lower() not in _FLOATS:
                raise FormatError(place(node), f"float({excerpt(word)}): expected one of {list(_FLOATS)}")
            return _FLOATS[word.lower()]
        if name in ("len", "list", "tuple") and len(node.args) == 1:
            items = self._items(node.args[0], depth + 1)
            return len(items) if name == "len" else items
        if name in _FUNCTIONS and len(node.args) == 1:
            number = self._number(node.args[0], depth + 1)
            return _computed(node, lambda: _FUNCTIONS[name](number))
        if name in ("pow", "math.pow") and len(node.args) == 2:
            a, b = (self._number(argument, depth + 1) for argument in node.args)
            return _power(node, a, b)
        if name in _OF_SEVERAL:
            given = self._items(node.args[0], depth + 1) if len(node.args) == 1 else self._list(node.args, depth)
            numbers = [_as_number(item.value) for item in given]
            return _computed(node, lambda: _OF_SEVERAL[name](numbers))
        raise NoConstant


def names_in(node: ast.AST) -> list[str]:
    """The plain names in an expression."""
    return [inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)]


def _power(node: ast.expr, a: int | float, b: int | float) -> int | float:
    """a ** b. Raises FormatError where it would be long, or no real number."""
    if isinstance(a, int) and isinstance(b, int) and abs(a) > 1 and b > _POWER_BITS:
        raise FormatError(place(node), "the integer does not fit 64 bits")
    return _computed(node, lambda: a**b)


def _computed(node: ast.expr, compute: Callable[[], int | float | complex]) -> int | float:
    try:
        found = compute()
    except (ArithmeticError, ValueError) as error:
        raise FormatError(place(node), str(error)) from None
    if isinstance(found, complex):
        raise FormatError(place(node), "the number is complex")
    return _checked(node, found)


def _checked(node: ast.expr, value: int | float) -> int | float:
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise FormatError(place(node), "the integer does not fit 64 bits")
    if isinstance(value, float) and math.isinf(value) and isinstance(node, ast.Constant | ast.BinOp):
        raise FormatError(place(node), 'the number is too large for 64 bits; infinity is written float("inf")')
    return value


def _as_number(value: Literal) -> int | float:
    """The value, which must be a number; a truth value is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise NoConstant
    return value


def _short(node: ast.expr, items: list[Argument] | None) -> list[Argument]:
    """A list that a text of a graph may hold, with what is in the lists in it. Raises FormatError."""
    count, waiting = 0, [] if items is None else [*items]
    while waiting and count <= LIMITS.operands:
        count += 1
        inside = waiting.pop().value
        if isinstance(inside, list):
            waiting += inside
    if items is None or count > LIMITS.operands:
        raise FormatError(place(node), f"the list has more than {LIMITS.operands:,} items")
    return items
