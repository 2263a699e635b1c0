"""A small layer of a transformer, as what inexact values do through many steps."""

from fusion_ir import building as build
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType, f32
from testing.tensors import graph_of, spec

TOKENS, WIDTH, HEADS = 24, 32, 2


def block(dtype: DType, count: int = 1, *, scaled: bool = True) -> Graph:
    """Norm, causal attention, residual, norm, gated MLP, residual, `count` times. scaled: weights by the root of their
    rows; otherwise probabilities are nearly all 0 or 1."""
    shapes = [(WIDTH, 3 * WIDTH), (WIDTH, WIDTH), (WIDTH, 4 * WIDTH), (2 * WIDTH, WIDTH)]

    def linear(x: Node, w: Node) -> Node:
        y = build.matmul(x, w)
        return build.mul(y, w.sizes[0] ** -0.5) if scaled else y

    def heads(x: Node, first: int) -> Node:
        part = build.slice_(x, (0, first * WIDTH), (TOKENS, (first + 1) * WIDTH))
        return build.permute(build.reshape(part, [TOKENS, HEADS, WIDTH // HEADS]), [1, 0, 2])

    def read(x: Node, *weights: Node) -> Node:
        for k in range(count):
            qkv, out, up, down = weights[4 * k : 4 * k + 4]
            y = linear(build.layer_norm(x, -1), qkv)
            q, k_, v = (heads(y, i) for i in range(3))
            logits = build.mul(build.cast(build.matmul(q, build.permute(k_, [0, 2, 1])), f32), (WIDTH // HEADS) ** -0.5)
            seen = build.le(build.iota([TOKENS, TOKENS], 1), build.iota([TOKENS, TOKENS], 0))
            p = build.cast(build.softmax(build.where(seen, logits, -1e30)), dtype)
            mixed = build.reshape(build.permute(build.matmul(p, v), [1, 0, 2]), [TOKENS, WIDTH])
            x = build.add(x, linear(mixed, out))
            z = linear(build.layer_norm(x, -1), up)
            gate, value = (build.slice_(z, (0, i * 2 * WIDTH), (TOKENS, (i + 1) * 2 * WIDTH)) for i in range(2))
            x = build.add(x, linear(build.mul(build.silu(gate), value), down))
        return x

    return graph_of([spec((TOKENS, WIDTH), dtype), *(spec(s, dtype) for s in shapes * count)], read)
