"""Functions of a point as C++: structs that hold the tensors they touch; main loops call them for runs of columns."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from math import gcd

from codegen.kernel import Access
from codegen.lowering.access import Pattern
from codegen.lowering.index import Affine, Axis, Term
from codegen.lowering.program import Block, Key, Program
from codegen.lowering.value import Value, cone
from codegen.lowering.write import Write
from codegen.printer.body import BodyText
from codegen.printer.expressions import CTYPE
from codegen.printer.style import Style
from codegen.tiled.points import COLUMN, NAMES, Condition, Digit, Piece, Points
from fusion_ir.core.graph import Graph


@dataclass(frozen=True)
class Functor:
    """A struct of the kernel. text: its definition, for the top of the kernel's body. members: initialisers of its base
    ({}, if it has one) and of its fields, which are the tensors that it touches. reach: see `Text`."""

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


class PointPrinter(BodyText):
    """Prints pieces, each as a block of its own.

    product: number of the input that stands for the product; None where there is none. run: columns that the function
    is called for. fetched: loads whose values are in a struct `fetched`, with field and type.
    """

    def __init__(
        self, points: Points, pieces: Sequence[Piece], style: Style, run: int, product: int | None,
        fetched: Mapping[Value, tuple[str, str]] = {},
    ) -> None:  # fmt: skip
        widths = {lane: width for width, lane in points.lanes.items()}
        super().__init__(Program(widths, {}, [], {key(p): Block() for p in pieces}, {}), style)
        self.given, self.run, self.product, self.fetched = points, run, product, fetched
        self.columns = points.extents[COLUMN]
        self.start = Axis(-1, self.columns)  # the first column of a run
        self.whole = True  # whether a run is all that the function is called for
        self.firsts: dict[Axis, int] = {}  # axes over runs of so many columns: one of their steps is so many columns
        for lane in points.lanes.values():
            self.axis_names[lane] = "0"  # runs begin at their first lane
        for (digit, unit), axis in points.digits.items():
            if (digit.start, digit.period, digit.step) == (0, 0, 1):
                self.axis_names[axis] = NAMES[digit.number]
                if digit.number == COLUMN:
                    self.firsts[axis] = unit

    # ---- what a function begins with
    def digits_of(self, pieces: Sequence[Piece], *, columns: bool, width: int) -> None:
        """Declares the digits that the pieces use, those of columns or the others."""
        used = {a for p in pieces for a in p.write.offset.axes}
        for v in cone(p.write.value for p in pieces):
            if v.op in ("load", "index", "uniform") and not (v.op == "load" and v.tensor == self.product):
                used.update(v.offset.axes)
        for (digit, unit), axis in self.given.digits.items():
            named = axis in self.axis_names
            if axis in used and not named and (digit.number == COLUMN) == columns and unit == (width if columns else 1):
                self.line(f"const idx_t {self.axis(axis)} = {self.digit_text(digit, unit)};")

    def digit_text(self, d: Digit, unit: int) -> str:
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
            self.whole = width == self.run
            if self.whole:
                self.digits_of(found, columns=True, width=width)
                yield found
                continue
            steps = min(self.run, -(-self.columns // width) * width) // width
            with self.braces(f"VEC_UNROLL for (int part_number = 0; part_number < {steps}; part_number++)"):
                step = f"{width} * part_number" if width > 1 else "part_number"
                self.line(f"const idx_t first = column + {step};")
                if self.columns % self.run:
                    self.line(f"if (first >= {self.columns}) break;")
                self.digits_of(found, columns=True, width=width)
                yield found
        self.whole = True

    @contextmanager
    def where(self, piece: Piece) -> Generator[None]:
        """A context in which text is printed under the piece's conditions."""
        conditions = " && ".join(map(self.condition, piece.conditions))
        if not conditions:
            yield
            return
        with self.braces(f"if ({conditions})"):
            yield

    def count(self, piece: Piece) -> str | None:
        """Columns left, where a run may be cut short."""
        if self.columns % piece.width == 0:
            return None
        return "left" if self.whole else f"left - {piece.width} * part_number"

    def pointer(
        self, access: Value | Write, key: Key, lane: Axis | None, width: int, itemsize: int, *, masked: bool = False
    ) -> tuple[Pattern, str]:
        """Notes both widths of an access whose run may be cut short: it has code for whole runs and for others."""
        found, at = super().pointer(access, key, lane, width, itemsize, masked=masked)
        if masked and found.kind == "vector":
            tensor = f"in{access.tensor}" if isinstance(access, Value) else f"out{access.out}"
            left = Pattern("vector", self.left_together(found))
            self.note(tensor, left, {self.most(left, itemsize)})
        return found, at

    def together(self, found: Pattern) -> str:
        return f"{found.width}, {self.left_together(found)}"

    def left_together(self, found: Pattern) -> int:
        """Elements at once in a run that is cut short: the number of columns left is a multiple of this, since runs
        begin at multiples of their width."""
        return gcd(found.width, self.columns)

    # ---- values
    def expr(self, e: Affine, lane_plus: tuple[Axis, str] | None = None) -> str:
        terms: list[tuple[Term, int]] = []
        for term, k in e.terms:
            if isinstance(term, Axis) and term in self.firsts:
                terms.append((self.start, k // self.firsts[term]))
            elif lane_plus or term not in self.program.widths:
                terms.append((term, k))
        return super().expr(Affine(e.c, tuple(terms)), lane_plus)

    def axis(self, a: Axis) -> str:
        return self.number(COLUMN) if a is self.start else super().axis(a)

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
                self.line(f"fetched.{found[v][0]} = {self.rhs(v, key(piece), self.count(piece))};")
        return found

    def rhs(self, v: Value, key: Key, count: str | None) -> str:
        if v in self.fetched:
            return f"fetched.{self.fetched[v][0]}.get()"
        if v.op == "load" and v.tensor == self.product:
            width = self.program.widths[key.lane] if key.lane else 1
            return "product" if self.whole else f"part<{width}>(product, part_number)"
        return super().rhs(v, key, count)

    def spread(self, piece: Piece) -> str:
        """The piece's value for all columns of a run, as an expression, once it is defined."""
        return self.operand(piece.write.value, key(piece), piece.width)

    def define(self, piece: Piece) -> None:
        """Declares the piece's value and what it is computed from."""
        self.values([v for v in cone([piece.write.value]) if v.op != "const"], key(piece), self.count(piece))


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
