"""Scatters of no slice, and of one.

    scatter_sum(no slices)             = 0
    scatter_sum(x of one slice, i)[m]  = where(i == m, x, 0)

These are exact: there is nothing to add.
"""

from fusion_ir import building as build
from fusion_ir.core.node import Node
from fusion_ir.dtype import i64
from scheduler.rewrites.rule import Rule


def _of_one_slice(node: Node) -> Node | None:
    if node.op != "scatter_sum" or node.args[1].elements > 1 or not node.elements:
        return None
    (x, index), axis = node.args, node.attr("axis", int)
    if not index.elements:
        return build.full(node.sizes, 0, node.dtype)
    places = build.iota([n if a == axis else 1 for a, n in enumerate(node.sizes)], axis, dtype=i64)
    here = build.eq(build.reshape(build.cast(index, i64), [1] * node.rank), places)
    term = build.broadcast_to(build.cast(x, node.dtype), node.sizes)
    return build.where(build.broadcast_to(here, node.sizes), term, build.full((), 0, node.dtype))


SCATTERS: tuple[Rule, ...] = (
    Rule(
        "scatter-of-one-slice",
        "scatter_sum(x, i)[m] = where(i = m, x, 0) of one slice, 0 of none",
        "exact",
        _of_one_slice,
    ),
)
