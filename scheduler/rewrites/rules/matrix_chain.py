"""The order in which products of several factors are multiplied.

    (x y) z = x (y z)           and so on for chains of any length, through views that only move axes

The best orders by a dynamic programme over the sets of factors that are connected by sums: of a chain these are its
intervals (Godbole, "On efficient computation of matrix chain products", 1973), and with axes that several factors share
(heads) they are what can be multiplied without an outer product. What depends on constants alone costs nothing here,
since a prologue computes it. The search measures; this decides what is offered, and in which order.

Values between two products are rounded to the dtype that they were rounded to before, in other places: of 16 bits, they
stay in reach of the same kernels.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from fusion_ir.core.node import Node
from fusion_ir.dtype import DType
from scheduler.rewrites.matching.axis_labels import Label
from scheduler.rewrites.matching.factors import Product, Tree, expand, is_product, joins_of, leaves
from scheduler.rewrites.matching.graph_queries import GraphQueries
from scheduler.rewrites.matching.labelled_contract import LabelledTensor, Settled, join, settle, shaped
from scheduler.rewrites.rule import Alternative

MOST_ORDERS = 3  # of longer chains; of three factors all are offered
KEPT = MOST_ORDERS + 1  # orders kept of each set of factors: one of them may be the one as given


@dataclass(frozen=True, order=True)
class ChainCost:
    """Cost of an order: additions and multiplications, then bytes of the tensors between its products."""

    flops: int
    between_bytes: int

    def __add__(self, other: "ChainCost") -> "ChainCost":
        return ChainCost(self.flops + other.flops, self.between_bytes + other.between_bytes)


@dataclass(frozen=True)
class Ordering:
    """Factors to be multiplied. kept: labels of the result. acc: of all products. between: the dtype to which values
    between products are rounded; dtype: that of the result. constant: which factors depend on constants alone. made:
    by part of a tree, the tensor of the graph that is its product, where there is one."""

    operands: tuple[LabelledTensor, ...]
    extents: dict[Label, int]
    kept: frozenset[Label]
    acc: DType
    between: DType
    dtype: DType
    constant: tuple[bool, ...]
    made: Mapping[Tree, LabelledTensor]

    def best(self, most: int = 1) -> list[tuple[ChainCost, Tree]]:
        """The cheapest orders, cheapest first; none where the factors are not connected by sums."""
        count = len(self.operands)
        found: dict[int, list[tuple[ChainCost, Tree]]] = {1 << i: [(ChainCost(0, 0), i)] for i in range(count)}
        sets: list[list[int]] = [[], [1 << i for i in range(count)]]
        for size in range(2, count + 1):
            merged: dict[int, list[tuple[ChainCost, Tree]]] = {}
            for low in range(1, size // 2 + 1):
                for one in sets[low]:
                    for other in sets[size - low]:
                        if one & other or (low * 2 == size and one > other) or not self._is_summed(one, other):
                            continue
                        own = self._cost(one, other)
                        first, second = (one, other) if one & -one < other & -other else (other, one)
                        merged.setdefault(one | other, []).extend(
                            (own + a + b, (x, y)) for a, x in found[first] for b, y in found[second]
                        )
            for both, options in merged.items():
                found[both] = sorted(options, key=lambda o: o[0])[:most]
            sets.append(list(merged))
        return found.get((1 << count) - 1, [])

    def cost(self, tree: Tree, given: Collection[Tree] = ()) -> ChainCost:
        """Cost of the order `tree` where the parts in `given` cost nothing."""
        if isinstance(tree, int) or tree in given:
            return ChainCost(0, 0)
        return self.cost(tree[0], given) + self.cost(tree[1], given) + self._cost(_mask(tree[0]), _mask(tree[1]))

    def folds(self, tree: Tree) -> bool:
        """Whether the last factor is multiplied with constants alone first, where there is more than one other."""
        if isinstance(tree, int):
            return False
        if len(self.operands) == 2 or all(self.constant):
            return True
        last = len(self.operands) - 1
        below = next(branch for branch in tree if last in leaves(branch))
        return isinstance(below, tuple) and (all(self.constant[i] for i in leaves(below)) or self.folds(below))

    def multiplied(self, tree: Tree, order: Sequence[Label] | None = None) -> LabelledTensor:
        """The product in the order `tree`, its axes in `order`."""
        if isinstance(tree, int):
            return self.operands[tree]
        if tree in self.made:
            return self.made[tree]
        inner = replace(self, dtype=self.between)
        a, b = (inner.multiplied(branch, self._folded_order(branch)) for branch in tree)
        return join(a, b, self._left(_mask(tree)), self.acc, self.dtype, order)

    def _folded_order(self, tree: Tree) -> list[Label] | None:
        """Order of the axes of a product of constants, which may lie in memory in any; None of other products. Axes
        that are summed over later go first, so that the others are columns side by side for the next product."""
        mask = _mask(tree)
        if isinstance(tree, int) or not all(c for i, c in enumerate(self.constant) if mask >> i & 1):
            return None
        left = self._left(mask)
        labels = dict.fromkeys(x for i in leaves(tree) for x in self.operands[i].labels if x in left)
        return sorted(labels, key=lambda label: label in self.kept)

    def _labels(self, mask: int) -> frozenset[Label]:
        return frozenset(x for i, operand in enumerate(self.operands) if mask >> i & 1 for x in operand.labels)

    def _left(self, mask: int) -> frozenset[Label]:
        """Labels of the product of a set of factors."""
        others = self._labels(~mask & (1 << len(self.operands)) - 1)
        return self._labels(mask) & (self.kept | others)

    def _is_summed(self, one: int, other: int) -> bool:
        """Whether multiplying the products of two sets of factors sums over a label."""
        return bool(self._left(one) & self._left(other) - self._left(one | other))

    def _cost(self, one: int, other: int) -> ChainCost:
        both = one | other
        if all(c for i, c in enumerate(self.constant) if both >> i & 1):
            return ChainCost(0, 0)
        flops, size = 2, 1
        for label in self._left(one) | self._left(other):
            flops *= self.extents[label]
        for label in self._left(both) if both + 1 < 1 << len(self.operands) else ():
            size *= self.extents[label]
        return ChainCost(flops, size * self.between.bytes)


def _mask(tree: Tree) -> int:
    return 1 << tree if isinstance(tree, int) else _mask(tree[0]) | _mask(tree[1])


def settled_factors(product: Product) -> Settled:
    """Operands for the factors of a product, then for the products inside; its own axes."""
    return settle(product.labels, [*product.factors, *(f for f, _ in product.inside)], [product.axes])


def ordering(node: Node, product: Product, settled: Settled, around: GraphQueries) -> Ordering:
    """The `Ordering` of a contraction's factors. settled: its `settled_factors`."""
    count = len(product.factors)
    return Ordering(
        settled.operands[:count],
        settled.extents,
        frozenset(label for axis in settled.outs[0] for label in axis),
        node.attr("acc", DType),
        product.between or node.dtype,
        node.dtype,
        tuple(around.is_constant(f.source) for f in product.factors),
        {tree: made for (_, tree), made in zip(product.inside, settled.operands[count:], strict=True)},
    )


def _orders(node: Node, around: GraphQueries) -> Iterator[Node]:
    product = expand(node) if is_product(node) else None
    if product is None or len(product.factors) < 3:
        return
    settled = settled_factors(product)
    order = ordering(node, product, settled, around)
    # What is read elsewhere too is computed anyhow: then another order must cost less than what this one adds to it.
    shared = [below for factor, below in product.inside if around.is_shared(factor.source)]
    limit = order.cost(product.tree, shared).flops
    flat = [label for axis in settled.outs[0] for label in axis]
    options = order.best(KEPT)
    for _, tree in [o for o in options if joins_of(o[1]) != joins_of(product.tree)][:MOST_ORDERS]:
        if not shared or order.cost(tree, shared).flops < limit:
            yield shaped(order.multiplied(tree, flat), settled.outs[0], node.sizes, settled.extents)


CHAINS = (Alternative("chain-order", "(x y) z = x (y z)", "reassociate", _orders, "y z is rounded instead of x y"),)
