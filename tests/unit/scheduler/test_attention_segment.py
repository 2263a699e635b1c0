"""The search finds all of attention as one segment, in a layer around it, and family `attention` for it."""

import math

from codegen.hardware.gpus import specified
from fusion_ir import building as build
from fusion_ir.core.node import Node
from fusion_ir.dtype import bf16, f32
from scheduler.budget import Budget
from scheduler.interfaces import Forgetful
from scheduler.tune import tune
from tests.support.attention import below, scores, tensor
from tests.support.products import dense_graph

TOKENS, HEADS, SIZE = 512, 12, 64
WIDTH = HEADS * SIZE


def layer(x: Node, gain: Node, into: Node, back: Node) -> Node:
    """x + attention(rms_norm(x) into) back"""
    normal = build.mul(build.cast(build.rms_norm(build.cast(x, f32)), bf16), gain)
    parts = build.permute(build.reshape(build.matmul(normal, into), [TOKENS, 3, HEADS, SIZE]), [1, 2, 0, 3])
    q, k, v = (build.squeeze(build.slice_(parts, [i, 0, 0, 0], [i + 1, *parts.sizes[1:]]), 0) for i in range(3))
    causal = build.where(below(TOKENS, TOKENS), scores(q, k), -math.inf)
    mixed = build.matmul(build.cast(build.softmax(causal), bf16), v)
    return build.add(x, build.matmul(build.reshape(build.permute(mixed, [1, 0, 2]), [TOKENS, WIDTH]), back))


def test_attention_of_a_layer_is_one_kernel() -> None:
    graph = dense_graph([tensor(TOKENS, WIDTH), tensor(WIDTH), tensor(WIDTH, 3 * WIDTH), tensor(WIDTH, WIDTH)], layer)
    plan = tune(graph, specified("h200", ""), Budget(seconds=0.0), Forgetful(), None)
    assert [s.family for s in plan.steps].count("attention") == 1
    assert len(plan.steps) == 4  # before it the norm and its product, behind it a product
