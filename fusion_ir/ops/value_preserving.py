"""Ops that change no value: casts to wider types and views, which are recomputed, moved and dropped freely."""

from fusion_ir.core.node import Node
from fusion_ir.ops import OPS, OpKind


def is_free(node: Node) -> bool:
    """Whether the node is a view, or a cast to a type that holds every value of the operand's type."""
    if node.op == "input":
        return False
    if node.op == "cast":
        return node.dtype.holds(node.args[0].dtype)
    return OPS[node.op].kind is OpKind.VIEW
