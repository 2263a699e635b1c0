"""Names, index expressions, and the spelling of ops and constants."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod

from codegen.lowering.index import Affine, Axis, Fetched, Opaque, Term
from codegen.lowering.value import Value
from codegen.printer.unrolled_axes import UnrolledAxes
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


LanePlus = tuple[Axis, str]  # a lane axis, and the number of a lane that is added to it


class Expressions:
    """Names of axes and values, given in order of appearance, and index expressions over them.

    unrolled: names are those of its present point. rewritten: applied to an index before it is printed. indexing: how
    the code being printed spells a value that it uses as an index. fixed: axes that are spelled otherwise than by a
    name. reach: no larger number comes up in the indices printed, nor in their loops.
    """

    def __init__(
        self,
        unrolled: UnrolledAxes | None = None,
        rewritten: Callable[[Affine, LanePlus | None], Affine] | None = None,
    ) -> None:
        self.unrolled = unrolled or UnrolledAxes()
        self.rewritten = rewritten
        self.indexing: Callable[[Value], str] = self.name
        self.axis_names: dict[Axis, str] = {}
        self.value_names: dict[Value, str] = {}
        self.fixed: dict[Axis, str] = {}
        self.reach = 0

    def axis(self, a: Axis) -> str:
        if a in self.unrolled.point:
            return str(self.unrolled.point[a])
        if a in self.fixed:
            return self.fixed[a]
        self.reach = max(self.reach, a.extent)
        return self.axis_names.setdefault(a, f"i{len(self.axis_names)}")

    def name(self, v: Value) -> str:
        return self._name(v) + self.unrolled.ending(v)

    def array(self, v: Value) -> str:
        """The name of a kept value's array, one for all points."""
        return f"k{self._name(v)}"

    def _name(self, v: Value) -> str:
        return self.value_names.setdefault(v, f"v{len(self.value_names)}")

    def expr(self, e: Affine, lane_plus: LanePlus | None = None) -> str:
        """An index expression; `lane_plus` adds a lane number to one axis."""
        if self.rewritten:
            e = self.rewritten(e, lane_plus)

        def atom(t: Term) -> str:
            if isinstance(t, Axis):
                return f"({self.axis(t)} + {lane_plus[1]})" if lane_plus and t is lane_plus[0] else self.axis(t)
            if isinstance(t, Fetched):
                assert isinstance(t.value, Value)
                return self._element(t.value, lane_plus)
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

    def each_lane(self, lane: Axis, e: Affine, head: str, end: str = "") -> str:
        """A function of lane `l` that returns its index expression between `head` and `end`."""
        return f"[&](int l) {{ return {head}{self.expr(e, (lane, 'l'))}{end}; }}"

    def _element(self, v: Value, lane_plus: LanePlus | None) -> str:
        """A value as an index: its element, or that of the given lane."""
        lane = lane_plus[1] if lane_plus and lane_plus[0] in v.deps else "0"
        return f"(idx_t)get({self.indexing(v)}, {lane})"

    def digits(self, loop: str, axes: Sequence[Axis]) -> Iterator[str]:
        """The declarations of axes as digits of one loop variable over their product."""
        whole = rest = prod(a.extent for a in axes)
        for a in axes:
            outside, rest = rest, rest // a.extent
            value = loop if rest == 1 else f"{loop} / {rest}"
            yield f"const idx_t {self.axis(a)} = {value if outside == whole else f'{value} % {a.extent}'};"
