"""Rule of cumsum: a `scan` along axes that its index runs through from 0 on, element by element."""

from collections.abc import Iterable, Iterator
from math import prod

from codegen.lowering.index import Affine, Axis, Refine
from codegen.lowering.puller import Index, Puller
from codegen.lowering.sums import NotOnePiece
from codegen.lowering.value import Value
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import accumulate_dtype
from fusion_ir.ops import OpKind, axis_maps_of, kind_of, reduced_axes


def cumsum(p: Puller, node: Node, index: Index) -> Value:
    """Sums in the accumulation dtype. Raises NotOnePiece where only some of them are read."""
    (x,) = node.args
    along = index[node.attr("axis", int)]
    axes = _axes_along(along)
    if axes is None:
        raise NotOnePiece(f"cumsum is read at {along}, which is not all that comes before")
    acc = accumulate_dtype(x.dtype)
    try:
        operand = p.arg(x, index, acc)
    except Refine as request:
        if request.axis not in axes:
            raise
        operand = p.in_one_piece(lambda: p.arg(x, index, acc))
    scan = p.values.make("scan", (operand,), ("add", *axes), acc, axes) if axes else operand
    return p.values.cast(scan, node.dtype)


def _axes_along(e: Affine) -> tuple[Axis, ...] | None:
    """The axes of an index that takes the values 0, 1, 2 ... in the order of its digits; None for other ones."""
    step = 1
    axes: list[Axis] = []
    for term, k in reversed(e.terms):
        if not isinstance(term, Axis) or k != step:
            return None
        axes.insert(0, term)
        step *= term.extent
    return tuple(axes) if e.c == 0 else None


def axes_scanned(values: Iterable[Value]) -> set[Axis]:
    """The axes that scans run along. Raises NotOnePiece where one needs several."""
    scans = [v for v in values if v.op == "scan"]
    for v in scans:
        if len(v.scanned) > 1:
            raise NotOnePiece(f"cumsum runs along {len(v.scanned)} axes that do not make up one")
    return {a for v in scans for a in v.scanned}


def parted(segment: Graph) -> Node | None:
    """A node that reads some of what is scanned, so that no kernel of one scan computes the segment; None where none is
    seen. What pads and joins do to an index, and what follows them, lowering has to tell."""
    along: dict[Node, frozenset[int]] = {}  # axes of each node's that are axes scanned, or parts of them
    for node in segment.nodes:
        axes = {node.attr("axis", int)} if kind_of(node) is OpKind.SCAN else set[int]()
        for k, arg in enumerate(node.args):
            for axis in along.get(arg, ()):
                if _parts(node, k, axis):
                    return node
                axes.update(axes_from(node, k, axis))
        if axes:
            along[node] = frozenset(axes)
    return None


def _parts(node: Node, k: int, axis: int) -> bool:
    """Whether a node reads operand `k` along an axis elsewhere than from its first element on."""
    if kind_of(node) is OpKind.GATHER:
        return k == 0 and axis == node.attr("axis", int)
    return node.op == "slice" and (node.ints("start")[axis] != 0 or node.ints("step")[axis] != 1)


def axes_from(node: Node, k: int, axis: int) -> Iterator[int]:
    """Axes of a node that an axis of operand `k` becomes."""
    x = node.args[k]
    match kind_of(node):
        case OpKind.POINTWISE | OpKind.SCAN:
            yield axis
        case OpKind.GATHER if k == 0 and node.rank == x.rank:
            yield axis
        case OpKind.REDUCTION if axis not in (reduced := reduced_axes(node)):
            yield axis - sum(a < axis for a in reduced)
        case OpKind.VIEW if node.op == "reshape":
            first, beyond = _digits(x, axis)
            spans = [(a, *_digits(node, a)) for a in range(node.rank)]
            yield from (a for a, low, high in spans if max(first, low) < min(beyond, high))
        case OpKind.VIEW if (maps := axis_maps_of(node)) and (source := maps[k][axis]) and source.axis is not None:
            if source.start >= 0:
                yield source.axis
        case _:
            pass


def _digits(node: Node, axis: int) -> tuple[int, int]:
    """Elements between neighbours along an axis of a tensor in row-major order, and in all of it."""
    inner = prod(node.sizes[axis + 1 :])
    return inner, inner * node.sizes[axis]
