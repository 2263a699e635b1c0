"""Rewrites of contractions before the search: axes in order, operands as narrow as they were."""

import random
from itertools import permutations, product

import numpy as np
import pytest

from codegen.families import FAMILIES
from fusion_ir import building as build
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType, bf16, f16, f32, f64, i8, i32
from fusion_ir.reference.interpreter import interpret
from scheduler.interfaces import Forgetful
from scheduler.rewrites.prepare import prepare
from scheduler.rewrites.rules import matrix_axes as axes
from scheduler.rewrites.rules.matrix_axes import AxesInOrder
from scheduler.rewrites.rules.narrow_operands import NARROW
from scheduler.rewrites.simplify import simplify
from scheduler.tuning.trials import Ledger
from tests.support.devices import CPU_DEVICE
from tests.support.products import dense_graph, einsum_graph, spec
from tests.unit.scheduler.fakes import random_inputs, same_bits

SIZES = {"z": 2, "m": 3, "p": 2, "n": 4, "k": 5, "l": 4}


def contraction(graph: Graph) -> Node:
    return next(n for n in graph.nodes if n.op == "contract")


def is_in_order(node: Node) -> bool:
    """Batches, then rows and columns or the other way round, then what is summed, in all tensors alike."""
    a, b, reduced = node.ints("a_axes"), node.ints("b_axes"), node.attr("reduced", int)
    outs = range(len(a) - reduced)
    groups = "".join("zmn"[(a[r] < 0) * 2 + (b[r] < 0)] for r in outs)
    sides = ["".join("k" if r not in outs else groups[r] for r in _by(x)) for x in (a, b)]
    return _runs(groups) in ("zmn", "znm", "mn", "nm") and all(len(_runs(s)) == len(set(s)) for s in sides)


def _by(positions: tuple[int, ...]) -> list[int]:
    return sorted((r for r, p in enumerate(positions) if p >= 0), key=lambda r: positions[r])


def _runs(text: str) -> str:
    return "".join(x for i, x in enumerate(text) if i == 0 or text[i - 1] != x)


@pytest.mark.parametrize("dtype", [f32, i32], ids=str)
def test_any_order_of_axes_gives_the_same_values(monkeypatch: pytest.MonkeyPatch, dtype: DType) -> None:
    monkeypatch.setattr(axes, "is_heavy", lambda node: node.op == "contract")
    rng, changed = random.Random(0), 0
    every = list(product(permutations("zmpkl"), permutations("zknl"), permutations("zmpn")))
    for a, b, out in rng.sample(every, 150):
        graph = einsum_graph("".join(a), "".join(b), "".join(out), SIZES, dtype)
        before = contraction(graph)
        other = AxesInOrder(lambda alone: is_in_order(contraction(alone)))
        image = simplify(graph, [other.rule()]).image
        new = next(n for n in _below(image[graph.outputs[0].node]) if n.op == "contract")
        assert is_in_order(new), (a, b, out)
        assert (new is before) == is_in_order(before)
        if new is not before:
            assert other.made == {new: before}
            changed += 1
        inputs = random_inputs(graph, 0)
        rewritten = Graph(graph.inputs, tuple(_replaced(o, image) for o in graph.outputs))
        for x, y in zip(interpret(graph, inputs), interpret(rewritten, inputs), strict=True):
            if dtype == i32:
                assert same_bits(x, y)
            np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-4)
    assert changed > 100


def _below(node: Node) -> list[Node]:
    return [node, *(n for a in node.args for n in _below(a))]


def _replaced(output, image):  # type: ignore[no-untyped-def]
    return type(output)(image[output.node], output.strides)


def test_what_some_family_takes_keeps_its_axes() -> None:
    ledger = Ledger(CPU_DEVICE, FAMILIES, Forgetful(), None, 0)
    sizes = {"z": 4, "m": 128, "k": 64, "n": 128}
    for a, b, out, matched in (
        ("mk", "kn", "mn", False),
        ("km", "nk", "nm", False),
        ("mzk", "nzk", "zmn", False),
        ("mkz", "knz", "mnz", True),
    ):
        prepared = prepare(einsum_graph(a, b, out, sizes), takes=ledger.acceptor.shares)
        assert prepared.rewrites == (("axes-in-order",) if matched else ()), (a, b, out)
        node = contraction(prepared.graph)
        assert prepared.origin[node] == (2,)


CASES = [  # stored, multiplied, depth, whether narrow operands do
    (bf16, f32, 64, True),
    (f16, f32, 17, True),
    (f16, f32, 16, False),  # in the order that f32 promises
    (f16, f64, 64, False),  # sums of f16 are in f32
    (f32, f64, 64, False),
    (i8, f32, 64, False),  # sums of i8 wrap
]


@pytest.mark.parametrize(("stored", "multiplied", "depth", "narrows"), CASES)
def test_operands_that_were_widened_are_multiplied_as_they_were(
    stored: DType, multiplied: DType, depth: int, narrows: bool
) -> None:
    def compute(x: Node, w: Node) -> Node:
        return build.matmul(build.cast(x, multiplied), build.permute(build.cast(w, multiplied), [1, 0]))

    graph = dense_graph([spec((9, depth), None, stored), spec((7, depth), None, stored)], compute)
    (new,) = [simplify(graph, [NARROW]).image[o.node] for o in graph.outputs]
    assert new.dtype == multiplied
    assert [a.dtype for a in new.args] == [stored if narrows else multiplied] * 2
    inputs = random_inputs(graph, 0)
    (x,), (y,) = (
        interpret(graph, inputs),
        interpret(Graph(graph.inputs, (_replaced(graph.outputs[0], {graph.outputs[0].node: new}),)), inputs),
    )
    np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5)
    assert prepare(graph).rewrites == (("narrow-operands",) if narrows else ())
    assert prepare(graph, numerics="exact").rewrites == ()


def test_one_operand_that_was_widened_stays_wide() -> None:
    graph = dense_graph([spec((9, 64), None, bf16), (64, 7)], lambda x, w: build.matmul(build.cast(x, f32), w))
    assert simplify(graph, [NARROW]).rules == ()
