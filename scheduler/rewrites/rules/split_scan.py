"""Splitting running sums of few rows: in parts that tasks can share, each put right by what all before it come to.

    y[i] = sum over j <= i of x[j], i < 8192  ->  y[512 t + k] = (sum over j <= k of x[512 t + j]) + b[t],
                                                   b[t] = sum over s < t of (sum over j of x[512 s + j])

Elements are read twice, once for the sums of the parts. Parts are summed and put right in the dtype of accumulation
(Blelloch, "Prefix Sums and Their Applications", 1990).
"""

from math import prod

from fusion_ir import building as build
from fusion_ir.core.node import Node
from fusion_ir.dtype import accumulate_dtype

LEAST_ELEMENTS = 1 << 16  # of a row: shorter ones take less time than another launch
LEAST_PART = 256  # elements


def split_scan(node: Node, least_rows: int, parts: int) -> Node | None:
    """A running sum of fewer rows than `least_rows`, in `parts` parts or somewhat more of each row; None where it stays
    whole."""
    if node.op != "cumsum":
        return None
    (x,), axis = node.args, node.attr("axis", int)
    n, rows = x.sizes[axis], prod(x.sizes) // max(x.sizes[axis], 1)
    if rows >= least_rows or n < LEAST_ELEMENTS:
        return None
    wanted = -(-parts // rows)
    count = next((c for c in range(wanted, 4 * wanted + 1) if n % c == 0 and n // c >= LEAST_PART), None)
    if count is None:
        return None
    sizes = (*x.sizes[:axis], count, n // count, *x.sizes[axis + 1 :])
    whole = build.reshape(build.cast(x, accumulate_dtype(x.dtype)), sizes)
    totals = build.sum_(whole, [axis + 1])
    first = [int(d == axis) for d in range(totals.rank)]
    before = build.cumsum(build.pad(totals, first, [-d for d in first]), axis)  # of the parts before each
    right = build.add(build.cumsum(whole, axis + 1), build.unsqueeze(before, axis + 1))
    return build.cast(build.reshape(right, x.sizes), node.dtype)
