"""Cutting a graph along one axis: which tensors can be computed a piece at a time, and in what order.

Axes that an op takes element by element from its operands' axes belong together (through permutes, reshapes that keep
them, broadcasts, the kept axes of reductions ...). Of these classes of axes the one is cut that most of the work runs
along. A node that has it is computed in pieces, from the same pieces of its operands; a node that lacks it (or has it
twice, reduces it, or only repeats along it) is computed whole:

    t0[4096, 128] = input        whole
    t1[128]       = input        whole
    t2[128]       = exp(t1)      whole, at time 0
    t3[4096, 128] = mul(t0, t2)  in pieces t0[low:high], t2, at time 0
    t4[4096]      = sum(t3)      in pieces, at time 0
    t5[]          = sum(t4)      whole, at time 1: it needs all pieces of t4
    t6[4096]      = div(t4, t5)  in pieces, at time 1

At each time first the whole nodes are computed, then the pieces.
"""

from dataclasses import dataclass
from math import prod

from fusion_ir.core.extent import Shape, shape_of
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.ops import OPS, OpKind, kept_axes, kind_of
from fusion_ir.ops.contract import sums_in_any_order

# Elements of the largest tensor in a piece: what is made in between stays in the second-level cache.
PIECE_ELEMENTS = 1 << 17
LEAST_ELEMENTS = 1 << 17  # of the largest tensor; below, a graph is not worth cutting
LEAST_EXTENT = 4
LEAST_RUN = 32  # elements that a piece should have in a row in memory
SHORT_RUNS_GAIN = 0.7  # of cutting where it has fewer between steps of the axis


@dataclass(frozen=True)
class Chunking:
    """How a graph is evaluated. Without anything to cut: all nodes whole at time 0.

    axes: of the nodes that are computed in pieces, the axis that is cut. times: of all nodes. bounds: of each piece,
    first and last + 1 on the axis, at least 2 apart. sources: for each node in pieces, per operand the axis along
    which the operand is cut too, or None where the operand is needed whole.
    """

    graph: Graph
    axes: dict[Node, int]
    times: dict[Node, int]
    sources: dict[Node, tuple[int | None, ...]]
    bounds: tuple[tuple[int, int], ...]

    def index(self, node: Node, low: int, high: int) -> tuple[slice, ...]:
        """Selects a piece (or several in a row) of a node in pieces."""
        return along(self.axes[node], low, high)


def along(axis: int, low: int, high: int) -> tuple[slice, ...]:
    """Selects low ... high - 1 on one axis, and everything on the others."""
    return (*(slice(None) for _ in range(axis)), slice(low, high))


def cut(
    graph: Graph,
    piece_elements: int = PIECE_ELEMENTS,
    least_elements: int = LEAST_ELEMENTS,
    least_run: int = LEAST_RUN,
) -> Chunking:
    """The best way to cut the graph into pieces whose largest tensor has about `piece_elements`."""
    whole = Chunking(graph, {}, dict.fromkeys(graph.nodes, 0), {}, ())
    if max((n.elements for n in graph.nodes), default=0) < least_elements:
        return whole
    axes = _best(graph)
    if not axes:
        return whole
    extent = next(node.sizes[axis] for node, axis in axes.items())
    largest = max(node.elements for node in axes)
    run = min(prod(node.sizes[axis + 1 :]) for node, axis in axes.items() if node.elements == largest)
    step = max(2, piece_elements * extent // max(largest, 1), -(-least_run // max(run, 1)))
    if largest < least_elements or 2 * step > extent:
        return whole
    starts = range(0, extent - 1, step)  # no piece of one: axes of extent 1 are another matter to NumPy
    bounds = tuple((low, min(low + step, extent) if low + step < extent - 1 else extent) for low in starts)
    sources = {node: _known(operand_axes(node, axis)) for node, axis in axes.items()}
    return Chunking(graph, axes, _times(graph, axes, sources), sources, bounds)


def operand_axes(node: Node, axis: int) -> tuple[int | None, ...] | None:
    """Per operand the axis whose elements low ... high - 1 make up those of `axis`; None: the operand is needed whole.
    None for all: the node cannot be computed in pieces along `axis`."""
    match kind_of(node):
        case OpKind.POINTWISE:
            return (axis,) * len(node.args)
        case OpKind.VIEW:
            return _of_view(node, axis)
        case OpKind.REDUCTION:
            reduced = (node.attr("axis", int),) if "axis" in OPS[node.op].attrs else node.ints("axes")
            return ([a for a in range(node.args[0].rank) if a not in reduced][axis],)
        case OpKind.SCAN:
            return None if axis == node.attr("axis", int) else (axis,)
        case OpKind.GATHER:
            return _of_gather(node, axis)
        case OpKind.SCATTER:
            return None if axis == node.attr("axis", int) else (axis, None)
        case OpKind.CONTRACT:  # a matrix product by a library: other bits for other numbers of rows
            if sums_in_any_order(node):
                return None
            sides = (node.ints("a_axes")[axis], node.ints("b_axes")[axis])
            return tuple(side if side >= 0 else None for side in sides)
        case _:
            return None


def _of_view(node: Node, axis: int) -> tuple[int | None, ...] | None:
    found = tuple(kept.get(axis) for kept in kept_axes(node))
    if node.op in ("broadcast_in_dim", "expand"):  # which may repeat the whole operand along the axis
        return found
    return None if not found or None in found else found  # iota, full: lines and constants, made whole


def _of_gather(node: Node, axis: int) -> tuple[int | None, ...] | None:
    along_ = node.attr("axis", int)
    if node.op == "index_select":
        return (None, 0) if axis == along_ else (axis, None)
    if axis == along_:
        return (None, axis)
    return (axis, axis) if node.args[0].sizes[axis] == node.sizes[axis] else None


def _best(graph: Graph) -> dict[Node, int]:
    """The nodes to compute in pieces and their axes, for the class of axes along which most of the work runs."""
    classes = _classes(graph)
    members: dict[tuple[Node, int], dict[Node, list[int]]] = {}
    for node, axis in classes:
        members.setdefault(_root(classes, (node, axis)), {}).setdefault(node, []).append(axis)
    best: dict[Node, int] = {}
    most = 0.0
    for found in members.values():
        axes = _varying(graph, {node: axes[0] for node, axes in found.items() if len(axes) == 1})
        gain = sum(_gain(node, axis) for node, axis in axes.items())
        if gain > most:
            best, most = axes, gain
    return best


def _gain(node: Node, axis: int) -> float:
    """The gain from computing a node in pieces: elements read or written, less where pieces are not contiguous; 0 for
    views that move no elements."""
    if kind_of(node) is OpKind.VIEW and node.op not in ("cat", "pad"):
        return 0.0
    work = max((n.elements for n in (node, *node.args)), default=0)
    return work * (1.0 if prod(node.sizes[axis + 1 :]) >= LEAST_RUN else SHORT_RUNS_GAIN)


Place = tuple[Node, int]


def _classes(graph: Graph) -> dict[Place, Place]:
    """Every axis worth cutting with its parent in a forest whose trees are the classes."""
    parents: dict[Place, Place] = {
        (n, a): (n, a) for n in graph.nodes for a in range(n.rank) if n.sizes[a] >= LEAST_EXTENT
    }
    for node, axis in list(parents):
        for arg, other in zip(node.args, operand_axes(node, axis) or (), strict=False):
            if other is not None:
                parents[_root(parents, (node, axis))] = _root(parents, (arg, other))
    return parents


def _root(parents: dict[Place, Place], place: Place) -> Place:
    while parents[place] != place:
        parents[place] = parents[parents[place]]
        place = parents[place]
    return place


def _varying(graph: Graph, axes: dict[Node, int]) -> dict[Node, int]:
    """The nodes of `axes`, with their axes, that can be computed in pieces and do not just repeat along the axis; no
    inputs."""
    repeating = {
        node for node, axis in axes.items()
        if node.op == "input" and graph.inputs[node.attr("position", int)].strides[axis] == 0
    }  # fmt: skip
    chosen: dict[Node, int] = {}
    for node in graph.nodes:
        sources = operand_axes(node, axes[node]) if node in axes and node.op != "input" else None
        if sources is None:
            continue
        if all(source is None or arg in repeating for arg, source in zip(node.args, sources, strict=True)):
            repeating.add(node)
        else:
            chosen[node] = axes[node]
    return chosen


def _known(sources: tuple[int | None, ...] | None) -> tuple[int | None, ...]:
    assert sources is not None
    return sources


def _times(graph: Graph, axes: dict[Node, int], sources: dict[Node, tuple[int | None, ...]]) -> dict[Node, int]:
    """The time at which each node is computed: after all nodes in pieces that it needs whole."""
    times: dict[Node, int] = {}
    for node in graph.nodes:
        wanted = sources.get(node, (None,) * len(node.args))
        times[node] = max(
            (
                times[arg] + int(arg in axes and (node not in axes or source != axes[arg]))
                for arg, source in zip(node.args, wanted, strict=True)
            ),
            default=0,
        )
    return times


def shaped(node: Node, axis: int, extent: int) -> Node:
    """`node` with another extent on one axis, as the references of ops read it."""
    shape = _with(node.shape, axis, extent)
    attrs = tuple((name, shape if name == "shape" else value) for name, value in node.attrs)
    return Node(node.op, node.args, attrs, shape, node.dtype)


def _with(shape: Shape, axis: int, extent: int) -> Shape:
    return (*shape[:axis], *shape_of([extent]), *shape[axis + 1 :])
