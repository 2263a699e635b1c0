"""Lanes: the axes along which a kernel computes vectors, by contiguous bytes, loads included."""

from collections.abc import Mapping, Sequence

from codegen.hardware.architectures import ACCESS_BYTES
from codegen.lowering.access import in_groups, pattern
from codegen.lowering.coalesce import merge_run
from codegen.lowering.index import Affine, Axes, Axis, var, volume
from codegen.lowering.stores import MAX_VALUES
from codegen.lowering.value import Value, Values, cone, rewrite_offsets
from codegen.lowering.write import Write, expressions
from fusion_ir.ops import OPS

# Cost of a store and of an addition in f32, in loads: a multiprocessor starts 4 additions while it starts an
# access, and it writes by sectors: an access to a part of one takes as long as one to the whole.
STORE, ADDITION = 4.0, 0.25


def choose_lanes(writes: Sequence[Write], least: int = 1) -> list[Axis]:
    """Lane axes, most contiguous bytes first, those shorter than `least` last; no value and no write varies with, or
    runs over, two of them. Places whose slices are listed, and what runs through their lists, are none."""
    values = cone(w.value for w in writes)
    scalar = {a for v in values if v.op == "listed" for a in v.deps}
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
    beside: dict[Axis, set[Axis]] = {}  # axes that something varies with, or runs over, together with this one
    for together in {v.ranges for v in values} | {frozenset(w.axes) for w in writes}:  # of few kinds
        for a in together:
            beside.setdefault(a, set()).update(together)
    lanes: list[Axis] = []
    ranked = sorted(score, key=lambda a: (a.extent < least, -score[a], a.uid))
    unscored = [a for w in writes for a in reversed(w.axes) if a not in score]
    for a in dict.fromkeys([*ranked, *unscored]):
        if a not in scalar and beside.get(a, set()).isdisjoint(lanes):
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
    short = [a for a in lanes if a.extent < width]
    bound = {a for v in cone(w.value for w in writes) for a in (*v.bound, *v.scanned)} if short else set[Axis]()
    for lane in short:
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


def join_rows(writes: Sequence[Write], width: int, axes: Axes, alignments: Mapping[str, int]) -> list[Write]:
    """Merges a lane axis that whole vectors do not divide with the axes around it, as many as make an element cheapest
    (`_cost`). An access is as wide as its address is aligned (alignments: in bytes, by tensor); an access that does not
    step through the merged axes as through one gets an address for each group of lanes.

    out[10 * i + j] = x[i], j < 10, vectors of 8  ->  out[k] = x[k / 10]: 5 stores of 2 elements become 1 of 8
    """
    best = list(writes)
    apart = [lane for lane in choose_lanes(writes) if lane.extent % width]
    if not apart:
        return best
    for lane in apart:
        best = _with_own_lanes(best, lane, axes)
    bound = {a for v in cone(w.value for w in best) for a in (*v.bound, *v.scanned)}
    for lane in choose_lanes(best):
        merged, run, least = best, lane, _cost(best, lane, width, alignments)
        while run.extent % width and lane not in bound:
            outer = _outer([w for w in merged if run in w.axes], run)
            if outer is None or outer in bound or not _can_join(merged, outer, run):
                break
            merged, run = merge_run(merged, outer, run, axes)
            cost = _cost(merged, run, width, alignments)
            if cost < least:
                best, least = merged, cost
    return best


def _with_own_lanes(writes: Sequence[Write], lane: Axis, axes: Axes) -> list[Write]:
    """Writes that run along `lane` inside different axes get a lane axis each, unless they have values in common."""
    inside = {w: _outer([w], lane) for w in writes if lane in w.axes}
    groups = {outer: [w.value for w in inside if inside[w] is outer] for outer in inside.values()}
    varying = [{v for v in cone(roots) if lane in v.deps} for roots in groups.values()]
    if len(groups) < 2 or len(set[Value]().union(*varying)) < sum(map(len, varying)):
        return list(writes)
    own = {outer: axes.new(lane.extent) for outer in groups}
    values = Values(MAX_VALUES)

    def apart(w: Write) -> Write:
        to = own[inside[w]] if w in inside else lane

        def change(e: Affine) -> Affine:
            return e.subst({lane: var(to)})

        def renamed(found: tuple[Axis, ...]) -> tuple[Axis, ...]:
            return tuple(to if a is lane else a for a in found)

        (value,) = rewrite_offsets(values, [w.value], change, renamed)
        return Write(w.out, change(w.offset), value, renamed(w.axes), w.itemsize)

    return [apart(w) for w in writes]


def _can_join(writes: Sequence[Write], outer: Axis, lane: Axis) -> bool:
    """Whether all writes that run along one of the two run along both, and no address that is read varies with them."""
    together = all((outer in w.axes) == (lane in w.axes) for w in writes)
    return together and not any({outer, lane} & i.deps for e in expressions(writes) for i in e.fetched)


def _cost(writes: Sequence[Write], lane: Axis, width: int, alignments: Mapping[str, int]) -> float:
    """Cost of an element along a lane axis, in loads. An operation counts once for each point of the axes that its
    value varies with."""
    own = [w for w in writes if lane in w.axes]
    if not own:
        return 0.0
    values = cone(w.value for w in own)
    vector = min(width, 1 << (lane.extent - 1).bit_length())

    def accesses(tensor: str, e: Affine, itemsize: int) -> float:
        alignment = max(min(alignments[tensor], ACCESS_BYTES) // itemsize, 1)
        found = pattern(e, lane, vector, alignment)
        if found.kind == "lanes":
            found = in_groups(e, lane, vector, alignment)
        return found.accesses(lane.extent, vector) / lane.extent

    repeated = min(volume(set(w.axes) - w.value.deps - {lane}) for w in own)
    loads = sum(accesses(f"in{v.tensor}", v.offset, v.dtype.bytes) for v in values if v.op == "load")
    stores = sum(accesses(f"out{w.out}", w.offset, w.itemsize) for w in own)
    elements = max(volume(w.axes) for w in own)
    arithmetic = sum(OPS[v.op].cost * volume(v.deps) / elements for v in values if v.op in OPS and not v.is_cheap)
    return loads / repeated + STORE * stores + ADDITION * arithmetic


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
