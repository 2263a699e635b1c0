"""Nodes whose two operands have most of their errors in common, so that errors cancel
(`fusion_ir.accuracy.error_bound`)."""

from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.ops import axis_maps_of, kept_axes

_VIEWS = ("broadcast_in_dim", "expand", "squeeze", "reshape")

_Axes = dict[int, int]  # axes of a node by those of another that they are; those of one element need not be any


def is_over_sum(node: Node) -> bool:
    """Whether the node is x / sum(x), along any axes."""
    return node.op == "div" and _beside(node, "sum") is not None


def cancelling(graph: Graph) -> set[Node]:
    """The nodes x - max(x) that only softmaxes and their logarithms read: these do not change when one number is
    subtracted from a whole row. Any other reader, such as tanh(x - max(x)), inherits the maximum's error."""
    outputs = {o.node for o in graph.outputs}
    return {n for n in graph.nodes if n.op == "sub" and _cancels(graph, n, outputs)}


def _cancels(graph: Graph, shifted: Node, outputs: set[Node]) -> bool:
    maxima = _beside(shifted, "max")
    if maxima is None:
        return False
    lines = set(maxima.ints("axes"))
    reached = {shifted: None}
    waiting = [shifted]
    while waiting:
        node = waiting.pop()
        if node in outputs:
            return False
        for user in graph.users[node]:
            if user in reached or _is_share(user, shifted, lines) or _is_log_share(user, shifted, lines):
                continue
            if user.op != "exp" if node is shifted else user.op not in ("sum", "log", *_VIEWS):
                return False
            reached[user] = None
            waiting.append(user)
    return True


def _is_share(node: Node, shifted: Node, lines: set[int]) -> bool:
    """Whether the node is exp(shifted) over its sum along some of the axes `lines`."""
    total = _beside(node, "sum") if node.op == "div" else None
    return total is not None and _is_sum_of_powers(total, shifted, lines)


def _is_log_share(node: Node, shifted: Node, lines: set[int]) -> bool:
    """Whether the node is shifted - log(sum(exp(shifted))), along some of the axes `lines`."""
    if node.op != "sub" or node.args[0] is not shifted:
        return False
    log, outer = _unviewed(node.args[1])
    if log.op != "log":
        return False
    total, inner = _unviewed(log.args[0])
    if not _is_sum_of_powers(total, shifted, lines):
        return False
    return {own: outer.get(axis) for own, axis in inner.items()} == _kept(total)


def _is_sum_of_powers(total: Node, shifted: Node, lines: set[int]) -> bool:
    if total.op != "sum" or total.args[0].op != "exp" or total.args[0].args[0] is not shifted:
        return False
    return lines.issuperset(total.ints("axes"))


def _beside(node: Node, op: str) -> Node | None:
    """The reduction `op` of the first operand, where the second operand is that reduction, repeated beside each element
    of the row it reduces; None otherwise, and for integers."""
    first = node.args[0]
    source, axes = _unviewed(node.args[1])
    if source.op != op or source.args[0] is not first or not first.dtype.is_float or axes != _kept(source):
        return None
    return source


def _kept(reduction: Node) -> _Axes:
    """For each axis of a reduction's result, the operand's axis that it is; axes of one element are left out."""
    operand = reduction.args[0]
    kept = [axis for axis in range(operand.rank) if axis not in reduction.ints("axes")]
    return {own: axis for own, axis in enumerate(kept) if operand.sizes[axis] != 1}


def _unviewed(node: Node) -> tuple[Node, _Axes]:
    """The node that `node` is a view of, through broadcasts, squeezes and reshapes of whole axes, and for each axis of
    that node with more than one element the axis of `node` that it is."""
    axes = {axis: axis for axis, n in enumerate(node.sizes) if n != 1}
    while node.op in _VIEWS:
        (source,) = node.args
        back = _moved(node, source)
        if back is None:
            break
        axes = {own: axes[there] for own, there in back.items()}
        node = source
    return node, axes


def _moved(node: Node, source: Node) -> _Axes | None:
    """For each axis of a view's operand with more than one element, the view's axis that it is; None where a reshape
    splits or joins axes."""
    (axis_map,) = axis_maps_of(node)
    if None in axis_map:
        return None
    return {axis: there for there, axis in kept_axes(node)[0].items() if source.sizes[axis] != 1}
