"""Rewrites: equal tensors, produced otherwise. Two tables; each row is a declaration with its mathematics.

`RULES` make a graph smaller and lose nothing, so `simplify` applies them wherever they match; those in `split` open
choices to the search and close none. `ALTERNATIVES` trade one cost for another: what they offer stands beside a node,
and the search weighs both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fusion_ir.graph import Graph
from fusion_ir.node import Node
from fusion_ir.ops import make
from scheduler.rewrites.chains import CHAINS
from scheduler.rewrites.distributing import DISTRIBUTING
from scheduler.rewrites.factoring import FACTORING
from scheduler.rewrites.identities import IDENTITIES
from scheduler.rewrites.rule import Offer, Rule
from scheduler.rewrites.scaling import SCALING
from scheduler.rewrites.siblings import SIBLINGS
from scheduler.rewrites.sums import SUMS
from scheduler.rewrites.through import THROUGH
from scheduler.rewrites.twice import TWICE
from scheduler.rewrites.views import VIEWS


@dataclass(frozen=True)
class Simplified:
    """`image[n]`: what stands for node n of the graph given; `rules`: those that matched, in the table's order."""

    image: Mapping[Node, Node]
    rules: tuple[Rule, ...]


def _idle_view(node: Node) -> Node | None:
    if not node.args or node.sizes != node.args[0].sizes or node.dtype != node.args[0].dtype:
        return None
    x = node.args[0]
    match node.op:
        case "reshape" | "expand" | "squeeze":
            return x
        case "permute":
            return x if node.ints("dims") == tuple(range(node.rank)) else None
        case "broadcast_in_dim":
            return x if node.ints("dims") == tuple(range(node.rank)) else None
        case "slice":
            return x if all(step == 1 for step in node.ints("step")) else None
        case "pad":
            return x if not any((*node.ints("low"), *node.ints("high"))) else None
        case "cat":
            return x if len(node.args) == 1 else None
        case _:
            return None


def _reshape_reshape(node: Node) -> Node | None:
    if node.op != "reshape" or node.args[0].op != "reshape":
        return None
    return make("reshape", [node.args[0].args[0]], {"shape": node.shape})


def _permute_permute(node: Node) -> Node | None:
    if node.op != "permute" or node.args[0].op != "permute":
        return None
    outer, inner = node.ints("dims"), node.args[0].ints("dims")
    return make("permute", [node.args[0].args[0]], {"dims": tuple(inner[d] for d in outer)})


def _cast_back(node: Node) -> Node | None:
    if node.op != "cast":
        return None
    inner = node.args[0]
    if inner.dtype == node.dtype:
        return inner
    if inner.op == "cast" and inner.args[0].dtype == node.dtype and inner.dtype.holds(node.dtype):
        return inner.args[0]
    return None


def _cast_cast(node: Node) -> Node | None:
    if node.op != "cast" or node.args[0].op != "cast":
        return None
    x, middle = node.args[0].args[0], node.args[0].dtype
    # Integers wrap where floats saturate: an integer that went through floats must fit.
    alike = x.dtype.is_float == middle.is_float or node.dtype.is_float or node.dtype.holds(x.dtype)
    if not (middle.holds(x.dtype) and alike):
        return None
    return make("cast", [x], {"dtype": node.dtype})


RULES: tuple[Rule, ...] = (
    Rule("idle-view", "view(x) = x where the view moves nothing", "exact", _idle_view),
    Rule("reshape-reshape", "reshape(reshape(x), s) = reshape(x, s)", "exact", _reshape_reshape),
    Rule("permute-permute", "permute(permute(x, p), q) = permute(x, p[q])", "exact", _permute_permute),
    Rule("cast-back", "cast(cast(x, wide), dtype of x) = x where wide holds every value of x", "exact", _cast_back),
    Rule("cast-cast", "cast(cast(x, wide), t) = cast(x, t) where wide holds every x", "exact", _cast_cast),
    *IDENTITIES,
)

# What is likeliest to pay first: where there is no room for all, the last ones are left out.
ALTERNATIVES: tuple[Offer, ...] = (
    *DISTRIBUTING,
    *CHAINS,
    *SIBLINGS,
    *FACTORING,
    *SCALING,
    *THROUGH,
    *SUMS,
    *TWICE,
    *VIEWS,
)


def simplify(graph: Graph, rules: Sequence[Rule] = RULES) -> Simplified:
    """Applies the rules at every node until none matches, operands first. Nodes that nothing matches stay the same
    object."""
    image: dict[Node, Node] = {}
    matched: set[str] = set()
    for node in graph.nodes:
        new = node.over(tuple([image[a] for a in node.args]))
        while True:
            for rule in rules:
                better = rule.apply(new)
                if better is not None:
                    break
            else:
                break
            if better.sizes != node.sizes or better.dtype != node.dtype:
                raise AssertionError(f"rewrite {rule.name} made {better} of {new}")
            matched.add(rule.name)
            new = better
        image[node] = new
    return Simplified(image, tuple(rule for rule in rules if rule.name in matched))
