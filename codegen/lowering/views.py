"""Rules of view ops: an index is rewritten on the way to the operand, and nothing is left of the view."""

from itertools import accumulate

from codegen.lowering.index import Affine, clamp, cut_at, div_mod, flatten, region
from codegen.lowering.puller import Index, Puller
from codegen.lowering.value import Value
from fusion_ir.core.extent import dense_strides
from fusion_ir.core.node import Node
from fusion_ir.core.scalar import Scalar
from fusion_ir.dtype import DTYPES, compute_dtype, i64
from fusion_ir.ops import axis_maps_of


def reshape(p: Puller, node: Node, index: Index) -> Value:
    flat = flatten(index, dense_strides(node.sizes))
    source = node.args[0]
    while source.op == "reshape":
        source = source.args[0]
    if source.op == "input":
        spec = p.graph.inputs[source.attr("position", int)]
        if spec.is_dense:  # the digits would be multiplied together again
            return p.load(source.attr("position", int), flat, source.dtype)
    digits: list[Affine] = []
    for size in reversed(source.sizes[1:]):
        flat, rest = div_mod(flat, size, refine=p.refine)
        digits.append(rest)
    if source.sizes:
        digits.append(flat)
    return p.pull(source, tuple(reversed(digits)))


def axes(p: Puller, node: Node, index: Index) -> Value:
    """Pulls through a view that moves, repeats, drops and cuts whole axes."""
    (axis_map,) = axis_maps_of(node)
    moved: list[Affine] = []
    for source in axis_map:
        assert source is not None, f"{node} splits or joins axes"
        moved.append(Affine() if source.axis is None else index[source.axis] * source.step + source.start)
    return p.pull(node.args[0], tuple(moved))


def cat(p: Puller, node: Node, index: Index) -> Value:
    axis = node.attr("axis", int)
    bounds = (0, *accumulate(a.sizes[axis] for a in node.args))
    e = index[axis]

    def piece(i: int, at: Affine) -> Value:
        return p.pull(node.args[i], (*index[:axis], at, *index[axis + 1 :]))

    i = region(e, bounds)
    if i is not None:
        return piece(i, e + -bounds[i])
    _cut(p, e, bounds)
    parts = [i for i, a in enumerate(node.args) if a.sizes[axis]]
    value = piece(parts[-1], clamp(e + -bounds[parts[-1]], node.args[parts[-1]].sizes[axis]))
    for i in reversed(parts[:-1]):
        inside = _less(p, e, bounds[i + 1])
        here = piece(i, clamp(e + -bounds[i], node.args[i].sizes[axis]))
        value = _where(p, inside, here, value)
    return value


def pad(p: Puller, node: Node, index: Index) -> Value:
    (x,) = node.args
    low = node.ints("low")
    fill = p.values.const(node.attr("value", Scalar))
    if 0 in x.sizes:
        return fill  # no index leads into it
    source: list[Affine] = []
    inside: list[Value] = []
    for e, before, size in zip(index, low, x.sizes, strict=True):
        at = e + -before
        if at.high < 0 or at.low >= size:
            return fill
        if at.low < 0 or at.high >= size:
            _cut(p, at, (0, size))
            if at.low < 0:
                inside.append(p.values.make("logical_not", (_less(p, at, 0),), (), DTYPES["bool"]))
            if at.high >= size:
                inside.append(_less(p, at, size))
            at = clamp(at, size)
        source.append(at)
    value = p.pull(x, tuple(source))
    for condition in inside:
        value = _where(p, condition, value, fill)
    return value


def _cut(p: Puller, e: Affine, bounds: tuple[int, ...]) -> None:
    cut = cut_at(e, bounds) if p.refine else None
    if cut is not None:
        try:
            raise cut
        finally:
            del cut  # it holds this frame, and with that whatever called: no cycle, lest all of a search outlive it


def _less(p: Puller, e: Affine, bound: int) -> Value:
    limit = p.values.const(Scalar.of(bound, i64))
    return p.values.make("lt", (p.values.index(e), limit), (), DTYPES["bool"])


def _where(p: Puller, condition: Value, a: Value, b: Value) -> Value:
    """Selects in the compute dtype: exact for every dtype."""
    compute = compute_dtype(a.dtype)
    chosen = p.values.make("where", (condition, p.values.cast(a, compute), p.values.cast(b, compute)), (), compute)
    return p.values.cast(chosen, a.dtype)


def full(p: Puller, node: Node, index: Index) -> Value:
    return p.values.const(node.attr("value", Scalar))


def iota(p: Puller, node: Node, index: Index) -> Value:
    """start + step * index, in the compute dtype (integers wrap; floats round twice)."""
    compute = compute_dtype(node.dtype)
    start, step = (p.values.cast(p.values.const(node.attr(name, Scalar)), compute) for name in ("start", "step"))
    position = p.values.cast(p.values.index(index[node.attr("axis", int)]), compute)
    value = p.values.make("add", (start, p.values.make("mul", (step, position), (), compute)), (), compute)
    return p.values.cast(value, node.dtype)


def uniform(p: Puller, node: Node, index: Index) -> Value:
    seed, offset = (p.pull(a, ()) for a in node.args)
    linear = flatten(index, dense_strides(node.sizes))
    return p.values.uniform(seed, offset, node.attr("stream", int), linear, node.dtype)
