"""Multiplying labelled tensors: two of them by one contraction, and the result in the shape that is wanted.

Before that, labels that stay side by side in all tensors become one again, so that a matrix that was split and merged
on the way is a matrix: [348, 12, 64] and [12, 64, 768] are [348, 768] and [768, 768] unless a tensor has the 12 alone.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from fusion_ir import building as build
from fusion_ir.building.operands import promote
from fusion_ir.core.extent import shape_of
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType, accumulate_dtype
from fusion_ir.ops import make
from scheduler.rewrites.matching.axis_labels import Axis, Label, Labels
from scheduler.rewrites.matching.factors import Factor


@dataclass(frozen=True)
class LabelledTensor:
    """A tensor with one label per axis, no axis of extent 1."""

    node: Node
    labels: tuple[Label, ...]

    @property
    def extents(self) -> dict[Label, int]:
        return dict(zip(self.labels, self.node.sizes, strict=True))


@dataclass(frozen=True)
class Settled:
    """Factors with one label per axis. outs: axes of results, in these labels. extents: of all labels."""

    operands: tuple[LabelledTensor, ...]
    outs: tuple[tuple[Axis, ...], ...]
    extents: dict[Label, int]


def settle(labels: Labels, factors: Sequence[Factor], outs: Sequence[Sequence[Axis]]) -> Settled:
    """Factors and results with the labels that they have by now. Labels become one where they are side by side in all
    factors and results that have one of them."""
    tensors = [[labels.resolved(axis) for axis in f.axes] for f in factors]
    results = [[labels.resolved(axis) for axis in axes] for axes in outs]
    axes = [axis for tensor in (*tensors, *results) for axis in tensor]
    behind: dict[Label, set[Label | None]] = {}
    before: dict[Label, set[Label | None]] = {}
    for axis in axes:
        for place, label in enumerate(axis):
            behind.setdefault(label, set()).add(axis[place + 1] if place + 1 < len(axis) else None)
            before.setdefault(label, set()).add(axis[place - 1] if place else None)

    def starts(label: Label) -> bool:
        (first, *more) = before[label]
        return bool(more) or first is None or len(behind[first]) > 1

    def merged(axis: Axis) -> Axis:
        return tuple(label for label in axis if starts(label))

    run: dict[Label, Label] = {}
    for axis in axes:
        first = 0
        for label in axis:
            first = label if starts(label) else first
            run[label] = first
    extents: dict[Label, int] = {}
    for label, first in run.items():
        extents[first] = extents.get(first, 1) * labels.extent((label,))
    operands: list[LabelledTensor] = []
    for factor, tensor in zip(factors, tensors, strict=True):
        flat = [label for axis in tensor for label in merged(axis)]
        operands.append(LabelledTensor(_reshaped(factor.node, [extents[label] for label in flat]), tuple(flat)))
    return Settled(tuple(operands), tuple(tuple(merged(axis) for axis in axes) for axes in results), extents)


def _reshaped(x: Node, sizes: Sequence[int]) -> Node:
    """x in the shape `sizes`, spelt as readers of graphs do: by a squeeze where that is enough, else by a reshape."""
    squeezed = build.squeeze(x)
    return squeezed if squeezed.sizes == tuple(sizes) else build.reshape(x, sizes)


def join(
    a: LabelledTensor,
    b: LabelledTensor,
    kept: Collection[Label],
    acc: DType,
    dtype: DType,
    order: Sequence[Label] | None = None,
) -> LabelledTensor:
    """The product of two operands, summed over the labels that are not kept, which both must have. Its axes are in
    `order`, if that is given, else those of both, of `a` alone, of `b` alone. acc: accumulator, at least as wide as the
    operands; dtype: of the result."""
    shared = [label for label in a.labels if label in b.labels]
    reduced = [label for label in shared if label not in kept]
    if order is None:
        batch = [label for label in shared if label in kept]
        order = [*batch, *(x for x in a.labels if x not in shared), *(x for x in b.labels if x not in shared)]
    out = [label for label in order if label in a.labels or label in b.labels]
    common = promote((a.node.dtype, b.node.dtype))
    common = common if accumulate_dtype(common) == acc else acc
    root = (*out, *reduced)
    attrs = {
        "a_axes": tuple(a.labels.index(label) if label in a.labels else -1 for label in root),
        "b_axes": tuple(b.labels.index(label) if label in b.labels else -1 for label in root),
        "reduced": len(reduced),
        "acc": acc,
        "out_dtype": dtype,
    }
    node = make("contract", [build.cast(a.node, common), build.cast(b.node, common)], attrs)
    return LabelledTensor(node, tuple(out))


def arranged(x: LabelledTensor, order: Sequence[Label], extents: dict[Label, int]) -> Node:
    """An operand with its axes in this order, repeated along those that it lacks."""
    sizes = [extents[label] for label in order]
    if x.node.op == "full":
        return make("full", [], {**dict(x.node.attrs), "shape": shape_of(sizes)})
    present = [label for label in order if label in x.labels]
    turned = build.permute(x.node, [x.labels.index(label) for label in present])
    places = [place for place, label in enumerate(order) if label in x.labels]
    return build.broadcast_in_dim(turned, sizes, places)


def shaped(x: LabelledTensor, axes: Sequence[Axis], sizes: Sequence[int], extents: dict[Label, int]) -> Node:
    """An operand as a tensor of these axes and sizes."""
    flat = [label for axis in axes for label in axis]
    return build.reshape(arranged(x, flat, extents), sizes)
