"""Products of sums, where a constant is on both sides: it can be multiplied ahead of time.

    (x + b) a = x a + b a                       b a is computed once per version of the constants
    x (y a + b) c = x (y (a c) + b c)           a c too: a product less, where x is something like attention's weights

a, b and c depend on constants alone; views that only move axes may lie between, as between the heads of attention. With
heads, a c is as many times larger as there are heads, and to multiply with it may take longer than two products do:
MIGraphX issue #2818 has both cases.
"""

from collections.abc import Iterator

from fusion_ir import building as build
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType
from fusion_ir.ops import make
from scheduler.rewrites.matching.axis_labels import Label
from scheduler.rewrites.matching.factors import Factor, Product, Tree, expand, is_product
from scheduler.rewrites.matching.graph_queries import GraphQueries
from scheduler.rewrites.matching.labelled_contract import LabelledTensor, Settled, arranged, settle, shaped
from scheduler.rewrites.rule import Alternative
from scheduler.rewrites.rules.matrix_chain import KEPT, Ordering

MOST_ORDERS = 2  # of each term times the constant


def _distributed(node: Node, around: GraphQueries) -> Iterator[Node]:
    product = expand(node) if is_product(node) else None
    if product is None:
        return
    for i, factor in enumerate(product.factors):
        total = factor.source
        if total.op not in ("add", "sub") or around.is_constant(total):
            continue
        if not any(around.is_constant(term) for term in total.args):
            continue
        for j, other in enumerate(product.factors):
            if i != j and around.is_constant(other.source):
                # Expanded anew each time, since labels are split on the way.
                yield from _Distribution(node, expand(node), i, j, around).forms()


class _Distribution:
    """Factor `total` of a product, a sum of two, times its factor `constant`."""

    def __init__(self, node: Node, product: Product, total: int, constant: int, around: GraphQueries) -> None:
        self.node, self.product, self.around = node, product, around
        self.total, self.constant = product.factors[total], product.factors[constant]
        self.others = [f for k, f in enumerate(product.factors) if k not in (total, constant)]
        labels = product.labels
        needed = labels.all_of(product.axes).union(*(labels.all_of(f.axes) for f in self.others))
        summed = tuple(labels.all_of(self.total.axes) - needed)
        self.terms = [
            expand(term, labels, self.total.axes, self.total.window, summed) for term in self.total.source.args
        ]

    def forms(self) -> Iterator[Node]:
        """The whole product, with the two of them multiplied in other orders."""
        groups = [[*self.others, self.total, self.constant], *([*t.factors, self.constant] for t in self.terms)]
        every = [factor for group in groups for factor in group]
        settled = settle(self.product.labels, every, [self.product.axes])
        whole, first, second = _grouped(settled.operands, [len(group) for group in groups])
        flat = [label for axis in settled.outs[0] for label in axis]
        others, (total, constant) = whole[:-2], whole[-2:]
        needed = frozenset(flat).union(*(o.labels for o in others))
        if not set(total.labels) & set(constant.labels) - needed:
            return  # nothing is summed where they are multiplied
        between = self.product.between or self.node.dtype
        kept = needed & frozenset((*total.labels, *constant.labels))
        sums: list[list[tuple[Ordering, Tree]]] = []
        for term, operands in zip(self.terms, (first, second), strict=True):
            order = self._ordering(operands, [*term.factors, self.constant], kept, settled, term.between or between)
            folding = [tree for _, tree in order.best(KEPT) if order.folds(tree)]
            sums.append([(order, tree) for tree in folding[:MOST_ORDERS]])
        for order, tree in sums[0]:
            u = order.multiplied(tree)
            both = [*u.labels, *sorted(kept - {*u.labels})]
            for other, its in sums[1]:
                v = other.multiplied(its, both)
                # Along what others sum over, it repeats where neither term has it.
                needs = [label for label in total.labels if label in kept and label not in flat]
                yield from self._behind(self._added(u, v, needs, settled), others, settled, between)

    def _ordering(
        self,
        operands: list[LabelledTensor],
        factors: list[Factor],
        kept: frozenset[Label],
        settled: Settled,
        between: DType,
    ) -> Ordering:
        acc = self.node.attr("acc", DType)
        constant = tuple(self.around.is_constant(f.source) for f in factors)
        return Ordering(tuple(operands), settled.extents, kept, acc, between, acc, constant, {})

    def _added(self, u: LabelledTensor, v: LabelledTensor, needs: list[Label], settled: Settled) -> LabelledTensor:
        """u + v, or u - v, in the accumulator's dtype: the only rounding is that of the sum. needs: labels that it must
        have."""
        order = list(dict.fromkeys((*u.labels, *v.labels, *needs)))
        terms = [arranged(x, order, settled.extents) for x in (u, v)]
        return LabelledTensor(make(self.total.source.op, terms), tuple(order))

    def _behind(
        self, inner: LabelledTensor, others: list[LabelledTensor], settled: Settled, between: DType
    ) -> Iterator[Node]:
        """The other factors times `inner`, the product of the two."""
        axes, sizes = settled.outs[0], self.node.sizes
        if not others:
            yield shaped(
                LabelledTensor(build.cast(inner.node, self.node.dtype), inner.labels), axes, sizes, settled.extents
            )
            return
        inner = LabelledTensor(build.cast(inner.node, between), inner.labels)
        flat = [label for axis in axes for label in axis]
        acc = self.node.attr("acc", DType)
        constant = (*(self.around.is_constant(o.node) for o in others), False)
        order = Ordering(
            (*others, inner), settled.extents, frozenset(flat), acc, between, self.node.dtype, constant, {}
        )
        for _, tree in order.best(1):
            yield shaped(order.multiplied(tree, flat), axes, sizes, settled.extents)


def _grouped(operands: tuple[LabelledTensor, ...], counts: list[int]) -> list[list[LabelledTensor]]:
    found: list[list[LabelledTensor]] = []
    start = 0
    for count in counts:
        found.append(list(operands[start : start + count]))
        start += count
    return found


DISTRIBUTING = (
    Alternative(
        "fold-through-bias",
        "x (y a + b) c = x (y (a c) + b c); a, b, c constant, x and y may be absent",
        "reassociate",
        _distributed,
        "a c, and y (a c) + b c where x is there, are rounded instead of y a + b and x (y a + b)",
    ),
)
