"""Splitting contractions: a few results of long sums, in parts that multiprocessors can share.

    contract over k of a[m, k] b[k, n]  ->  sum over t of (contract over j of a[m, t, j] b[t, j, n])

The parts are one contraction with a batch axis, whose results stay in the accumulator's dtype and are summed in a fixed
order. What is computed of the result then belongs to the sum. (Split-K; Osama, Merrill, Cecka, Garland and Owens
compare it with other ways in "Stream-K: Work-centric Parallel Decomposition for Dense Matrix-Matrix Multiplication",
2023.)
"""

from collections.abc import Sequence
from math import prod

from fusion_ir import build
from fusion_ir.dtype import DType
from fusion_ir.node import Node
from fusion_ir.ops import make
from fusion_ir.ops.contract import products

TILE = 64  # rows and columns of a block's tile, where tiles are few
LEAST_ROWS = 9  # and columns: with fewer it is rows of sums, that are split otherwise
SHARE = 8  # times as many tiles would be at most one for each block of threads that there is room for
LEAST_PART = 512  # products of a part
MOST_PARTS = 32
WHOLE = 8  # parts are multiples of it, so that runs stay aligned


def split_contract(node: Node, blocks: int) -> Node | None:
    """The contraction in parts, if its results are tiles for an eighth of `blocks` blocks of threads or fewer."""
    if node.op != "contract" or not node.dtype.is_float or products(node) < 2 * LEAST_PART:
        return None
    tiles = _tiles(node)
    if not tiles or SHARE * tiles > blocks:
        return None
    a_axes, reduced = node.ints("a_axes"), node.attr("reduced", int)
    first = len(a_axes) - reduced
    axis = max(range(first, len(a_axes)), key=lambda r: node.args[0].sizes[a_axes[r]])
    parts = _parts(node.args[0].sizes[a_axes[axis]], products(node), -(-blocks // tiles))
    return None if parts is None else _in_parts(node, axis, parts)


def _tiles(node: Node) -> int:
    """Tiles that results fill; 0 where rows or columns are few."""
    a_axes, b_axes = node.ints("a_axes"), node.ints("b_axes")
    outs = list(zip(node.sizes, a_axes, b_axes, strict=False))
    rows, columns = prod(n for n, _, j in outs if j < 0), prod(n for n, i, _ in outs if i < 0)
    if min(rows, columns) < LEAST_ROWS:
        return 0
    return -(-rows // TILE) * -(-columns // TILE) * prod(n for n, i, j in outs if i >= 0 and j >= 0)


def _parts(extent: int, count: int, wanted: int) -> int | None:
    """Into how many parts to split an axis of a sum over `count` products."""
    most = min(MOST_PARTS, wanted, count // LEAST_PART)
    fitting = [n for n in range(2, most + 1) if extent % (n * WHOLE) == 0]
    return max(fitting, default=None)


def _in_parts(node: Node, axis: int, parts: int) -> Node:
    a, b = node.args
    a_axes, b_axes = node.ints("a_axes"), node.ints("b_axes")
    whole = {"acc": node.attr("acc", DType), "out_dtype": node.attr("acc", DType), "reduced": node.attr("reduced", int)}
    operands = [_apart(x, axes[axis], parts) for x, axes in ((a, a_axes), (b, b_axes))]
    axes = {"a_axes": _with_parts(a_axes, a_axes[axis]), "b_axes": _with_parts(b_axes, b_axes[axis])}
    each = make("contract", operands, {**axes, **whole})
    return build.cast(make("sum", [each], {"axes": (0,)}), node.dtype)


def _apart(x: Node, position: int, parts: int) -> Node:
    sizes = (*x.sizes[:position], parts, x.sizes[position] // parts, *x.sizes[position + 1 :])
    return build.reshape(x, sizes)


def _with_parts(axes: Sequence[int], position: int) -> tuple[int, ...]:
    """An operand's axes, with the parts, which lie just before the axis that is split, as the result's first axis."""
    return (position, *(p + 1 if p >= position else p for p in axes))
