"""Rule of cumsum: a `scan` along axes that its index runs through from 0 on, element by element."""

from collections.abc import Iterable

from codegen.lowering.index import Affine, Axis, Refine
from codegen.lowering.puller import Index, Puller
from codegen.lowering.sums import NotOnePiece
from codegen.lowering.value import Value
from fusion_ir.core.node import Node
from fusion_ir.dtype import accumulate_dtype


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
