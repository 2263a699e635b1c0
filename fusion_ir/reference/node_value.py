"""The value of one node from the values of its operands, on NumPy arrays, rounded to the node's dtype."""

from collections.abc import Sequence

import numpy as np

from fusion_ir.arithmetic.cache_blocks import BLOCK_ELEMENTS, blocks
from fusion_ir.arithmetic.conversions import round_to, widen
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType
from fusion_ir.ops import OPS, OpKind


def evaluate_node(node: Node, operands: Sequence[np.ndarray]) -> np.ndarray:
    """The value of one node, which is no input, in its dtype and shape; strides may be 0 where it repeats."""
    row = OPS[node.op]
    if row.kind is OpKind.POINTWISE:
        return pointwise(node, operands, node.dtype)
    with np.errstate(all="ignore"):
        return row.reference(node, *operands)


def pointwise(node: Node, operands: Sequence[np.ndarray], dtype: DType) -> np.ndarray:
    """The value of a pointwise node rounded to `dtype`, computed once along axes on which all operands repeat."""
    reference = OPS[node.op].reference
    if operands[0].size <= BLOCK_ELEMENTS and all(x.flags.c_contiguous for x in operands):
        with np.errstate(all="ignore"):
            value = round_to(np.asarray(reference(node, *map(widen, operands))), dtype)
        return value.copy() if any(value is x for x in operands) else value
    repeats = [all(x.strides[axis] == 0 for x in operands) and n > 1 for axis, n in enumerate(node.sizes)]
    once = tuple(slice(1) if r else slice(None) for r in repeats)
    small = [x[once] for x in operands]
    # Memory order of the largest operand, so that permuted tensors are read and written along their rows.
    leader = max(small, key=lambda x: x.size - sum(x.shape[a] for a in range(x.ndim) if x.strides[a] == 0))
    order = sorted(range(leader.ndim), key=lambda a: -abs(leader.strides[a]) if leader.shape[a] > 1 else 0)
    moved = [x.transpose(order) for x in small]
    result = np.empty(moved[0].shape, dtype.numpy)
    with np.errstate(all="ignore"):
        for block in blocks(result.shape):
            value = reference(node, *(widen(x[block]) for x in moved))
            result[block] = round_to(np.asarray(value), dtype)
    back = result.transpose(np.argsort(order))
    return np.broadcast_to(back, node.sizes) if any(repeats) else back
