"""Axes of contractions in the order in which matrices lie in memory: batches, rows, columns.

    contract over k, j of a[m, j, k] b[k, j, n]     ->   of a[m, j, k] and permute(b)[j, k, n]
    contract over k of a[m, k, z] b[k, n, z]        ->   permute(contract of permute(a)[z, m, k], permute(b)[z, k, n])

Families take most orders as they are. Where none but `naive` takes a heavy contraction of dense tensors, its operands
are stored with their axes in another order, and so is its result.
"""

from collections.abc import Callable, Sequence

from codegen.families.contraction_limits import is_heavy
from fusion_ir import building as build
from fusion_ir.core.extent import dense_strides
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.ops import make, make_input
from fusion_ir.ops.contract import sums_in_any_order
from scheduler.rewrites.rule import Rule

Takes = Callable[[Graph], bool]  # whether a family that shares what it reads computes a graph in one launch


class AxesInOrder:
    """Contractions of one graph. made: by contraction in the other order, the one given."""

    def __init__(self, takes: Takes) -> None:
        self.made: dict[Node, Node] = {}
        self._takes = takes

    def rule(self) -> Rule:
        """The rule, of class `exact`: sums whose order is promised keep it."""
        return Rule("axes-in-order", "x y = permute(permute(x) permute(y))", "exact", self._apply)

    def _apply(self, node: Node) -> Node | None:
        if not is_heavy(node) or self._takes(_alone(node)):
            return None
        found, dims = _in_order(node)
        if found is node or not self._takes(_alone(found)):
            return None
        self.made[found] = self.made.get(node, node)
        return build.permute(found, dims)


def _alone(node: Node) -> Graph:
    """A graph of the contraction alone, its operands dense."""
    specs = tuple(InputSpec(a.shape, a.dtype, dense_strides(a.sizes)) for a in node.args)
    operands = tuple(make_input(i, spec) for i, spec in enumerate(specs))
    return Graph(specs, (OutputSpec(node.over(operands), dense_strides(node.sizes)),))


def _in_order(node: Node) -> tuple[Node, list[int]]:
    """The contraction with its axes in order, the node itself where they are, and the place of each of the node's axes
    among those of the contraction."""
    a_axes, b_axes, reduced = node.ints("a_axes"), node.ints("b_axes"), node.attr("reduced", int)
    count = len(a_axes) - reduced
    outs, deep = range(count), list(range(count, len(a_axes)))
    batch = [r for r in outs if a_axes[r] >= 0 and b_axes[r] >= 0]
    rows, columns = [r for r in outs if b_axes[r] < 0], [r for r in outs if a_axes[r] < 0]
    if sums_in_any_order(node) or not node.dtype.is_float:  # as the larger operand has them, which then stays
        larger = a_axes if node.args[0].bytes >= node.args[1].bytes else b_axes
        deep.sort(key=lambda r: larger[r])
    left = _chosen(batch, rows, deep, sorted((r for r in range(len(a_axes)) if a_axes[r] >= 0), key=a_axes.__getitem__))
    right = _chosen(
        batch, columns, deep, sorted((r for r in range(len(b_axes)) if b_axes[r] >= 0), key=b_axes.__getitem__)
    )
    result = _chosen(batch, rows, columns, list(outs))
    operands = [
        build.permute(x, [axes[r] for r in order])
        for x, axes, order in zip(node.args, (a_axes, b_axes), (left, right), strict=True)
    ]
    root = [*result, *deep]
    attrs = {
        **dict(node.attrs),
        "a_axes": tuple(left.index(r) if r in left else -1 for r in root),
        "b_axes": tuple(right.index(r) if r in right else -1 for r in root),
    }
    return make("contract", operands, attrs), [result.index(r) for r in outs]


def _chosen(batch: Sequence[int], one: Sequence[int], other: Sequence[int], given: Sequence[int]) -> list[int]:
    """Root axes in the order of a batch of matrices: as given, if that is one; else those of `one` or of `other` last,
    whichever had the last axis given."""
    orders = ([*batch, *one, *other], [*batch, *other, *one])
    if list(given) in orders:
        return list(given)
    last = next((r for r in reversed(given) if r not in batch), None)
    return orders[1] if last in one else orders[0]
