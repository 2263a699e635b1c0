"""Rows side by side: several iterations of a serial loop in one pass over the lanes share what they load.

    out[m, n] = a[m, 0] b[0, n] + a[m, 1] b[1, n]  ->  loop m': lanes n: out[4 m' + i, n], i < 4, each b loaded once

Values are put in the order in which all rows need them, a term of each at a time, so that few are alive at once: the
inner loop of a matrix product whose sums stay in registers.
"""

from collections.abc import Sequence

from codegen.lowering.index import Affine, Axes, Axis, var, volume
from codegen.lowering.lanes import choose_lanes
from codegen.lowering.stores import MAX_VALUES
from codegen.lowering.value import Value, Values, cone, remade, rewrite_offsets
from codegen.lowering.write import Write


def shared_axis(writes: Sequence[Write]) -> Axis | None:
    """The serial axis of all writes with which the most bytes loaded along lanes do not vary; None if there is none."""
    lanes = choose_lanes(writes)
    values = cone(w.value for w in writes)
    if any(v.bound or v.scanned for v in values) or len(lanes) != 1:
        return None
    (lane,) = lanes
    loads = [v for v in values if v.op == "load" and v.offset.coef(lane) == 1]
    common = set[Axis].intersection(*(set(w.axes) for w in writes)) - {lane}
    saved = {a: sum(v.dtype.bytes for v in loads if a not in v.deps) for a in common}
    best = max(saved, key=lambda a: (saved[a], volume([a]), -a.uid), default=None)
    return best if best is not None and saved[best] else None


def side_by_side(writes: Sequence[Write], axis: Axis, rows: int, axes: Axes) -> list[Write]:
    """The writes with axis -> rows * outer + i, once for each i < rows; the rest of the axis as single rows."""
    outer, whole = axes.new(axis.extent // rows), axis.extent // rows * rows
    values = Values(MAX_VALUES)
    made: list[Write] = []
    for i in range(rows if whole else 0):
        made += _at(writes, values, axis, var(outer) * rows + i, outer if outer.extent > 1 else None)
    for i in range(whole, axis.extent):
        made += _at(writes, values, axis, Affine(i), None)
    return _in_step(made)


def _at(writes: Sequence[Write], values: Values, axis: Axis, e: Affine, outer: Axis | None) -> list[Write]:
    """The writes with `e` for the axis."""
    roots = rewrite_offsets(values, [w.value for w in writes], lambda x: x.subst({axis: e}), lambda own: own)
    own = [tuple(o for a in w.axes for o in ([outer] if a is axis else [a]) if o is not None) for w in writes]
    return [
        Write(w.out, w.offset.subst({axis: e}), root, mine, w.itemsize)
        for w, root, mine in zip(writes, roots, own, strict=True)
    ]


def _in_step(writes: Sequence[Write]) -> list[Write]:
    """The writes over values made anew in order of their distance from loads, with loads just before their use."""
    level: dict[Value, int] = {}
    for v in cone(w.value for w in writes):
        level[v] = 0 if v.is_cheap else 1 + max((level[a] for a in v.args), default=0)
    values = Values(MAX_VALUES)
    made: dict[Value, Value] = {}
    for v in sorted(level, key=lambda v: (level[v], v.uid)):
        if level[v]:
            remade(values, v, made)
    return [Write(w.out, w.offset, remade(values, w.value, made), w.axes, w.itemsize) for w in writes]
