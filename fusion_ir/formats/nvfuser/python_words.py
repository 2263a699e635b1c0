"""Names for the parts of a Python text in messages, and expressions as messages show them."""

import ast

from fusion_ir.errors import FormatError, excerpt

_SHOWN_CHARS = 60

KINDS: dict[type[ast.AST], str] = {
    # statements
    ast.AnnAssign: "this assignment",
    ast.Assert: "an assertion",
    ast.Assign: "this assignment",
    ast.AsyncFor: "a loop",
    ast.AsyncFunctionDef: "an async function",
    ast.AsyncWith: "a with statement",
    ast.AugAssign: "this assignment",
    ast.Break: "a break",
    ast.ClassDef: "a class",
    ast.Continue: "a continue",
    ast.Delete: "a del statement",
    ast.Expr: "this expression",
    ast.For: "a loop",
    ast.FunctionDef: "another function",
    ast.Global: "a global statement",
    ast.If: "a branch",
    ast.Import: "an import",
    ast.ImportFrom: "an import",
    ast.Match: "a branch",
    ast.Nonlocal: "a nonlocal statement",
    ast.Pass: "a pass",
    ast.Raise: "a raise",
    ast.Return: "a return",
    ast.Try: "a try",
    ast.TryStar: "a try",
    ast.While: "a loop",
    ast.With: "a with statement",
    # expressions
    ast.Attribute: "an attribute",
    ast.Await: "an await",
    ast.BinOp: "arithmetic",
    ast.BoolOp: "'and' or 'or'",
    ast.Call: "a call",
    ast.Compare: "a comparison",
    ast.Constant: "this constant",
    ast.Dict: "a dictionary",
    ast.DictComp: "a comprehension",
    ast.FormattedValue: "an f-string",
    ast.GeneratorExp: "a comprehension",
    ast.IfExp: "a choice",
    ast.JoinedStr: "an f-string",
    ast.Lambda: "a lambda",
    ast.List: "a list",
    ast.ListComp: "a comprehension",
    ast.Name: "a name",
    ast.NamedExpr: "an assignment expression",
    ast.Set: "a set",
    ast.SetComp: "a comprehension",
    ast.Slice: "a slice",
    ast.Starred: "a starred value",
    ast.Subscript: "a subscript",
    ast.Tuple: "a list",
    ast.UnaryOp: "an operator",
    ast.Yield: "a yield",
    ast.YieldFrom: "a yield",
}


def place(node: ast.AST) -> str:
    """The "line:column" at which a node begins."""
    return f"{getattr(node, 'lineno', 1)}:{getattr(node, 'col_offset', 0) + 1}"


def refused(node: ast.AST, expected: str) -> FormatError:
    """The error that a node may not stand where it does, with what was expected there."""
    return FormatError(place(node), f"{words(node)} is not allowed here, expected {expected}")


def words(node: ast.AST) -> str:
    """The name of a node's kind in messages: "a loop", "a call of 'torch.exp'"."""
    name = dotted(node.func) if isinstance(node, ast.Call) else ""
    return f"a call of {excerpt(name)}" if name else KINDS.get(type(node), "this")


def dotted(node: ast.AST) -> str:
    """`torch.nn.functional.silu` as it is written; "" for an expression that is no name with attributes."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def shown(node: ast.AST) -> str:
    """An expression as it would be written, "..." where that is long."""
    try:
        text = ast.unparse(node)
    except (RecursionError, ValueError):
        return "..."
    return text if len(text) <= _SHOWN_CHARS and "\n" not in text else "..."
