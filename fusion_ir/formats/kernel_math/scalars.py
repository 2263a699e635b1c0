"""The scalars of a %kernel_math dump: names, constants and expressions, computed as they are read.

    i85 = 0 + 64;      ( ceilDiv(( i0 * i1 ), 128) )      double(0.5)      d20 = (double)(i2);

Integers are of 64 bits and divide as in C++; floats are doubles.
"""

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fusion_ir.errors import FormatError, counted, excerpt
from fusion_ir.formats.kernel_math.tokens import Cursor, Token
from fusion_ir.formats.side_file import stated_beside

Number = int | float | bool

SCALAR_NAME = re.compile(r"[bdfi][0-9]{1,18}\Z")
_DEPTH = 200  # brackets and calls that are open at once

_INTEGERS = ("int", "int32_t", "int64_t", "nvfuser_index_t", "int8_t", "int16_t", "uint8_t")
_FLOATS = ("double", "float", "__half", "__bfloat")
_TYPES = (*_INTEGERS, *_FLOATS, "bool")
_WORDS: Mapping[str, Number] = {"true": True, "false": False, "inf": math.inf, "nan": math.nan}


def _divide(a: Number, b: Number) -> Number:
    if isinstance(a, float) or isinstance(b, float):
        return a / b
    quotient = abs(int(a)) // abs(int(b))
    return quotient if (a < 0) == (b < 0) else -quotient


def _modulo(a: Number, b: Number) -> Number:
    return math.fmod(a, b) if isinstance(a, float) or isinstance(b, float) else int(a) - int(_divide(a, b)) * int(b)


def _ceil_div(a: Number, b: Number) -> Number:
    return -(-int(a) // int(b))


def _where(condition: Number, a: Number, b: Number) -> Number:
    return a if condition else b


def _reciprocal(a: Number) -> Number:
    return 1.0 / a


def _reciprocal_root(a: Number) -> Number:
    return 1.0 / math.sqrt(a)


def _negative(a: Number) -> Number:
    return -a


def _absolute(a: Number) -> Number:
    return abs(a)


def _larger(a: Number, b: Number) -> Number:
    return max(a, b)


def _smaller(a: Number, b: Number) -> Number:
    return min(a, b)


def _gcd(a: Number, b: Number) -> Number:
    return math.gcd(int(a), int(b))


# Precedence as in C++, the loosest first.
_BINARY: Mapping[str, tuple[int, Callable[[Number, Number], Number]]] = {
    "||": (1, lambda a, b: bool(a) or bool(b)),
    "&&": (2, lambda a, b: bool(a) and bool(b)),
    "==": (3, operator.eq),
    "!=": (3, operator.ne),
    "<": (4, operator.lt),
    "<=": (4, operator.le),
    ">": (4, operator.gt),
    ">=": (4, operator.ge),
    "+": (5, operator.add),
    "-": (5, operator.sub),
    "*": (6, operator.mul),
    "/": (6, _divide),
    "%": (6, _modulo),
}
_UNARY: Mapping[str, Callable[[Number], Number]] = {"-": _negative, "!": operator.not_}
_FUNCTIONS: Mapping[str, tuple[int, Callable[..., Number]]] = {
    "abs": (1, _absolute),
    "ceilDiv": (2, _ceil_div),
    "fmax": (2, _larger),
    "fmin": (2, _smaller),
    "gcd": (2, _gcd),
    "max": (2, _larger),
    "min": (2, _smaller),
    "reciprocal": (1, _reciprocal),
    "rsqrt": (1, _reciprocal_root),
    "sqrt": (1, math.sqrt),
    "where": (3, _where),
    **dict.fromkeys(_INTEGERS, (1, int)),
    **dict.fromkeys(_FLOATS, (1, float)),
    "bool": (1, bool),
    "__to_index": (1, int),
    "__to_int32": (1, int),
    "__to_int64": (1, int),
    "__to_double": (1, float),
    "__to_float": (1, float),
    "__to_bool": (1, bool),
}


@dataclass(frozen=True, slots=True)
class _Pending:
    """An operator, a bracket or a call whose operands are not complete. `values`: how many there were before it."""

    kind: str  # unary, binary, bracket or call
    name: str
    place: str
    values: int = 0


class Scalars:
    """The scalars that have a value so far, by name."""

    def __init__(self, stated: Mapping[str, Number]) -> None:
        self.values: dict[str, Number] = dict(stated)
        self.used: set[str] = set()

    def of(self, token: Token) -> Number:
        """The value of a name or word. Raises FormatError for one that is not known."""
        if token.text in _WORDS:
            return _WORDS[token.text]
        if token.text not in self.values:
            if not SCALAR_NAME.match(token.text):
                raise FormatError(token.place, f"expected a number, got {excerpt(token.text)}")
            member = "extents" if token.text[0] == "i" else "values"
            advice = stated_beside("it", {member: {token.text: 64}})
            raise FormatError(token.place, f"{token.text} is symbolic, and its value is not in the text: {advice}")
        self.used.add(token.text)
        return self.values[token.text]

    def starts(self, cursor: Cursor) -> bool:
        """Whether a scalar expression comes next (and no tensor, no list, no word with another meaning)."""
        token = cursor.peek()
        if token.kind in ("integer", "float") or token.text in ("(", "-", "!"):
            return True
        named = SCALAR_NAME.match(token.text) or token.text in _WORDS
        return token.kind == "word" and bool(named or (token.text in _FUNCTIONS and cursor.at("(", 1)))

    def integer(self, cursor: Cursor) -> int:
        """An expression that gives an integer."""
        place = cursor.peek().place
        value = self.expression(cursor)
        if isinstance(value, float):
            raise FormatError(place, f"expected an integer, got {value}")
        return int(value)

    def operand(self, cursor: Cursor) -> Number:
        """A number with its sign, a name, a constant such as double(0.5), or an expression in brackets."""
        return self.expression(cursor, least=7)

    def expression(self, cursor: Cursor, least: int = 1) -> Number:
        """The value of an expression, up to a token that does not belong to it or an operator below `least`.

        Open brackets and operators stand on a stack, not in the call stack. Raises FormatError.
        """
        values: list[Number] = []
        pending: list[_Pending] = []
        wants_operand = True
        while True:
            token = cursor.peek()
            if len(pending) > _DEPTH:
                raise FormatError(token.place, f"more than {_DEPTH} brackets and operators are open")
            nested = any(p.kind in ("bracket", "call") for p in pending)
            if wants_operand:
                wants_operand = self._operand(cursor, values, pending)
            elif token.text in _BINARY and token.kind == "mark" and (nested or _BINARY[token.text][0] >= least):
                _reduce(values, pending, _BINARY[token.text][0])
                pending.append(_Pending("binary", token.text, cursor.take().place))
                wants_operand = True
            elif nested and token.text in (",", ")") and token.kind == "mark":
                _reduce(values, pending, 0)
                opened = pending[-1]
                if token.text == "," and opened.kind == "bracket":
                    raise cursor.error("')'")
                cursor.take()
                wants_operand = token.text == ","
                if token.text == ")":
                    pending.pop()
                    if opened.kind == "call":
                        _call(opened, values)
                    _prefix(values, pending)
            elif nested:
                raise cursor.error("an operator or ')'")
            else:
                _reduce(values, pending, 0)
                return values[0]

    def _operand(self, cursor: Cursor, values: list[Number], pending: list[_Pending]) -> bool:
        """Reads what may stand where an operand is wanted; whether one still is."""
        token = cursor.peek()
        if token.kind in ("integer", "float"):
            values.append(_literal(cursor.take()))
        elif token.kind == "mark" and token.text in _UNARY:
            pending.append(_Pending("unary", token.text, cursor.take().place))
            return True
        elif token.kind == "mark" and token.text == "(":
            if cursor.peek(1).text in _TYPES and cursor.at(")", 2):  # a cast: (double)(i2)
                cursor.take()
                pending.append(_Pending("unary", cursor.take().text, token.place))
                cursor.take()
            else:
                pending.append(_Pending("bracket", "(", cursor.take().place))
            return True
        elif token.kind == "word" and cursor.at("(", 1):
            if token.text not in _FUNCTIONS:
                raise FormatError(token.place, f"unknown function of scalars {excerpt(token.text)}")
            cursor.take()
            cursor.take()
            pending.append(_Pending("call", token.text, token.place, len(values)))
            return True
        elif token.kind == "word":
            values.append(self.of(token))
            cursor.take()
        else:
            raise cursor.error("a number")
        _prefix(values, pending)
        return False


def _literal(token: Token) -> Number:
    if token.kind == "float":
        value = float(token.text)
        if math.isinf(value):
            raise FormatError(token.place, "the number is too large for 64 bits")
        return value
    if len(token.text) > 20 or int(token.text) > 2**63:  # with a sign before it, 2^63 fits
        raise FormatError(token.place, f"{excerpt(token.text)} does not fit 64 bits")
    return int(token.text)


def _checked(place: str, value: Number) -> Number:
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise FormatError(place, f"{value} does not fit 64 bits")
    return value


def _prefix(values: list[Number], pending: list[_Pending]) -> None:
    """Applies the signs and casts that stand right before a complete operand."""
    while pending and pending[-1].kind == "unary":
        sign = pending.pop()
        values[-1] = _apply(sign, _UNARY.get(sign.name) or _FUNCTIONS[sign.name][1], [values[-1]])


def _reduce(values: list[Number], pending: list[_Pending], precedence: int) -> None:
    """Applies the operators that bind at least as tightly as `precedence`, back to the last open bracket."""
    while pending and pending[-1].kind == "binary" and _BINARY[pending[-1].name][0] >= precedence:
        infix = pending.pop()
        right, left = values.pop(), values.pop()
        values.append(_apply(infix, _BINARY[infix.name][1], [left, right]))


def _call(opened: _Pending, values: list[Number]) -> None:
    count, function = _FUNCTIONS[opened.name]
    given = values[opened.values :]
    if len(given) != count:
        raise FormatError(opened.place, f"{opened.name} takes {counted(count, 'operand')}, got {len(given)}")
    values[opened.values :] = [_apply(opened, function, given)]


def _apply(what: _Pending, function: Callable[..., Number], given: list[Number]) -> Number:
    try:
        value = function(*given)
    except (ArithmeticError, ValueError):
        operands = ", ".join(str(g) for g in given)
        raise FormatError(what.place, f"{what.name} has no value for {operands}") from None
    return _checked(what.place, value)
