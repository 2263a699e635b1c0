"""Axes that reductions run over: each reduced node has its own, in pieces where a view in its cone wants bounds.

All visits of a node run over the same axes, so sums of one tensor at several places share their loops; no cone holds a
node within itself, so a reduction never meets its own axes inside.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from codegen.lowering.index import Affine, Axes, Axis, Cut, Refine, Split, var
from fusion_ir.core.node import Node

Piece = tuple[Affine, ...]


@dataclass
class ReductionAxes:
    """Pieces of every reduced node: disjoint parts of its reduced points, with an expression per reduced dimension."""

    axes: Axes
    pieces: dict[Node, list[Piece]] = field(default_factory=dict[Node, list[Piece]])

    def of(self, node: Node, extents: Sequence[int]) -> list[Piece]:
        """The pieces of `node`, whose reduced dimensions have these extents; one over new axes when first asked."""
        return self.pieces.setdefault(node, [tuple(var(self.axes.new(n)) for n in extents)])

    def rewrite(self, change: Callable[[Piece], list[Piece]]) -> None:
        """Each piece becomes those that `change` makes of it."""
        for pieces in self.pieces.values():
            pieces[:] = [new for piece in pieces for new in change(piece)]

    def __len__(self) -> int:
        return sum(map(len, self.pieces.values()))


def axes_of(index: Iterable[Affine]) -> tuple[Axis, ...]:
    """The axes of an index, once each, in order."""
    return tuple(dict.fromkeys(a for e in index for a in e.axes))


def renamed(index: Piece, renaming: Mapping[Axis, Affine]) -> list[Piece]:
    return [tuple(e.subst(renaming) for e in index)]


def refined(index: Piece, request: Refine, axes: Axes) -> list[Piece]:
    """The index over finer axes of its own: itself where it has no such axis, one for a split, two for a cut."""
    axis = request.axis
    if axis not in axes_of(index):
        return [index]
    if isinstance(request, Split):
        digits = var(axes.new(axis.extent // request.inner)) * request.inner + var(axes.new(request.inner))
        return renamed(index, {axis: digits})
    assert isinstance(request, Cut)
    first, second = axes.new(request.at), axes.new(axis.extent - request.at)
    return renamed(index, {axis: var(first)}) + renamed(index, {axis: var(second) + request.at})
