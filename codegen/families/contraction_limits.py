"""Refusals of families that follow from a segment's products of matrices alone, quickly told for many segments."""

from functools import lru_cache

from codegen.families.gemv import MOST_FEW
from codegen.families.reduction import free_extents, is_small
from codegen.gemm.call import HEAVY
from fusion_ir.core.node import Node
from fusion_ir.ops import OPS, OpKind
from fusion_ir.ops.contract import products

REFUSING = frozenset({"aten", "wgmma", "attention"})  # see `refusing`
OF_LIBRARIES = {"contract", "cast", "add", "mul"}  # ops that library calls compute, besides views


def is_heavy(node: Node) -> bool:
    """Whether a node is a contraction of more than HEAVY multiply-adds, too many for family `naive`."""
    return node.op == "contract" and node.elements * products(node) > HEAVY


def is_thick(node: Node) -> bool:
    """Whether a node is a contraction of too many rows and columns for loops around its sums: a thick product. A kernel
    of any family but `naive` holds one of them, or two of which one depends on the other, and every tensor that it
    writes depends on all of them."""
    return node.op == "contract" and not is_small(node) and free_extents(node)[0] > MOST_FEW


@lru_cache(maxsize=1024)
def refusing(ops: frozenset[str], computed: bool) -> frozenset[str]:
    """Families that take no segment of these ops with a contraction. computed: whether it is the only contraction, and
    one of its operands is the result of an op other than a view or an exact cast."""
    kinds = {OPS[op].kind for op in ops}
    beside = any(OPS[op].kind is not OpKind.VIEW for op in ops - OF_LIBRARIES)
    named = {"aten": computed or beside, "wgmma": computed, "attention": OpKind.REDUCTION not in kinds}
    return frozenset(name for name, refuses in named.items() if refuses)
