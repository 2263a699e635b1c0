"""Lanes: the axes along which a kernel computes vectors, by contiguous bytes, loads included."""

from collections.abc import Sequence

from codegen.lowering.coalesce import merge_run
from codegen.lowering.index import Affine, Axes, Axis, volume
from codegen.lowering.value import cone
from codegen.lowering.write import Write, expressions


def choose_lanes(writes: Sequence[Write], least: int = 1) -> list[Axis]:
    """Lane axes, most contiguous bytes first, those shorter than `least` last; no value and no write varies with, or
    runs over, two of them."""
    values = cone(w.value for w in writes)
    score: dict[Axis, int] = {}

    def count(e: Affine, itemsize: int, extra: int = 0) -> None:
        for term, k in e.terms:
            if k == 1 and isinstance(term, Axis):
                score[term] = score.get(term, 0) + itemsize * volume(e.axes) + extra

    for v in values:
        if v.op == "load":
            count(v.offset, v.dtype.bytes)
    for w in writes:
        count(w.offset, w.itemsize, extra=1)  # among equals the output decides
    varies = [v.deps.union(v.bound) for v in values] + [frozenset(w.axes) for w in writes]
    lanes: list[Axis] = []
    ranked = sorted(score, key=lambda a: (a.extent < least, -score[a], a.uid))
    unscored = [a for w in writes for a in reversed(w.axes) if a not in score]
    for a in dict.fromkeys([*ranked, *unscored]):
        apart = not any(a in deps and b in deps for b in lanes for deps in varies)
        if apart and (a in score or not any(set(w.axes) & set(lanes) for w in writes if a in w.axes)):
            lanes.append(a)
    return lanes


def lane_of(write: Write, lanes: Sequence[Axis]) -> Axis | None:
    """The lane axis that a write runs along."""
    return next((a for a in lanes if a in write.axes), None)


def widen_short_lanes(writes: Sequence[Write], lanes: Sequence[Axis], width: int, axes: Axes) -> list[Write]:
    """A lane axis shorter than the width takes in the axis around it, if every write steps through the two as one.

    Accesses that do not must repeat what they read ("tile") or each element of it ("repeat"), for which extents are
    powers of two; an address per lane would cost more than wider vectors gain.
    """
    merged = list(writes)
    bound = {a for v in cone(w.value for w in writes) for a in (*v.bound, *v.scanned)}
    for lane in lanes:
        if lane in bound:
            continue
        while lane.extent < width and lane.extent & (lane.extent - 1) == 0:
            own = [w for w in merged if lane in w.axes]
            outer = _outer(own, lane)
            if outer is None or outer in bound or any(outer in w.axes for w in merged if lane not in w.axes):
                break
            if not all(_stays_regular(e, outer, lane) for e in expressions(merged)):
                break
            merged, lane = merge_run(merged, outer, lane, axes)
    return merged


def _stays_regular(e: Affine, outer: Axis, lane: Axis) -> bool:
    """Whether `e` steps through the two as one, or varies with one of them alone, along consecutive elements."""
    if {outer, lane} & e.opaque_axes:
        return False
    steps = e.coef(outer), e.coef(lane)
    return steps in ((0, 1), (1, 0)) or steps[0] == lane.extent * steps[1]


def _outer(writes: Sequence[Write], lane: Axis) -> Axis | None:
    """The axis just outside `lane` in every one of the writes."""
    for term, k in writes[0].offset.terms if writes else ():
        if not isinstance(term, Axis) or k != lane.extent:
            continue
        if all(w.offset.coef(term) == k and w.offset.coef(lane) == 1 for w in writes):
            return term
    return None
