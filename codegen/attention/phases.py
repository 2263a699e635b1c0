"""Phases of a segment cut at the reductions of a product's rows, and the tensor that is held from phase to phase.

    s = product * scale + mask;  m = max(s);  e = exp(s - m);  t = sum(e);  p = e / t
    ->  hold s, m = max of it;  hold e = exp(held - m), t = sum of it;  held / t

The operand of a reduction replaces the tensor held before, unless a later phase needs that one; then the operand is
computed again.
"""

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

from codegen.kernel import Reject
from fusion_ir.core.graph import Graph, topological
from fusion_ir.core.node import Node
from fusion_ir.ops import OpKind, kind_of
from fusion_ir.ops.contract import ORDERED_PRODUCTS, products

KINDS = {OpKind.INPUT, OpKind.POINTWISE, OpKind.VIEW, OpKind.RANDOM, OpKind.GATHER, OpKind.CONTRACT, OpKind.REDUCTION}
COMBINES = {"max": "maximum", "min": "minimum", "sum": "add"}
MAX_NODES = 300


@dataclass(frozen=True)
class Phase:
    """One reduction. reads: the tensor held before it. keeps: whether its operand is held from then on."""

    reduction: Node
    reads: Node
    keeps: bool

    @property
    def operand(self) -> Node:
        """The tensor that is reduced."""
        return self.reduction.args[0]


@dataclass(frozen=True)
class Phases:
    """product: the contraction. steps: its reductions in order. reads: the tensor held behind them. second: the
    contraction over the columns, if there is one. side: which of its operands (0, 1) depends on the product."""

    product: Node
    steps: tuple[Phase, ...]
    reads: Node
    second: Node | None
    side: int

    @property
    def reductions(self) -> tuple[Node, ...]:
        """The reductions of all steps, in order."""
        return tuple(step.reduction for step in self.steps)


def phases_of(segment: Graph) -> Phases | Reject:
    """The segment's phases, or why it has none, as far as ops tell."""
    if len(segment.nodes) > MAX_NODES:
        return Reject(f"{len(segment.nodes)} nodes are too many for one kernel (at most {MAX_NODES})")
    long: list[Node] = []
    reductions: list[Node] = []
    for n in segment.nodes:
        kind = kind_of(n)
        if kind not in KINDS:
            return Reject(f"{n.op} is no pointwise op and no reduction")
        if kind is OpKind.REDUCTION:
            reductions.append(n)
        elif kind is OpKind.CONTRACT and products(n) > ORDERED_PRODUCTS:
            long.append(n)
    if not reductions or not 1 <= len(long) <= 2:
        return Reject(
            f"holds {len(long)} contractions of more than {ORDERED_PRODUCTS} products and {len(reductions)} "
            "reductions, takes one or two contractions with reductions behind the first"
        )
    product, second, side = long[0], None, 0
    behind = _behind(segment, product)
    if len(long) == 2:
        second = long[1]
        sides = [i for i in range(2) if second.args[i] in behind]
        if len(sides) != 1:
            return Reject(f"{len(sides)} operands of the second product follow from the first; takes one")
        side = sides[0]
        if not behind.isdisjoint(reductions) and any(n in _behind(segment, second) for n in reductions):
            return Reject("the second product is reduced")
    if early := next((n for n in reductions if n not in behind), None):
        return Reject(f"{early.op} does not follow from the product")
    if any(o.node not in (behind if second is None else _behind(segment, second)) for o in segment.outputs):
        return Reject("an output does not depend on the last product")
    last = [o.node for o in segment.outputs] if second is None else [second.args[side]]
    return _held(product, reductions, last, second, side)


def _held(product: Node, reductions: Sequence[Node], last: Sequence[Node], second: Node | None, side: int) -> Phases:
    steps: list[Phase] = []
    held = product
    for i, reduction in enumerate(reductions):
        later = [*(n.args[0] for n in reductions[i + 1 :]), *last]
        operand = reduction.args[0]
        keeps = held not in reached(later, {operand, *reductions})
        steps.append(Phase(reduction, held, keeps))
        held = operand if keeps else held
    return Phases(product, tuple(steps), held, second, side)


def reached(roots: Iterable[Node], ends: Set[Node]) -> set[Node]:
    """Nodes that `roots` are computed from, down to the nodes `ends`; roots and ends are included."""
    found, stack = set[Node](), list(roots)
    while stack:
        n = stack.pop()
        if n not in found:
            found.add(n)
            stack += () if n in ends else n.args
    return found


def _behind(segment: Graph, node: Node) -> set[Node]:
    """Nodes of the segment that are computed from `node`, itself included."""
    found = {node}
    for n in topological(o.node for o in segment.outputs):
        if not found.isdisjoint(n.args):
            found.add(n)
    return found
