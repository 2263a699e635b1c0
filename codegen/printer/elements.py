"""Elements: text that computes one element of a value by itself, its reductions as loops around what varies inside."""

from codegen.lowering.code_length import op_length
from codegen.lowering.index import Axis
from codegen.lowering.program import UNCOUNTED
from codegen.lowering.scatters import ADD_WHERE
from codegen.lowering.value import REDUCES, Value
from codegen.printer.expressions import CTYPE, Expressions, literal, spell
from codegen.printer.lines import Lines
from fusion_ir.core.scalar import Scalar


class Elements:
    """Prints definitions of elements into `lines`, with names of `names`. length: of the code printed so far, in f32
    additions."""

    def __init__(self, lines: Lines, names: Expressions) -> None:
        self.lines, self.names = lines, names
        self.length = 0.0

    def operand(self, v: Value) -> str:
        return f"splat<1>({literal(v.scalar)})" if v.op == "const" else self.names.name(v)

    def define(self, v: Value) -> None:
        """Prints `v` in the current scope unless an enclosing one has it, operands first."""
        for u in self._within_scope(v):
            if u.op == "const" or self.lines.is_declared(u):
                continue
            self.lines.scopes[-1].add(u)
            self.length += op_length(u.op, u.dtype) if u.op not in UNCOUNTED else 0.0
            if u.op in REDUCES:
                self.reduce(u)
            else:
                self.lines.add(f"const auto {self.names.name(u)} = {self.rhs(u)};")

    @staticmethod
    def _within_scope(v: Value) -> list[Value]:
        """Values to define up to `v`, outside the loops of the reductions in its cone, operands first."""
        found: dict[Value, None] = {}
        stack: list[tuple[Value, frozenset[Axis]]] = [(v, frozenset())]
        seen: set[tuple[Value, frozenset[Axis]]] = set()
        while stack:
            u, bound = stack.pop()
            if (u, bound) in seen:
                continue
            seen.add((u, bound))
            if not u.deps & bound:
                found[u] = None
            inner = bound | frozenset(u.bound)
            stack.extend((a, inner) for a in u.args)
        return sorted(found, key=lambda u: u.uid)

    def reduce(self, v: Value) -> None:
        """Prints the loop of a reduction around the values that vary inside it; it starts from the first element."""
        combine = v.attr[0]
        if combine == ADD_WHERE:
            self.add_where(v)
            return
        name, ctype = self.names.name(v), CTYPE[v.dtype.name]
        operand = v.args[0]
        if v.op == "argreduce":
            self.lines.add(f"Vec<{ctype}, 1> {name} = splat<1>({ctype}(0));")
            self.lines.add(f"Vec<{CTYPE[operand.dtype.name]}, 1> best_{name};")
        else:
            self.lines.add(f"Vec<{ctype}, 1> {name};")
        self.lines.add(f"bool first_{name} = true;")
        depth = self.lines.indent
        for a in v.bound:
            self.lines.add(f"LOOP({self.names.axis(a)}, {a.extent}) {{")
            self.lines.indent += 1
        self.lines.scopes.append(set())
        for arg in v.args:
            self.define(arg)
        args = [self.operand(a) for a in v.args]
        if v.op == "argreduce":
            better = f"arg_better<{'true' if combine == 'argmax' else 'false'}>({args[0]}, best_{name})"
            self.lines.add(f"if (first_{name} || {better}) {{ best_{name} = {args[0]}; {name} = {args[1]}; }}")
        else:
            step = spell(str(combine), [*args, name] if combine == "fma" else [name, *args], v.dtype)
            start = spell("mul", args, v.dtype) if combine == "fma" else args[0]
            self.lines.add(f"{name} = first_{name} ? {start} : {step};")
        self.lines.add(f"first_{name} = false;")
        self.lines.scopes.pop()
        while self.lines.indent > depth:
            self.lines.indent -= 1
            self.lines.add("}")

    def add_where(self, v: Value) -> None:
        """Prints the loop of a sum over the terms for which a condition holds; others are not computed."""
        (axis,), name, (condition, term) = v.bound, self.names.name(v), v.args
        zero = literal(Scalar.of(0, v.dtype))
        self.lines.add(f"Vec<{CTYPE[v.dtype.name]}, 1> {name} = splat<1>({zero});")
        with self.lines.braces(f"LOOP({self.names.axis(axis)}, {axis.extent})"):
            self.define(condition)
            with self.lines.braces(f"if (get({self.operand(condition)}, 0).u)"):
                self.define(term)
                self.lines.add(f"{name} = {spell('add', [name, self.operand(term)], v.dtype)};")

    def rhs(self, v: Value) -> str:
        if v.op == "load":
            return f"load<1, 1>(in{v.tensor} + {self.names.expr(v.offset)})"
        if v.op == "index":
            return f"splat<1>(({CTYPE[v.dtype.name]})({self.names.expr(v.offset)}))"
        if v.op == "uniform":
            seed, offset = (f"get({self.operand(a)}, 0)" for a in v.args[:2])
            return f"uniform_<1>({seed}, {offset}, {v.attr[0]}, splat<1>((int64_t)({self.names.expr(v.offset)})))"
        return spell(v.op, [self.operand(a) for a in v.args], v.dtype)
