"""Rules of scatter_sum: a reduction over all slices that skips those of other places, or one over a list of slices.

    out[m, d] = sum over i, index[i] == m, of x[i, d]
    compared:   for i: if index[i] == m: out[m, d] += x[i, d]
    listed:     for j < (number of slices of place m): out[m, d] += x[order[first[m] + j], d]

Whoever prints `listed` makes the lists first.
"""

from functools import lru_cache

from codegen.lowering.index import Affine, Fetched
from codegen.lowering.puller import Index, Puller
from codegen.lowering.reduction_axes import axes_of
from codegen.lowering.value import Value
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.core.scalar import Scalar
from fusion_ir.dtype import accumulate_dtype, bool_, i64

# Of a reduction with operands (term, listed slice), which varies with the place even where no term does.
ADD_LISTED = "add_listed"
ADD_WHERE = "add_where"  # of a reduction with operands (condition, term): it adds the terms for which that holds


def compared(p: Puller, node: Node, index: Index) -> Value:
    """A reduction over all slices, of those whose place is the one that is read."""
    (x, places), axis = node.args, node.attr("axis", int)
    acc = accumulate_dtype(x.dtype)
    zero = p.values.const(Scalar.of(0, acc))
    if not places.elements:
        return p.values.cast(zero, node.dtype)
    ((position,),) = p.bound.of(node, places.sizes)
    place = p.values.cast(p.pull(places, (position,)), i64)
    here = p.values.make("eq", (place, p.values.index(index[axis], i64)), (), bool_)
    term = p.arg(x, (*index[:axis], position, *index[axis + 1 :]), acc)
    axes = axes_of((position,))
    total = (
        p.values.make("reduce", (here, term), (ADD_WHERE, *axes), acc)
        if axes
        else p.values.make("where", (here, term, zero), (), acc)
    )
    return p.values.cast(total, node.dtype)


def listed(p: Puller, node: Node, index: Index) -> Value:
    """A reduction over the list of the slices of a place; the only slice there is, compared."""
    (x, places), axis = node.args, node.attr("axis", int)
    (count,) = places.sizes
    if count < 2:
        return compared(p, node, index)
    acc = accumulate_dtype(x.dtype)
    ((position,),) = p.bound.of(node, places.sizes)
    (along,) = position.axes
    number = lists_of(p.graph).index((places, node.attr("extent", int)))
    found = p.values.listed(number, along, index[axis])
    at = Affine.of(0, [(Fetched(found, count), 1)])
    term = p.arg(x, (*index[:axis], at, *index[axis + 1 :]), acc)
    return p.values.cast(p.values.make("reduce", (term, found), (ADD_LISTED, along), acc), node.dtype)


@lru_cache(maxsize=64)
def lists_of(graph: Graph) -> tuple[tuple[Node, int], ...]:
    """The lists that `listed` walks through, by number: an index tensor, and the number of places, each pair once."""
    found = ((n.args[1], n.attr("extent", int)) for n in graph.nodes if n.op == "scatter_sum")
    return tuple(dict.fromkeys(found))
