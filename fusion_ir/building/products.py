"""Matrix products of every kind as one `contract`: operands keep their own axes, nothing is broadcast."""

from collections.abc import Sequence

from fusion_ir.building.elementwise import add, mul
from fusion_ir.building.operands import Number, broadcast_to, cast, promote, wide
from fusion_ir.building.reducing import sum_
from fusion_ir.building.shapes import broadcast_in_dim, squeeze
from fusion_ir.core.node import Node
from fusion_ir.dtype import DTYPES, DType, accumulate_dtype, bool_
from fusion_ir.ops import RuleError, make


def einsum(
    a: Node,
    b: Node,
    a_labels: Sequence[int],
    b_labels: Sequence[int],
    out: Sequence[int],
    out_dtype: DType | None = None,
) -> Node:
    """Sum over the labels that `out` lacks of a[a_labels] * b[b_labels]; labels are any integers, once per operand.

    a[M, K], b[K, N]: einsum(a, b, (0, 1), (1, 2), (0, 2)). An axis of extent 1 broadcasts against a longer one of the
    same label. Axes of extent 1 are dropped before the contraction and restored behind it; a label summed in one
    operand only is summed there first, in f32. Raises RuleError.
    """
    dtype = promote((a.dtype, b.dtype))
    if dtype == bool_:
        raise RuleError("contract is not defined on bool")
    out_dtype = out_dtype or dtype
    a, b = cast(a, dtype), cast(b, dtype)
    extents = _extents((a, b), (a_labels, b_labels), out)
    a, a_left = _without_ones(a, a_labels)
    b, b_left = _without_ones(b, b_labels)
    a, a_left = _sum_alone(a, a_left, {*b_left, *out})
    b, b_left = _sum_alone(b, b_left, {*a_left, *out})
    inner = promote((a.dtype, b.dtype))
    a, b = cast(a, inner), cast(b, inner)
    reduced = [label for label in a_left if label not in out]
    kept = [label for label in out if label in a_left or label in b_left]
    root = (*kept, *reduced)
    acc = DTYPES["i32"] if inner.name == "i8" else accumulate_dtype(inner)
    product = make(
        "contract",
        [a, b],
        {
            "a_axes": tuple(a_left.index(label) if label in a_left else -1 for label in root),
            "b_axes": tuple(b_left.index(label) if label in b_left else -1 for label in root),
            "reduced": len(reduced),
            "acc": acc,
            "out_dtype": out_dtype,
        },
    )
    present = [position for position, label in enumerate(out) if label in kept]
    return broadcast_in_dim(product, [extents[label] for label in out], present)


def _extents(
    operands: tuple[Node, Node], labels: tuple[Sequence[int], Sequence[int]], out: Sequence[int]
) -> dict[int, int]:
    """The extent of every label. Raises RuleError."""
    extents: dict[int, int] = {}
    for name, operand, own in zip("ab", operands, labels, strict=True):
        if len(own) != operand.rank or len(set(own)) != len(own):
            raise RuleError(f"operand {name} of rank {operand.rank} has labels {list(own)}")
        for axis, (label, n) in enumerate(zip(own, operand.sizes, strict=True)):
            before = extents.setdefault(label, n)
            if before == 1:
                extents[label] = n
            elif n not in (1, before):
                raise RuleError(f"axis {axis} of operand {name} has extent {n}, the other operand's has {before}")
    for label in out:
        if label not in extents:
            raise RuleError(f"label {label} of the result is in no operand")
    return extents


def _without_ones(x: Node, labels: Sequence[int]) -> tuple[Node, list[int]]:
    return squeeze(x), [label for label, n in zip(labels, x.sizes, strict=True) if n != 1]


def _sum_alone(x: Node, labels: list[int], used: set[int]) -> tuple[Node, list[int]]:
    """Sums x over the labels that nothing else uses."""
    alone = [axis for axis, label in enumerate(labels) if label not in used]
    if not alone:
        return x, labels
    inner = cast(x, wide(x.dtype)) if x.dtype.is_float else x
    return sum_(inner, alone), [label for label in labels if label in used]


def matmul(a: Node, b: Node, out_dtype: DType | None = None) -> Node:
    """torch.matmul: [..., M, K] @ [..., K, N] with broadcast batch axes; operands of rank 1 are vectors.

    Raises RuleError.
    """
    if not a.rank or not b.rank:
        raise RuleError(f"matmul takes rank 1 or more, got {a.rank} and {b.rank}")
    a_batch, b_batch = max(a.rank - 2, 0), max(b.rank - 2, 0)
    batch = max(a_batch, b_batch)
    m, k, n = batch, batch + 1, batch + 2  # labels; batch axes are 0 ... batch-1
    if a.sizes[-1] != b.sizes[-2 if b.rank > 1 else 0]:
        raise RuleError(
            f"matmul: {list(a.sizes)} @ {list(b.sizes)} sums over {a.sizes[-1]} and {b.sizes[-2 if b.rank > 1 else 0]}"
        )
    a_labels = [*range(batch - a_batch, batch), *([m] if a.rank > 1 else []), k]
    b_labels = [*range(batch - b_batch, batch), k, *([n] if b.rank > 1 else [])]
    out = [*range(batch), *([m] if a.rank > 1 else []), *([n] if b.rank > 1 else [])]
    return einsum(a, b, a_labels, b_labels, out, out_dtype)


def linear(x: Node, weight: Node, bias: Node | None = None) -> Node:
    """x[..., K] times weight[N, K] (or [K]) transposed, plus bias[N]; the sum is rounded once where x has 16 bits."""
    dtype = promote((x.dtype, weight.dtype))
    if weight.rank not in (1, 2) or not x.rank:
        raise RuleError(f"linear takes x[..., K] and weight[N, K], got ranks {x.rank} and {weight.rank}")
    if x.sizes[-1] != weight.sizes[-1]:
        raise RuleError(f"linear: x sums over {x.sizes[-1]}, weight over {weight.sizes[-1]}")
    n = [x.rank] * (weight.rank - 1)
    labels = list(range(x.rank))
    inner = dtype if bias is None else _wide(dtype)
    product = einsum(x, weight, labels, [*n, x.rank - 1], [*labels[:-1], *n], inner)
    return product if bias is None else cast(add(product, cast(bias, inner)), dtype)


def _wide(dtype: DType) -> DType:
    return wide(dtype) if dtype.is_float else dtype


def addmm(x: Node, a: Node, b: Node, beta: Number = 1, alpha: Number = 1) -> Node:
    """beta x + alpha (a @ b), x broadcast to the product; rounded once at 16 bits. beta 0 drops x."""
    if a.rank != 2 or b.rank != 2:
        raise RuleError(f"addmm takes matrices, got ranks {a.rank} and {b.rank}")
    return _scaled(x, a, b, beta, alpha)


def baddbmm(x: Node, a: Node, b: Node, beta: Number = 1, alpha: Number = 1) -> Node:
    """`addmm` for a[B, M, K] and b[B, K, N]."""
    if a.rank != 3 or b.rank != 3:
        raise RuleError(f"baddbmm takes rank 3, got {a.rank} and {b.rank}")
    return _scaled(x, a, b, beta, alpha)


def _scaled(x: Node, a: Node, b: Node, beta: Number, alpha: Number) -> Node:
    dtype = promote((x.dtype, a.dtype, b.dtype))
    product = matmul(a, b, _wide(promote((a.dtype, b.dtype))))
    inner = _wide(dtype)
    product = cast(product, inner)
    product = product if alpha == 1 else mul(product, alpha)
    if beta == 0:
        return cast(product, dtype)
    addend = cast(x, inner) if beta == 1 else mul(cast(x, inner), beta)
    return cast(add(product, broadcast_to(addend, product.shape)), dtype)
