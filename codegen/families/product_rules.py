"""Rules for what stands beside a product in one kernel, the same for every family and target."""

from collections.abc import Set

from codegen.kernel import Reject
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.ops import OpKind, kind_of


def too_many(segment: Graph, most: int) -> Reject | None:
    """Why a segment has more nodes than one kernel takes, if it has."""
    count = len(segment.nodes)
    return Reject(f"{count} nodes are too many for one kernel (at most {most})") if count > most else None


def not_pointwise(segment: Graph, kinds: Set[OpKind]) -> Reject | None:
    """Why an op of the segment is of none of these kinds, if one is."""
    odd = next((n for n in segment.nodes if kind_of(n) not in kinds), None)
    return None if odd is None else Reject(f"{odd.op} is no pointwise op")


def dependents(segment: Graph, product: Node) -> frozenset[Node]:
    """The nodes that depend on the product, itself among them."""
    reached = {product}
    for node in segment.nodes:  # operands come first
        if any(a in reached for a in node.args):
            reached.add(node)
    return frozenset(reached)


def beside(segment: Graph, reached: Set[Node]) -> Reject | None:
    """Why an output does not depend on the product, if one does not."""
    apart = any(o.node not in reached for o in segment.outputs)
    return Reject("an output does not depend on the product") if apart else None
