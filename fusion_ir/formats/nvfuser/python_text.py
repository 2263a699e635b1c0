"""Reads Python text as data: calls on one object, in order, with literal arguments. Nothing is ever executed.

The text is parsed by `ast`; `python_definition` finds the one definition in it, and `python_constants` what the names
around it stand for. The definition's own statements are held against a white list: assignments of calls `fd.NAME(...)`
and `fd.ops.NAME(...)`, whose arguments are constants, names assigned before, `DataType.NAME`, lists of these, and calls
of `fd.ops.NAME` again. An operator with tensors beside it, and `V[1]`, is the call that it stands for. Everything else
is refused with line and column, and with what to write. A call within another is read as one of its own before it:

    T2 = fd.ops.mul(fd.ops.neg(T0), T1 + 1)     %0 = fd.ops.neg(T0)   %1 = fd.ops.add(T1, 1)   T2 = fd.ops.mul(%0, %1)
"""

import ast
import warnings
from collections.abc import Collection
from dataclasses import dataclass

from fusion_ir.core.aliases import op_hint
from fusion_ir.core.limits import LIMITS
from fusion_ir.errors import FormatError, line_and_column
from fusion_ir.formats.nvfuser.python_constants import NESTED, Argument, Constants, Literal, Member, Name, NoConstant
from fusion_ir.formats.nvfuser.python_definition import Definition, assign_constants, find_definition
from fusion_ir.formats.nvfuser.python_words import dotted, place, refused, shown

__all__ = ["Argument", "Literal", "Member", "Name", "PythonCall", "read_calls"]

# `ast` needs up to 2 KB of memory per token; characters that are in no word bound the number of tokens.
_WORD_BYTES = bytes(range(48, 58)) + bytes(range(65, 91)) + bytes(range(97, 123)) + b"_"
_INFIX: dict[type[ast.operator | ast.cmpop], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.MatMult: "matmul",
    ast.BitAnd: "bitwise_and",
    ast.BitOr: "bitwise_or",
    ast.BitXor: "bitwise_xor",
    ast.LShift: "bitwise_left_shift",
    ast.RShift: "bitwise_right_shift",
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
}
_PREFIX: dict[type[ast.unaryop], str] = {ast.USub: "neg", ast.Invert: "bitwise_not", ast.Not: "logical_not"}
_JOINING: dict[type[ast.boolop], str] = {ast.And: "logical_and", ast.Or: "logical_or"}

# Methods of PyTorch's tensors that are casts, and the member of nvFuser's DataType.
_CASTS: dict[str, str] = {
    "bfloat16": "BFloat16",
    "bool": "Bool",
    "double": "Double",
    "float": "Float",
    "half": "Half",
    "int": "Int32",
    "long": "Int",
}


@dataclass(frozen=True, slots=True)
class PythonCall:
    """`targets = fd.path(*args, **keywords)`; path is "define_tensor" or "ops.add"."""

    targets: tuple[str, ...]
    path: str
    args: tuple[Argument, ...]
    keywords: dict[str, Argument]
    place: str


def read_calls(text: str, ops: Collection[str] = ()) -> tuple[PythonCall, ...]:
    """The calls of the text's one definition; `ops` are the names after `fd.ops.`, for what a message advises.

    Raises FormatError for whatever is not on the white list.
    """
    definition = find_definition(_parse(text))
    body = _Body(definition, ops)
    for statement in definition.statements:
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


class _Body:
    """The calls of a definition as far as it has been read; `owner` is the object that they are calls on."""

    def __init__(self, definition: Definition, ops: Collection[str]) -> None:
        self.owner = definition.owner
        self.constants = Constants(definition.constants)
        self.ops = ops
        self.calls: list[PythonCall] = []
        self._inner_calls = 0

    def statement(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value) if self._is_constant(value):
                assign_constants(statement, self.constants)
            case ast.AugAssign(target=ast.Name() as target, value=value) if self._is_constant(
                target
            ) and self._is_constant(value):
                assign_constants(statement, self.constants)
            case ast.Assign(targets=[ast.Name(id=target)], value=value):
                self._assign(statement, value, (target,))
            case ast.AnnAssign(target=ast.Name(id=target), value=ast.expr() as value):
                self._assign(statement, value, (target,))
            case ast.Assign(targets=[ast.Tuple(elts=elements) | ast.List(elts=elements)], value=value):
                self._assign(statement, value, tuple(_target(e) for e in elements))
            case ast.Expr(value=ast.Call() as call):
                self._call(call, (), 0)
            case ast.Return(value=None | ast.Name()) | ast.Pass() | ast.Assert():
                return
            case _ if _is_docstring(statement):
                return
            case _:
                raise self._no_assignment(statement)

    def _assign(self, statement: ast.stmt, value: ast.expr, targets: tuple[str, ...]) -> None:
        match value:
            case ast.Call():
                self._call(value, targets, 0)
            case ast.Name(id=name):  # another name of one tensor
                self._add(PythonCall(targets, "ops.set", (Argument(Name(name), place(value)),), {}, place(value)))
            case ast.BinOp() | ast.UnaryOp() | ast.Subscript() | ast.Compare() | ast.BoolOp():
                self._operator(value, targets, 0)
            case _:
                raise self._no_assignment(statement)

    def _no_assignment(self, statement: ast.stmt) -> FormatError:
        return refused(statement, f"an assignment such as 'T2 = {self.owner}.ops.add(T0, T1)'")

    def _is_constant(self, node: ast.expr) -> bool:
        return self._constant(node, 0) is not None

    def _constant(self, node: ast.expr, depth: int) -> Argument | None:
        """An expression of constants; None where something in it is a tensor, or nothing that is read. Raises
        FormatError where it has no value that can be read."""
        try:
            return Argument(self.constants.value(node, depth), place(node))
        except NoConstant:
            return None

    def _add(self, call: PythonCall) -> None:
        """Adds a call: from here on its targets are names of its results, whatever they were before."""
        self.calls.append(call)
        line = int(call.place.partition(":")[0])
        for target in call.targets:
            self.constants.put(target, Name(target), line)

    def _call(self, call: ast.Call, targets: tuple[str, ...], depth: int) -> None:
        match call.func:
            case ast.Attribute(value=ast.Name(id=base), attr=name) if base == self.owner and not depth:
                path = name
            case ast.Attribute(value=ast.Attribute(value=ast.Name(id=base), attr="ops"), attr=name) if (
                base == self.owner
            ):
                path = f"ops.{name}"
            case _:
                raise self._other_call(call, depth)
        args = tuple(self._items(call.args, depth))
        keywords: dict[str, Argument] = {}
        for keyword in call.keywords:
            if keyword.arg is None:
                raise FormatError(place(keyword.value), "** is not read")
            if keyword.arg in keywords:
                raise FormatError(place(keyword.value), f"argument {keyword.arg} is given twice")
            keywords[keyword.arg] = self._argument(keyword.value, depth + 1)
        self._add(PythonCall(targets, path, args, keywords, place(call)))

    def _other_call(self, call: ast.Call, depth: int) -> FormatError:
        """A call of something else, as torch.exp(T0) or T0.exp(): what it would be here, where there is such an op."""
        within = f"{self.owner}.ops.NAME" if depth else f"{self.owner}.NAME or {self.owner}.ops.NAME"
        error = refused(call, f"a call of {within}")
        base, _, name = dotted(call.func).rpartition(".")
        if not name and isinstance(call.func, ast.Attribute):
            name = call.func.attr
        given = [shown(a) for a in (*call.args, *call.keywords)]
        if isinstance(call.func, ast.Attribute) and not self._is_module(base):
            given.insert(0, shown(call.func.value))
        if name in _CASTS and given and name not in self.ops:
            cast = f"{self.owner}.ops.cast({given[0]}, dtype=DataType.{_CASTS[name]})"
            return FormatError(error.place, f"{error.reason}: write {cast}")
        if name in self.ops:
            return FormatError(error.place, f"{error.reason}: write {self.owner}.ops.{name}({', '.join(given)})")
        return FormatError(error.place, f"{error.reason}{op_hint(name, self.ops) if name else ''}")

    def _is_module(self, base: str) -> bool:
        """Whether the part before a function's name is neither tensor nor constant: torch.nn.functional, math."""
        return bool(base) and not self.constants.is_value(base.partition(".")[0])

    def _operator(self, node: ast.expr, targets: tuple[str, ...], depth: int) -> None:
        """The call that an operator with tensors beside it stands for."""
        match node:
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _INFIX:
                name, operands = _INFIX[type(op)], [left, right]
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _INFIX:
                name, operands = _INFIX[type(op)], [left, right]
            case ast.UnaryOp(op=op, operand=operand) if type(op) in _PREFIX and not isinstance(op, ast.Not):
                name, operands = _PREFIX[type(op)], [operand]
            case ast.Subscript(value=value, slice=index) if not isinstance(index, ast.Slice | ast.Tuple):
                name, operands = "at", [value, index]
            case _:
                raise self._no_operator(node)
        args = tuple(self._argument(o, depth + 1) for o in operands)
        self._add(PythonCall(targets, f"ops.{name}", args, {}, place(node)))

    def _no_operator(self, node: ast.expr) -> FormatError:
        """An operator that Python does not hand to tensors, or that nvFuser has no op for: what to write instead."""
        ops = f"{self.owner}.ops"
        match node:
            case ast.BinOp(op=ast.FloorDiv(), left=left, right=right):
                advice = f"{ops}.floor({ops}.truediv({shown(left)}, {shown(right)}))"
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                advice = f"{ops}.logical_not({shown(operand)})"
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return refused(node, f"{shown(operand)} alone")
            case ast.BoolOp(op=op, values=[left, right, *_]):
                advice = f"{ops}.{_JOINING[type(op)]}({shown(left)}, {shown(right)})"
            case ast.Compare(left=left, ops=[op, *_], comparators=[middle, _, *_]) if type(op) in _INFIX:
                first = f"{ops}.{_INFIX[type(op)]}({shown(left)}, {shown(middle)})"
                advice = f"{first} and so on, joined by {ops}.logical_and"
            case ast.Subscript(value=value):
                advice = f"{ops}.slice({shown(value)}, start_indices=[...], end_indices=[...])"
            case _:
                return refused(node, "one of + - * / % ** @ or a comparison")
        return refused(node, f"a call: write {advice}")

    def _argument(self, node: ast.expr, depth: int) -> Argument:
        if depth > NESTED:
            raise FormatError(place(node), f"more than {NESTED} calls, operators and lists within each other")
        found = self._constant(node, depth)
        return Argument(self._literal(node, depth), place(node)) if found is None else found

    def _literal(self, node: ast.expr, depth: int) -> Literal:
        """The value of an argument that is not made of constants alone: a name, a list, or the result of a call or an
        operator, which becomes a call of its own. Raises FormatError for anything else."""
        match node:
            case ast.Name(id=name):
                return Name(name)
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                return self._items(elements, depth)
            case ast.Call():
                self._call(node, (self._inner(),), depth)
            case ast.BinOp() | ast.UnaryOp() | ast.Subscript() | ast.Compare() | ast.BoolOp():
                self._operator(node, (self._inner(),), depth)
            case _:
                raise refused(node, "a number, True, False, None, a name, DataType.NAME, a call or a list of these")
        return Name(self.calls[-1].targets[0])

    def _items(self, elements: list[ast.expr], depth: int) -> list[Argument]:
        """A list with tensors or calls in it; a starred constant list is written out."""
        items: list[Argument] = []
        for element in elements:
            starred = self._constant(element.value, depth + 1) if isinstance(element, ast.Starred) else None
            if starred is not None and isinstance(starred.value, list):
                items += starred.value
            else:
                items.append(self._argument(element, depth + 1))
        return items

    def _inner(self) -> str:
        """A name for the result of a call within another, which no Python name can be."""
        self._inner_calls += 1
        return f"%{self._inner_calls - 1}"


def _target(node: ast.expr) -> str:
    if not isinstance(node, ast.Name):
        raise refused(node, "a plain name to assign to")
    return node.id


def _is_docstring(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )
