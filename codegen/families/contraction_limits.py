"""What families refuse for sure, by the products of matrices in a segment: said at once of thousands of segments."""

from functools import lru_cache

from codegen.families.gemv import MOST_FEW
from codegen.families.reduction import free_extents, is_small
from codegen.gemm.call import HEAVY
from fusion_ir.core.node import Node
from fusion_ir.ops import OPS, OpKind
from fusion_ir.ops.contract import products

REFUSING = frozenset({"aten", "wgmma", "attention"})  # see `refusing`
OF_LIBRARIES = {"contract", "cast", "add", "mul"}  # and views: what library calls compute beside a product


def is_heavy(node: Node) -> bool:
    """A contraction of so many multiply-adds that `naive` is no way to compute it."""
    return node.op == "contract" and node.elements * products(node) > HEAVY


def is_thick(node: Node) -> bool:
    """A contraction of too many rows and columns for loops around its sums. Of every family but `naive` a kernel writes
    what follows from all thick products in it, and has one of them, or two of which one follows from the other."""
    return node.op == "contract" and not is_small(node) and free_extents(node)[0] > MOST_FEW


@lru_cache(maxsize=1024)
def refusing(ops: frozenset[str], computed: bool) -> frozenset[str]:
    """Families that take no segment of these ops with a contraction. computed: whether it is the only one, and an
    operand of it the result of another op than a view or a cast that loses nothing."""
    kinds = {OPS[op].kind for op in ops}
    beside = any(OPS[op].kind is not OpKind.VIEW for op in ops - OF_LIBRARIES)
    named = {"aten": computed or beside, "wgmma": computed, "attention": OpKind.REDUCTION not in kinds}
    return frozenset(name for name, refuses in named.items() if refuses)
