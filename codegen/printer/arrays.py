"""Text of values that outlive their statement: kept arrays, accumulators of reductions, running results of scans."""

from collections.abc import Callable, Sequence

from codegen.lowering.index import Axis
from codegen.lowering.program import Kept, Key
from codegen.lowering.scatters import ADD_LISTED
from codegen.lowering.sums import identity
from codegen.lowering.value import Value
from codegen.printer.dialect import Dialect
from codegen.printer.draft import Draft
from codegen.printer.expressions import CTYPE, literal, spell
from codegen.printer.joining import is_max
from fusion_ir.core.scalar import Scalar


class Arrays:
    """Prints declarations, fills and reads of these values."""

    def __init__(self, draft: Draft, dialect: Dialect) -> None:
        self.draft, self.program, self.lines, self.names = draft, draft.program, draft.lines, draft.names
        self.unrolled, self.within = draft.unrolled, dialect.loops.within
        self.places, self.shared_rows = dialect.arrays, dialect.arrays.shared_rows
        self.carries: dict[tuple[Value, Key], str] = {}
        self.at_hand: set[Value] = set()  # sums with accumulators in an array, of which one is in a local now

    # ---- names and types
    def vector(self, v: Value, lane: Axis | None) -> str:
        """The type of an element of a kept array."""
        if v in self.program.reductions and not self.program.reductions[v].joins_lanes:
            return self.accumulator_type(v)
        return f"Vec<{CTYPE[v.dtype.name]}, {self.draft.width(lane)}>"

    def indices(self, dims: Sequence[Axis], v: Value) -> str:
        """The present place in an array of `v` over `dims`."""
        return "".join(self.places.index(a, v) for a in dims)

    def dimensions(self, dims: Sequence[Axis], v: Value) -> str:
        """The extents of an array of `v` over `dims`."""
        return "".join(self.places.extent(a, v) for a in dims)

    def element_of(self, v: Value, kept: Kept) -> str:
        """The present element of a kept array."""
        if self.shared_rows and self.shared_rows.holds(v):
            return self.shared_rows.element(v, kept)
        lane = f"[{self.names.axis(kept.key.lane)}_v]" if kept.key.lane else ""
        return f"{self.names.array(v)}{self.indices(kept.dims, v)}{lane}"

    def fill(self, v: Value, kept: Kept, value: str) -> str:
        """The statement that sets the present element of a kept array."""
        if self.shared_rows and self.shared_rows.holds(v):
            return self.shared_rows.fill(v, kept, value)
        return f"{self.element_of(v, kept)} = {value};"

    def ref(self, v: Value, at: Key) -> str:
        """How block `at` spells a value: a local, or an element of a kept array."""
        kept = self.program.kept.get(v)
        if kept and v not in self.program.blocks[at].values:
            whole = v.op == "argreduce" and not self.program.reductions[v].joins_lanes
            return f"position({self.element_of(v, kept)})" if whole else self.element_of(v, kept)
        return self.names.name(v)

    def operand(self, v: Value, at: Key, width: int) -> str:
        if v.op == "const":
            return f"splat<{width}>({literal(v.scalar)})"
        return self.ref(v, at) if width == 1 or at.lane in v.deps else f"splat<{width}>({self.ref(v, at)})"

    # ---- kept arrays
    def declare(self, v: Value, kept: Kept) -> None:
        if self.shared_rows and self.shared_rows.holds(v):
            self.lines.add(self.shared_rows.declaration(v, kept))
            return
        lane = kept.key.lane
        vectors = f"[VECTORS({self.program.widths[lane]}, {lane.extent})]" if lane else ""
        self.lines.add(f"{self.vector(v, lane)} {self.names.array(v)}{self.dimensions(kept.dims, v)}{vectors};")

    def loops(self, axes: Sequence[Axis], body: Callable[[], None]) -> None:
        if not axes:
            body()
            return
        axis, *inner = axes
        with self.lines.braces(f"{self.within(axis)}({self.names.axis(axis)}, {self.draft.end(axis)})"):
            self.loops(inner, body)

    # ---- reductions
    def begin(self, v: Value) -> None:
        """Prints accumulators that live across loops, with their first values."""
        reduction = self.program.reductions[v]
        home, start = reduction.home, self.identity(v)
        kept = self.program.kept.get(v)
        if kept and kept.scope == home.path:
            self.declare(v, kept)
        if kept and not reduction.joins_lanes:
            vectors = f" {self.within(None)}({self.draft.vectors_along(home.lane)})" if home.lane else ""
            self.loops(home.dims, lambda: self.lines.add(f"{vectors} {self.accumulator(v)} = {start};".lstrip()))
        elif dims := self.unrolled.looped(home.dims):
            for _ in self.unrolled.points(v.deps):
                self.lines.add(f"{self.accumulator_type(v)} a{self.names.name(v)}{self.dimensions(dims, v)};")
                self.loops(dims, lambda: self.lines.add(f"{self.accumulator(v)} = {start};"))
        else:
            for _ in self.unrolled.points(v.deps):
                self.lines.add(f"{self.accumulator_type(v)} a{self.names.name(v)} = {start};")

    def end_sum(self, v: Value) -> None:
        reduction = self.program.reductions[v]
        if self.places.is_joined_in_array(v):
            self.join_in_array(v)
        elif reduction.joins_lanes or v not in self.program.kept:
            for _ in self.unrolled.points(v.deps):
                self.loops(self.unrolled.looped(reduction.home.dims), lambda: self.result(v))

    def join_in_array(self, v: Value) -> None:
        """Sets each accumulator in an array to the parts of it that all threads have, combined."""
        home = self.program.reductions[v].home
        over = f"{self.within(None)}({self.draft.vectors_along(home.lane)}) " if home.lane else ""
        for _ in self.unrolled.points(v.deps):
            self.loops(self.unrolled.looped(home.dims), lambda: self.lines.add(f"{over}{self.joined_in_place(v)}"))

    def joined_in_place(self, v: Value) -> str:
        at = self.accumulator(v)
        return f"{at} = {self.places.joined(v, at)};"

    def result(self, v: Value) -> None:
        """Prints the result of one accumulator, as a local or into its array."""
        done, kept = self.joined(v), self.program.kept.get(v)
        self.lines.add(self.fill(v, kept, done) if kept else f"const auto {self.names.name(v)} = {done};")

    def in_array(self, v: Value) -> bool:
        """Whether a sum along lanes has an accumulator for each point of some loops."""
        reduction = self.program.reductions[v]
        return reduction.joins_lanes and not reduction.is_local and bool(self.unrolled.looped(reduction.home.dims))

    def fetch_sum(self, v: Value, key: Key) -> None:
        """Copies one of the accumulators to a local for a loop over lanes: g++ would load and store it per vector."""
        for _ in self.unrolled.points(v.deps, key):
            self.lines.add(f"auto s{self.names.name(v)} = {self.accumulator(v)};")
        self.at_hand.add(v)

    def put_back(self, v: Value, key: Key) -> None:
        self.at_hand.remove(v)
        for _ in self.unrolled.points(v.deps, key):
            self.lines.add(f"{self.accumulator(v)} = s{self.names.name(v)};")

    def update(self, v: Value, key: Key, count: str | None) -> None:
        at, args = self.accumulator(v), [self.operand(a, key, self.draft.width(key.lane)) for a in v.args]
        combine = str(v.attr[0])
        if combine == ADD_LISTED:
            combine, args = "add", args[:1]
        if v.op == "argreduce" and len(v.bound) == 1:
            new = f"better_later<{is_max(v)}>({at}, {args[0]}, {args[1]})"
        elif v.op == "argreduce":
            new = f"better<{is_max(v)}>({at}, {self.accumulator_type(v)}{{{args[0]}, {args[1]}}})"
        else:
            new = spell(combine, [*args, at] if combine == "fma" else [at, *args], v.dtype)
        self.lines.add(f"{at} = {new if count is None else f'first_lanes({count}, {new}, {at})'};")

    def joined(self, v: Value) -> str:
        """The result in an accumulator: its parts combined."""
        text = self.places.joined(v, self.accumulator(v))
        return f"position({text})" if v.op == "argreduce" else text

    def accumulator(self, v: Value) -> str:
        reduction, kept = self.program.reductions[v], self.program.kept.get(v)
        if v in self.at_hand:
            return f"s{self.names.name(v)}"
        if kept and not reduction.joins_lanes:
            return self.element_of(v, kept)
        dims = [] if reduction.is_local else self.unrolled.looped(reduction.home.dims)
        return f"a{self.names.name(v)}{self.indices(dims, v)}"

    def accumulator_type(self, v: Value) -> str:
        width = self.draft.width(self.program.reductions[v].site.lane)
        return (
            f"Best<{CTYPE[v.args[0].dtype.name]}, {width}, {CTYPE[v.dtype.name]}>"
            if v.op == "argreduce"
            else f"Vec<{CTYPE[v.dtype.name]}, {width}>"
        )

    def identity(self, v: Value) -> str:
        width = self.draft.width(self.program.reductions[v].site.lane)
        if v.op == "argreduce":
            worst = identity("maximum" if v.attr[0] == "argmax" else "minimum", v.args[0].dtype)
            return f"none_yet<{CTYPE[v.dtype.name]}, {width}>({literal(worst)})"
        is_listed = v.attr[0] == ADD_LISTED  # lists may be empty
        start = Scalar.of(0, v.dtype) if is_listed else identity(str(v.attr[0]), v.dtype)
        return f"splat<{width}>({literal(start)})"

    # ---- scans
    def declare_carry(self, v: Value, key: Key) -> None:
        """Declares the running result of a scan: one value where it runs along lanes, else a value for each lane and
        each point of the loops inside, which are set where the scan begins."""
        name = self.carries[v, key] = f"c{len(self.carries)}"
        if key.lane in v.scanned:
            start = literal(identity(str(v.attr[0]), v.dtype))
            self.lines.add(f"auto {name} = no_carry<{self.draft.width(key.lane)}>({start});")
            return
        vectors = f"[VECTORS({self.draft.width(key.lane)}, {key.lane.extent})]" if key.lane else ""
        dimensions = self.dimensions(self.program.carried_over(v, key), v)
        self.lines.add(f"{self.vector(v, key.lane)} {name}{dimensions}{vectors};")

    def scan(self, v: Value, key: Key) -> str:
        (axis,), name, width = v.scanned, self.carries[v, key], self.draft.width(key.lane)
        operand, step = self.operand(v.args[0], key, width), spell(str(v.attr[0]), ["a", "b"], v.dtype)
        f = f"[](const auto& a, const auto& b) {{ return {step}; }}"
        if axis is key.lane:
            return self.places.scanned(v, f, name, operand)
        lane = f"[{self.names.axis(key.lane)}_v]" if key.lane else ""
        carry = f"{name}{self.indices(self.program.carried_over(v, key), v)}{lane}"
        return f"scan_step({f}, {carry}, {operand}, {self.names.axis(axis)} == 0)"
