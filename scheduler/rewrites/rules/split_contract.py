"""Splitting contractions: a few results of long sums, in parts that multiprocessors, or the cores of a CPU, can share.

    contract over k of a[m, k] b[k, n]  ->  sum over t of (contract over j of a[m, t, j] b[t, j, n])

The parts are one contraction with a batch axis, whose results stay in the accumulator's dtype and are summed in a fixed
order. What is computed of the result then belongs to the sum. Cores that share the rows of the result instead read all
of the other operand, each. (Split-K; Osama, Merrill, Cecka, Garland and Owens compare it with other ways in "Stream-K:
Work-centric Parallel Decomposition for Dense Matrix-Matrix Multiplication", 2023.)
"""

from collections.abc import Sequence
from math import prod

from fusion_ir import building as build
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType
from fusion_ir.ops import make
from fusion_ir.ops.contract import products

TILE = 64  # rows and columns of a block's tile, where tiles are few
LEAST_ROWS = 9  # and columns: with fewer it is rows of sums, that are split otherwise
SHARE = 8  # times as many tiles would be at most one for each block of threads that there is room for
LEAST_PART = 512  # products of a part
MOST_PARTS = 32
WHOLE = 8  # parts are multiples of it, so that runs stay aligned
CPU_LONG = 16  # times as many products as rows, and as columns: 64 x 512 gained from it then, 512 x 512 nothing
CPU_LEAST_WORK = 1 << 20  # products in all: fewer take no longer than another kernel
CPU_PART = (512, 1024)  # products of a part


def split_contract(node: Node, blocks: int) -> Node | None:
    """The contraction in parts, if its results are tiles for an eighth of `blocks` blocks of threads or fewer."""
    if node.op != "contract" or not node.dtype.is_float or products(node) < 2 * LEAST_PART:
        return None
    tiles = _tiles(node)
    if not tiles or SHARE * tiles > blocks:
        return None
    axis = _longest(node)
    parts = _parts(node.args[0].sizes[node.ints("a_axes")[axis]], products(node), -(-blocks // tiles))
    return None if parts is None else _in_parts(node, axis, parts)


def split_long_contract(node: Node, tasks: int) -> Node | None:
    """The contraction in parts that the cores of a CPU can share, about `tasks`, if its sums are far longer than its
    rows and columns are."""
    if node.op != "contract" or not node.dtype.is_float or not node.elements:
        return None
    rows, columns, batches = _extents(node)
    count = products(node)
    if min(rows, columns) < 2 or batches > 1 or count < CPU_LONG * max(rows, columns):
        return None
    if rows * columns * count < CPU_LEAST_WORK:
        return None
    axis = _longest(node)
    extent = node.args[0].sizes[node.ints("a_axes")[axis]]
    least, most = (count // part for part in reversed(CPU_PART))
    wanted = min(max(tasks, least), most, extent // 2)
    even = [n for n in range(max(wanted // 2, 2), 2 * wanted + 1) if extent % n == 0]
    return _in_parts(node, axis, min(even, key=lambda n: (abs(n - wanted), n), default=max(wanted, 2)))


def _extents(node: Node) -> tuple[int, int, int]:
    """Rows, columns and batches of the result."""
    outs = list(zip(node.sizes, node.ints("a_axes"), node.ints("b_axes"), strict=False))
    rows, columns = prod(n for n, _, j in outs if j < 0), prod(n for n, i, _ in outs if i < 0)
    return rows, columns, prod(n for n, i, j in outs if i >= 0 and j >= 0)


def _longest(node: Node) -> int:
    """Among a contraction's axes, the reduced one of most elements."""
    a_axes = node.ints("a_axes")
    first = len(a_axes) - node.attr("reduced", int)
    return max(range(first, len(a_axes)), key=lambda r: node.args[0].sizes[a_axes[r]])


def _tiles(node: Node) -> int:
    """Tiles that results fill; 0 where rows or columns are few."""
    rows, columns, batches = _extents(node)
    return 0 if min(rows, columns) < LEAST_ROWS else -(-rows // TILE) * -(-columns // TILE) * batches


def _parts(extent: int, count: int, wanted: int) -> int | None:
    """The number of parts to split an axis into, of a sum over `count` products; None where no number is suitable."""
    most = min(MOST_PARTS, wanted, count // LEAST_PART)
    fitting = [n for n in range(2, most + 1) if extent % (n * WHOLE) == 0]
    return max(fitting, default=None)


def _in_parts(node: Node, axis: int, parts: int) -> Node:
    """The contraction in `parts` parts of equally many elements of an axis, and one more of what is left of it."""
    a_axes, b_axes = node.ints("a_axes"), node.ints("b_axes")
    extent = node.args[0].sizes[a_axes[axis]]
    whole = {"acc": node.attr("acc", DType), "out_dtype": node.attr("acc", DType), "reduced": node.attr("reduced", int)}
    axes = {"a_axes": a_axes, "b_axes": b_axes}
    even = extent - extent % parts
    operands = [
        _apart(_cut(x, at[axis], 0, even), at[axis], parts) for x, at in zip(node.args, axes.values(), strict=True)
    ]
    each = make("contract", operands, {**{k: _with_parts(at, at[axis]) for k, at in axes.items()}, **whole})
    total = make("sum", [each], {"axes": (0,)})
    if even < extent:
        left = [_cut(x, at[axis], even, extent) for x, at in zip(node.args, axes.values(), strict=True)]
        total = build.add(total, make("contract", left, {**axes, **whole}))
    return build.cast(total, node.dtype)


def _cut(x: Node, position: int, start: int, stop: int) -> Node:
    """x with a range of the axis at `position`."""
    starts, stops = [0] * x.rank, list(x.sizes)
    starts[position], stops[position] = start, stop
    return x if stop - start == x.sizes[position] else build.slice_(x, starts, stops)


def _apart(x: Node, position: int, parts: int) -> Node:
    sizes = (*x.sizes[:position], parts, x.sizes[position] // parts, *x.sizes[position + 1 :])
    return build.reshape(x, sizes)


def _with_parts(axes: Sequence[int], position: int) -> tuple[int, ...]:
    """An operand's axes, with the parts, which lie just before the axis that is split, as the result's first axis."""
    return (position, *(p + 1 if p >= position else p for p in axes))
