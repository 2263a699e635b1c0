"""Rules of gathers: an element of one tensor becomes an index of another."""

from codegen.lowering.index import Affine, Fetched
from codegen.lowering.puller import Index, Puller
from codegen.lowering.value import Value
from fusion_ir.core.node import Node
from fusion_ir.core.scalar import Scalar


def gather(p: Puller, node: Node, index: Index) -> Value:
    axis = node.attr("axis", int)
    at = _fetch(p, node.args[1], index, node.args[0].sizes[axis])
    return p.pull(node.args[0], (*index[:axis], at, *index[axis + 1 :]))


def index_select(p: Puller, node: Node, index: Index) -> Value:
    axis = node.attr("axis", int)
    at = _fetch(p, node.args[1], (index[axis],), node.args[0].sizes[axis])
    return p.pull(node.args[0], (*index[:axis], at, *index[axis + 1 :]))


def _fetch(p: Puller, indices: Node, index: Index, extent: int) -> Affine:
    """An element of an index tensor as an index, clamped to [0, extent) in the tensor's own dtype."""
    value, dtype = p.pull(indices, index), indices.dtype
    if value.op == "const":
        return Affine(min(max(int(value.scalar.value), 0), extent - 1))
    last = min(extent - 1, (1 << 8 * dtype.bytes - 1) - 1)
    for bound, op in ((last, "minimum"), (0, "maximum")):
        value = p.values.make(op, (value, p.values.const(Scalar.of(bound, dtype))), (), dtype)
    return Affine.of(0, [(Fetched(value, extent), 1)])
