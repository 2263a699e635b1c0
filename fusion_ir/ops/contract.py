"""The contraction: every matmul, linear, dot and einsum of two operands, each with its own axes, without broadcasts."""

from collections.abc import Iterator
from functools import lru_cache
from math import prod

import numpy as np

from fusion_ir.arithmetic.conversions import round_to
from fusion_ir.arithmetic.fma import fma
from fusion_ir.arithmetic.threads import side_by_side
from fusion_ir.core.extent import Extent, Shape
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType, accumulate_dtype
from fusion_ir.ops.row import Op, OpKind, RuleError
from fusion_ir.ops.rules import Args, Attrs, attr, ints, numbers

# Up to this many products a sum is computed in index order, bit for bit; beyond it in any order.
ORDERED_PRODUCTS = 16
# Of floats of 16 bits and less that is up to here: tensor cores sum several products at once, with a rounding of their
# own, and by fma 16 products an element take longer than storing it does.
ORDERED_NARROW_PRODUCTS = 2
_BLOCK_ELEMENTS = 1 << 15
_ROWS = 256  # of a product that are one thread's at a time
_LEAST_PRODUCTS = 1 << 24  # a few milliseconds of work


def contract_accumulator(dtype: DType) -> str:
    """Name of the dtype in which contractions of `dtype` sum: i32 for i8, else its accumulate dtype."""
    return "i32" if dtype.name == "i8" else accumulate_dtype(dtype).name


def _dtype(args: Args, attrs: Attrs) -> DType:
    operand, acc, out = numbers(args, attrs), attr(attrs, "acc", DType), attr(attrs, "out_dtype", DType)
    if acc.name != contract_accumulator(operand):
        raise RuleError(f"acc is {acc}, contractions of {operand} accumulate in {contract_accumulator(operand)}")
    if out.is_float != operand.is_float or out.kind == "bool":
        raise RuleError(f"out_dtype {out} does not fit operands of {operand}")
    return out


def _shape(args: Args, attrs: Attrs) -> Shape:
    a_axes, b_axes, reduced = ints(attrs, "a_axes"), ints(attrs, "b_axes"), attr(attrs, "reduced", int)
    if len(a_axes) != len(b_axes):
        raise RuleError(f"a_axes has {len(a_axes)} entries, b_axes has {len(b_axes)}")
    if not 0 <= reduced <= len(a_axes):
        raise RuleError(f"reduced is {reduced}, expected 0 to {len(a_axes)}")
    for name, axes, arg in (("a_axes", a_axes, args[0]), ("b_axes", b_axes, args[1])):
        _check_operand(name, axes, arg)
    root: list[Extent] = []
    for axis, (i, j) in enumerate(zip(a_axes, b_axes, strict=True)):
        if i < 0 and j < 0:
            raise RuleError(f"root axis {axis} is -1 in both operands")
        if axis >= len(a_axes) - reduced and (i < 0 or j < 0):
            raise RuleError(f"reduced root axis {axis} is missing from operand {'a' if i < 0 else 'b'}")
        extent = args[0].shape[i] if i >= 0 else args[1].shape[j]
        if i >= 0 and j >= 0 and args[1].shape[j] != extent:
            raise RuleError(
                f"root axis {axis} has extent {extent} in a (axis {i}) and {args[1].shape[j]} in b (axis {j})"
            )
        root.append(extent)
    return tuple(root[: len(root) - reduced])


def _check_operand(name: str, axes: tuple[int, ...], operand: Node) -> None:
    """Every axis of the operand is mentioned exactly once."""
    seen: dict[int, int] = {}
    for axis, position in enumerate(axes):
        if not -1 <= position < operand.rank:
            raise RuleError(f"{name}: position {position} of root axis {axis} is out of range for rank {operand.rank}")
        if position in seen:
            raise RuleError(f"{name}: axis {position} is used by root axes {seen[position]} and {axis}")
        if position >= 0:
            seen[position] = axis
    for position in range(operand.rank):
        if position not in seen:
            raise RuleError(f"{name}: operand axis {position} is not mentioned")


def summed_sizes(node: Node) -> tuple[int, ...]:
    """Extents of the axes that a contraction sums over."""
    a_axes, reduced = node.ints("a_axes"), node.attr("reduced", int)
    return tuple(node.args[0].sizes[i] for i in a_axes[len(a_axes) - reduced :])


@lru_cache(maxsize=256)
def products(node: Node) -> int:
    """Products that each element of a contraction sums: K of a product of matrices."""
    return prod(summed_sizes(node))


def sums_in_any_order(node: Node) -> bool:
    """Whether a contraction's sums may be computed in any order, which gives other bits."""
    if not node.dtype.is_float:
        return False
    narrow = all(a.dtype.bytes <= 2 for a in node.args)
    return products(node) > (ORDERED_NARROW_PRODUCTS if narrow else ORDERED_PRODUCTS)


def contract_arrays(node: Node, a: np.ndarray, b: np.ndarray, *, in_order: bool = True) -> np.ndarray:
    """The contraction of arrays of any dtype, in the accumulator's dtype, unrounded, as [output axes]. in_order: few
    products of floats are summed as the language says; else as is quickest, as what may be in any order always is."""
    a_axes, b_axes, reduced = node.ints("a_axes"), node.ints("b_axes"), node.attr("reduced", int)
    acc = node.attr("acc", DType)
    outs = range(len(a_axes) - reduced)
    summed = range(len(a_axes) - reduced, len(a_axes))
    batch = [r for r in outs if a_axes[r] >= 0 and b_axes[r] >= 0]
    m = [r for r in outs if b_axes[r] < 0]
    n = [r for r in outs if a_axes[r] < 0]

    def three(x: np.ndarray, axes: tuple[int, ...], groups: tuple[list[int], ...]) -> np.ndarray:
        moved = round_to(x, acc).transpose([axes[r] for group in groups for r in group])
        return moved.reshape([prod(x.shape[axes[r]] for r in group) for group in groups])

    left = three(a, a_axes, (batch, m, list(summed)))
    right = three(b, b_axes, (batch, list(summed), n))
    with np.errstate(all="ignore"):
        product = _matmul(left, right, in_order and not sums_in_any_order(node))
    order = [*batch, *m, *n]
    sizes = [a.shape[a_axes[r]] if a_axes[r] >= 0 else b.shape[b_axes[r]] for r in order]
    return product.reshape(sizes).transpose([order.index(r) for r in outs])


def _matmul(a: np.ndarray, b: np.ndarray, in_order: bool) -> np.ndarray:
    """[B, M, K] by [B, K, N] in their own dtype."""
    k = a.shape[2]
    if a.dtype.kind == "f" and (k > ORDERED_PRODUCTS or not in_order):
        return _in_any_order(a, b)
    if a.dtype.kind == "f":
        return _ordered(a, b)
    if k and a.size and b.size and _bound(a) * _bound(b) * k < 2**53:  # exact in f64, where there is a BLAS
        return np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(np.int64).astype(a.dtype)
    return np.matmul(a, b)


def _bound(x: np.ndarray) -> int:
    return max(abs(int(x.max())), abs(int(x.min())))


def _in_any_order(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Rows by rows, side by side where there are many: the library itself may have one thread alone."""
    if a.size * b.shape[2] < _LEAST_PRODUCTS:
        return np.matmul(a, b)
    result = np.empty((a.shape[0], a.shape[1], b.shape[2]), a.dtype)

    def multiply(block: tuple[slice, slice]) -> None:
        np.matmul(a[block], b[block[0]], out=result[block])

    deep = max(1, _ROWS // max(a.shape[1], 1))
    side_by_side(
        multiply,
        [
            (slice(i, i + deep), slice(j, j + _ROWS))
            for i in range(0, a.shape[0], deep)
            for j in range(0, a.shape[1], _ROWS)
        ],
    )
    return result


def _ordered(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Sums by fma in index order, from the first product, block by block to stay in cache."""
    result = np.zeros((a.shape[0], a.shape[1], b.shape[2]), a.dtype)

    def add_up(block: tuple[slice, slice, slice]) -> None:
        left, right = a[block[0], block[1]], b[block[0], :, block[2]]
        total = result[block]
        for k in range(a.shape[2]):
            x, y = left[:, :, k, None], right[:, None, k, :]
            total = fma(x, y, total) if k else x * y
        result[block] = total

    side_by_side(add_up, _blocks(*result.shape))
    return result


def _blocks(batch: int, m: int, n: int) -> Iterator[tuple[slice, slice, slice]]:
    """Pieces of a [batch, m, n] result of about `_BLOCK_ELEMENTS`."""
    wide = min(n, _BLOCK_ELEMENTS)
    tall = max(1, min(m, _BLOCK_ELEMENTS // max(wide, 1)))
    deep = max(1, _BLOCK_ELEMENTS // max(wide * tall, 1))
    for i in range(0, batch, deep):
        for j in range(0, m, tall):
            for k in range(0, n, max(wide, 1)):
                yield slice(i, i + deep), slice(j, j + tall), slice(k, k + wide)


def _contract(node: Node, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return round_to(contract_arrays(node, a, b), node.dtype)


CONTRACTS: tuple[Op, ...] = (
    Op(
        "contract",
        OpKind.CONTRACT,
        "sum over the reduced root axes of a[...] * b[...]; a_axes and b_axes give each root axis' position or -1",
        2,
        _dtype,
        _shape,
        _contract,
        attrs={"a_axes": "ints", "b_axes": "ints", "reduced": "int", "acc": "dtype", "out_dtype": "dtype"},
        cost=2,
    ),
)
