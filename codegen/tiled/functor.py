"""Functions of a point as C++: structs that hold the tensors they touch; main loops call them for runs of columns."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from math import gcd

from codegen.kernel import Access
from codegen.lowering.access import Pattern, pattern
from codegen.lowering.index import Affine, Axis, Term
from codegen.lowering.program import Block, Key, Program
from codegen.lowering.value import Value, cone
from codegen.lowering.write import Write
from codegen.printer.cpu import SerialLoops, StackArrays
from codegen.printer.cpu_tiles import CpuTiles
from codegen.printer.definitions import Definitions
from codegen.printer.dialect import Dialect
from codegen.printer.draft import Draft
from codegen.printer.expressions import CTYPE, Expressions, LanePlus
from codegen.printer.memory import single_lanes, tensor_name
from codegen.printer.style import Style
from codegen.tiled.points import COLUMN, NAMES, Condition, Piece, PointDigit, Points
from fusion_ir.core.graph import Graph


@dataclass(frozen=True)
class Functor:
    """A struct of the kernel. text: its definition, for the top of the kernel's body. members: initialisers of its base
    ({}, if it has one) and of its fields, which are the tensors that it touches. reach: see `Expressions`."""

    name: str
    text: str
    members: tuple[str, ...]
    accesses: tuple[Access, ...]
    reach: int

    @property
    def made(self) -> str:
        """The C++ expression that makes an object of the struct in the kernel."""
        return f"{self.name}{{{', '.join(self.members)}}}"


def tensors_of(pieces: Sequence[Piece], without: int | None = None) -> tuple[str, ...]:
    """The tensors that the pieces load, in the order of their numbers, except tensor number `without`."""
    loads = {v.tensor for v in cone(p.write.value for p in pieces) if v.op == "load"}
    return tuple(f"in{i}" for i in sorted(loads - {without}))


def fields_of(graph: Graph, members: Sequence[str]) -> list[str]:
    """The declarations of a functor's fields."""
    kinds = {f"in{i}": f"const {CTYPE[spec.dtype.name]}*" for i, spec in enumerate(graph.inputs)}
    kinds |= {f"out{i}": f"{CTYPE[o.node.dtype.name]}*" for i, o in enumerate(graph.outputs)}
    return [f"{kinds[m]} RESTRICT {m};" for m in members]


class PointPrinter:
    """Prints pieces, each as a block of its own.

    product: number of the input that stands for the product; None where there is none. Inputs behind it are results of
    the point's row, which are in a struct `found`. run: columns that the function is called for. fetched: loads whose
    values are in a struct `fetched`, with field and type.
    """

    def __init__(
        self, points: Points, pieces: Sequence[Piece], style: Style, run: int, product: int | None,
        fetched: Mapping[Value, tuple[str, str]] = {},
    ) -> None:  # fmt: skip
        widths = {lane: width for width, lane in points.lanes.items()}
        program = Program(widths, {}, [], {key(p): Block() for p in pieces}, {})
        self.given, self.run, self.product, self.fetched = points, run, product, fetched
        self.columns = points.extents[COLUMN]
        self.start = Axis(-1, self.columns)  # the first column of a run
        self.firsts: dict[Axis, int] = {}  # axes over runs of so many columns: one of their steps is so many columns
        self.names = Expressions(rewritten=self._from_start)
        self.draft = Draft(program, style, self.names)
        self.lines = self.draft.lines
        self._definitions = Definitions(self.draft, _dialect(self.draft, self.columns), self._there)
        self._cover(whole=True)
        for lane in points.lanes.values():
            self.names.axis_names[lane] = "0"  # runs begin at their first lane
        for (digit, unit), axis in points.digits.items():
            if (digit.start, digit.period, digit.step) == (0, 0, 1):
                self.names.axis_names[axis] = NAMES[digit.number]
                if digit.number == COLUMN:
                    self.firsts[axis] = unit

    def _cover(self, *, whole: bool) -> None:
        """Sets whether a run is all that the function is called for."""
        self.whole = whole
        self.names.fixed[self.start] = self.number(COLUMN)

    # ---- what a function begins with
    def digits_of(self, pieces: Sequence[Piece], *, columns: bool, width: int) -> None:
        """Declares the digits that the pieces use, those of columns or the others."""
        used = {a for p in pieces for a in p.write.offset.axes}
        for v in cone(p.write.value for p in pieces):
            if v.op in ("load", "index", "uniform") and not (v.op == "load" and v.tensor == self.product):
                used.update(v.offset.axes)
        for (digit, unit), axis in self.given.digits.items():
            named = axis in self.names.axis_names
            if axis in used and not named and (digit.number == COLUMN) == columns and unit == (width if columns else 1):
                self.lines.add(f"const idx_t {self.names.axis(axis)} = {self.digit_text(digit, unit)};")

    def digit_text(self, d: PointDigit, unit: int) -> str:
        name = self.number(d.number)
        text = f"({name} - {d.start})" if d.start else name
        text = f"{text} % {d.period}" if d.period else text
        step = d.step * (unit if d.step == 1 else 1)
        return f"{text} / {step}" if step > 1 else text.strip("()")

    def number(self, number: int) -> str:
        return NAMES[number] if number != COLUMN or self.whole else "first"

    def condition(self, c: Condition) -> str:
        name = self.number(c.number)
        text = f"({name} - {c.start})" if c.start else name
        text = f"{text} % {c.period}" if c.period else text
        if c.high == c.low + 1:
            return f"{text} == {c.low}"
        bounds = [f"{text} >= {c.low}"] if c.low else []
        if c.period or c.high != self.given.extents[c.number]:
            bounds.append(f"{text} < {c.high}")
        return " && ".join(bounds)

    # ---- runs
    def runs(self, pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
        """The pieces by width; the text printed for each group stands in a loop over the runs of its width."""
        self.digits_of(pieces, columns=False, width=1)
        for width, own in groupby(sorted(pieces, key=lambda p: -p.width), key=lambda p: p.width):
            found = list(own)
            self._cover(whole=width == self.run)
            if self.whole:
                self.digits_of(found, columns=True, width=width)
                yield found
                continue
            steps = min(self.run, -(-self.columns // width) * width) // width
            with self.lines.braces(f"VEC_UNROLL for (int part_number = 0; part_number < {steps}; part_number++)"):
                step = f"{width} * part_number" if width > 1 else "part_number"
                self.lines.add(f"const idx_t first = column + {step};")
                if self.columns % self.run:
                    self.lines.add(f"if (first >= {self.columns}) break;")
                self.digits_of(found, columns=True, width=width)
                yield found
        self._cover(whole=True)

    @contextmanager
    def where(self, piece: Piece) -> Generator[None]:
        """A context in which text is printed under the piece's conditions."""
        conditions = " && ".join(map(self.condition, piece.conditions))
        if not conditions:
            yield
            return
        with self.lines.braces(f"if ({conditions})"):
            yield

    def count(self, piece: Piece) -> str | None:
        """Columns left, where a run may be cut short."""
        if self.columns % piece.width == 0:
            return None
        return "left" if self.whole else f"left - {piece.width} * part_number"

    # ---- values
    def _from_start(self, e: Affine, lane_plus: LanePlus | None) -> Affine:
        """An index from the first column of a run on, without the lane unless it has a number."""
        terms: list[tuple[Term, int]] = []
        for term, k in e.terms:
            if isinstance(term, Axis) and term in self.firsts:
                terms.append((self.start, k // self.firsts[term]))
            elif lane_plus or term not in self.draft.program.widths:
                terms.append((term, k))
        return Affine(e.c, tuple(terms))

    def fetch(self, pieces: Sequence[Piece]) -> dict[Value, tuple[str, str]]:
        """Sets the fields of a struct `fetched` to all loads of the pieces, except loads at a loaded index. Returns the
        field of each value, with its type. Only for pieces whose width is a whole run."""
        found: dict[Value, tuple[str, str]] = {}
        self.digits_of(pieces, columns=False, width=1)
        self.digits_of(pieces, columns=True, width=self.run)
        for piece in pieces:
            for v in cone([piece.write.value]):
                if v.op != "load" or v.tensor == self.product or v.offset.fetched or v in found:
                    continue
                width = piece.width if piece.lane in v.deps else 1
                found[v] = f"x{len(found)}", f"Packed<{CTYPE[v.dtype.name]}, {width}>"
                self.lines.add(f"fetched.{found[v][0]} = {self._definitions.value(v, key(piece), self.count(piece))};")
        return found

    def _there(self, v: Value, key: Key) -> str | None:
        """The expression of a load whose value is there when the function is called; None for any other value."""
        if v in self.fetched:
            return f"fetched.{self.fetched[v][0]}.get()"
        if v.op != "load" or self.product is None or v.tensor < self.product:
            return None
        if v.tensor > self.product:
            return f"found.of[{v.tensor - self.product - 1}]"
        width = self.draft.width(key.lane)
        return "product" if self.whole else f"part<{width}>(product, part_number)"

    def spread(self, piece: Piece) -> str:
        """The piece's value for all columns of a run, as an expression, once it is defined."""
        return self._definitions.arrays.operand(piece.write.value, key(piece), piece.width)

    def define(self, piece: Piece) -> None:
        """Declares the piece's value and what it is computed from."""
        values = [v for v in cone([piece.write.value]) if v.op != "const"]
        self._definitions.declare(values, key(piece), self.count(piece))

    def store(self, piece: Piece) -> None:
        """Stores the piece's value, once it is defined."""
        self.lines.add(self._definitions.memory.store(piece.write, key(piece), self.count(piece)))


@dataclass(frozen=True)
class RunAccesses:
    """Loads and stores of a run of columns, as `AccessDialect` says. columns: of the product."""

    draft: Draft
    columns: int
    narrows: bool = True
    paired: frozenset[Axis] = frozenset()

    def pattern(self, tensor: str, e: Affine, lane: Axis | None, width: int, itemsize: int) -> Pattern:
        return pattern(e, lane, width, max(self.draft.style.alignments[tensor] // itemsize, 1))

    def masked(self, found: Pattern, lane: Axis) -> Pattern:
        return single_lanes(found)

    def together(self, found: Pattern) -> str:
        return f"{found.width}, {self._left_together(found)}"

    def widths(
        self, access: Value | Write, found: Pattern, lane: Axis | None, width: int, itemsize: int, *, masked: bool
    ) -> set[int]:
        """Both widths of an access whose run may be cut short: it has code for whole runs and for others."""
        widths = {self.draft.most(found, itemsize)}
        if masked and found.kind == "vector":
            widths.add(self.draft.most(Pattern("vector", self._left_together(found)), itemsize))
        return widths

    def _left_together(self, found: Pattern) -> int:
        """Elements at once in a run that is cut short: the number of columns left is a multiple of this, since runs
        begin at multiples of their width."""
        return gcd(found.width, self.columns)

    def address(self, tensor: str, offset: str) -> str:
        return f"{tensor} + {offset}"

    def load_lanes(self, v: Value, found: Pattern, lane: Axis, width: int, count: str | None) -> str:
        each_lane = self.draft.names.each_lane(lane, v.offset, f"{tensor_name(v)}[", "]")
        return f"load_lanes<{width}>({each_lane}, {count or width})"


def _dialect(draft: Draft, columns: int) -> Dialect:
    """A function's dialect: its thread alone goes through all of it, and there are no tiles of tensors."""
    return Dialect(SerialLoops(draft), StackArrays(draft), RunAccesses(draft, columns), CpuTiles(draft))


def key(piece: Piece) -> Key:
    """The place of a piece among the blocks of a printer's program."""
    return Key((), 0, piece.lane)


def braced(head: str, fields: Sequence[str], methods: Mapping[str, Sequence[str]]) -> str:
    """The text of a struct. methods: the lines of each by its declaration."""
    body = [f"    {line}" for line in fields]
    for method, lines in methods.items():
        body += [f"    {method} {{", *(f"    {line}" for line in lines), "    }"]
    return "\n".join([f"  {head} {{", *body, "  };"])


def aligned(graph: Graph, alignments: Mapping[str, int], access_bytes: int) -> Style:
    """How functors access the tensors of a graph."""
    return Style("cuda", alignments, access_bytes=access_bytes)
