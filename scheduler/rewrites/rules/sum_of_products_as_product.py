"""Sums of two products as one product.

    x a + x b = x (a + b)               one product; a + b is computed ahead of time where both are constants
    x y + z w = [x | z] [y ; w]         the sum over k goes on where that of the other one begins

Differences too: x a - x b = x (a - b). a + b is rounded to the dtype of a and b, so both products must be rounded to no
wider one. The products may stand behind casts and views that only move axes; where they
were rounded before they were added, only the sum is. (TASO has these among its axioms of matmul: Jia and others, "TASO:
Optimizing Deep Learning Computation with Automatic Generation of Graph Substitutions", 2019.)
"""

from collections.abc import Iterator, Sequence

from fusion_ir import building as build
from fusion_ir.building.operands import promote
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType
from fusion_ir.ops import make
from scheduler.rewrites.matching.axis_labels import Label, Labels
from scheduler.rewrites.matching.factors import Factor, Product, expand, heart, is_product
from scheduler.rewrites.matching.graph_queries import GraphQueries
from scheduler.rewrites.matching.labelled_contract import LabelledTensor, Settled, arranged, join, settle, shaped
from scheduler.rewrites.rule import Alternative

_TOGETHER: Label = -1  # of an axis that is several one after the other


class _Terms:
    """The two terms of a sum as products of two factors. Axes of the sum have the same labels in both."""

    def __init__(self, node: Node) -> None:
        self.node, self.labels = node, Labels()
        self.axes = tuple(self.labels.axis(n) for n in node.sizes)
        self.first, self.second = (self._product(term) for term in node.args)

    @staticmethod
    def match(node: Node) -> bool:
        """Whether a node is a sum of two products, in an accumulator that holds what it gives."""
        if node.op not in ("add", "sub") or not node.elements:
            return False
        below = [heart(term) for term in node.args]
        accs = [n.attr("acc", DType) for n in below if is_product(n)]
        return len(accs) == 2 and accs[0] == accs[1] and node.dtype.bytes <= accs[0].bytes

    def _product(self, term: Node) -> Product:
        return expand(term, self.labels, self.axes, most=2)

    @property
    def acc(self) -> DType | None:
        """The accumulator of the first product; None where a term is no product after all."""
        return self.first.acc if self.second.acc else None

    @property
    def rounded(self) -> tuple[DType | None, DType | None]:
        """To which dtype each term's product is rounded before it is added."""
        return self.first.rounded, self.second.rounded

    def settled(self, *pairs: Sequence[Factor]) -> tuple[Settled, list[Label]]:
        """Operands for factors, and the labels of the result."""
        settled = settle(self.labels, [f for pair in pairs for f in pair], [self.axes])
        return settled, [label for axis in settled.outs[0] for label in axis]

    def finished(self, a: LabelledTensor, b: LabelledTensor, settled: Settled, flat: list[Label], acc: DType) -> Node:
        """The sum, from one product."""
        product = join(a, b, flat, acc, self.node.dtype, flat)
        return shaped(product, settled.outs[0], self.node.sizes, settled.extents)


def _factored(node: Node, around: GraphQueries) -> Iterator[Node]:
    for i in (0, 1) if _Terms.match(node) else ():
        for j in (0, 1):
            terms = _Terms(node)  # anew each time, since labels are equated on the way
            acc = terms.acc
            if acc is None:
                return
            first, second = terms.first.factors, terms.second.factors
            if not _is_one(first[i], second[j], terms):
                continue
            settled, flat = terms.settled((first[i], first[1 - i], second[1 - j]))
            common, a, b = settled.operands
            if set(a.labels) != set(b.labels) or not set(common.labels) & set(a.labels) - set(flat):
                continue
            dtype = promote((a.node.dtype, b.node.dtype))
            if not all(rounded is not None and dtype.holds(rounded) for rounded in terms.rounded):
                continue  # a + b would be rounded where neither product is
            turned = arranged(b, a.labels, settled.extents)
            both = make(node.op, [build.cast(a.node, dtype), build.cast(turned, dtype)])
            yield terms.finished(common, LabelledTensor(both, a.labels), settled, flat, acc)


def _is_one(f: Factor, g: Factor, terms: _Terms) -> bool:
    """Whether two factors are one tensor with its axes in equal roles; then axes that are summed over become one."""
    labels = terms.labels
    if (f.source, f.window, f.dtype) != (g.source, g.window, g.dtype):
        return False
    kept = labels.all_of(terms.axes)
    for a, b in zip(f.axes, g.axes, strict=True):
        mine, its = labels.resolved(a), labels.resolved(b)
        if mine == its:
            continue
        if kept & {*mine, *its} or not labels.equate(mine, its):
            return False
    return True


def _concatenated(node: Node, around: GraphQueries) -> Iterator[Node]:
    if not _Terms.match(node):
        return
    for swap in (False, True):
        terms = _Terms(node)
        acc = terms.acc
        if acc is None:
            return
        second = terms.second.factors[::-1] if swap else terms.second.factors
        settled, flat = terms.settled(terms.first.factors, second)
        x, y, z, w = settled.operands
        if not all(set(p.labels) & set(flat) == set(q.labels) & set(flat) for p, q in ((x, z), (y, w))):
            continue
        if node.op == "sub":
            minus = [around.is_constant(f.source) for f in second]
            if not any(minus):
                return
            z, w = (z, _negative(w)) if minus[1] else (_negative(z), w)
        left, right = (_together(p, q, settled, flat, (x, z)) for p, q in ((x, z), (y, w)))
        yield terms.finished(left, right, settled, flat, acc)
        return


def _negative(x: LabelledTensor) -> LabelledTensor:
    return LabelledTensor(build.neg(x.node), x.labels)


def _together(
    a: LabelledTensor,
    b: LabelledTensor,
    settled: Settled,
    kept: list[Label],
    order: tuple[LabelledTensor, LabelledTensor],
) -> LabelledTensor:
    """a and b one behind the other along the axes that are summed over, which become one axis, where the first such
    axis of `a` was. order: for a and for b, the operand that has these axes in the order to be used."""
    place = next((k for k, label in enumerate(a.labels) if label not in kept), a.node.rank)
    before, after = [x for x in a.labels[:place] if x in kept], [x for x in a.labels[place:] if x in kept]
    rows, columns = ([settled.extents[label] for label in side] for side in (before, after))
    parts: list[Node] = []
    for x, given in zip((a, b), order, strict=True):
        summed = [label for label in given.labels if label not in kept]
        turned = arranged(x, [*before, *summed, *after], settled.extents)
        parts.append(build.reshape(turned, [*rows, -1, *columns]))
    return LabelledTensor(build.cat(parts, len(before)), (*before, _TOGETHER, *after))


FACTORING = (
    Alternative(
        "factor-sum",
        "x a + x b = x (a + b)",
        "reassociate",
        _factored,
        "a + b is rounded instead of x a and x b: at most twice the larger of a and b",
    ),
    Alternative(
        "concatenate-k",
        "x y + z w = [x | z] [y ; w]",
        "reassociate",
        _concatenated,
        "x y and z w are not rounded any more",
    ),
)
