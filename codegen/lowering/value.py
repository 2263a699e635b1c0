"""Values: what a kernel computes once its views are gone. Equal values are one object within a lowering."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from codegen.lowering.index import Affine, Axis
from fusion_ir.core.scalar import Scalar
from fusion_ir.dtype import DType, i64

REDUCES = ("reduce", "argreduce")
INDEXED = ("load", "index", "uniform", "listed")  # values with an index expression as their last attribute
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")

# Ops whose result is one of their operands from the given one on, or that with another sign, or 0.
CHOICES = {"neg": 0, "abs": 0, "relu": 0, "maximum": 0, "minimum": 0, "clamp": 0, "where": 1}


@dataclass(frozen=True, eq=False)
class Value:
    """`op(args; attr): dtype`, one element for each point of the axes in `deps`.

    op: "load" (attr: input number, offset), "const" (attr: Scalar), "index" (attr: Affine), "fma", "uniform"
    (attr: stream, linear index; args: seed, offset), "listed" (attr: number of the lists, the axis that runs through
    one of them, the place whose list it is; gives the number of a slice), "reduce" (attr: combining op, axes it runs
    over; args of "add_where": condition, term; of "add_listed": term, listed slice), "argreduce" (attr as of "reduce";
    args: operand, position), "scan" (attr: combining op, axes it runs along, outermost first; combines a point with all
    points before it along these), "cast", or a pointwise op of `OPS`. `uid` is the order of creation: operands come
    before users.
    """

    op: str
    args: "tuple[Value, ...]"
    attr: tuple[object, ...]
    dtype: DType
    deps: frozenset[Axis]
    uid: int

    def __repr__(self) -> str:
        return f"v{self.uid}={self.op}"

    @property
    def tensor(self) -> int:
        """Number of the input that a load reads."""
        assert self.op == "load" and isinstance(self.attr[0], int)
        return self.attr[0]

    @property
    def offset(self) -> Affine:
        """Element offset of a load; the expression of an index; the linear index of a uniform; the place of a listed
        slice."""
        assert self.op in INDEXED and isinstance(self.attr[-1], Affine)
        return self.attr[-1]

    @property
    def bound(self) -> tuple[Axis, ...]:
        """The axes that a reduction runs over; none for other values."""
        return tuple(a for a in self.attr if isinstance(a, Axis)) if self.op in REDUCES else ()

    @property
    def ranges(self) -> frozenset[Axis]:
        """The axes that it varies with, and those that a reduction runs over."""
        return self.deps.union(self.bound) if self.op in REDUCES else self.deps

    @property
    def scanned(self) -> tuple[Axis, ...]:
        """The axes that a scan runs along, which it varies with; none for other values."""
        return tuple(a for a in self.attr if isinstance(a, Axis)) if self.op == "scan" else ()

    @property
    def walked(self) -> tuple[Axis, ...]:
        """The axis that runs through a list, with which a listed slice varies; none for other values."""
        return tuple(a for a in self.attr if isinstance(a, Axis)) if self.op == "listed" else ()

    @property
    def scalar(self) -> Scalar:
        """The value of a const."""
        assert self.op == "const" and isinstance(self.attr[0], Scalar)
        return self.attr[0]

    @property
    def is_cheap(self) -> bool:
        """Whether the value is computed again where it is used, not kept: loads, constants, indices, exact casts and
        negations of these, and comparisons of indices."""
        if self.op in ("load", "const", "index"):
            return True
        if self.op in COMPARISONS:
            return all(a.op in ("index", "const") for a in self.args)
        return (self.op == "neg" or is_exact_cast(self)) and self.args[0].is_cheap


def is_exact_cast(v: Value) -> bool:
    """True for a cast that keeps every value."""
    return v.op == "cast" and v.dtype.holds(v.args[0].dtype)


def is_representable(v: Value, dtype: DType, depth: int = 4) -> bool:
    """True if the value is always one of `dtype`, so that rounding to it changes nothing (NaN payloads aside).

    depth: ops that are seen through, of those that choose among their operands or change a sign.
    """
    if dtype.holds(v.dtype):
        return True
    if v.op == "const":
        return is_value(v.scalar, dtype)
    if is_exact_cast(v):
        return is_representable(v.args[0], dtype, depth)
    chosen = CHOICES.get(v.op) if v.dtype.is_float and dtype.is_float and depth else None
    return chosen is not None and all(is_representable(a, dtype, depth - 1) for a in v.args[chosen:])


def is_value(scalar: Scalar, dtype: DType) -> bool:
    """Whether a float constant is one of another float type."""
    if not (scalar.dtype.is_float and dtype.is_float):
        return False
    return Scalar.of(scalar.value, dtype).value == scalar.value


@dataclass
class Values:
    """Makes values; equal ones once. `limit` bounds their number."""

    limit: int = 1 << 30
    _known: dict[tuple[object, ...], Value] = field(default_factory=dict[tuple[object, ...], Value])

    def make(
        self, op: str, args: Sequence[Value], attr: tuple[object, ...], dtype: DType, own: Iterable[Axis] = ()
    ) -> Value:
        """`own`: axes that the attribute itself varies with. A reduction does not vary with the axes in its own."""
        key = (op, *[a.uid for a in args], "|", *attr, dtype.name)
        value = self._known.get(key)
        if value is None:
            if len(self._known) >= self.limit:
                raise TooManyValues(f"more than {self.limit} values in one kernel")
            deps = frozenset(own).union(*(a.deps for a in args)) - (frozenset(attr) if op in REDUCES else frozenset())
            value = self._known[key] = Value(op, tuple(args), attr, dtype, deps, len(self._known))
        return value

    def const(self, scalar: Scalar) -> Value:
        return self.make("const", (), (scalar,), scalar.dtype)

    def load(self, tensor: int, offset: Affine, dtype: DType) -> Value:
        return self.make("load", self._indices(offset), (tensor, offset), dtype, offset.axes)

    def index(self, e: Affine, dtype: DType = i64) -> Value:
        """`dtype`: an integer type that holds all of its values."""
        if not e.terms:
            return self.const(Scalar.of(e.c, dtype))
        return self.make("index", self._indices(e), (e,), dtype, e.axes)

    def uniform(self, seed: Value, offset: Value, stream: int, linear: Affine, dtype: DType) -> Value:
        return self.make("uniform", (seed, offset, *self._indices(linear)), (stream, linear), dtype, linear.axes)

    def listed(self, lists: int, along: Axis, place: Affine) -> Value:
        """The number of slice `along` of those of a place, by the lists of this number."""
        return self.make("listed", self._indices(place), (lists, along, place), i64, (along, *place.axes))

    def indexed(self, v: Value, args: Sequence[Value], e: Affine) -> Value:
        """A value as `v`, one of `INDEXED`, with another index expression."""
        return self.make(v.op, args, (*v.attr[:-1], e), v.dtype, (*e.axes, *v.walked))

    @staticmethod
    def _indices(e: Affine) -> tuple[Value, ...]:
        return tuple(v for v in e.fetched if isinstance(v, Value))

    def cast(self, x: Value, dtype: DType) -> Value:
        """Exact round trips vanish: a bf16 value, its negation or the larger of two survives f32 -> bf16 -> f32."""
        if x.dtype == dtype:
            return x
        if x.op == "cast" and x.args[0].dtype == dtype and is_representable(x.args[0], x.dtype):
            return x.args[0]
        if x.op == "const" and dtype.holds(x.dtype):
            return self.const(Scalar.of(x.scalar.value, dtype))
        return self.make("cast", (x,), (), dtype)


def remade(values: Values, root: Value, made: dict[Value, Value]) -> Value:
    """`root` made anew in `values`, with all values below it that `made` lacks; adds every one of them to `made`."""
    stack = [root]
    while stack:
        v = stack[-1]
        missing = [a for a in v.args if a not in made]
        if missing and v not in made:
            stack += reversed(missing)
            continue
        stack.pop()
        if v in made:
            continue
        args = [made[a] for a in v.args]
        if v.op in INDEXED:
            e = v.offset.refetch(lambda x: made[x] if isinstance(x, Value) else x)
            made[v] = values.indexed(v, args, e)
        else:
            made[v] = values.make(v.op, args, v.attr, v.dtype, () if v.bound else v.deps)
    return made[root]


class TooManyValues(Exception):
    """The cone of a segment is too large for one kernel."""


def cone(roots: Iterable[Value]) -> list[Value]:
    """Every value below `roots`, operands first."""
    found: dict[Value, None] = {}
    stack = list(roots)
    while stack:
        v = stack.pop()
        if v not in found:
            found[v] = None
            stack.extend(v.args)
    return sorted(found, key=attrgetter("uid"))


def rewrite_offsets(
    values: Values,
    roots: Sequence[Value],
    change: Callable[[Affine], Affine],
    axes_of: Callable[[tuple[Axis, ...]], tuple[Axis, ...]],
) -> list[Value]:
    """The roots over new index expressions and axes, made in `values`."""
    made: dict[Value, Value] = {}
    for v in cone(roots):
        args = [made[a] for a in v.args]
        if v.op in INDEXED:
            e = change(v.offset.refetch(lambda x: made[x] if isinstance(x, Value) else x))
            made[v] = values.indexed(v, args, e)
        elif v.op in REDUCES:
            made[v] = values.make(v.op, args, (v.attr[0], *axes_of(v.bound)), v.dtype)
        elif v.op == "scan":
            axes = axes_of(v.scanned)
            made[v] = values.make(v.op, args, (v.attr[0], *axes), v.dtype, axes)
        else:
            made[v] = values.make(v.op, args, v.attr, v.dtype)
    return [made[r] for r in roots]
