"""Slices added up by their places: the gradient of an embedding, and messages along the edges of a graph."""

import fusion_ir.building as ir
from benchmarks.corpus.case import Case, Inputs
from benchmarks.corpus.pytorch import Tensor, torch
from fusion_ir.core.node import Node
from fusion_ir.dtype import i64


def embedding_backward(inputs: Inputs, tokens: int, words: int, width: int) -> Node:
    """Gradient of a table of words from those of a text's tokens."""
    grad, text = inputs(tokens, width), inputs(tokens, dtype=i64, domain=(0, words))
    return ir.scatter_sum(grad, 0, text, words)


def torch_embedding_backward(grad: Tensor, text: Tensor, *, words: int) -> Tensor:
    return torch.ops.aten.embedding_dense_backward(grad, text, words, -1, False)


def messages(inputs: Inputs, nodes: int, edges: int, width: int) -> Node:
    """Each node's features, and a weighted sum of those of the nodes that edges to it come from."""
    have = inputs(nodes, width)
    source, target = (inputs(edges, dtype=i64, domain=(0, nodes)) for _ in range(2))
    weight = inputs(edges)
    sent = ir.mul(ir.index_select(have, 0, source), ir.unsqueeze(weight, 1))
    total = ir.scatter_sum(ir.cast(sent, inputs.wide), 0, target, nodes)
    return ir.cast(ir.add(ir.cast(have, inputs.wide), total), inputs.dtype)


def torch_messages(have: Tensor, source: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    return have.index_add(0, target, have[source] * weight[:, None])


def torch_expanded_messages(have: Tensor, source: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    sent = have[source] * weight[:, None]
    return have.scatter_add(0, target[:, None].expand_as(sent), sent)


SCATTERS = (
    Case(
        name="embedding_backward", kind="memory", build=embedding_backward, torch=torch_embedding_backward,
        sizes={"tokens": 4096, "words": 32_000, "width": 768},
        small=(
            {"tokens": 1, "words": 1, "width": 1},
            {"tokens": 40, "words": 17, "width": 33},
            {"tokens": 7, "words": 100, "width": 64},
        ),
    ),
    Case(
        name="messages", kind="memory", build=messages, torch=torch_messages, also=(torch_expanded_messages,),
        sizes={"nodes": 150_000, "edges": 1_000_000, "width": 64},
        small=(
            {"nodes": 1, "edges": 1, "width": 1},
            {"nodes": 17, "edges": 60, "width": 33},
            {"nodes": 40, "edges": 9, "width": 64},
        ),
    ),
)  # fmt: skip
