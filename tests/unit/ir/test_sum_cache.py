"""Perturbed runs that share sums give the tolerances of runs that share nothing, bit for bit; so do several threads."""

from collections.abc import Callable

import numpy as np
import pytest

from fusion_ir import building as build
from fusion_ir.accuracy import perturb, sum_error, tolerance
from fusion_ir.accuracy.comparison import compare
from fusion_ir.accuracy.sum_cache import SumCache
from fusion_ir.accuracy.tolerance import reference
from fusion_ir.arithmetic import threads
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import bf16, f32
from fusion_ir.ops.contract import contract_arrays
from fusion_ir.reference.chunking import cut
from fusion_ir.reference.sample_inputs import sample_inputs
from testing.random_graphs import Seeded, any_graph
from testing.tensors import graph_of, spec

Atol = list[np.ndarray | None]


def linear(x: Node, w: Node, r: Node) -> Node:
    """A product of inputs, and much behind it."""
    return build.add(build.gelu(build.matmul(x, w)), r)


def attention(q: Node, k: Node, v: Node) -> Node:
    """A product of inputs, and one of what the first one's errors reach."""
    return build.matmul(build.softmax(build.matmul(q, k)), v)


def normalized(x: Node, w: Node, r: Node) -> list[Node]:
    """Sums of inputs, sums of sums, and a product of an input with what they reach."""
    centred = build.sub(x, build.mean(x, 1, keepdims=True))
    return [build.sum_(build.square(x), 1), build.layer_norm(x, -1), build.matmul(centred, w), build.cumsum(r, 1)]


def behind_exp(x: Node, w: Node, r: Node) -> list[Node]:
    """Products and sums of what errs, and a product of bf16 behind a rounding."""
    e = build.exp(x)
    narrow = build.matmul(build.cast(e, bf16), build.cast(w, bf16))
    return [build.matmul(e, w), build.sum_(e, 0), build.cast(narrow, f32), build.matmul(x, w)]


SIZES = ((48, 40), (40, 36), (48, 36))
GRAPHS: dict[str, Callable[..., object]] = {
    "linear": linear,
    "transposed": lambda x, w, r: build.exp(build.permute(build.matmul(x, w), (1, 0))),
    "read twice": lambda x, w, r: (lambda y: build.mul(build.exp(y), build.sub(y, r)))(build.matmul(x, w)),
    "attention": lambda x, w, r: attention(x, w, build.permute(w, (1, 0))),
    "normalized": normalized,
    "behind exp": behind_exp,
    "small products": lambda x, w, r: build.exp(
        build.matmul(build.slice_(x, (0, 0), (48, 9)), build.slice_(w, (0, 0), (9, 36)))
    ),
}


def plainly(monkeypatch: pytest.MonkeyPatch, graph: Graph, inputs: list[np.ndarray]) -> Atol:
    """Tolerances where every run computes all values by itself, whole ones at once, in one thread."""
    with monkeypatch.context() as plain:
        plain.setattr(SumCache, "shares", lambda self, node: False)
        plain.setattr(SumCache, "of_contraction", lambda self, node, piece, a, b: contract_arrays(node, a, b))
        plain.setattr(perturb, "BLOCK_ELEMENTS", 1 << 60)
        plain.setattr(threads, "THREADS", 1)
        return reference(graph, inputs).atol


def sharing(monkeypatch: pytest.MonkeyPatch, graph: Graph, inputs: list[np.ndarray]) -> Atol:
    """Tolerances as they are computed, where even a small value is made in stretches, by several threads."""
    with monkeypatch.context() as shared:
        shared.setattr(perturb, "BLOCK_ELEMENTS", 100)
        shared.setattr(threads, "BLOCK_ELEMENTS", 100)
        shared.setattr(threads, "THREADS", 4)
        return reference(graph, inputs).atol


def same(found: Atol, wanted: Atol) -> bool:
    return all(
        a is b if a is None or b is None else a.tobytes() == b.tobytes() for a, b in zip(found, wanted, strict=True)
    )


@pytest.fixture(params=["whole", "in pieces"])
def however_cut(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "in pieces":
        monkeypatch.setattr(tolerance, "cut", lambda graph: cut(graph, 1, 1, 1))


@pytest.mark.usefixtures("however_cut")
@pytest.mark.parametrize("dtype", [f32, bf16], ids=str)
@pytest.mark.parametrize("integers", [False, True])
@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.sweep(0.15)
def test_tolerances_are_those_of_runs_that_share_nothing(
    monkeypatch: pytest.MonkeyPatch, name: str, integers: bool, dtype
) -> None:
    graph = graph_of([spec(s, dtype) for s in SIZES], GRAPHS[name])
    inputs = sample_inputs(graph, 3, integers=integers)
    assert same(sharing(monkeypatch, graph, inputs), plainly(monkeypatch, graph, inputs))


@pytest.mark.usefixtures("however_cut")
@pytest.mark.parametrize("seed", range(40))
@pytest.mark.sweep(0.3)
def test_tolerances_of_random_graphs_are_those_of_runs_that_share_nothing(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    graph = any_graph(Seeded(seed))
    inputs = sample_inputs(graph, seed, integers=seed % 3 == 0)
    assert same(sharing(monkeypatch, graph, inputs), plainly(monkeypatch, graph, inputs))


@pytest.mark.parametrize("name", ["attention", "normalized", "behind exp"])
def test_a_value_that_errors_reach_and_that_was_shared_would_be_seen(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Sharing every node gives other tolerances, so that the tests above can fail."""
    graph = graph_of([spec(s, f32) for s in SIZES], GRAPHS[name])
    inputs = sample_inputs(graph, 3)
    wanted = plainly(monkeypatch, graph, inputs)
    monkeypatch.setattr(SumCache, "shares", lambda self, node: True)
    assert not same(sharing(monkeypatch, graph, inputs), wanted)


def test_a_product_of_inputs_is_computed_once_for_all_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention's first product and its magnitudes are computed once for all runs, its second product twice in each."""
    seen: list[Node] = []

    def noting(node: Node, a: np.ndarray, b: np.ndarray, *, in_order: bool = True) -> np.ndarray:
        seen.append(node)
        return contract_arrays(node, a, b, in_order=in_order)

    monkeypatch.setattr(sum_error, "contract_arrays", noting)
    monkeypatch.setattr("fusion_ir.accuracy.sum_cache.contract_arrays", noting)
    graph = graph_of([spec(s, f32) for s in SIZES], GRAPHS["attention"])
    expected = reference(graph, sample_inputs(graph, 0))
    assert expected.atol
    first, second = (n for n in graph.nodes if n.op == "contract")
    assert seen.count(first) == 2
    assert seen.count(second) > 2


def test_without_room_nothing_is_kept() -> None:
    """A cache with room for one array keeps one: of two pieces asked for twice, the second is computed twice."""
    graph = graph_of([spec(s, f32) for s in SIZES], linear)
    (node,) = (n for n in graph.nodes if n.op == "contract")
    made: list[int] = []

    def make() -> tuple[np.ndarray, ...]:
        made.append(1)
        return (np.zeros(10, np.float32),)

    sums = SumCache(most_bytes=60)
    for piece in (0, 1, 0, 1):
        sums.once("sum", node, piece, make)
    assert len(made) == 3


def test_outputs_in_pieces_are_judged_alike_by_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first wrong element is named, and what lies behind its part is not judged."""
    graph = graph_of([spec((512, 700), f32)], build.softmax)
    inputs = sample_inputs(graph, 1)
    details: set[tuple[bool, str, float]] = set()
    for count in (1, 2, 7):
        monkeypatch.setattr(threads, "THREADS", count)
        expected = reference(graph, inputs)
        got = [o.copy() for o in expected.outputs]
        got[0].view(np.uint32)[::50, ::7] += 3
        assert compare(got, expected).ok
        got[0][300:, 5] *= 1.01
        outcome = compare(got, expected)
        details.add((outcome.ok, outcome.detail, outcome.max_rel_error))
    assert len(details) == 1
    ((ok, detail, _),) = details
    assert not ok
    assert detail.startswith("out0[300, 5] is ")
    assert "at least" in detail


def test_what_fails_beside_others_fails_and_calls_within_calls_start_no_threads() -> None:
    def fail(n: int) -> int:
        return 1 // n

    with pytest.raises(ZeroDivisionError):
        threads.side_by_side(fail, [1, 0, 1])
    nested = threads.side_by_side(lambda n: sum(threads.side_by_side(lambda m: n * m, range(4))), range(5))
    assert nested == [6 * n for n in range(5)]
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        threads.side_by_side(lambda n: np.float32(1) / np.float32(n), [1, 0])
