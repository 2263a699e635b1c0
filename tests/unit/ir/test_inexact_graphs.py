"""Over random graphs of inexact values every right kernel agrees, and wrong ones do not: 100 in every run, 3,000 where
FUSEPLAN_RANDOM_GRAPHS says 2,000 or more."""

import os
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from fusion_ir import building as build
from fusion_ir.accuracy.comparison import Difference, Reference, compare, unequal
from fusion_ir.accuracy.tolerance import reference
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import f32, i64
from fusion_ir.formats import read_json
from fusion_ir.ops import OPS, OpKind, kind_of
from fusion_ir.reference.interpreter import evaluate
from fusion_ir.reference.node_value import evaluate_node
from fusion_ir.reference.sample_inputs import sample_inputs
from testing.tensors import graph_of, spec
from tests.support.inexact_graphs import PROLOGUES, amplifying_graph, inexact_graph
from tests.support.other_kernels import Override, other_kernel
from tests.support.whole import in_turn, some

SOAK = 2000
GRAPHS = 3000 if int(os.environ.get("FUSEPLAN_RANDOM_GRAPHS", "0")) >= SOAK else 80
BATCH = 50
AMPLIFYING = 600 if GRAPHS == 3000 else 60
FOUND = Path(__file__).parents[2] / "graphs"
KERNELS = 4  # per graph: all errors of a node alike in one half, each for itself in the other


@lru_cache(maxsize=128)
def prepared(seed: int) -> tuple[Graph, list[np.ndarray], Reference]:
    """`inexact_graph(seed)`, its inputs, and what is expected of it: several tests ask for the first seeds."""
    graph = inexact_graph(seed)
    inputs = sample_inputs(graph, seed)
    return graph, inputs, reference(graph, inputs)


def wrong(graph: Graph, seed: int) -> list[str]:
    """False alarms: differences that `compare` reports for the results of KERNELS right kernels."""
    inputs = sample_inputs(graph, seed)
    return alarms(graph, inputs, reference(graph, inputs))


def alarms(graph: Graph, inputs: list[np.ndarray], expected: Reference) -> list[str]:
    """`wrong` where inputs and reference are there."""
    made = ([np.ascontiguousarray(v) for v in evaluate(graph, inputs, other_kernel(k))] for k in range(KERNELS))
    return [detail for got in made if (detail := compare(got, expected).detail)]


@pytest.mark.parametrize("first", range(0, GRAPHS, BATCH))
def test_right_kernels_agree(first: int) -> None:
    found = {seed: problems for seed in range(first, first + BATCH) if (problems := alarms(*prepared(seed)))}
    assert not found


@pytest.mark.soak
@pytest.mark.parametrize("first", in_turn(range(0, AMPLIFYING, AMPLIFYING // 4), 1))
def test_right_kernels_agree_where_steps_amplify_errors(first: int) -> None:
    """Hundreds of steps: what decides is whether runs of errors show what errors can do. In the end they are samples:
    of 600 kernels of the first 150 graphs 3 are refused, which were 59, and of 1,581 faults in these graphs 1,195 are
    found, which were 1,225 when so many right kernels were refused, too."""
    drawn = some(range(first, first + AMPLIFYING // 4), 5, "amplifying")
    refused = sum(len(wrong(amplifying_graph(seed), seed)) for seed in drawn)
    assert refused <= 0.02 * KERNELS * AMPLIFYING // 4


@pytest.mark.soak
@pytest.mark.parametrize("path", in_turn(sorted(FOUND.glob("*.json")), 1), ids=lambda path: path.stem)
def test_right_kernels_agree_on_graphs_that_somebody_found(path: Path) -> None:
    """All but one of 8 kernels: of 51 outputs of rr33 one element is beyond what 48 runs of all of it did. Of rr33,
    r300 and rnn_40 22 of 24 kernels were refused."""
    graph = read_json(path.read_text()).graph
    assert sum(len(wrong(graph, seed)) for seed in in_turn(range(2), 1, path.stem)) <= 1


@pytest.mark.parametrize("terms", [3, 4, 6])
@pytest.mark.parametrize("mask", ["relu", "tril", "dropout", "minimum"])
def test_products_of_few_inexact_terms_behind_masks(terms: int, mask: str) -> None:
    """The errors of their terms cancelled in all runs at some element, and most elements around it are 0."""
    masks = {
        "relu": build.relu,
        "tril": build.tril,
        "dropout": lambda x: build.dropout(x, 0.4, 3, 5)[0],
        "minimum": lambda x: build.minimum(x, 0.0),
    }
    for prologue in PROLOGUES[:5]:
        graph = graph_of(
            [spec((256, terms), f32), spec((terms, 64), f32)],
            lambda x, w, of=prologue: masks[mask](build.matmul(of(x), w)),
        )
        assert not wrong(graph, 0)


def test_branches_on_inexact_values_may_go_either_way() -> None:
    """An element whose comparison is a tie within errors is what either branch makes, and no other is."""
    x = np.linspace(-2, 2, 4096).astype(np.float32)
    x[5] = np.float32(0.6931472)  # exp gives 2 and what is next to it
    graph = graph_of([spec((4096,), f32)], lambda x: build.where(build.gt(build.exp(x), 2.0), 100.0, -1.0))
    (atol,) = reference(graph, [x]).atol
    assert atol is not None
    assert atol[5] >= 101
    assert (np.delete(atol, 5) < 1).all()


def test_shares_of_outputs_of_different_times_are_told_apart() -> None:
    """Parts of outputs of two times with the same pieces were taken for one another."""

    def read(x: Node) -> list[Node]:
        y = build.exp(x)
        return [y, build.div(y, build.sum_(build.sum_(y, 1)))]

    graph = graph_of([spec((512, 700), f32)], read)
    inputs = sample_inputs(graph, 0)
    got = [np.ascontiguousarray(v) for v in evaluate(graph, inputs, other_kernel(1))]
    assert not compare(got, reference(graph, inputs)).detail


# What is wrong


@pytest.mark.parametrize("of", [build.exp, build.neg, lambda x: build.gt(build.exp(x), 1.0)])
def test_what_is_said_of_a_wrong_element_can_be_read(of: Override) -> None:
    graph = graph_of([spec((8, 9), f32)], of)
    inputs = sample_inputs(graph, 0)
    expected = reference(graph, inputs)
    got = [v.copy() for v in expected.outputs]
    got[0][3, 4] = not got[0][3, 4] if got[0].dtype == np.bool_ else got[0][3, 4] * np.float32(1.5)
    found = Difference.parse(compare(got, expected).detail)
    assert found is not None
    assert (found.output, found.index) == (0, (3, 4))
    assert (found.got, found.expected) == (
        pytest.approx(float(got[0][3, 4])),
        pytest.approx(float(expected.outputs[0][3, 4])),
    )
    assert (found.bound > 0) == (found.perturbed > 0) == (graph.outputs[0].node.op == "exp")
    assert Difference.parse("signal 11") is None


def last_term_left_out(node: Node, operands: tuple[np.ndarray, ...]) -> np.ndarray | None:
    if node.op != "sum" and not (kind_of(node) is OpKind.CONTRACT and node.attr("reduced", int)):
        return None
    axis = (node.ints("axes") if node.op == "sum" else node.ints("a_axes"))[-1]
    cut = np.array(operands[0])
    cut[(*(slice(None),) * axis, -1)] = 0
    return np.asarray(evaluate_node(node, (cut, *operands[1:])))


def narrow_functions(node: Node, operands: tuple[np.ndarray, ...]) -> np.ndarray | None:
    if not OPS[node.op].ulps or node.dtype.bytes < 4:
        return None
    value = np.asarray(evaluate_node(node, operands))
    return value.astype(np.float16 if node.dtype == f32 else np.float32).astype(value.dtype)


def mask_without_diagonal(node: Node, operands: tuple[np.ndarray, ...]) -> np.ndarray | None:
    return operands[0] < operands[1] if node.op == "le" and node.args[0].dtype == i64 else None


@pytest.mark.parametrize(
    ("fault", "least"), [(last_term_left_out, 0.98), (narrow_functions, 0.9), (mask_without_diagonal, 0.95)]
)
def test_wrong_kernels_do_not_agree(fault: Override, least: float) -> None:
    """But where the fault is lost on the way: in a narrow output, behind a mask that hides it. As many were found by
    perturbed runs alone: of 600 graphs 360 of 362, 329 of 356, 51 of 52."""
    found = seen = 0
    for seed in range(120):
        graph, inputs, expected = prepared(seed)
        with np.errstate(all="ignore"):
            got = [np.ascontiguousarray(v) for v in evaluate(graph, inputs, fault)]
        if any(unequal(a, b).any() for a, b in zip(got, expected.outputs, strict=True)):
            seen += 1
            found += not compare(got, expected).ok
    assert seen > 5
    assert found >= least * seen
