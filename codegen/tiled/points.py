"""Parts of a segment as functions of a point (batch, row, column): indices over loop axes become digits of its numbers.

    out[b, h, s, d] = x[512 b + s, 128 h + d] + bias[128 h + d]   at (row, column)
    ->  out[row / 512, column / 128, row % 512, column % 128] = x[row, column] + bias[column]

Results get strides that no tensor has: a step along columns, rows and batches is a step of 1, 2^48 and 2^96. So the
pipeline that every kernel goes through (pull, unify, coalesce) carries along which axis is which digit of which number,
and never merges axes of different numbers. A value is computed for a run of columns at once, its lanes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from codegen.kernel import EmitError
from codegen.lowering.coalesce import coalesce
from codegen.lowering.index import Affine, Axes, Axis, Fetched, Opaque, clamp, digit, var
from codegen.lowering.stores import MAX_VALUES, pull_outputs
from codegen.lowering.unify import unify
from codegen.lowering.value import TooManyValues, Value, Values, cone, rewrite_offsets
from codegen.lowering.write import Write, writes_of
from fusion_ir.core.graph import Graph

COLUMN, ROW, BATCH = range(3)  # the numbers of a point
NAMES = ("column", "row", "batch")
SCALE_BITS = 48


@dataclass(frozen=True)
class Where:
    """Place of an axis in a point: a step along the axis moves one of the point's numbers by `step`."""

    number: int
    step: int

    @property
    def stride(self) -> int:
        """The step as a stride that no tensor has: see the module."""
        return self.step << SCALE_BITS * self.number


@dataclass(frozen=True)
class PointDigit:
    """(x - start) % period / step of one of a point's numbers x; period 0: no remainder. It is below `extent`."""

    number: int
    start: int
    period: int
    step: int
    extent: int


@dataclass(frozen=True)
class Condition:
    """low <= (x - start) % period < high, for one of a point's numbers x; period 0: no remainder."""

    number: int
    start: int
    period: int
    low: int
    high: int


@dataclass(frozen=True)
class Piece:
    """A write at the points where all the conditions hold, for runs of `width` columns.

    write: over digits, `lane` (None: runs are one column) and the axes `repeats`, which are no part of the point.
    """

    write: Write
    conditions: tuple[Condition, ...]
    repeats: tuple[Axis, ...]
    width: int
    lane: Axis | None


@dataclass
class Points:
    """The digits of a point's numbers that pieces use, as axes; digits of columns are in runs of some width. Equal
    values of several pieces are one object."""

    extents: tuple[int, int, int]  # columns, rows, batches
    axes: Axes
    digits: dict[tuple[PointDigit, int], Axis] = field(default_factory=dict[tuple[PointDigit, int], Axis])
    lanes: dict[int, Axis] = field(default_factory=dict[int, Axis])
    values: Values = field(default_factory=lambda: Values(2 * MAX_VALUES))

    def lane(self, width: int) -> Axis | None:
        """The lane axis of runs of this width."""
        if width > 1 and width not in self.lanes:
            self.lanes[width] = self.axes.new(width)
        return self.lanes.get(width)

    def digit(self, d: PointDigit, width: int) -> Affine:
        """A digit, as an expression over axes: of columns, in whole runs and lanes."""
        unit = width if d.number == COLUMN else 1
        runs = unit if d.step == 1 else 1  # of the digit's own values in one of the axis
        key = d, unit
        if key not in self.digits:
            self.digits[key] = self.axes.new(-(-d.extent // runs))
        lane = self.lane(unit) if runs > 1 else None
        return var(self.digits[key]) * runs + (var(lane) if lane else Affine())


def writes_at_points(graph: Graph) -> tuple[list[Write], Axes]:
    """The writes of a graph over axes that all its outputs share, as `codegen.families.loop_nest` has them before lanes
    are chosen, and the maker of the axes. Raises EmitError."""
    try:
        pulled = pull_outputs(graph)
        unify(pulled)
        return coalesce(writes_of(pulled), pulled.axes), pulled.axes
    except TooManyValues as error:
        raise EmitError(str(error)) from error


def located(write: Write, location: Affine, points: Points, most: int) -> Piece:
    """`write` as a function of a point.

    location: the point of an element, at strides that no tensor has. most: most columns of a run, a power of two; runs
    are shorter where a digit or a condition would change within one. Raises EmitError where the location is not one
    point for each element that is written.
    """
    chains = _chains(location, points.extents)
    width = most
    while not _is_uniform(chains[COLUMN], points.extents[COLUMN], width):
        width //= 2
    conditions = [c for number, chain in enumerate(chains) for c in chain.conditions(number, points.extents[number])]
    rewriting = _Rewriting(points, chains, width)
    (value,) = rewrite_offsets(points.values, [write.value], rewriting.change, lambda own: own)
    known = {axis for chain in chains for axis, _ in chain.steps}
    repeats = tuple(a for a in write.axes if a not in known and a.extent > 1)
    moved = Write(write.out, rewriting.change(write.offset), value, repeats, write.itemsize)
    return Piece(moved, tuple(conditions), repeats, width, points.lane(width))


@dataclass(frozen=True)
class _Chain:
    """One number of a location: start + sum of step * axis, larger steps first."""

    start: int
    steps: tuple[tuple[Axis, int], ...]

    def period(self, i: int) -> int:
        """Period of the digits from the i-th one on, which is the step of the digit before; 0 for the first digit."""
        return self.steps[i - 1][1] if i else 0

    def conditions(self, number: int, extent: int) -> list[Condition]:
        """The conditions under which a number of a point, below `extent`, is a value of this chain."""
        if not self.steps:
            return [] if extent == 1 else [Condition(number, 0, 0, self.start, self.start + 1)]
        found: list[Condition] = []
        axis, step = self.steps[0]
        if self.start or self.start + step * axis.extent < extent:
            found.append(Condition(number, 0, 0, self.start, self.start + step * axis.extent))
        for i, (axis, step) in enumerate(self.steps):
            if i and step * axis.extent < self.period(i):
                found.append(Condition(number, self.start, self.period(i), 0, step * axis.extent))
        if step > 1:
            found.append(Condition(number, self.start, step, 0, 1))
        return found


def _chains(location: Affine, extents: Sequence[int]) -> tuple[_Chain, ...]:
    steps: list[list[tuple[Axis, int]]] = [[], [], []]
    for term, coefficient in location.terms:
        if not isinstance(term, Axis):
            raise EmitError("the product is read where an index says, or through a view whose radices do not nest")
        number = (coefficient.bit_length() - 1) // SCALE_BITS
        steps[number].append((term, coefficient >> SCALE_BITS * number))
    starts = [location.c >> SCALE_BITS * number & (1 << SCALE_BITS) - 1 for number in range(3)]
    chains = tuple(_Chain(s, tuple(sorted(own, key=lambda t: -t[1]))) for s, own in zip(starts, steps, strict=True))
    for chain, extent in zip(chains, extents, strict=True):
        if any(high < low * axis.extent for (_, high), (axis, low) in pairwise(chain.steps)):
            raise EmitError("elements of the product are read several times, at places that overlap")
        assert chain.start + sum(step * (axis.extent - 1) for axis, step in chain.steps) < extent, "within the product"
    return chains


def _is_uniform(chain: _Chain, extent: int, width: int) -> bool:
    """Whether all digits but the lowest one, and all conditions, stay constant within every run of `width`."""
    if width == 1:
        return True
    if not chain.steps or chain.steps[-1][1] != 1:
        return False
    bounds = [chain.start, *(step for _, step in chain.steps[:-1])]
    bounds += [c.high for c in chain.conditions(COLUMN, extent) if c.high != extent]
    return all(bound % width == 0 for bound in bounds)


@dataclass
class _Rewriting:
    """Index expressions over the axes of a location become expressions over digits of the point."""

    points: Points
    chains: tuple[_Chain, ...]
    width: int

    def change(self, e: Affine) -> Affine:
        own = {axis for chain in self.chains for axis, _ in chain.steps}
        total = Affine(e.c)
        for term, k in e.terms:
            if isinstance(term, Opaque):
                inner = self.change(term.of)
                whole = clamp(inner, term.extent) if term.is_clamp else digit(inner, term.divisor, term.extent)
                total = total + whole * k
            elif isinstance(term, Fetched) or term not in own:
                total = total + Affine.of(0, [(term, k)])
        for number, chain in enumerate(self.chains):
            total = total + self._digits(number, chain, e)
        return total

    def _digits(self, number: int, chain: _Chain, e: Affine) -> Affine:
        """The plain terms of `e` along one chain, over digits; terms that step as one become one digit."""
        total = Affine()
        i = 0
        while i < len(chain.steps):
            first = i
            while i + 1 < len(chain.steps) and _steps_as_one(chain.steps[i], chain.steps[i + 1], e):
                i += 1
            low, step = chain.steps[i]
            axis, high = chain.steps[first]
            if k := e.coef(low):
                own = PointDigit(number, chain.start, chain.period(first), step, high * axis.extent // step)
                total = total + self.points.digit(own, self.width) * k
            i += 1
        return total


def _steps_as_one(high: tuple[Axis, int], low: tuple[Axis, int], e: Affine) -> bool:
    whole = high[1] == low[1] * low[0].extent
    return whole and e.coef(high[0]) == low[0].extent * e.coef(low[0])


def loads_of(tensor: int, value: Value) -> list[Affine]:
    """The offsets at which a value reads input number `tensor`, once each."""
    return list(dict.fromkeys(v.offset for v in cone([value]) if v.op == "load" and v.tensor == tensor))
