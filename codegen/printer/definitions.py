"""Definitions: the declarations of a block's values, each with the C++ expression that computes it."""

from collections.abc import Callable

from codegen.lowering.access import pattern
from codegen.lowering.index import Affine, Axis
from codegen.lowering.program import Key
from codegen.lowering.value import Value, Values, is_representable, is_value
from codegen.printer.arrays import Arrays
from codegen.printer.dialect import Dialect
from codegen.printer.draft import Draft
from codegen.printer.expressions import CTYPE, spell
from codegen.printer.memory import Memory
from fusion_ir.core.scalar import Scalar
from fusion_ir.dtype import bf16, f32

NARROW = ("add", "sub", "mul")  # of two bf16, rounded to bf16: one instruction for two lanes (cuda)


class Definitions:
    """Prints definitions of values. given: (value, block) -> its expression, where that is not what the value's op
    says; None for others. here: the block being printed."""

    def __init__(
        self, draft: Draft, dialect: Dialect, given: Callable[[Value, Key], str | None] = lambda v, key: None
    ) -> None:
        self.draft, self.program, self.lines, self.names = draft, draft.program, draft.lines, draft.names
        self.accesses, self.given = dialect.accesses, given
        self.arrays = Arrays(draft, dialect)
        self.memory = Memory(draft, dialect, self.arrays)
        self.here = Key(())
        draft.names.indexing = lambda v: self.arrays.ref(v, self.here)

    def declare(self, values: list[Value], key: Key, count: str | None) -> None:
        """Declares the values that no open brace has declared."""
        self.here = key
        for v in values:
            if self.lines.is_declared(v):
                continue
            self.lines.scopes[-1].add(v)
            kept = self.program.kept.get(v)
            for _ in self.names.unrolled.points(v.deps, key):
                keep = f" {self.arrays.fill(v, kept, self.names.name(v))}" if kept and kept.key == key else ""
                value = self.arrays.scan(v, key) if v.op == "scan" else self.value(v, key, count)
                self.lines.add(f"const auto {self.names.name(v)} = {value};{keep}")

    def value(self, v: Value, key: Key, count: str | None) -> str:
        """The expression that computes a value in block `key`. count: lanes of a masked vector; None: all of them."""
        if (there := self.given(v, key)) is not None:
            return there
        lane = key.lane if key.lane in v.deps else None
        width = self.draft.width(lane)
        operand = self.arrays.operand
        if v.op == "load":
            return self.memory.load(v, key, lane, width, count)
        if v.op == "listed":
            return f"splat<1>((int64_t)lists{v.attr[0]}.order[{self.names.axis(v.walked[0])}])"
        if v.op == "index":
            return self._index(v.offset, lane, width, count, CTYPE[v.dtype.name])
        if v.op == "uniform":
            seed, offset = (f"get({operand(a, key, 1)}, 0)" for a in v.args[:2])
            p = pattern(v.offset, lane, width, width)
            if p.kind == "vector" and p.width % 4 == 0:  # whole counters, of four elements each
                return f"uniform_run<{width}>({seed}, {offset}, {v.attr[0]}, {self.names.expr(v.offset)})"
            return f"uniform_<{width}>({seed}, {offset}, {v.attr[0]}, {self._index(v.offset, lane, width, count)})"
        kinds = (v.args[0].dtype, v.dtype) if v.op == "cast" else ()
        if kinds == (f32, bf16) and (operands := self._narrow_operands(v.args[0])):
            return f"narrow_{v.args[0].op}_({', '.join(operand(a, key, width) for a in operands)})"
        if kinds == (f32, bf16) and is_representable(v.args[0], bf16):
            exact = "exact_pairs" if lane in self.accesses.paired else "cast_exact<bf16>"
            return f"{exact}({operand(v.args[0], key, width)})"
        if kinds == (f32, bf16) and lane in self.accesses.paired:
            return f"round_pairs({operand(v.args[0], key, width)})"
        if kinds == (bf16, f32) and v.args[0].op != "load":
            return f"widen({operand(v.args[0], key, width)})"
        if v.op == "div" and v.dtype == f32 and width > 1 and self._is_shared(v.args[1], key):
            return f"divided_({operand(v.args[0], key, width)}, {operand(v.args[1], key, 1)})"
        return spell(v.op, [operand(a, key, width) for a in v.args], v.dtype)

    def _narrow_operands(self, v: Value) -> list[Value]:
        """The operands of v as bf16, where one instruction rounds v of two lanes, and they are declared."""
        if not self.accesses.narrows or v.op not in NARROW or not self.lines.is_declared(v):
            return []
        found: list[Value] = []
        for a in v.args:
            if a.op == "const" and is_value(a.scalar, bf16):
                found.append(Values().const(Scalar.of(a.scalar.value, bf16)))
            elif a.op == "cast" and a.args[0].dtype == bf16 and self.lines.is_declared(a.args[0]):
                found.append(a.args[0])
        return found if len(found) == len(v.args) else []

    def _is_shared(self, v: Value, key: Key) -> bool:
        """Whether all lanes of a block have one value, but not one that compilers turn into a product: a power of 2."""
        if v.op == "const":
            return v.scalar.bits & 0x7FFFFF != 0
        return key.lane not in v.deps

    def _index(self, e: Affine, lane: Axis | None, width: int, count: str | None, ctype: str = "int64_t") -> str:
        if lane is None or pattern(e, lane, width, width).kind == "vector":
            iota = "iota_pairs" if lane in self.accesses.paired else "iota_"
            return f"{iota}<{ctype}, {width}>({self.names.expr(e)})"
        return f"load_lanes<{width}>({self.names.each_lane(lane, e, f'({ctype})(', ')')}, {count or width})"
