"""The order in which the axes of a stored tensor lie in memory, where those who read it would have it otherwise.

    y = contract(p[h, t, s], v[h, s, d])[h, t, d];  contract(reshape(permute(y), [t, h * d]), w[h * d, n])
    ->  y lies as [t, h, d]: the second contraction reads a matrix

Attention ends so. As the contraction has them, h, t, d, its rows would be read in pieces: a library would be called for
each h, and add up what it gives.
"""

from collections.abc import Mapping

from fusion_ir.core.extent import dense_strides
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.ops import OpKind, kind_of

UNIT_VIEWS = {"squeeze", "broadcast_in_dim", "reshape"}  # which may add or drop axes of extent 1 alone
Order = tuple[int, ...]


def stored_orders(graph: Graph) -> dict[Node, Order]:
    """By contraction, its axes in the order in which all who read it step through them, outermost first; of those alone
    of which a contraction reads them so, joined with others, and the order is another than theirs."""
    readers: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        for arg in dict.fromkeys(node.args):
            readers.setdefault(arg, []).append(node)
    outputs = {o.node for o in graph.outputs}
    found: dict[Node, Order] = {}
    for node in graph.nodes:
        if node.op == "contract" and node not in outputs and node.rank > 2:
            order = _read_order(node, readers)
            if order is not None and order != tuple(range(node.rank)):
                found[node] = order
    return found


def strides_in(sizes: tuple[int, ...], order: Order) -> tuple[int, ...]:
    """Dense strides of a tensor whose axes lie in this order, outermost first."""
    dense = dense_strides([sizes[d] for d in order])
    return tuple(dense[order.index(d)] for d in range(len(sizes)))


def _read_order(node: Node, readers: Mapping[Node, list[Node]]) -> Order | None:
    """The one order in which all readers of a node join its axes, for contractions; None where there is no such."""
    orders: set[Order] = set()
    stack: list[tuple[Node, Order]] = [(node, tuple(range(node.rank)))]  # a view, and the axes of `node` in its order
    while stack:
        view, axes = stack.pop()
        for reader in readers.get(view, ()):
            seen = _through(reader, view, axes, node)
            if seen is not None:
                stack.append((reader, seen))
            elif reader.op == "reshape" and _feeds_contractions(reader, readers):
                orders.add(axes)
            else:
                return None
    return orders.pop() if len(orders) == 1 else None


def _through(reader: Node, view: Node, axes: Order, node: Node) -> Order | None:
    """The axes of `node` above extent 1 in the order in which a view of a view has them; None of what joins or splits
    axes, and of what is no view. Axes of extent 1 stand where they stood at first."""
    if reader.op == "permute":
        dims = [d for d in reader.ints("dims") if view.sizes[d] > 1]
        large = [d for d in range(view.rank) if view.sizes[d] > 1]
        given = iter([axes[k] for k in _large(axes, node)])
        by_dim = dict(zip(large, given, strict=True))
        moved = iter([by_dim[d] for d in dims])
        return tuple(next(moved) if node.sizes[a] > 1 else a for a in axes)
    if reader.op in UNIT_VIEWS and [n for n in reader.sizes if n > 1] == [n for n in view.sizes if n > 1]:
        return axes
    return None


def _large(axes: Order, node: Node) -> list[int]:
    return [k for k, a in enumerate(axes) if node.sizes[a] > 1]


def _feeds_contractions(view: Node, readers: Mapping[Node, list[Node]]) -> bool:
    """Whether views of a view are read by contractions alone."""
    found = readers.get(view, [])
    return bool(found) and all(
        r.op == "contract" or (kind_of(r) is OpKind.VIEW and _feeds_contractions(r, readers)) for r in found
    )
