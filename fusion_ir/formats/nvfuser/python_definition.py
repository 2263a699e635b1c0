"""The fusion definition in a Python module: one function, or one `with FusionDefinition() as fd:`, with the constants
that it sees.

    N = 4096                                      def fusion(fd: FusionDefinition) -> None:
    def main():                                       x = fd.define_tensor(shape=[N], ...)
        with FusionDefinition() as fd:                ...
            x = fd.define_tensor(shape=[N], ...)

A definition is known by what it calls: `fd.define_tensor`, `fd.add_output`. Everything else of the module (imports,
classes, functions, what runs it) is left alone, but for the constants that it assigns.
"""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fusion_ir.errors import FormatError
from fusion_ir.formats.nvfuser.python_constants import KNOWN, Constants, Unknown
from fusion_ir.formats.nvfuser.python_words import dotted, place, refused

_DEFINES = ("define_tensor", "add_output")
_CONTEXT = "FusionDefinition"

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Definition:
    """A fusion definition: its statements, the name of the object whose methods they call (`owner`), and the constants
    around them."""

    owner: str
    statements: Sequence[ast.stmt]
    constants: Constants
    place: str


def find_definition(module: ast.Module) -> Definition:
    """The module's one definition. Raises FormatError where there is none, or a second."""
    finder = _Finder()
    finder.block(module.body, Constants())
    if finder.found is not None:
        return finder.found
    functions = [s for s in module.body if isinstance(s, ast.FunctionDef)]
    if not functions:
        forms = f"'def nvfuser_fusion(fd: {_CONTEXT}):' or 'with {_CONTEXT}() as fd:'"
        raise FormatError("1:1", f"expected a definition such as {forms}, in which fd.define_tensor is called")
    if len(functions) > 1:
        raise _second(place(functions[0]), place(functions[1]))
    (function,) = functions
    return Definition(_owner_of(function), function.body, _inside(function, Constants()), place(function))


class _Finder:
    """Goes through blocks in the order in which they would run."""

    def __init__(self) -> None:
        self.found: Definition | None = None

    def block(self, statements: Sequence[ast.stmt], constants: Constants) -> None:
        """A module, a class or the body of a function: functions see its names as they are at its end."""
        functions: list[Function] = []
        self._run(statements, constants, functions)
        for function in functions:
            self._function(function, _inside(function, constants))

    def _run(self, statements: Sequence[ast.stmt], constants: Constants, functions: list[Function]) -> None:
        for statement in statements:
            match statement:
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    functions.append(statement)
                case ast.ClassDef():
                    self._class(statement, constants)
                case ast.With() | ast.AsyncWith():
                    self._with(statement, constants, functions)
                case ast.If() | ast.For() | ast.AsyncFor() | ast.While() | ast.Try() | ast.TryStar() | ast.Match():
                    self._perhaps(statement, constants, functions)
                case _:
                    assign_constants(statement, constants)

    def _function(self, function: Function, constants: Constants) -> None:
        names = [a.arg for a in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
        called = _defining(function.body)
        owner = next((name for name in names if name in called), None)
        if owner is None:
            self.block(function.body, constants)
        elif isinstance(function, ast.FunctionDef):
            _check_owner(function, owner)
            self._add(Definition(owner, function.body, constants, place(function)))

    def _class(self, class_: ast.ClassDef, constants: Constants) -> None:
        """Reads a class: its constants are known as Model.N around it, and as self.N and cls.N to its methods."""
        inside, functions = Constants(constants), list[Function]()
        self._run(class_.body, inside, functions)
        members = inside.own()
        for name, value in members.items():
            constants.put(f"{class_.name}.{name}", value, class_.lineno)
        of_self = Constants(constants)
        for name, value in members.items():
            for owner in ("self", "cls"):
                of_self.put(f"{owner}.{name}", value, class_.lineno)
        for function in functions:
            self._function(function, _inside(function, of_self))

    def _with(self, statement: ast.With | ast.AsyncWith, constants: Constants, functions: list[Function]) -> None:
        owner = _context_name(statement)
        if owner is not None and owner in _defining(statement.body):
            self._add(Definition(owner, statement.body, constants.snapshot(), place(statement)))
            return
        for item in statement.items:
            if item.optional_vars is not None:
                constants.forget(item.optional_vars, "a with statement gives it its value")
        self._run(statement.body, constants, functions)

    def _perhaps(self, statement: ast.stmt, constants: Constants, functions: list[Function]) -> None:
        """Blocks that run once, often or never: definitions are looked for, and what they assign has no value."""
        for block in _blocks(statement):
            inside = Constants(constants)
            if isinstance(statement, ast.For | ast.AsyncFor):
                inside.forget(statement.target, "a loop gives it its values")
            self._run(block, inside, functions)
            constants.forget_block(inside, "it is assigned in a branch or a loop")

    def _add(self, definition: Definition) -> None:
        if self.found is not None:
            raise _second(self.found.place, definition.place)
        self.found = definition


def assign_constants(statement: ast.stmt, constants: Constants) -> bool:
    """Takes the names that an assignment, or an import, gives a value; False for any other statement."""
    match statement:
        case ast.Assign(targets=targets, value=value):
            constants.assign(targets, value, statement.lineno)
        case ast.AnnAssign(target=target, value=value):
            constants.assign([target], value, statement.lineno)
        case ast.AugAssign(target=ast.Name() as target, op=op, value=value):
            changed = ast.copy_location(ast.BinOp(ast.Name(target.id, ast.Load()), op, value), statement)
            constants.assign([target], ast.fix_missing_locations(changed), statement.lineno)
        case ast.ImportFrom(module=module, names=names):
            for imported in names:
                name, known = imported.asname or imported.name, KNOWN.get(f"{module}.{imported.name}")
                reason = f"it is imported in line {statement.lineno}"
                constants.put(name, Unknown(reason) if known is None else known, statement.lineno)
        case _:
            return False
    return True


def _inside(function: Function, around: Constants) -> Constants:
    """The constants at the beginning of a function: its parameters are its defaults, or have no value in the text."""
    constants = Constants(around, called_later=True)
    arguments = function.args
    plain = (*arguments.posonlyargs, *arguments.args)
    defaults = [*([None] * (len(plain) - len(arguments.defaults))), *arguments.defaults, *arguments.kw_defaults]
    for argument, default in zip((*plain, *arguments.kwonlyargs), defaults, strict=True):
        name, line = argument.arg, argument.lineno
        if default is None:
            constants.put(name, Unknown(f"it is a parameter of line {line}"), line)
        else:
            constants.assign([ast.Name(name, ast.Store())], default, line)
    for extra in (arguments.vararg, arguments.kwarg):
        if extra is not None:
            constants.put(extra.arg, Unknown(f"it is a parameter of line {extra.lineno}"), extra.lineno)
    return constants


def _owner_of(function: ast.FunctionDef) -> str:
    """The parameter of a function that calls nothing on any: the one called fd, or the first."""
    names = [a.arg for a in function.args.args]
    if not names:
        raise FormatError(place(function), f"expected a parameter, such as 'fd: {_CONTEXT}'")
    owner = "fd" if "fd" in names else names[0]
    _check_owner(function, owner)
    return owner


def _check_owner(function: ast.FunctionDef, owner: str) -> None:
    """Raises FormatError for what may make another function of it, or another object of its parameter."""
    if function.decorator_list:
        raise refused(function.decorator_list[0], "no decorators")
    arguments = function.args
    plain = (*arguments.posonlyargs, *arguments.args)
    behind = plain[len(plain) - len(arguments.defaults) :] if arguments.defaults else ()
    for argument, default in zip(behind, arguments.defaults, strict=True):
        if argument.arg == owner:
            raise refused(default, f"no default arguments for {owner}")


def _context_name(statement: ast.With | ast.AsyncWith) -> str | None:
    """`fd` of `with nvfuser.FusionDefinition() as fd:`."""
    for item in statement.items:
        called = dotted(item.context_expr.func) if isinstance(item.context_expr, ast.Call) else ""
        if called.rpartition(".")[2] == _CONTEXT and isinstance(item.optional_vars, ast.Name):
            return item.optional_vars.id
    return None


def _defining(statements: Sequence[ast.stmt]) -> set[str]:
    """The names on which these statements define tensors or outputs; functions and classes within have their own."""
    found = set[str]()
    waiting: list[ast.AST] = [*statements]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            continue
        if isinstance(node, ast.With | ast.AsyncWith) and _context_name(node) is not None:
            continue
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=attr) if attr in _DEFINES:
                found.add(name)
            case _:
                waiting += ast.iter_child_nodes(node)
    return found


def _blocks(statement: ast.stmt) -> Iterator[Sequence[ast.stmt]]:
    """The blocks of a compound statement."""
    for name in ("body", "orelse", "finalbody"):
        yield getattr(statement, name, [])
    for part in (*getattr(statement, "handlers", []), *getattr(statement, "cases", [])):
        yield part.body


def _second(first: str, second: str) -> FormatError:
    lines = f"lines {first.partition(':')[0]} and {second.partition(':')[0]}"
    return FormatError(second, f"{lines} begin a definition each, expected one")
