"""Text that every printer of kernels shares: names, index expressions, spelling of ops and constants."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from math import prod

from codegen.lowering.index import Affine, Axis, Fetched, Opaque, Term
from codegen.lowering.value import Value
from fusion_ir.core.graph import Graph
from fusion_ir.core.scalar import Scalar
from fusion_ir.dtype import DType
from fusion_ir.ops import OPS

CTYPE: Mapping[str, str] = {
    "f64": "double",
    "f32": "float",
    "f16": "f16",
    "bf16": "bf16",
    "f8e4m3": "f8e4m3",
    "f8e5m2": "f8e5m2",
    "i8": "int8_t",
    "i16": "int16_t",
    "i32": "int32_t",
    "i64": "int64_t",
    "u8": "uint8_t",
    "bool": "boolean",
}


def parameters(graph: Graph) -> list[tuple[str, str]]:
    """(C++ type, name) of each parameter: inputs, then outputs."""
    found = [(f"const {CTYPE[spec.dtype.name]}*", f"in{i}") for i, spec in enumerate(graph.inputs)]
    return found + [(f"{CTYPE[o.node.dtype.name]}*", f"out{i}") for i, o in enumerate(graph.outputs)]


def literal(scalar: Scalar) -> str:
    """A constant, by its bits."""
    return f"bits<{CTYPE[scalar.dtype.name]}>(0x{scalar.bits:x}u{'ll' if scalar.dtype.bytes == 8 else ''})"


def spell(op: str, args: Sequence[str], dtype: DType) -> str:
    """One op over vectors."""
    if op == "cast":
        return f"cast<{CTYPE[dtype.name]}>({args[0]})"
    if op == "fma":
        return f"fma_({', '.join(args)})"
    return OPS[op].cpp.format(*args)


class Text:
    """Lines of a kernel's body, with names given in order of appearance."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.indent = 1
        self.axis_names: dict[Axis, str] = {}
        self.value_names: dict[Value, str] = {}
        self.scopes: list[set[Value]] = [set()]  # values declared, by open brace
        self.reach = 0  # of the indices printed: no larger number comes up in them, nor in their loops

    def line(self, text: str) -> None:
        self.lines.append("  " * self.indent + text)

    @contextmanager
    def braces(self, head: str) -> Generator[None]:
        self.line(f"{head} {{".lstrip())
        self.indent += 1
        self.scopes.append(set())
        yield
        self.scopes.pop()
        self.indent -= 1
        self.line("}")

    def axis(self, a: Axis) -> str:
        self.reach = max(self.reach, a.extent)
        return self.axis_names.setdefault(a, f"i{len(self.axis_names)}")

    def name(self, v: Value) -> str:
        return self.value_names.setdefault(v, f"v{len(self.value_names)}")

    def expr(self, e: Affine, lane_plus: tuple[Axis, str] | None = None) -> str:
        """An index expression; `lane_plus` adds a lane number to one axis."""

        def atom(t: Term) -> str:
            if isinstance(t, Axis):
                return f"({self.axis(t)} + {lane_plus[1]})" if lane_plus and t is lane_plus[0] else self.axis(t)
            if isinstance(t, Fetched):
                assert isinstance(t.value, Value)
                return self.element(t.value, lane_plus)
            inner = self.expr(t.of, lane_plus)
            if t.is_clamp:
                return f"clamp_index({inner}, {t.extent})"
            return f"({inner}) / {t.divisor} % {t.extent}" if t.divisor > 1 else f"({inner}) % {t.extent}"

        self.reach = max(self.reach, e.high - min(e.c, 0), -e.low)
        parts = [
            atom(t) if k == 1 else f"{k} * ({atom(t)})" if isinstance(t, Opaque) else f"{k} * {atom(t)}"
            for t, k in e.terms
        ]
        return " + ".join(parts + ([str(e.c)] if e.c or not parts else []))

    def element(self, v: Value, lane_plus: tuple[Axis, str] | None) -> str:
        """A value as an index: its element, or that of the given lane."""
        lane = lane_plus[1] if lane_plus and lane_plus[0] in v.deps else "0"
        return f"(idx_t)get({self.indexing(v)}, {lane})"

    def indexing(self, v: Value) -> str:
        """How the code being printed spells a value that it uses as an index."""
        return self.name(v)

    def digits(self, loop: str, axes: Sequence[Axis]) -> None:
        """Declares the axes as digits of one loop variable over their product."""
        whole = rest = prod(a.extent for a in axes)
        for a in axes:
            outside, rest = rest, rest // a.extent
            value = loop if rest == 1 else f"{loop} / {rest}"
            self.line(f"const idx_t {self.axis(a)} = {value if outside == whole else f'{value} % {a.extent}'};")
