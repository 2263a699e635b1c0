"""Blocks of rows: where tensors step through memory in different orders outside the lanes, an axis is cut.

    out[t, h, lanes] = f(x[h, t, lanes])   ->   loop T: { loop h: { loop t: lanes: ... } }, T over blocks of t

A block of rows is a run of memory in the one tensor, and few enough that the other's lines and pages are still at hand.
"""

from collections.abc import Collection, Sequence

from codegen.lowering.index import Affine, Axis, volume
from codegen.lowering.value import cone
from codegen.lowering.write import Write


def blocked_axis(writes: Sequence[Write], lanes: Collection[Axis]) -> Axis | None:
    """The serial axis to cut: of those that some tensor steps through next after its lanes, while others do not, the
    longest that all writes have. None if all tensors are stepped through in one order."""
    values = cone(w.value for w in writes)
    late = {a for v in values for a in (*v.bound, *v.scanned)}
    offsets = [v.offset for v in values if v.op == "load"] + [w.offset for w in writes]
    following = {(e, axis) for e in offsets if (axis := _next(e, lanes)) is not None}
    common = [a for a in (writes[0].axes if writes else ()) if all(a in w.axes for w in writes)]
    turned = [a for e, a in following if any(b is not a and e.coef(b) and f.coef(a) for f, b in following)]
    return max((a for a in turned if a in common and a not in late), key=lambda a: (volume([a]), -a.uid), default=None)


def _next(e: Affine, lanes: Collection[Axis]) -> Axis | None:
    """The axis of the smallest step of an access that goes along lanes."""
    if not any(e.coef(lane) == 1 for lane in lanes):
        return None
    steps = [(k, t.uid, t) for t, k in e.terms if isinstance(t, Axis) and t not in lanes]
    return min(steps)[2] if steps else None
