"""Products of several factors: contractions of contractions, seen through the views and casts between them.

    contract(reshape(contract(p, v)), c)  ->  p, v, c, with labels that say which axes are summed over

A view between two products moves their labels: a permute changes the order, a reshape splits or merges labels, a slice
becomes one of the factors, a broadcast a label that factors below do not have. A cast that loses nothing is left out;
one that rounds what a contraction gives tells to which dtype values between products are rounded.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fusion_ir import building as build
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType
from fusion_ir.ops import OpKind, axis_maps_of, kind_of, make
from fusion_ir.ops.contract import summed_sizes
from scheduler.rewrites.matching.axis_labels import Axis, Label, Labels
from scheduler.rewrites.matching.strided_slices import Window, cut, operand_windows, sizes_of, whole

MOST_FACTORS = 10
Tree = int | tuple["Tree", "Tree"]  # in which order factors are multiplied, by their numbers


@dataclass(frozen=True)
class Factor:
    """The `window` of `source`, rounded to `dtype`, with labels for each of its axes."""

    source: Node
    window: Window
    dtype: DType
    axes: tuple[Axis, ...]

    @property
    def node(self) -> Node:
        return build.cast(cut(self.source, self.window), self.dtype)


@dataclass(frozen=True)
class Product:
    """A node as a product of factors. axes: labels of the node's axes. tree: the order of multiplication as given.
    inside: the contractions below the first, each with its part of the tree. between: the widest dtype to which one of
    these is rounded; None without any. acc, rounded: the accumulator of the first contraction, and the dtype to which
    its result is rounded before it is this node; None where there is none."""

    labels: Labels
    factors: tuple[Factor, ...]
    axes: tuple[Axis, ...]
    tree: Tree
    inside: tuple[tuple[Factor, Tree], ...]
    between: DType | None
    acc: DType | None
    rounded: DType | None


def expand(
    node: Node,
    labels: Labels | None = None,
    axes: tuple[Axis, ...] | None = None,
    window: Window | None = None,
    summed: Axis = (),
    most: int = MOST_FACTORS,
) -> Product:
    """The node as a product of at most `most` factors; of one, where it is no contraction of floats, seen through views
    and casts. labels, axes: those of its axes, or of its `window`'s; new ones by default. summed: labels that the node
    is summed over, which factors must keep."""
    labels = labels or Labels()
    axes = axes or tuple(labels.axis(n) for n in node.sizes)
    expanding = _Expanding(labels, most, summed)
    tree = expanding.factors_of(node, window or whole(node), axes, node.dtype)
    inside = tuple(expanding.inside)
    between = max((f.dtype for f, _ in inside), key=lambda d: d.bytes, default=None)
    return Product(labels, tuple(expanding.factors), axes, tree, inside, between, expanding.acc, expanding.rounded)


def is_product(node: Node) -> bool:
    """Whether a node is a contraction of floats over something."""
    return node.op == "contract" and node.dtype.is_float and all(a.elements for a in node.args)


def heart(node: Node) -> Node:
    """The node below the views of one operand and the casts between floats that `node` begins with."""
    while (kind_of(node) is OpKind.VIEW and len(node.args) == 1) or (
        node.op == "cast" and node.dtype.is_float and node.args[0].dtype.is_float
    ):
        node = node.args[0]
    return node


class _Expanding:
    """The factors found so far. inside: contractions below the first with their trees."""

    def __init__(self, labels: Labels, most: int, summed: Axis) -> None:
        self.labels, self.most = labels, most
        self.acc: DType | None = None
        self.rounded: DType | None = None
        self.factors: list[Factor] = []
        self.inside: list[tuple[Factor, Tree]] = []
        self._count = 0
        self._summed = list(summed)

    def factors_of(self, x: Node, window: Window, axes: tuple[Axis, ...], dtype: DType) -> Tree:
        """Adds the factors of a window of x, rounded to `dtype` (that of x, or a narrower one); returns their tree.
        axes: labels of the window."""
        if is_product(x) and self._count < self.most - 1 and 0 not in sizes_of(window):
            return self._contraction(x, window, axes, dtype)
        if x.op == "cast" and x.args[0].dtype.is_float and x.dtype.is_float:
            inner = x.args[0]
            if x.dtype.holds(inner.dtype):
                return self.factors_of(inner, window, axes, inner.dtype if dtype.holds(inner.dtype) else dtype)
            if x.dtype == dtype and heart(inner).op in ("contract", "add", "sub"):
                return self.factors_of(inner, window, axes, dtype)
        if kind_of(x) is OpKind.VIEW and len(x.args) == 1:
            given = self._through(x, window, axes)
            if given is not None:
                return self.factors_of(x.args[0], *given, dtype)
        if x.op == "full" and not self.labels.all_of(axes) & self._kept:
            x, window, axes = make("full", [], {**dict(x.attrs), "shape": ()}), (), ()
        self.factors.append(Factor(x, window, dtype, axes))
        return len(self.factors) - 1

    def _contraction(self, x: Node, window: Window, axes: tuple[Axis, ...], dtype: DType) -> Tree:
        is_first = not self._count
        self._count += 1
        self.acc, self.rounded = self.acc or x.attr("acc", DType), self.rounded or dtype
        root = [*axes, *(self.labels.axis(n) for n in summed_sizes(x))]
        a_axes, b_axes = x.ints("a_axes"), x.ints("b_axes")
        self._summed += [label for axis in root[len(axes) :] for label in axis]
        windows = operand_windows(x, window) or []
        trees = [
            self.factors_of(operand, w, _placed(operand.rank, places, root), operand.dtype)
            for operand, w, places in zip(x.args, windows, (a_axes, b_axes), strict=True)
        ]
        tree = (trees[0], trees[1])
        if not is_first:
            self.inside.append((Factor(x, window, dtype, axes), tree))
        return tree

    def _through(self, x: Node, window: Window, axes: tuple[Axis, ...]) -> tuple[Window, tuple[Axis, ...]] | None:
        """The window of a view's operand, and its labels; None where the operand has no such window."""
        windows = operand_windows(x, window)
        if windows is None or 0 in sizes_of(window):
            return None
        (below,) = windows
        if x.op == "reshape":
            regrouped = self.labels.regrouped(axes, sizes_of(below))
            return None if regrouped is None else (below, regrouped)
        (axis_map,) = axis_maps_of(x)
        given = tuple(axes[s.axis] if s is not None and s.axis is not None and s.step else () for s in axis_map)
        lost = self.labels.all_of(axes) - self.labels.all_of(given)
        return None if lost & self._kept else (below, given)  # a sum over a broadcast is over as many equal values

    @property
    def _kept(self) -> set[Label]:
        """Labels that factors must have, since there is a sum over them."""
        return self.labels.all_of([tuple(self._summed)])


def _placed(rank: int, places: Sequence[int], axes: Sequence[Axis]) -> tuple[Axis, ...]:
    """The axes of an operand: each of `axes` at its place, -1 being none; () where no place is named."""
    found: list[Axis] = [()] * rank
    for place, axis in zip(places, axes, strict=True):
        if place >= 0:
            found[place] = axis
    return tuple(found)


def leaves(tree: Tree) -> frozenset[int]:
    """The factors of a tree."""
    return frozenset((tree,)) if isinstance(tree, int) else leaves(tree[0]) | leaves(tree[1])


def joins_of(tree: Tree) -> frozenset[frozenset[int]]:
    """The factors below each product of a tree: trees for which these sets are equal are one order."""
    if isinstance(tree, int):
        return frozenset()
    return joins_of(tree[0]) | joins_of(tree[1]) | {leaves(tree)}
