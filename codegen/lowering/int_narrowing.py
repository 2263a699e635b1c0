"""Narrowing: whole numbers of 64 bits that need 32 at most are compared, converted and reduced in lanes of 32.

    where(0 + 1 * i1 <= 0 + 1 * i0, x, -inf) in i64, i0 and i1 < 1024  ->  where(i1 <= i0, x, -inf) in i32

Exact: `intervals` proves that no step wraps in either type. Sums and multiples of indices become one index. One side
of a comparison may be any number that is equal for all lanes: it is clamped to the other's range and one beyond.

    i1 == label, i1 < 1024  ->  i1 == i32(min(max(label, -1), 1024))
"""

from collections.abc import Iterable, Sequence

from codegen.lowering.index import Affine, Axis
from codegen.lowering.intervals import RULES, Intervals, whole, within
from codegen.lowering.stores import MAX_VALUES
from codegen.lowering.value import COMPARISONS, INDEXED, Value, Values, cone
from codegen.lowering.write import Write
from fusion_ir.core.scalar import Scalar
from fusion_ir.dtype import i32, i64

MANY = ("reduce", "scan")


def narrow(writes: Sequence[Write], lanes: Iterable[Axis]) -> list[Write]:
    """The writes with whole numbers in narrower lanes where that changes no bit. lanes: axes that vectors run along."""
    values = cone(w.value for w in writes)
    if not any(v.dtype == i64 for v in values):
        return list(writes)
    narrower, made = _Narrower(frozenset(lanes)), dict[Value, Value]()
    for v in values:
        made[v] = narrower.rewritten(v, tuple(made[a] for a in v.args), made)
    return [Write(w.out, w.offset, made[w.value], w.axes, w.itemsize) for w in writes]


class _Narrower:
    def __init__(self, lanes: frozenset[Axis]) -> None:
        self.lanes = lanes
        self.values = Values(2 * MAX_VALUES)
        self.ranges = Intervals()
        self.fits: set[Value] = set()  # of i64: what can be computed in i32
        self.halves: dict[Value, Value] = {}

    def rewritten(self, v: Value, args: tuple[Value, ...], made: dict[Value, Value]) -> Value:
        """The value that replaces `v`, over its operands `args` that are rewritten already."""
        return self.known(
            self.folded(v, args) or self.compared(v, args) or self.converted(v, args) or self.again(v, args, made)
        )

    def again(self, v: Value, args: tuple[Value, ...], made: dict[Value, Value]) -> Value:
        if v.op in INDEXED:
            e = v.offset.refetch(lambda x: made[x] if isinstance(x, Value) else x)
            return self.values.indexed(v, args, e)
        new = self.known(self.values.make(v.op, args, v.attr, v.dtype, v.scanned))
        if v.op in MANY and (half := self.half(new)):
            return self.values.cast(half, v.dtype)
        return new

    def known(self, v: Value) -> Value:
        """Notes the range of `v`, and whether i32 can compute it; returns `v`. Operands come before their users."""
        if not v.dtype.is_float:
            self.ranges.of(v)
        if v.dtype == i64 and (exact := self.ranges.exact(v)) and within(exact, whole(i32)):
            through = (v.op in RULES or v.op in MANY) and all(a in self.fits for a in v.args if a.dtype == i64)
            if through or v.op in ("const", "index", "cast"):
                self.fits.add(v)
        return v

    # ---- indices
    def folded(self, v: Value, args: tuple[Value, ...]) -> Value | None:
        """One index, or one operand, in place of arithmetic on indices."""
        if not v.dtype.is_integer:
            return None
        if v.op in ("add", "mul") and args[0].op == "const" and args[0].scalar.value == (v.op == "mul"):
            return args[1]
        es = [_affine(a) for a in args]
        if not es or None in es:
            return None
        e = _arithmetic(v.op, [e for e in es if e is not None])
        if e is None or not within((e.low, e.high), whole(v.dtype)) or not self.is_regular(e):
            return None
        return self.values.index(e, v.dtype)

    def is_regular(self, e: Affine) -> bool:
        """Whether lanes hold consecutive numbers, or all of them one number."""
        return not e.opaque_axes & self.lanes and all(e.coef(a) in (0, 1) for a in self.lanes)

    # ---- users of i64
    def compared(self, v: Value, args: tuple[Value, ...]) -> Value | None:
        if v.op not in COMPARISONS or args[0].dtype != i64:
            return None
        x, y = args
        halves = self.half(x) or self.beside(y, x), self.half(y) or self.beside(x, y)
        pair = [half for half in halves if half]
        return self.values.make(v.op, pair, v.attr, v.dtype) if len(pair) == 2 else None

    def beside(self, x: Value, y: Value) -> Value | None:
        """`y`, equal for all lanes, as an i32 that compares with `x` as `y` does: clamped to the range of x and one
        number beyond it at either end. None where x or this range needs more than 32 bits, and where y varies along
        lanes or x does not."""
        low, high = self.ranges.of(x)
        low, high = low - 1, high + 1
        if (
            self.half(x) is None
            or y.deps & self.lanes
            or not x.deps & self.lanes
            or not within((low, high), whole(i32))
        ):
            return None
        for bound, op in ((low, "maximum"), (high, "minimum")):
            y = self.values.make(op, (y, self.values.const(Scalar.of(bound, i64))), (), i64)
        return self.values.cast(y, i32)

    def converted(self, v: Value, args: tuple[Value, ...]) -> Value | None:
        if v.op != "cast" or args[0].dtype != i64:
            return None
        half = self.half(args[0])
        return self.values.cast(half, v.dtype) if half else None

    # ---- the same number in 32 bits
    def half(self, v: Value) -> Value | None:
        """An i64 value as i32; None where it may need more bits, or comes from memory with 64."""
        if v not in self.fits:
            return None
        for u in cone([v]):
            if u in self.fits and u not in self.halves:
                self.halves[u] = self.known(self._half(u))
        return self.halves[v]

    def _half(self, v: Value) -> Value:
        if v.op == "const":
            return self.values.const(Scalar.of(v.scalar.value, i32))
        if v.op == "index":
            return self.values.index(v.offset, i32)
        if v.op == "cast":
            return self.values.cast(v.args[0], i32)
        return self.values.make(v.op, [self.halves.get(a, a) for a in v.args], v.attr, i32, v.scanned)


def _affine(v: Value) -> Affine | None:
    if not v.dtype.is_integer:
        return None
    return Affine(int(v.scalar.value)) if v.op == "const" else v.offset if v.op == "index" else None


def _arithmetic(op: str, es: Sequence[Affine]) -> Affine | None:
    """The exact result; None where it is no sum of multiples with factors above 0."""
    if op == "cast":
        (found,) = es
    elif op in ("add", "sub"):
        found = es[0] + es[1] * (1 if op == "add" else -1)
    elif op == "mul" and not all(e.terms for e in es):
        factor, e = es if not es[0].terms else (es[1], es[0])
        found = e * factor.c
    else:
        return None
    return found if all(k > 0 for _, k in found.terms) else None
