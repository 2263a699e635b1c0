"""Paddings and concatenations before products, softmax, sums and scans: planned whole, right, and by fast families."""

from collections.abc import Callable

import pytest

from codegen.hardware.gpus import specified
from codegen.workbench.workbench import Workbench
from fusion_ir import building as B
from fusion_ir.accuracy.comparison import compare
from fusion_ir.accuracy.tolerance import reference
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import DTYPES, DType
from fusion_ir.reference.sample_inputs import sample_inputs
from scheduler.budget import Budget
from scheduler.interfaces import Forgetful
from scheduler.tune import tune
from testing.tensors import graph_of, spec

Build = Callable[..., Node | list[Node]]


def last(x: Node, low: int = 0, high: int = 1, value: float = 0) -> Node:
    """Padded along the last axis."""
    rest = (0,) * (len(x.sizes) - 1)
    return B.pad(x, (*rest, low), (*rest, high), value)


def attention(q: Node, past_k: Node, k: Node, past_v: Node, v: Node) -> Node:
    scores = B.matmul(q, B.transpose(B.cat([past_k, k], 1)))
    return B.matmul(B.softmax(scores), B.cat([past_v, v], 1))


GRAPHS: dict[str, tuple[list[tuple[int, ...]], Build]] = {
    "columns padded": ([(64, 63), (64, 64)], lambda a, b: B.matmul(last(a), b)),
    "rows padded, cropped": ([(64, 66), (63, 64)], lambda a, b: B.matmul(last(a, -1, -1), B.pad(b, (1, 0), (0, 0)))),
    "k concatenated": ([(64, 40), (64, 23), (63, 64)], lambda a, c, b: B.matmul(B.cat([a, c], 1), b)),
    "both nested": ([(33, 40), (31, 40), (41, 64)], lambda a, c, b: B.matmul(last(B.cat([a, c], 0)), b)),
    "several readers": (
        [(64, 63), (64, 64), (64, 65)],
        lambda a, b, c: [B.matmul(p := last(a), b), B.matmul(p, c), B.relu(p), B.softmax(p)],
    ),
    "batched, by a view": ([(64, 63), (4, 64, 64)], lambda a, b: B.matmul(B.reshape(last(a), (4, 16, 64)), b)),
    "attention on a cache": ([(2, 32, 64), (2, 95, 64), (2, 32, 64), (2, 95, 64), (2, 32, 64)], attention),
    "softmax padded": ([(64, 63)], lambda a: B.softmax(last(a, value=float("-inf")))),
    "softmax concatenated": ([(64, 63), (64, 1)], lambda a, b: B.softmax(B.cat([a, b], 1))),
    "scan": ([(64, 63), (64, 5)], lambda a, b: B.cumsum(B.cat([last(a), b], 1), 1)),
    "sum": ([(64, 63), (5, 63)], lambda a, b: B.sum_(last(B.cat([a, b], 0)), 0)),
}  # fmt: skip


def graph(name: str, dtype: DType) -> Graph:
    sizes, build = GRAPHS[name]
    return graph_of([spec(s, dtype) for s in sizes], build)


@pytest.mark.sweep(0.3)
@pytest.mark.parametrize("name", GRAPHS)
def test_plans_are_right_and_no_product_is_left_to_the_plainest_kernels(bench: Workbench, name: str) -> None:
    made = graph(name, DTYPES["f32"])
    plan = tune(made, bench.device, Budget(0.0), Forgetful(), bench)
    assert "naive" not in {step.family for step in plan.steps}
    inputs = sample_inputs(made, 1)
    outcome = compare(bench.run(plan, inputs), reference(made, inputs))
    assert outcome.ok, outcome.detail


@pytest.mark.sweep(0.3)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("name", sorted(GRAPHS.keys() - {"scan"}))  # no other family scans there
def test_gpus_have_more_than_the_plainest_kernels_as_well(name: str, dtype: str) -> None:
    plan = tune(graph(name, DTYPES[dtype]), specified("h200", ""), Budget(0.0), Forgetful(), None)
    assert "naive" not in {step.family for step in plan.steps}
