"""Rules of gathers: an element of one tensor becomes an index of another."""

from codegen.lowering.index import Affine, Fetched
from codegen.lowering.puller import Index, Puller
from codegen.lowering.value import Value
from fusion_ir.dtype import i64
from fusion_ir.node import Node
from fusion_ir.scalar import Scalar


def gather(p: Puller, node: Node, index: Index) -> Value:
    axis = node.attr("axis", int)
    at = _fetch(p, node.args[1], index, node.args[0].sizes[axis])
    return p.pull(node.args[0], (*index[:axis], at, *index[axis + 1 :]))


def index_select(p: Puller, node: Node, index: Index) -> Value:
    axis = node.attr("axis", int)
    at = _fetch(p, node.args[1], (index[axis],), node.args[0].sizes[axis])
    return p.pull(node.args[0], (*index[:axis], at, *index[axis + 1 :]))


def _fetch(p: Puller, indices: Node, index: Index, extent: int) -> Affine:
    """An element of an index tensor as an index, clamped to [0, extent)."""
    least, most = (p.values.const(Scalar.of(n, i64)) for n in (0, max(extent - 1, 0)))
    value = p.values.make("minimum", (p.arg(indices, index, i64), most), (), i64)
    value = p.values.make("maximum", (value, least), (), i64)
    return Affine.of(0, [(Fetched(value, extent), 1)])
