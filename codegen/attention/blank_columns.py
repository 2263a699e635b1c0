"""Blank columns of a product on a CPU: those that nothing reads in some rows, such as columns above the diagonal of
causal scores. In row r they are the columns behind r + `beyond`.

    where(column > row, -inf, product * scale)  ->  beyond 0
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from codegen.lowering.index import Affine, Axis
from codegen.lowering.program import Program
from codegen.lowering.value import Value, cone

# Comparisons of a and b, as (sign, least) of what is known where they hold, or do not: sign * (a - b) >= least.
HOLD = {"gt": (1, 1), "ge": (1, 0), "lt": (-1, 1), "le": (-1, 0)}
FAIL = {"gt": (-1, 0), "ge": (-1, 1), "lt": (1, 0), "le": (1, 1)}


@dataclass(frozen=True)
class BlankColumns:
    """In row r of a matrix of so many rows, columns behind r + beyond are blank."""

    rows: int
    beyond: int


def blank_columns(program: Program, tensor: int, row: int) -> BlankColumns | None:
    """Columns of input number `tensor` that a program does not read, None where it may read all. row: elements from row
    to row of it; a column's elements follow each other."""
    found: set[BlankColumns] = set()
    seen: set[Value] = set()
    stack = [w.value for block in program.blocks.values() for w, _ in block.writes]
    while stack:
        v = stack.pop()
        if v in seen:
            continue
        seen.add(v)
        if v.op == "load" and v.tensor == tensor:
            return None
        guarded = _guarded(v, tensor, row) if v.op == "where" else None
        if guarded is None:
            stack += v.args
            continue
        blank, others = guarded
        found.add(blank)
        stack += others
    rows = {b.rows for b in found}
    return BlankColumns(rows.pop(), max(b.beyond for b in found)) if len(rows) == 1 else None


def _guarded(select: Value, tensor: int, row: int) -> tuple[BlankColumns, tuple[Value, ...]] | None:
    """Columns that a `where` does not read of the tensor, and its other operands; None where no such are known."""
    condition, yes, no = select.args
    if condition.op not in HOLD:
        return None
    for read, other, (sign, least) in ((yes, no, HOLD[condition.op]), (no, yes, FAIL[condition.op])):
        places = {v.offset for v in cone([read]) if v.op == "load" and v.tensor == tensor}
        a, b = (_index(x) for x in condition.args)
        if len(places) == 1 and a is not None and b is not None:
            steps = {axis: sign * (a.coef(axis) - b.coef(axis)) for axis in {*a.axes, *b.axes}}
            rows = _rows_above(places.pop(), row, steps)
            if rows:
                return BlankColumns(rows, sign * (a.c - b.c) - least), (condition, other)
    return None


def _rows_above(place: Affine, row: int, steps: Mapping[Axis, int]) -> int:
    """Rows of the matrix where `steps` are those of a row's number less a column's; 0 where they are not."""
    columns = {axis: -k for axis, k in place.terms if isinstance(axis, Axis) and k < row}
    down = {axis: k // row for axis, k in place.terms if isinstance(axis, Axis) and k >= row and steps.get(axis)}
    if place.c or place.opaque_axes or {a: k for a, k in steps.items() if k} != {**columns, **down}:
        return 0
    rows = prod(axis.extent for axis in down)
    return rows if max(k * axis.extent for axis, k in down.items()) == rows else 0


def _index(v: Value) -> Affine | None:
    """A whole number as a sum of multiples of axes, None where it is none."""
    if v.op == "const" and v.dtype.is_integer:
        return Affine(int(v.scalar.value))
    return v.offset if v.op == "index" and not v.offset.opaque_axes else None
