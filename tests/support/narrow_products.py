"""Which graphs' results depend on where products are rounded to 16 bits."""

from collections.abc import Sequence

from fusion_ir.graph import Graph
from scheduler.rewrites import ALTERNATIVES
from scheduler.rewrites.rule import Offer


def comparable_offers(graph: Graph) -> Sequence[Offer]:
    """Alternatives with which results can be compared with the graph's own within what its own kernels may err by: none
    where one product of 16 bits leads to others. (x y) z and x (y z) round other values then, as many of them, and
    results differ by several ulps; `test_offers_random` has the bound for that."""
    narrow = sum(n.op == "contract" and n.dtype.bytes < 4 for n in graph.nodes)
    return ALTERNATIVES if narrow < 2 else ()
