"""Which graphs' results depend on where products are rounded to 16 bits."""

from collections.abc import Sequence

from fusion_ir.graph import Graph
from scheduler.rewrites import ALTERNATIVES
from scheduler.rewrites.rule import Offer


def comparable_offers(graph: Graph) -> Sequence[Offer]:
    """Alternatives with which results can be compared with the graph's own within what its own kernels may err by: none
    where a product is rounded to 16 bits. (x y) z and x (y z), s (x y) and (s x) y round other values then, as many of
    them, and results differ by several ulps; `test_offers_random` has the bound for that."""
    narrow = any(n.op == "contract" and n.dtype.bytes < 4 for n in graph.nodes)
    return () if narrow else ALTERNATIVES
