"""Contractions in every role and order of axes against numpy.einsum, and what plans of them move."""

import random
from collections.abc import Iterable, Sequence
from itertools import permutations, product

import numpy as np
import pytest

from benchmarks.seeds.operands import MAPPINGS, REJECTED, Mapping, contraction, materialised_bytes, rejection, spelled
from codegen.hardware.gpus import specified
from fusion_ir import building as build
from fusion_ir.building.recognise_contractions import contracted
from fusion_ir.dtype import DTYPES, bf16, f32
from fusion_ir.keys.graph_key import graph_key
from fusion_ir.ops.contract import products, summed_sizes
from fusion_ir.reference.interpreter import interpret
from scheduler.budget import Budget
from scheduler.interfaces import Forgetful
from scheduler.tune import tune
from testing.tensors import evaluate_one, graph_of, spec
from tests.support.devices import CPU_DEVICE

EXTENT = dict(zip("abmonpkl", (2, 3, 4, 2, 5, 3, 6, 2), strict=True))
ORDERS = 12  # of each set of axes where there are several of a kind
SETS = list(product(("", "b", "ab"), ("", "m", "mo"), ("", "n", "np"), ("", "k", "kl")))


@pytest.mark.parametrize("axes", SETS, ids="-".join)
def test_every_role_and_order_is_what_einsum_says(axes: tuple[str, str, str, str]) -> None:
    """All orders of both operands and of the result where there is at most one axis of each role, else a few."""
    batch, rows, columns, depth = axes
    tensors = batch + rows + depth, batch + columns + depth, batch + rows + columns
    draw = random.Random("".join(axes))
    triples: Iterable[Sequence[Sequence[str]]] = product(*map(permutations, tensors))
    if max(map(len, axes)) > 1:
        triples = [[draw.sample(s, len(s)) for s in tensors] for _ in range(ORDERS)]
    rng = np.random.default_rng(0)
    for a, b, out in (map("".join, triple) for triple in triples):
        x, y = (rng.integers(-3, 4, [EXTENT[c] for c in s]).astype(np.float32) for s in (a, b))
        labels = [[ord(c) for c in s] for s in (a, b, out)]
        got = evaluate_one(lambda p, q, of=labels: build.einsum(p, q, of[0], of[1], of[2]), x, y)
        np.testing.assert_array_equal(got, np.einsum(f"{a},{b}->{out}", x, y))


@pytest.mark.parametrize("axes", SETS, ids="-".join)
def test_products_of_a_sum_are_what_a_contraction_of_ones_gives(axes: tuple[str, str, str, str]) -> None:
    batch, rows, columns, depth = axes
    labels = [[ord(c) for c in s] for s in (depth + batch + rows, columns + batch + depth, batch + rows + columns)]
    x, y = (np.ones([EXTENT[chr(c)] for c in s], np.float32) for s in labels[:2])
    graph = graph_of(
        [spec(x.shape, f32), spec(y.shape, f32)], lambda p, q: build.einsum(p, q, labels[0], labels[1], labels[2])
    )
    node = next(n for n in graph.nodes if n.op == "contract")
    assert (interpret(graph, [x, y])[0] == products(node)).all()
    assert summed_sizes(node) == tuple(EXTENT[c] for c in depth)


@pytest.mark.parametrize("name", REJECTED)
def test_rejections_name_the_axis(name: str) -> None:
    message = rejection(REJECTED[name])
    assert message
    if name not in ("lists of unequal length", "more reduced axes than there are"):
        assert "axis" in message
        assert any(c.isdigit() for c in message)


def test_what_is_right_is_not_rejected() -> None:
    assert not rejection(Mapping((2, 3), (3, 4), (0, -1, 1), (-1, 1, 0), 1))


@pytest.mark.parametrize("mapping", MAPPINGS, ids=lambda m: f"{m[0]},{m[1]}->{m[2]}")
def test_nothing_is_broadcast_in_memory(mapping: tuple[str, str, str]) -> None:
    """Plans read the operands once, write the result once and keep nothing, in one launch: on a GPU, and on a CPU but
    for orders that none of its matrix products takes, where an operand or the result is stored with its axes in another
    order, as large as it is."""
    for device in (CPU_DEVICE, specified("h200", "13.0")):
        for dtype in ("f32", "bf16"):
            graph = contraction(*mapping, DTYPES[dtype])
            plan = tune(graph, device, Budget(0), Forgetful(), None)
            if device is CPU_DEVICE and "axes-in-order" in plan.rewrites:
                tensors = [*(node for node in graph.nodes if node.op == "input"), graph.outputs[0].node]
                assert len(plan.steps) <= len(tensors)
                assert {buffer.bytes for buffer in plan.buffers} <= {tensor.bytes for tensor in tensors}
                continue
            assert materialised_bytes(plan, graph) == 0
            assert len(plan.steps) == 1


@pytest.mark.parametrize("mapping", MAPPINGS, ids=lambda m: f"{m[0]},{m[1]}->{m[2]}")
def test_the_other_spelling_is_the_same_graph_where_that_is_exact(mapping: tuple[str, str, str]) -> None:
    assert graph_key(contracted(spelled(*mapping, bf16))) == graph_key(contraction(*mapping, bf16))
    given = spelled(*mapping, f32)
    assert contracted(given) is given
