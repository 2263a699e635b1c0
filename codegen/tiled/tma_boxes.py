"""A contraction as products of matrices whose boxes tensor maps can bring: which axes are rows, columns and depth of a
tile, and which only number tiles.

    contract(x[8, 32, 64], w[64, 48])  ->  256 rows (64, 0)   48 columns (0, 1)   64 deep (1, 48): b lies across

Strides come from the axis mapping alone: nothing is copied. Axes of a kind that do not merge become further axes of the
maps: batches number tiles, outer sums number stages of a tile's sum.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from codegen.gemm.dims import Contraction, Dim, Matrix
from codegen.kernel import Reject
from codegen.tiled.problem import Group, Problem
from fusion_ir.core.extent import dense_strides
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.records import TensorMapSpec
from fusion_ir.records.tensor_map import MOST_AXES, STRIDE_BYTES

# Innermost coordinates are multiples of these, and with them of the 16 bytes that a box has to begin at.
DEPTH = 64  # of a stage: 128 bytes of 16-bit elements, over which boxes are swizzled
RUN = 64  # rows or columns of a box of an operand that lies across
SWIZZLE = 128
MOST_EXTENT = (1 << 31) - 1  # coordinates are 32-bit integers


@dataclass(frozen=True)
class BoxedProduct:
    """product[batch, m, n] = sum a[batch, m, k] b[batch, n, k].

    of: the contraction, its operands in the order of rows and columns. batches, sums: the axes left, of the result and
    summed, outermost first. a_across, b_across: the operand is contiguous along m, or n, not along k.
    """

    of: Contraction
    m: Dim
    n: Dim
    k: Dim
    batches: tuple[Dim, ...]
    sums: tuple[Dim, ...]
    a_across: bool
    b_across: bool

    @property
    def batch_count(self) -> int:
        return prod(d.extent for d in self.batches)

    @property
    def products(self) -> int:
        """Multiplications of one batch and one step of the outer sums."""
        return self.m.extent * self.n.extent * self.k.extent

    @property
    def depths(self) -> int:
        """Stages that a tile's sum goes through."""
        return prod(d.extent for d in self.sums) * -(-self.k.extent // DEPTH)


@dataclass(frozen=True)
class BoxedOperand:
    """One operand's map. coordinates: innermost first, in C++ over `batch`, `place` (the box's first row or column) and
    `depth` (the stage's number)."""

    map: TensorMapSpec
    coordinates: tuple[str, ...]


def boxed(graph: Graph, contraction: Contraction) -> tuple[BoxedProduct, ...] | Reject:
    """The largest products of matrices in the contraction that tensor maps can bring: first those with the operands in
    their order, then those with rows and columns exchanged."""
    problems: list[str] = []
    found = [p for given in (contraction, contraction.swapped()) for p in _products(graph, given, problems)]
    if not found:
        why = "; ".join(dict.fromkeys(problems))
        return Reject(why or "has no rows, columns or summed axis of its own")
    most = max(p.products for p in found)
    return tuple(p for p in found if p.products == most)


def _products(graph: Graph, c: Contraction, problems: list[str]) -> Iterator[BoxedProduct]:
    rows = [d for d in c.outer if not d.b]
    columns = [d for d in c.outer if not d.a]
    depths = [d for d in c.dims if d.summed]
    for m, n, k in product(rows, columns, depths):
        used = (m, n, k)
        batches = tuple(sorted((d for d in c.outer if d not in used), key=lambda d: (-d.c, -d.a, -d.b)))
        sums = tuple(sorted((d for d in depths if d not in used), key=lambda d: (-d.a, -d.b)))
        a = _contiguous(graph, c.a, "a", m.a, k.a, [d.a for d in c.dims], problems)
        b = _contiguous(graph, c.b, "b", n.b, k.b, [d.b for d in c.dims], problems)
        if max(d.extent for d in c.dims) > MOST_EXTENT:
            problems.append(f"an axis has more than {MOST_EXTENT} elements")
        elif a is not None and b is not None:
            yield BoxedProduct(c, m, n, k, batches, sums, a, b)


def _contiguous(
    graph: Graph, matrix: Matrix, name: str, place: int, depth: int, strides: Sequence[int], problems: list[str]
) -> bool | None:
    """Whether an operand lies across: True, False, or None where no tensor map takes it."""
    spec = graph.inputs[matrix.tensor]
    size = spec.dtype.bytes
    if 1 not in (place, depth):
        problems.append(f"operand {name} is contiguous along no axis of a tile")
        return None
    if spec.alignment_bytes < STRIDE_BYTES or matrix.offset * size % STRIDE_BYTES:
        problems.append(f"operand {name} is not known to start at a multiple of {STRIDE_BYTES} bytes")
        return None
    across = depth != 1
    others = [s for s in strides if s]
    others.remove(1)
    if any(s * size % STRIDE_BYTES for s in others):
        found = ", ".join(str(s * size) for s in others if s * size % STRIDE_BYTES)
        problems.append(f"operand {name} has strides of {found} bytes, expected multiples of {STRIDE_BYTES}")
        return None
    if len(others) >= MOST_AXES:
        problems.append(f"operand {name} has {len(others) + 1} axes, a tensor map {MOST_AXES} at most")
        return None
    return across


def operand_a(graph: Graph, p: BoxedProduct, rows: int) -> BoxedOperand:
    """Map and coordinates of the operand with the rows. rows: rows of a tile."""
    box = (RUN, DEPTH) if p.a_across else (DEPTH, rows)
    strides = {d: d.a for d in p.of.dims}
    return _operand(graph, p, p.of.a, p.m, strides, box, across=p.a_across)


def operand_b(graph: Graph, p: BoxedProduct, columns: int) -> BoxedOperand:
    """Map and coordinates of the operand with the columns. columns: columns of a K-major tile that one block brings."""
    box = (RUN, DEPTH) if p.b_across else (DEPTH, columns)
    strides = {d: d.b for d in p.of.dims}
    return _operand(graph, p, p.of.b, p.n, strides, box, across=p.b_across)


def _operand(
    graph: Graph, p: BoxedProduct, matrix: Matrix, place: Dim, strides: dict[Dim, int], box: tuple[int, int],
    *, across: bool,
) -> BoxedOperand:  # fmt: skip
    stages = -(-p.k.extent // DEPTH)
    inner_depth = f"depth % {stages} * {DEPTH}" if p.sums else f"depth * {DEPTH}"
    tile = [(place, "place"), (p.k, inner_depth)] if across else [(p.k, inner_depth), (place, "place")]
    further = [
        *numbered(p.batches, "batch", 1),
        *numbered(p.sums, "depth", stages),
    ]
    axes = [*tile, *((d, text) for d, text in further if strides[d])]
    spec = graph.inputs[matrix.tensor]
    size = spec.dtype.bytes
    return BoxedOperand(
        TensorMapSpec(
            argument=matrix.tensor,
            offset_bytes=matrix.offset * size,
            dtype=spec.dtype.name,
            element_bytes=size,
            sizes=tuple(d.extent for d, _ in axes),
            strides_bytes=tuple(strides[d] * size for d, _ in axes[1:]),
            box=(*box, *(1 for _ in axes[2:])),
            swizzle=SWIZZLE,
        ),
        tuple(text for _, text in axes),
    )


def numbered(dims: Sequence[Dim], number: str, below: int) -> list[tuple[Dim, str]]:
    """Each axis with its digit of a number, outermost axis first. below: unit that the innermost digit counts in."""
    found: list[tuple[Dim, str]] = []
    whole = below * prod(d.extent for d in dims)
    rest = whole
    for d in dims:
        outside, rest = rest, rest // d.extent
        text = number if rest == 1 else f"{number} / {rest}"
        found.append((d, text if outside == whole else f"{text} % {d.extent}"))
    return found


def point_problem(node: Node, p: BoxedProduct) -> Problem | Reject:
    """The product as its epilogue sees it: every axis of the contraction's result as a digit of batch, row or column.

    p: of `node` as a dense result.
    """
    a_axes, b_axes, reduced = node.ints("a_axes"), node.ints("b_axes"), node.attr("reduced", int)
    a, b = node.args
    root = [a.sizes[i] if i >= 0 else b.sizes[j] for i, j in zip(a_axes, b_axes, strict=True)]
    places: list[tuple[Group, int]] = []
    for axis, (extent, stride) in enumerate(zip(node.sizes, dense_strides(node.sizes), strict=True)):
        place = _place(extent, stride, p)
        if place is None:
            return Reject(f"axis {axis} of the product is split among rows or columns and batches by a view")
        places.append(place)
    groups: list[Group] = [*(group for group, _ in places), *("depth" for _ in range(reduced))]
    weights = [*(weight for _, weight in places), *(1 for _ in range(reduced))]
    return Problem(node, tuple(root), tuple(groups), tuple(weights), turned=False)


def _place(extent: int, stride: int, p: BoxedProduct) -> tuple[Group, int] | None:
    """The number of a point that an axis of the dense result is a digit of, and what a step along it moves there."""
    whole = [d for d in (p.m, p.n, *p.batches) if d.c < stride * extent and stride < d.c * d.extent]
    if extent == 1:
        return "batch", 1
    low = min(whole, key=lambda d: d.c)
    if len(whole) == 1 and low in (p.m, p.n):
        return "row" if low is p.m else "column", stride // low.c
    if p.m in whole or p.n in whole:
        return None
    inside = prod(d.extent for d in p.batches[p.batches.index(low) + 1 :])
    return "batch", inside * max(1, stride // low.c)
