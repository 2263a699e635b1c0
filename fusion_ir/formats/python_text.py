"""Reads Python text as data: calls on one object, in order, with literal arguments. Nothing is ever executed.

The text is parsed by `ast` and then held against a white list: one function without decorators or defaults, in it
assignments of calls `fd.NAME(...)` and `fd.ops.NAME(...)`, whose arguments are numbers, truth values, None, names
assigned before, `DataType.NAME`, `float("inf")`, lists of these, and calls of `fd.ops.NAME` again. Arithmetic of
numbers is done as it is read; with names in it, and for `V[1]`, it is the call that it stands for. Everything else is
refused with line and column. A call within another is read as one of its own before it:

    T2 = fd.ops.mul(fd.ops.neg(T0), T1 + 1)     %0 = fd.ops.neg(T0)   %1 = fd.ops.add(T1, 1)   T2 = fd.ops.mul(%0, %1)
"""

import ast
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass

from fusion_ir.errors import FormatError, excerpt, line_and_column
from fusion_ir.limits import LIMITS

# `ast` needs up to 2 KB of memory per token; characters that are in no word bound the number of tokens.
_WORD_BYTES = bytes(range(48, 58)) + bytes(range(65, 91)) + bytes(range(97, 123)) + b"_"
_IMPORTABLE = ("torch", "nvfuser", "nvfuser_direct")
_NESTED = 64  # calls, operators and lists within each other
_INFIX: dict[type[ast.operator], tuple[str, Callable[[float, float], float]]] = {
    ast.Add: ("add", lambda a, b: a + b),
    ast.Sub: ("sub", lambda a, b: a - b),
    ast.Mult: ("mul", lambda a, b: a * b),
    ast.Div: ("div", lambda a, b: a / b),
    ast.Mod: ("mod", lambda a, b: a % b),
    ast.FloorDiv: ("", lambda a, b: a // b),  # nvFuser's scalars have none
}
_FLOATS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


@dataclass(frozen=True, slots=True)
class Name:
    """A name assigned before."""

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
class Call:
    """`targets = fd.path(*args, **keywords)`; path is "define_tensor" or "ops.add"."""

    targets: tuple[str, ...]
    path: str
    args: tuple[Argument, ...]
    keywords: dict[str, Argument]
    place: str


def read_calls(text: str) -> tuple[Call, ...]:
    """The calls of the text's one function. Raises FormatError for whatever is not on the white list."""
    function = _function(_parse(text))
    body = _Body(_parameter(function))
    for statement in function.body:
        body.statement(statement)
    return tuple(body.calls)


def _parse(text: str) -> ast.Module:
    try:
        marks = len(text.encode().translate(None, _WORD_BYTES))
    except UnicodeEncodeError as error:
        raise FormatError(line_and_column(text, error.start), "lone surrogate in the text") from None
    if marks > LIMITS.python_marks:
        raise FormatError("", f"the text has {marks:,} marks and spaces, at most {LIMITS.python_marks:,} are read")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python warns of dubious literals in what it parses
            return ast.parse(text)
    except SyntaxError as error:
        raise FormatError(f"{error.lineno or 1}:{error.offset or 1}", f"not Python: {error.msg}") from None
    except ValueError as error:  # null bytes
        raise FormatError("1:1", f"not Python: {error}") from None
    except (RecursionError, MemoryError):
        raise FormatError("1:1", "not read: expressions are nested too deeply") from None


def _function(module: ast.Module) -> ast.FunctionDef:
    """The one function of the text; imports of nvFuser's own packages before it are skipped, not followed."""
    found: ast.FunctionDef | None = None
    for statement in module.body:
        if isinstance(statement, ast.Import) and all(a.name in _IMPORTABLE for a in statement.names):
            continue
        if isinstance(statement, ast.ImportFrom) and statement.module in _IMPORTABLE:
            continue
        if _is_docstring(statement):
            continue
        if not isinstance(statement, ast.FunctionDef) or found is not None:
            raise _refused(statement, "one function definition")
        found = statement
    if found is None:
        raise FormatError("1:1", "expected a function definition such as 'def nvfuser_fusion(fd: FusionDefinition):'")
    return found


def _parameter(function: ast.FunctionDef) -> str:
    """The name of the one parameter, `fd`."""
    if function.decorator_list:
        raise _refused(function.decorator_list[0], "no decorators")
    arguments = function.args
    for default in (*arguments.defaults, *(d for d in arguments.kw_defaults if d is not None)):
        raise _refused(default, "no default arguments")
    extra = (*arguments.posonlyargs, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg)
    if any(extra) or len(arguments.args) != 1:
        raise FormatError(_place(function), "expected one parameter, such as 'fd: FusionDefinition'")
    for annotation in (arguments.args[0].annotation, function.returns):
        if annotation is not None and not isinstance(annotation, ast.Name | ast.Constant):
            raise _refused(annotation, "a plain name as annotation")
    return arguments.args[0].arg


class _Body:
    """The calls of a function body as far as it has been read; `owner` is the object that they are calls on."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.calls: list[Call] = []
        self._inner_calls = 0

    def statement(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Assign(targets=[ast.Name(id=target)], value=value):
                self._assign(statement, value, (target,))
            case ast.Assign(targets=[ast.Tuple(elts=elements) | ast.List(elts=elements)], value=value):
                self._assign(statement, value, tuple(_target(e) for e in elements))
            case ast.Expr(value=ast.Call() as call):
                self._call(call, (), 0)
            case ast.Pass():
                return
            case _ if _is_docstring(statement):
                return
            case _:
                raise self._no_assignment(statement)

    def _assign(self, statement: ast.stmt, value: ast.expr, targets: tuple[str, ...]) -> None:
        match value:
            case ast.Call():
                self._call(value, targets, 0)
            case ast.BinOp() | ast.UnaryOp() | ast.Subscript() if _constant(value) is None:
                self._arithmetic(value, targets, 0)
            case _:
                raise self._no_assignment(statement)

    def _no_assignment(self, statement: ast.stmt) -> FormatError:
        return _refused(statement, f"an assignment such as 'T2 = {self.owner}.ops.add(T0, T1)'")

    def _call(self, call: ast.Call, targets: tuple[str, ...], depth: int) -> None:
        match call.func:
            case ast.Attribute(value=ast.Name(id=base), attr=name) if base == self.owner and not depth:
                path = name
            case ast.Attribute(value=ast.Attribute(value=ast.Name(id=base), attr="ops"), attr=name) if (
                base == self.owner
            ):
                path = f"ops.{name}"
            case _:
                within = f"{self.owner}.ops.NAME" if depth else f"{self.owner}.NAME or {self.owner}.ops.NAME"
                raise _refused(call.func, f"a call of {within}")
        args = tuple(self._argument(a, depth + 1) for a in call.args)
        keywords: dict[str, Argument] = {}
        for keyword in call.keywords:
            if keyword.arg is None:
                raise FormatError(_place(keyword.value), "** is not read")
            if keyword.arg in keywords:
                raise FormatError(_place(keyword.value), f"argument {keyword.arg} is given twice")
            keywords[keyword.arg] = self._argument(keyword.value, depth + 1)
        self.calls.append(Call(targets, path, args, keywords, _place(call)))

    def _arithmetic(self, node: ast.expr, targets: tuple[str, ...], depth: int) -> None:
        """The call that an operator with names in it stands for."""
        match node:
            case ast.BinOp(left=left, op=op, right=right) if _INFIX.get(type(op), ("",))[0]:
                name, operands = _INFIX[type(op)][0], [left, right]
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                name, operands = "neg", [operand]
            case ast.Subscript(value=value, slice=index):
                name, operands = "at", [value, index]
            case _:
                raise _refused(node, "one of + - * / %")
        args = tuple(self._argument(o, depth + 1) for o in operands)
        self.calls.append(Call(targets, f"ops.{name}", args, {}, _place(node)))

    def _argument(self, node: ast.expr, depth: int) -> Argument:
        return Argument(self._literal(node, depth), _place(node))

    def _literal(self, node: ast.expr, depth: int) -> Literal:
        if depth > _NESTED:
            raise FormatError(_place(node), f"more than {_NESTED} calls, operators and lists within each other")
        constant = _constant(node)
        if constant is not None:
            return constant
        match node:
            case ast.Constant(value=None):
                return None
            case ast.Name(id=name):
                return Name(name)
            case ast.Attribute(value=ast.Name(id=base), attr=name):
                return Member(base, name)
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                return [self._argument(e, depth + 1) for e in elements]
            case ast.Call(func=ast.Attribute()):
                self._call(node, (self._inner(),), depth)
            case ast.BinOp() | ast.UnaryOp() | ast.Subscript():
                self._arithmetic(node, (self._inner(),), depth)
            case _:
                raise _refused(node, "a number, True, False, None, a name, DataType.NAME, a call or a list of these")
        return Name(self.calls[-1].targets[0])

    def _inner(self) -> str:
        """A name for the result of a call within another, which no Python name can be."""
        self._inner_calls += 1
        return f"%{self._inner_calls - 1}"


def _constant(node: ast.expr, depth: int = 0) -> bool | int | float | None:
    """The number or truth value that an expression without names is; None for any other expression."""
    if depth > _NESTED:
        raise FormatError(_place(node), f"more than {_NESTED} operators within each other")
    match node:
        case ast.Constant(value=bool() as value):
            return value
        case ast.Constant(value=int() | float() as value):
            return _number(node, value)
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
            value = _constant(operand, depth + 1)
            if isinstance(value, bool) or value is None:
                return None
            return _number(node, -value if isinstance(sign, ast.USub) else value)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _INFIX:
            operands = [_constant(left, depth + 1), _constant(right, depth + 1)]
            a, b = (None if isinstance(v, bool) else v for v in operands)
            if a is None or b is None:
                return None
            try:
                return _number(node, _INFIX[type(op)][1](a, b))
            except ArithmeticError as error:
                raise FormatError(_place(node), str(error)) from None
        case ast.Call(func=ast.Name(id="float"), args=[ast.Constant(value=str() as word)], keywords=[]):
            if word.lower() not in _FLOATS:
                raise FormatError(_place(node), f"float({excerpt(word)}): expected one of {list(_FLOATS)}")
            return _FLOATS[word.lower()]
        case _:
            return None


def _target(node: ast.expr) -> str:
    if not isinstance(node, ast.Name):
        raise _refused(node, "a plain name to assign to")
    return node.id


def _number(node: ast.expr, value: int | float) -> int | float:
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise FormatError(_place(node), "the integer does not fit 64 bits")
    if isinstance(value, float) and math.isinf(value):
        raise FormatError(_place(node), 'the number is too large for 64 bits; infinity is written float("inf")')
    return value


def _is_docstring(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _place(node: ast.AST) -> str:
    return f"{getattr(node, 'lineno', 1)}:{getattr(node, 'col_offset', 0) + 1}"


def _refused(node: ast.AST, expected: str) -> FormatError:
    found = _KINDS.get(type(node)) or type(node).__name__
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        found = f"a call of {excerpt(node.func.id)}"
    return FormatError(_place(node), f"{found} is not allowed here, expected {expected}")


_KINDS: dict[type[ast.AST], str] = {
    ast.Import: "an import",
    ast.ImportFrom: "an import",
    ast.Lambda: "a lambda",
    ast.ListComp: "a comprehension",
    ast.SetComp: "a comprehension",
    ast.DictComp: "a comprehension",
    ast.GeneratorExp: "a comprehension",
    ast.JoinedStr: "an f-string",
    ast.Call: "a call",
    ast.Constant: "this constant",
    ast.BinOp: "arithmetic",
    ast.Subscript: "a subscript",
    ast.ClassDef: "a class",
    ast.AsyncFunctionDef: "an async function",
    ast.FunctionDef: "another function",
    ast.For: "a loop",
    ast.While: "a loop",
    ast.With: "a with statement",
    ast.NamedExpr: "an assignment expression",
}
