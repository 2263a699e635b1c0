"""The two halves that reductions and contractions were split into: which nodes are which, and how long the parts are.

sum over i of x[i], i < 2816  ->  sum over t of (sum over k of x[704 t + k])      4 parts of 704 terms
                                  second half    first half
"""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from math import prod

from fusion_ir.core.node import Node
from fusion_ir.ops import OpKind, kind_of
from fusion_ir.ops.contract import products

SUMS = ("sum", "mean", "var", "contract")  # what is made of sums; others of reductions of their own kind


@dataclass(frozen=True)
class Halves:
    """first, second: the reductions and contractions of each half. made: all nodes that the rewrite made, both halves
    among them. parts, terms: number of parts, and terms of each. rest: terms beside the parts."""

    first: tuple[Node, ...]
    second: tuple[Node, ...]
    made: tuple[Node, ...]
    parts: int
    terms: int
    rest: int

    @cached_property
    def of(self) -> frozenset[Node]:
        """The reductions and contractions of either half."""
        return frozenset((*self.first, *self.second))


def halves(node: Node, new: Node, known: Collection[Node]) -> Halves | None:
    """The halves into which a rewrite split `node` when it put `new` in its place; None where it did something else.
    known: nodes that were there before, or that stand for such nodes."""
    if kind_of(node) is not OpKind.REDUCTION and node.op != "contract":
        return None
    made: dict[Node, None] = {}
    stack = [new]
    while stack:
        found = stack.pop()
        if found not in made and (found is new or found not in known):
            made[found] = None
            stack += found.args
    kinds = ("sum", "contract") if node.op in SUMS else (node.op,)
    reducing = [n for n in made if n.op in kinds]
    first = tuple(n for n in reducing if n.elements > node.elements and n.op in (node.op, "sum"))
    second = tuple(n for n in reducing if n not in first)
    if not first or not second or not node.elements:
        return None
    parts, count = first[0].elements // node.elements, _terms(node)
    terms = _terms(first[0])
    return Halves(first, second, tuple(made), parts, terms, max(count - parts * terms, 0))


def _terms(node: Node) -> int:
    """Terms of each sum, or other reduction."""
    if node.op == "contract":
        return products(node)
    return prod(node.args[0].sizes[a] for a in node.ints("axes"))
