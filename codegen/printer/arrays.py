"""Text of values that outlive their statement: kept arrays, accumulators of reductions, running results of scans."""

from collections.abc import Callable, Sequence

from codegen.lowering.index import Axis
from codegen.lowering.program import Kept, Key, Program
from codegen.lowering.sums import identity
from codegen.lowering.value import Value
from codegen.printer.expressions import CTYPE, literal, spell
from codegen.printer.unrolled_axes import PointText


class KeptText(PointText):
    """Prints declarations, fills and reads of these values. `here` is the block being printed."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.here = Key(())
        self.carries: dict[tuple[Value, Key], str] = {}
        self.at_hand: set[Value] = set()  # sums with accumulators in an array, of which one is in a local now

    # ---- names and types
    def width(self, lane: Axis | None) -> int:
        return self.program.widths[lane] if lane else 1

    def vector(self, v: Value, lane: Axis | None) -> str:
        """The type of an element of a kept array."""
        if v in self.program.reductions and not self.program.reductions[v].joins_lanes:
            return self.accumulator_type(v)
        return f"Vec<{CTYPE[v.dtype.name]}, {self.width(lane)}>"

    def indices(self, dims: Sequence[Axis], v: Value) -> str:
        """The present place in an array of `v` over `dims`."""
        return "".join(f"[{self.axis(a)}]" for a in dims)

    def dimensions(self, dims: Sequence[Axis], v: Value) -> str:
        """The extents of an array of `v` over `dims`."""
        return "".join(f"[{a.extent}]" for a in dims)

    def element_of(self, v: Value, kept: Kept) -> str:
        """The present element of a kept array."""
        lane = f"[{self.axis(kept.key.lane)}_v]" if kept.key.lane else ""
        return f"{self.array(v)}{self.indices(kept.dims, v)}{lane}"

    def fill(self, v: Value, kept: Kept, value: str) -> str:
        """The statement that sets the present element of a kept array."""
        return f"{self.element_of(v, kept)} = {value};"

    def ref(self, v: Value, at: Key) -> str:
        """How block `at` spells a value: a local, or an element of a kept array."""
        kept = self.program.kept.get(v)
        if kept and v not in self.program.blocks[at].values:
            whole = v.op == "argreduce" and not self.program.reductions[v].joins_lanes
            return f"position({self.element_of(v, kept)})" if whole else self.element_of(v, kept)
        return self.name(v)

    def indexing(self, v: Value) -> str:
        return self.ref(v, self.here)

    def operand(self, v: Value, at: Key, width: int) -> str:
        if v.op == "const":
            return f"splat<{width}>({literal(v.scalar)})"
        return self.ref(v, at) if width == 1 or at.lane in v.deps else f"splat<{width}>({self.ref(v, at)})"

    # ---- kept arrays
    def declare(self, v: Value, kept: Kept) -> None:
        lane = kept.key.lane
        vectors = f"[VECTORS({self.program.widths[lane]}, {lane.extent})]" if lane else ""
        self.line(f"{self.vector(v, lane)} {self.array(v)}{self.dimensions(kept.dims, v)}{vectors};")

    def loops(self, axes: Sequence[Axis], body: Callable[[], None]) -> None:
        if not axes:
            body()
            return
        with self.braces(f"{self.loop_within(axes[0])}({self.axis(axes[0])}, {self.end(axes[0])})"):
            self.loops(axes[1:], body)

    def vectors_along(self, lane: Axis) -> str:
        """The arguments of a loop over the vectors along lanes."""
        return f"{self.axis(lane)}_v, VECTORS({self.width(lane)}, {lane.extent})"

    def loop_within(self, axis: Axis | None) -> str:
        """The macro of a loop over a dimension of a kept array; None: over the vectors along its lanes."""
        return "LOOP"

    # ---- reductions
    def begin(self, v: Value) -> None:
        """Prints accumulators that live across loops, with their first values."""
        reduction = self.program.reductions[v]
        home, start = reduction.home, self.identity(v)
        kept = self.program.kept.get(v)
        if kept and kept.scope == home.path:
            self.declare(v, kept)
        if kept and not reduction.joins_lanes:
            vectors = f" {self.loop_within(None)}({self.vectors_along(home.lane)})" if home.lane else ""
            self.loops(home.dims, lambda: self.line(f"{vectors} {self.accumulator(v)} = {start};".lstrip()))
        elif dims := self.looped(home.dims):
            for _ in self.points(v.deps):
                self.line(f"{self.accumulator_type(v)} a{self.name(v)}{self.dimensions(dims, v)};")
                self.loops(dims, lambda: self.line(f"{self.accumulator(v)} = {start};"))
        else:
            for _ in self.points(v.deps):
                self.line(f"{self.accumulator_type(v)} a{self.name(v)} = {start};")

    def end_sum(self, v: Value) -> None:
        reduction = self.program.reductions[v]
        if reduction.joins_lanes or v not in self.program.kept:
            for _ in self.points(v.deps):
                self.loops(self.looped(reduction.home.dims), lambda: self.result(v))

    def result(self, v: Value) -> None:
        """Prints the result of one accumulator, as a local or into its array."""
        done, kept = self.joined(v), self.program.kept.get(v)
        self.line(self.fill(v, kept, done) if kept else f"const auto {self.name(v)} = {done};")

    def in_array(self, v: Value) -> bool:
        """Whether a sum along lanes has an accumulator for each point of some loops."""
        reduction = self.program.reductions[v]
        return reduction.joins_lanes and not reduction.is_local and bool(self.looped(reduction.home.dims))

    def fetch_sum(self, v: Value, key: Key) -> None:
        """Copies one of the accumulators to a local for a loop over lanes: g++ would load and store it per vector."""
        for _ in self.points(v.deps, key):
            self.line(f"auto s{self.name(v)} = {self.accumulator(v)};")
        self.at_hand.add(v)

    def put_back(self, v: Value, key: Key) -> None:
        self.at_hand.remove(v)
        for _ in self.points(v.deps, key):
            self.line(f"{self.accumulator(v)} = s{self.name(v)};")

    def update(self, v: Value, key: Key, count: str | None) -> None:
        at, width, args = (
            self.accumulator(v),
            self.width(key.lane),
            [self.operand(a, key, self.width(key.lane)) for a in v.args],
        )
        combine = str(v.attr[0])
        if v.op == "argreduce" and len(v.bound) == 1:
            new = f"better_later<{is_max(v)}>({at}, {args[0]}, {args[1]})"
        elif v.op == "argreduce":
            new = f"better<{is_max(v)}>({at}, {self.accumulator_type(v)}{{{args[0]}, {args[1]}}})"
        else:
            new = spell(combine, [*args, at] if combine == "fma" else [at, *args], v.dtype)
        self.line(f"{at} = {new if count is None or width == 1 else f'first_lanes({count}, {new}, {at})'};")

    def joined(self, v: Value) -> str:
        """The result in an accumulator: its lanes combined where they are parts of one result."""
        at = self.accumulator(v)
        if not self.program.reductions[v].joins_lanes:
            return f"position({at})" if v.op == "argreduce" else at
        if v.op == "argreduce":
            return f"position(join_best<{is_max(v)}>({at}))"
        return f"join_lanes({combination(v)}, {at})"

    def accumulator(self, v: Value) -> str:
        reduction, kept = self.program.reductions[v], self.program.kept.get(v)
        if v in self.at_hand:
            return f"s{self.name(v)}"
        if kept and not reduction.joins_lanes:
            return self.element_of(v, kept)
        return f"a{self.name(v)}" + ("" if reduction.is_local else self.indices(self.looped(reduction.home.dims), v))

    def accumulator_type(self, v: Value) -> str:
        width = self.width(self.program.reductions[v].site.lane)
        return (
            f"Best<{CTYPE[v.args[0].dtype.name]}, {width}, {CTYPE[v.dtype.name]}>"
            if v.op == "argreduce"
            else f"Vec<{CTYPE[v.dtype.name]}, {width}>"
        )

    def identity(self, v: Value) -> str:
        width = self.width(self.program.reductions[v].site.lane)
        if v.op == "argreduce":
            worst = identity("maximum" if v.attr[0] == "argmax" else "minimum", v.args[0].dtype)
            return f"none_yet<{CTYPE[v.dtype.name]}, {width}>({literal(worst)})"
        return f"splat<{width}>({literal(identity(str(v.attr[0]), v.dtype))})"

    # ---- scans
    def declare_carry(self, v: Value, key: Key) -> None:
        """Declares the running result of a scan: one value where it runs along lanes, else a value for each lane and
        each point of the loops inside, which are set where the scan begins."""
        name = self.carries[v, key] = f"c{len(self.carries)}"
        if key.lane in v.scanned:
            self.line(f"auto {name} = no_carry<{self.width(key.lane)}>({literal(identity(str(v.attr[0]), v.dtype))});")
            return
        vectors = f"[VECTORS({self.width(key.lane)}, {key.lane.extent})]" if key.lane else ""
        self.line(f"{self.vector(v, key.lane)} {name}{self.dimensions(self.program.carried_over(v, key), v)}{vectors};")

    def scan(self, v: Value, key: Key) -> str:
        (axis,), name, width = v.scanned, self.carries[v, key], self.width(key.lane)
        operand, step = self.operand(v.args[0], key, width), spell(str(v.attr[0]), ["a", "b"], v.dtype)
        f = f"[](const auto& a, const auto& b) {{ return {step}; }}"
        if axis is key.lane:
            return f"scan_lanes({f}, {name}, {operand})"
        lane = f"[{self.axis(key.lane)}_v]" if key.lane else ""
        carry = f"{name}{self.indices(self.program.carried_over(v, key), v)}{lane}"
        return f"scan_step({f}, {carry}, {operand}, {self.axis(axis)} == 0)"


def combination(v: Value) -> str:
    """A function that combines two results of a reduction."""
    combine = str(v.attr[0])
    step = f"better<{is_max(v)}>(a, b)" if v.op == "argreduce" else ""
    step = step or spell("add" if combine == "fma" else combine, ["a", "b"], v.dtype)
    return f"[](const auto& a, const auto& b) {{ return {step}; }}"


def is_max(v: Value) -> str:
    return "true" if v.attr[0] == "argmax" else "false"
