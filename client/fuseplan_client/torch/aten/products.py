"""Products of matrices, each one contraction of the wire."""

from collections.abc import Mapping
from typing import Any

import torch

from fuseplan_client.torch.aten.call import Call, Lowering, aten, wide
from fuseplan_client.torch.wire import Refused, Tensor


def matmul(call: Call, a: Tensor, b: Tensor, *_: Any, **__: Any) -> Tensor:
    """a @ b for matrices, batches of matrices, and vectors."""
    _check(a, b)
    return call.writer.op("matmul", [a, b], call.shape, a.dtype).cast(call.dtype)


def added(op: str) -> Lowering:
    """beta x + alpha (a @ b)."""

    def lower(call: Call, x: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
        _check(a, b)
        if isinstance(beta, Tensor) or isinstance(alpha, Tensor):
            return _scaled(call, x, a, b, beta, alpha)
        if not call.dtype.is_floating_point:  # which PyTorch casts to the tensors' dtype
            beta, alpha = int(beta), int(alpha)
        return call.writer.op(op, [x, a, b], call.shape, a.dtype, beta=beta, alpha=alpha).cast(call.dtype)

    return lower


def _scaled(call: Call, x: Tensor, a: Tensor, b: Tensor, beta: Any, alpha: Any) -> Tensor:
    """beta x + alpha (a @ b) with factors that are known at run time alone."""
    inner = wide(a.dtype)
    attrs = {"dtype": {torch.float32: "f32", torch.float64: "f64"}[inner]} if inner.is_floating_point else {}
    product = call.writer.op("matmul", [a, b], call.shape, inner, **attrs)
    return (x.cast(inner) * beta + product * alpha).cast(call.dtype)


def add_matrix_vector(call: Call, x: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta x + alpha (a @ b) of a matrix and a vector."""
    column = x.unsqueeze(-1) if x.rank else x
    shape = (*call.shape, 1)
    product = added("addmm")(
        Call(call.writer, call.target, call.out.unsqueeze(-1)), column, a, b.unsqueeze(-1), beta=beta, alpha=alpha
    )
    assert product.shape == shape
    return product.reshape(call.shape)


def outer_added(call: Call, x: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta x + alpha times the outer product of two vectors."""
    return added("addmm")(call, x, a.unsqueeze(1), b.unsqueeze(0), beta=beta, alpha=alpha)


def batches_added(call: Call, x: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta x + alpha times the sum over the batch of a @ b: one product, the batch among what is summed over."""
    batch, rows, inner = a.shape
    left = a.permute((1, 0, 2)).reshape((rows, batch * inner))
    return added("addmm")(call, x, left, b.reshape((batch * inner, b.shape[2])), beta=beta, alpha=alpha)


def linear(call: Call, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x weight^T + bias."""
    _check(x, weight)
    operands = [x, weight] if bias is None else [x, weight, bias]
    return call.writer.op("linear", operands, call.shape, x.dtype)


def _check(a: Tensor, b: Tensor) -> None:
    if a.dtype != b.dtype:
        raise Refused("a product of two dtypes")
    if a.dtype == torch.bool:
        raise Refused("a product of bool")


PRODUCTS: Mapping[Any, Lowering] = {
    aten.mm.default: matmul,
    aten.bmm.default: matmul,
    aten.mv.default: matmul,
    aten.dot.default: matmul,
    aten.vdot.default: matmul,
    aten.matmul.default: matmul,
    aten.addmm.default: added("addmm"),
    aten.baddbmm.default: added("baddbmm"),
    aten.addmv.default: add_matrix_vector,
    aten.addr.default: outer_added,
    aten.addbmm.default: batches_added,
    aten.linear.default: linear,
}
