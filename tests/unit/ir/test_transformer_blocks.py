"""Through many steps bounds on errors widen by more than errors do: right kernels agree even so, wrong ones do not."""

import os
from collections.abc import Callable
from functools import partial
from itertools import product

import numpy as np
import pytest

from fusion_ir.accuracy.comparison import compare
from fusion_ir.accuracy.tolerance import reference
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType, bf16, f16, f32
from fusion_ir.reference.interpreter import evaluate
from fusion_ir.reference.node_value import evaluate_node
from fusion_ir.reference.sample_inputs import sample_inputs
from tests.support.other_kernels import Override, other_kernel
from tests.support.transformer_blocks import block
from tests.support.whole import in_turn

SEEDS = range(12 if int(os.environ.get("FUSEPLAN_RANDOM_GRAPHS", "0")) >= 2000 else 2)
KERNELS = 4


def without_last_term(node: Node, operands: tuple[np.ndarray, ...]) -> np.ndarray:
    axis = node.ints("a_axes")[-1]
    cut = np.array(operands[0])
    cut[(*(slice(None),) * axis, -1)] = 0
    return np.asarray(evaluate_node(node, (cut, *operands[1:])))


def twice(node: Node, operands: tuple[np.ndarray, ...]) -> np.ndarray:
    value = np.asarray(evaluate_node(node, operands))
    return value + value


def next_row(node: Node, operands: tuple[np.ndarray, ...]) -> np.ndarray:
    return np.roll(np.asarray(evaluate_node(node, operands)), 1, max(node.rank - 2, 0))


Change = Callable[[Node, tuple[np.ndarray, ...]], np.ndarray]
FAULTS: tuple[tuple[str, Change], ...] = (
    ("contract", without_last_term), ("contract", twice), ("contract", next_row), ("rsqrt", twice), ("sum", twice),
    ("mean", next_row),
)  # fmt: skip


def made(graph: Graph, inputs: list[np.ndarray], override: Override) -> list[np.ndarray]:
    return [np.ascontiguousarray(v) for v in evaluate(graph, inputs, override)]


def wrong_at(place: Node, change: Change, node: Node, operands: tuple[np.ndarray, ...]) -> np.ndarray | None:
    return change(node, operands) if node is place else None


CASES = [(f32, 1, 0.95), (bf16, 1, 0.9), (f16, 1, 0.9), (f32, 3, 0.95), (bf16, 3, 0.65)]


@pytest.mark.soak
@pytest.mark.parametrize(("case", "scaled"), in_turn(product(CASES, (True, False)), 2))
def test_right_kernels_agree_and_wrong_ones_do_not(case: tuple[DType, int, float], scaled: bool) -> None:
    """A fault in one node at a time. By bounds as they were, infinite for 3 layers in bf16 whose weights are not
    scaled, none of 138 was found there, 104 are; the others left out a term or were in the last layers, where the
    values of right kernels are off by a fifth."""
    dtype, count, least = case
    graph = block(dtype, count, scaled=scaled)
    found = seen = 0
    for seed in SEEDS:
        inputs = sample_inputs(graph, seed)
        expected = reference(graph, inputs)
        for k in range(KERNELS):
            assert not compare(made(graph, inputs, other_kernel(k)), expected).detail
        for op, change in FAULTS:
            for place in (n for n in graph.nodes if n.op == op):
                seen += 1
                found += not compare(made(graph, inputs, partial(wrong_at, place, change)), expected).ok
    assert found >= least * seen, (found, seen)
