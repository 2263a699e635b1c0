"""Parts that all rotary embeddings share, over nodes and over PyTorch's tensors."""

from typing import Any

import fusion_ir.building as ir
from benchmarks.corpus.case import Inputs
from benchmarks.corpus.pytorch import Tensor, Tensors, torch, wide
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType, i64

# Over nodes


def rotate(x: Node, cos: Node, sin: Node, dtype: DType) -> Node:
    """x[..., tokens, size] turned by the angles; cos and sin broadcast to x. All computed in the dtype of `cos`."""
    return ir.cast(ir.add(ir.mul(ir.cast(x, cos.dtype), cos), ir.mul(ir.cast(swapped(x), sin.dtype), sin)), dtype)


def swapped(x: Node) -> Node:
    """(-second half, first half) of the last axis."""
    low, high = halves(x)
    return ir.cat((ir.neg(high), low), -1)


def halves(x: Node) -> tuple[Node, Node]:
    middle = x.sizes[-1] // 2
    front = [0] * (x.rank - 1)
    low = ir.slice_(x, [*front, 0], [*x.sizes[:-1], middle])
    return low, ir.slice_(x, [*front, middle], x.sizes)


def rotate_back(grad: Node, cos: Node, sin: Node, dtype: DType) -> Node:
    """Gradient of `rotate`'s operand: turned by the negative angles."""
    inner = ir.cast(grad, cos.dtype)
    return ir.cast(ir.sub(ir.mul(inner, cos), swapped(ir.mul(inner, sin))), dtype)


def heads_first(x: Node, heads: int) -> Node:
    """[batch, tokens, heads x size] -> [batch, heads, tokens, size]."""
    return ir.permute(ir.reshape(x, [*x.sizes[:2], heads, x.sizes[2] // heads]), (0, 2, 1, 3))


def tokens_first(x: Node) -> Node:
    """[batch, heads, tokens, size] -> [batch, tokens, heads x size]."""
    batch, heads, tokens, size = x.sizes
    return ir.reshape(ir.permute(x, (0, 2, 1, 3)), [batch, tokens, heads * size])


def repeated(x: Node, count: int) -> Node:
    """[batch, kv heads, tokens, size] with every head `count` times in a row."""
    batch, heads, tokens, size = x.sizes
    wide_ = ir.expand(ir.unsqueeze(x, 2), [batch, heads, count, tokens, size])
    return ir.reshape(wide_, [batch, heads * count, tokens, size])


def summed(grad: Node, count: int) -> Node:
    """Gradient of `repeated`'s operand."""
    batch, heads, tokens, size = grad.sizes
    return ir.sum_(ir.reshape(grad, [batch, heads // count, count, tokens, size]), 2) if count > 1 else grad


def angles(inputs: Inputs, tokens: int, size: int) -> tuple[Node, Node]:
    """cos and sin of position x frequency, [1, tokens, size], rounded to the case's dtype: a product with K = 1."""
    frequencies = inputs(size // 2, domain=(0.0, 1.0))
    positions = inputs(1, tokens, dtype=i64, domain=(0, tokens))
    column = ir.cast(ir.broadcast_in_dim(frequencies, [1, size // 2, 1], [1]), inputs.wide)
    row = ir.cast(ir.broadcast_in_dim(positions, [1, 1, tokens], [0, 2]), inputs.wide)
    turned = ir.permute(ir.matmul(column, row), (0, 2, 1))
    both = ir.cat((turned, turned), -1)
    return ir.cast(ir.cos(both), inputs.dtype), ir.cast(ir.sin(both), inputs.dtype)


# Over PyTorch's tensors


def torch_swapped(x: Tensor) -> Tensor:
    low, high = x.chunk(2, -1)
    return torch.cat((-high, low), -1)


def torch_rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return x * cos + torch_swapped(x) * sin


def torch_rotate_wide(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return (wide(x) * wide(cos) + wide(torch_swapped(x)) * wide(sin)).to(x.dtype)


def torch_heads_first(x: Tensor, heads: int) -> Tensor:
    return x.view(*x.shape[:2], heads, -1).transpose(1, 2)


def torch_repeated(x: Tensor, count: int) -> Tensor:
    return x[:, :, None].expand(-1, -1, count, -1, -1).reshape(x.shape[0], -1, *x.shape[2:])


def torch_tokens_first(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(2)


def torch_summed(grad: Tensor, count: int) -> Tensor:
    return grad.unflatten(1, (-1, count)).sum(2)


def torch_angles(frequencies: Tensor, positions: Tensor, dtype: Any) -> Tensors:
    """cos and sin, [1, tokens, size], in `dtype`."""
    turned = (wide(frequencies)[None, :, None] @ positions[:, None, :].to(wide(frequencies).dtype)).transpose(1, 2)
    both = torch.cat((turned, turned), -1)
    return both.cos().to(dtype), both.sin().to(dtype)


def torch_rotate_back(grad: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Gradient of `torch_rotate`'s operand."""
    return grad * cos - torch_swapped(grad * sin)


def torch_rotate_back_wide(grad: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """`torch_rotate_back`, computed in the wide dtype and rounded once."""
    inner = wide(grad)
    return (inner * wide(cos) - torch_swapped(inner * wide(sin))).to(grad.dtype)
