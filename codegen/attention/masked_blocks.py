"""Blank blocks, where the held tensor is one constant whatever the product: above the diagonal of causal scores, say.

    where(column <= row, product * scale, -inf)  ->  blank where the smallest column lies behind the largest row

Columns that are blank for all rows of a block need no product, and later phases make one value of the constant in all
of these columns. The value is computed as anywhere else, once for each row: nothing is left out that could be NaN.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from codegen.attention.row_blocks import LoweredCut, RowBlocks
from codegen.lowering.index import Affine, Axis
from codegen.lowering.value import COMPARISONS, Value, cone
from codegen.printer.expressions import literal
from codegen.tiled.points import COLUMN, ROW

MOST = 1 << 31
NAMES = {ROW: "row", COLUMN: "column"}
# By comparison of a and b: the test of their bounds that shows it to be false (NEVER) or true (ALWAYS) throughout.
NEVER = {
    "le": "{a_low} > {b_high}",
    "lt": "{a_low} >= {b_high}",
    "ge": "{a_high} < {b_low}",
    "gt": "{a_high} <= {b_low}",
}
ALWAYS = {
    "le": "{a_high} <= {b_low}",
    "lt": "{a_high} < {b_low}",
    "ge": "{a_low} >= {b_high}",
    "gt": "{a_low} > {b_high}",
}


def blanks_text(strips: RowBlocks) -> str | None:
    """The struct `Blanks`; None where no cut can be told to be blank from its rows and columns alone."""
    first, *later = strips.lowered_cuts
    (piece,) = first.pieces
    select = piece.write.value
    if select.op != "where" or not strips.phases.steps[0].keeps or any(map(_varies_along_columns, later)):
        return None
    condition, yes, no = select.args
    constant, table = (no, NEVER) if no.op == "const" else (yes, ALWAYS)
    if constant.op != "const" or condition.op not in COMPARISONS or condition.op not in table:
        return None
    bounds = [_bounds(first, a, strips.problem.extents) for a in condition.args]
    if not (bounds[0] and bounds[1]):
        return None
    (a_low, a_high), (b_low, b_high) = bounds[0], bounds[1]
    found = table[condition.op].format(a_low=a_low, a_high=a_high, b_low=b_low, b_high=b_high)
    return "\n".join(
        [
            "  struct Blanks {",
            "    enum { SOME = true };",
            f"    static VDEV float value() {{ return {literal(constant.scalar)}; }}",
            "    static VDEV bool all(int row, int last_row, int column, int last_column) {",
            f"      return {found};",
            "    }",
            "  };",
        ]
    )


def _varies_along_columns(cut: LoweredCut) -> bool:
    """Whether a cut depends on the column by more than the value held there."""
    along = {axis for (digit, _), axis in cut.points.digits.items() if digit.number == COLUMN}
    along |= set(cut.points.lanes.values())
    read = [v for v in cone(p.write.value for p in cut.pieces) if v.op in ("load", "index", "uniform")]
    return any(not along.isdisjoint(v.offset.axes) for v in read if v.op != "load" or v.tensor != cut.held)


@dataclass(frozen=True)
class _Linear:
    """start + sum of step * number, over numbers of a point (row, column)."""

    start: int
    steps: Mapping[int, int]

    def at(self, prefix: str) -> str:
        """C++ text of the value at the first (prefix "") or last ("last_") row and column of a box."""
        return " + ".join([*(f"{k} * {prefix}{NAMES[n]}" for n, k in self.steps.items()), str(self.start)])


def _bounds(cut: LoweredCut, v: Value, extents: Sequence[int]) -> tuple[str, str] | None:
    """C++ text of the least and the largest value of an integer in a box of rows and columns; None where unknown."""
    found, sizes = _linear(cut, v), {ROW: extents[1], COLUMN: extents[2]}
    if found is None or any(k < 0 for k in found.steps.values()):
        return None
    if abs(found.start) + sum(k * sizes[number] for number, k in found.steps.items()) >= MOST:
        return None
    return f"({found.at('')})", f"({found.at('last_')})"


def _linear(cut: LoweredCut, v: Value) -> _Linear | None:
    """An integer as a plain sum of multiples of row and column; None where it is no such sum."""
    if not v.dtype.is_integer or v.dtype.bytes < 4:  # narrower ones wrap
        return None
    if v.op == "const":
        return _Linear(int(v.scalar.value), {})
    if v.op == "index":
        return _of_index(cut, v.offset)
    if v.op not in ("add", "mul"):
        return None
    a, b = (_linear(cut, x) for x in v.args)
    if a is None or b is None:
        return None
    if v.op == "add":
        numbers = {*a.steps, *b.steps}
        return _Linear(a.start + b.start, {n: a.steps.get(n, 0) + b.steps.get(n, 0) for n in sorted(numbers)})
    factor, other = (a, b) if not a.steps else (b, a)
    if factor.steps:
        return None
    return _Linear(factor.start * other.start, {n: k * factor.start for n, k in other.steps.items()})


def _of_index(cut: LoweredCut, e: Affine) -> _Linear | None:
    plain: dict[Axis, tuple[int, int]] = {}
    for (digit, unit), axis in cut.points.digits.items():
        if (digit.start, digit.period, digit.step) == (0, 0, 1) and digit.number in NAMES:
            plain[axis] = digit.number, unit
    lanes = set(cut.points.lanes.values())
    steps: dict[int, int] = {}
    for term, k in e.terms:
        if isinstance(term, Axis) and term in plain:
            number, unit = plain[term]
            steps[number] = k // unit
        elif not isinstance(term, Axis) or term not in lanes:
            return None
    whole = all(k == steps[plain[a][0]] * plain[a][1] for a, k in e.terms if isinstance(a, Axis) and a in plain)
    along = [e.coef(lane) for lane in lanes if e.coef(lane)]
    return _Linear(e.c, steps) if whole and all(k == steps.get(COLUMN) for k in along) else None
