"""Unrolling: a reduction over few elements, none of them side by side in a vector, becomes a chain of its terms.

    sum over k of x[k, i], k < 3, lanes i  ->  (x[0, i] + x[1, i]) + x[2, i]

It needs no accumulator outside the loop over the lanes, and what follows it joins the same pass. What a scan runs
along, and what runs through lists, stays as it is.
"""

from collections.abc import Iterable, Sequence
from itertools import product

from codegen.lowering.index import Affine, Axis, volume
from codegen.lowering.stores import MAX_VALUES
from codegen.lowering.value import Value, Values, cone, remade, rewrite_offsets
from codegen.lowering.write import Write

MAX_TERMS = 8


def unroll(writes: Sequence[Write], lanes: Iterable[Axis]) -> list[Write]:
    """The writes without reductions of up to MAX_TERMS terms that run along none of the lanes."""
    lane_axes = set(lanes)
    cones = cone(w.value for w in writes)
    whole = lane_axes.union(*(v.scanned for v in cones), *(v.walked for v in cones))
    few: set[Value] = set()
    for v in cones:
        if v.op == "reduce" and volume(v.bound) <= MAX_TERMS and not whole & set(v.bound):
            # Terms put numbers for axes, also for an axis that a remaining reduction inside runs over: not there.
            inside = (set(u.bound) for u in cone(v.args) if u.bound and u not in few)
            if not any(own & set(v.bound) for own in inside):
                few.add(v)
    if not few:
        return list(writes)
    values = Values(MAX_VALUES)
    made: dict[Value, Value] = {}
    for v in cones:
        if v in few:
            made[v] = _chain(values, v, tuple(made[a] for a in v.args))
        else:
            remade(values, v, made)
    return [Write(w.out, w.offset, made[w.value], w.axes, w.itemsize) for w in writes]


def _chain(values: Values, v: Value, args: tuple[Value, ...]) -> Value:
    combine, total = str(v.attr[0]), None
    for point in product(*(range(a.extent) for a in v.bound)):
        at = {a: Affine(i) for a, i in zip(v.bound, point, strict=True)}
        terms = rewrite_offsets(values, args, lambda e, at=at: e.subst(at), lambda own: own)
        if combine == "fma":
            total = (
                values.make("fma", (*terms, total), (), v.dtype) if total else values.make("mul", terms, (), v.dtype)
            )
        else:
            total = values.make(combine, (total, *terms), (), v.dtype) if total else terms[0]
    assert total is not None
    return total
