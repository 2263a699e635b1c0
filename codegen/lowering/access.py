"""Widths: how many elements one access to a tensor may move, from strides, offsets and alignment.

One analysis for every family. The width is the largest power of two that divides the vector width, the constant offset,
every stride other than the lane's own, and the alignment of the base in elements (`reference`: the rules of nvFuser's
vectorisation, applied per tensor).
"""

from dataclasses import dataclass
from math import gcd
from typing import Literal

from codegen.lowering.index import Affine, Axis, Fetched, Opaque, Term
from fusion_ir.core.graph import Graph

Kind = Literal["vector", "splat", "strided", "tile", "repeat", "lanes"]


def alignments(segment: Graph) -> dict[str, int]:
    """Alignment of each pointer of a kernel in bytes, by its name ("in0", "out0", ...)."""
    found = {f"in{i}": spec.alignment_bytes for i, spec in enumerate(segment.inputs)}
    return found | {f"out{i}": 64 for i in range(len(segment.outputs))}


@dataclass(frozen=True)
class Pattern:
    """How an offset runs along a lane axis.

    width: elements per access. step: the stride, the length of tile or repeat, or how many lanes have one address.
    """

    kind: Kind
    width: int
    step: int = 1

    def accesses(self, lanes: int, vector: int) -> int:
        """Number of memory accesses for `lanes` lanes, computed `vector` at a time."""
        vectors = -(-lanes // vector)
        if self.kind in ("splat", "tile"):
            return vectors * (self.step // self.width if self.kind == "tile" else 1)
        together = self.step if self.kind in ("repeat", "lanes") else 1
        return -(-lanes // (self.width * together))


def pattern(e: Affine, lane: Axis | None, vector: int, alignment: int) -> Pattern:
    """The access pattern of offset `e` over vectors of `vector` lanes.

    alignment: of the base, in elements, a power of two.
    """
    if lane is None or lane not in e.axes:
        return Pattern("splat", 1)
    others = [e.c, *(k for t, k in e.terms if t is not lane)]
    if lane not in e.opaque_axes:
        stride = e.coef(lane)
        return Pattern("vector", _width(vector, alignment, others)) if stride == 1 else Pattern("strided", 1, stride)
    digits = [(t, k) for t, k in e.terms if isinstance(t, Opaque) and lane in t.of.axes]
    fetched = any(isinstance(t, Fetched) and lane in t.value.deps for t, _ in e.terms)
    if len(digits) == 1 and e.coef(lane) == 0 and digits[0][1] == 1 and not fetched:
        term = digits[0][0]
        return _digit_pattern(term, lane, vector, alignment, [e.c, *(k for t, k in e.terms if t is not term)])
    return Pattern("lanes", 1)


def _digit_pattern(term: Opaque, lane: Axis, vector: int, alignment: int, others: list[int]) -> Pattern:
    inner = term.of
    period = term.divisor if term.divisor > 1 else term.extent
    nested = inner.coef(lane) == 1 and all(
        x % period == 0 for x in (inner.c, *(k for t, k in inner.terms if t is not lane))
    )
    if term.is_clamp or not nested or lane in inner.opaque_axes or vector % period:
        return Pattern("lanes", 1)
    if term.divisor == 1:
        return Pattern("tile", _width(period, alignment, others), period)
    if (term.extent * period) % vector:
        return Pattern("lanes", 1)
    return Pattern("repeat", _width(vector // period, alignment, others), period)


def within(e: Affine, lane: Axis) -> tuple[Opaque, int, Affine] | None:
    """The parts of an offset that varies with `lane` only inside one clamped index, element by element: the index, its
    step in memory, and the rest of the offset. None for any other offset."""
    found = [(t, k) for t, k in e.terms if lane in Affine.of(0, [(t, 1)]).axes or _is_fetched(t, lane)]
    if len(found) != 1 or not isinstance(term := found[0][0], Opaque) or not term.is_clamp:
        return None
    plain = term.of.coef(lane) == 1 and lane not in term.of.opaque_axes
    if not plain or any(_is_fetched(t, lane) for t, _ in term.of.terms):
        return None
    return term, found[0][1], Affine.of(e.c, [(t, k) for t, k in e.terms if t is not term])


def _is_fetched(term: Term, lane: Axis) -> bool:
    return isinstance(term, Fetched) and lane in term.value.deps


def in_groups(e: Affine, lane: Axis, vector: int, alignment: int) -> Pattern:
    """The access pattern of offset `e` with one address per group of lanes, for the largest groups possible: a group
    reads `width` consecutive elements, or one element for its `step` lanes. Sizes of vectors and groups are powers of
    two, and they begin at multiples of their size.

    3 * i + lane % 12 -> groups of 4 lanes where 3 * i is aligned so; lane / 6 -> 2 lanes have one element
    """
    size = vector
    while size > 1:
        step, unit = _within_group(e, lane, size) or (2, 1)
        if step == 0:
            return Pattern("lanes", 1, size)
        if step == 1 and gcd(unit, alignment) % size == 0:
            return Pattern("lanes", size)
        size //= 2
    return Pattern("lanes", 1)


def _within_group(e: Affine, lane: Axis, size: int) -> tuple[int, int] | None:
    """How `e` goes from lane to lane within a group of `size`: its step, and what its first value is a multiple of.
    None where it has no step."""
    step, unit = 0, e.c
    for term, k in e.terms:
        found = _term_within_group(term, lane, size)
        if found is None:
            return None
        step, unit = step + k * found[0], gcd(unit, k * found[1])
    return step, unit


def _term_within_group(term: Term, lane: Axis, size: int) -> tuple[int, int] | None:
    if term is lane:
        return 1, size
    if not isinstance(term, Opaque):
        return None if isinstance(term, Fetched) and lane in term.value.deps else (0, 1)
    step, unit = _within_group(term.of, lane, size) or (2, 1)
    if step == 0:
        return 0, 1
    if term.is_clamp or step != 1 or unit % size:
        return None
    if term.divisor % size == 0:
        return 0, 1
    return (1, gcd(unit, term.extent)) if term.divisor == 1 and term.extent % size == 0 else None


def _width(most: int, alignment: int, others: list[int]) -> int:
    return gcd(most, alignment, *others)
