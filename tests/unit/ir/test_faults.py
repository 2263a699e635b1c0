"""Wrong kernels are found, even by one element; and tolerances made on demand judge as those of all runs."""

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from fusion_ir import building as build
from fusion_ir.accuracy import tolerance
from fusion_ir.accuracy.comparison import Fixed, Reference, compare
from fusion_ir.accuracy.tolerance import reference
from fusion_ir.arithmetic.conversions import accumulate, round_to
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType, bf16, f16, f32
from fusion_ir.reference.chunking import cut
from fusion_ir.reference.interpreter import evaluate, interpret
from fusion_ir.reference.sample_inputs import sample_inputs
from testing.random_graphs import Seeded, any_graph
from testing.tensors import graph_of, spec
from tests.support.other_kernels import other_kernel
from tests.support.whole import in_turn
from tests.unit.ir.test_tolerance import GRAPHS, mixed

ROWS, COLUMNS = 512, 700  # several pieces


def rotated(x: Node, angle: Node) -> Node:
    """Rotary embedding of [rows, 7, 100] by [rows, 100], in bf16 as models write it."""
    whole = (ROWS, 7, 100)
    first, second = build.slice_(x, (0, 0, 0), (ROWS, 7, 50)), build.slice_(x, (0, 0, 50), whole)
    turned = build.cat([build.neg(second), first], 2)
    cos, sin = (build.expand(build.unsqueeze(build.cast(f(angle), bf16), 1), whole) for f in (build.cos, build.sin))
    return build.add(build.mul(x, cos), build.mul(turned, sin))


LARGE: dict[str, Callable[[], Graph]] = {
    "softmax f32": lambda: graph_of([spec((ROWS, COLUMNS), f32)], build.softmax),
    "layer norm bf16": lambda: graph_of(
        [spec((ROWS, COLUMNS), bf16), spec((COLUMNS,), bf16)], lambda x, w: build.layer_norm(x, -1, w)
    ),
    "gelu f32": lambda: graph_of([spec((ROWS, COLUMNS), f32)], build.gelu),
    "rope bf16": lambda: graph_of([spec((ROWS, 7, 100), bf16), spec((ROWS, 100), f32)], rotated),
    "exact bf16": lambda: graph_of([spec((ROWS, COLUMNS), bf16)] * 2, lambda x, y: build.add(build.mul(x, y), x)),
    "column sum f32": lambda: graph_of([spec((ROWS, COLUMNS), f32)], lambda x: build.sum_(build.abs_(x), 0)),
}


@cache
def prepared(name: str) -> tuple[Graph, list[np.ndarray], Reference]:
    graph = LARGE[name]()
    assert len(cut(graph).bounds) > 1
    inputs = sample_inputs(graph, 1)
    return graph, inputs, reference(graph, inputs)


def next_index(x: np.ndarray) -> None:
    """The last row is read one element further on."""
    x.reshape(-1)[-100:-1] = x.reshape(-1)[-99:].copy()


def no_tail(x: np.ndarray) -> None:
    """The last element stays what it was, all ones."""
    x.reshape(-1)[-1:].view(np.uint8)[:] = 0xFF


def swapped_lanes(x: np.ndarray) -> None:
    """Two lanes of one vector are exchanged."""
    flat = x.reshape(-1)
    at = flat.size // 2 // 16 * 16
    largest = at + int(np.argmax(np.abs(np.diff(flat[at : at + 16].astype(np.float32)))))
    flat[[largest, largest + 1]] = flat[[largest + 1, largest]]


def digit_of_another(x: np.ndarray) -> None:
    """One row of ten by seventy is taken for one of seventy by ten."""
    row = x.reshape(-1)[-700:]
    row[:] = row.reshape(10, 70).T.reshape(-1).copy()


def one_off(x: np.ndarray) -> None:
    """The largest element is off by a percent."""
    at = np.unravel_index(int(np.abs(x.astype(np.float32)).argmax()), x.shape)
    x[at] = x[at] * x.dtype.type(1.015)


def truncated(x: np.ndarray) -> None:
    """Rounds to zero instead of to nearest, as seen from two units more precise: every element an ulp or two low."""
    bits = x.view(f"u{x.itemsize}")
    bits -= np.array(200 if x.itemsize == 4 else 3, bits.dtype)


@pytest.mark.parametrize("fault", [next_index, no_tail, swapped_lanes, digit_of_another, one_off, truncated])
@pytest.mark.parametrize("name", LARGE)
def test_faults_in_outputs_are_found(name: str, fault: Callable[[np.ndarray], None]) -> None:
    graph, inputs, expected = prepared(name)
    (good,) = interpret(graph, inputs)
    assert compare([good], expected).ok
    bad = good.copy()
    fault(bad)
    outcome = compare([bad], expected)
    assert not outcome.ok
    assert outcome.detail.startswith("out0[")


@pytest.mark.parametrize("name", ["softmax f32", "layer norm bf16", "column sum f32"])
def test_sums_that_leave_one_element_out_are_found(name: str) -> None:
    graph, inputs, expected = prepared(name)

    def forgetful(node: Node, operands: tuple[np.ndarray, ...]) -> np.ndarray | None:
        if node.op not in ("sum", "mean"):
            return None
        axis = node.ints("axes")[0]
        kept = operands[0].take(range(operands[0].shape[axis] - 1), axis)
        total = accumulate(kept).sum(axis=axis)
        return round_to(np.asarray(total / np.float32(700) if node.op == "mean" else total), node.dtype)

    assert not compare(evaluate(graph, inputs, forgetful), expected).ok


@pytest.mark.parametrize("name", ["softmax f32", "layer norm bf16", "column sum f32"])
def test_sums_in_bf16_are_found(name: str) -> None:
    graph, inputs, expected = prepared(name)

    def coarse(node: Node, operands: tuple[np.ndarray, ...]) -> np.ndarray | None:
        if node.op not in ("sum", "mean"):
            return None
        lines = np.moveaxis(operands[0], node.ints("axes")[0], -1)
        total = np.add.accumulate(lines.astype(bf16.numpy), axis=-1)[..., -1].astype(np.float32)
        return round_to(np.asarray(total / np.float32(700) if node.op == "mean" else total), node.dtype)

    assert not compare(evaluate(graph, inputs, coarse), expected).ok


def test_rounding_at_the_wrong_node_is_found() -> None:
    graph, inputs, expected = prepared("exact bf16")
    x, y = (v.astype(np.float32) for v in inputs)
    assert not compare([round_to(x * y + x, bf16)], expected).ok
    assert compare([round_to(round_to(x * y, bf16).astype(np.float32) + x, bf16)], expected).ok
    graph, inputs, expected = prepared("rope bf16")

    def unrounded(node: Node, operands: tuple[np.ndarray, ...]) -> np.ndarray | None:
        if node.op != "mul":
            return None
        product = operands[0].astype(np.float32) * operands[1].astype(np.float32)
        bits = product.view(np.uint32) & np.uint32(0xFFFF0000)  # cut off instead of rounded
        return round_to(bits.view(np.float32), bf16)

    assert not compare(evaluate(graph, inputs, unrounded), expected).ok


# Faults behind roundings that may go either way


def attention(dtype: DType) -> Graph:
    """Causal, 32 heads of 64 tokens, probabilities rounded."""

    def read(q: Node, k: Node, v: Node) -> Node:
        causal = build.le(build.iota([64, 64], 1), build.iota([64, 64], 0))
        scores = build.mul(build.matmul(q, build.transpose(k), f32), 0.125)
        return build.matmul(build.cast(build.softmax(build.where(causal, scores, -np.inf)), dtype), v)

    return graph_of([spec((32, 64, 64), dtype)] * 3, read)


Fault = Callable[[Node, tuple[np.ndarray, ...]], np.ndarray | None]


def first_term_left_out(node: Node, operands: tuple[np.ndarray, ...]) -> np.ndarray | None:
    return operands[0][..., 1:].sum(axis=-1) if node.op == "sum" else None


def one_row_not_normalised(node: Node, operands: tuple[np.ndarray, ...]) -> np.ndarray | None:
    if node.op != "div":
        return None
    value = operands[0] / operands[1]
    value[7, 40] *= np.float32(1.01)
    return value


def mask_without_diagonal(node: Node, operands: tuple[np.ndarray, ...]) -> np.ndarray | None:
    return operands[0] < np.maximum(operands[1], 1) if node.op == "le" else None


def another_scale(node: Node, operands: tuple[np.ndarray, ...]) -> np.ndarray | None:
    return operands[0] * operands[1] * np.float32(1 + 2.0**-7) if node.op == "mul" else None


def narrow_totals(node: Node, operands: tuple[np.ndarray, ...]) -> np.ndarray | None:
    if node.op != "contract" or node.dtype == f32:
        return None
    left, right = (x.astype(np.float32) for x in operands)
    total = np.zeros(node.sizes, node.dtype.numpy)
    for k in range(left.shape[2]):
        total = (total.astype(np.float32) + left[:, :, k, None] * right[:, None, k]).astype(total.dtype)
    return total


def cut_off(node: Node, operands: tuple[np.ndarray, ...]) -> np.ndarray | None:
    """Probabilities rounded to zero instead of to nearest."""
    if node.op != "cast":
        return None
    low = operands[0].view(np.uint32) & np.uint32(0xFFFF0000 if node.dtype == bf16 else 0xFFFFE000)
    return round_to(low.view(np.float32), node.dtype)


ATTENTION_FAULTS: list[Fault] = [
    first_term_left_out, one_row_not_normalised, mask_without_diagonal, another_scale, narrow_totals, cut_off,
]  # fmt: skip


@cache
def prepared_attention(dtype: DType) -> tuple[Graph, list[np.ndarray], Reference]:
    """Attention, its inputs, and what is expected of it, with which a right kernel agrees."""
    graph = attention(dtype)
    inputs = sample_inputs(graph, 3)
    expected = reference(graph, inputs)
    assert compare(evaluate(graph, inputs, other_kernel(0)), expected).ok
    return graph, inputs, expected


@pytest.mark.parametrize("fault", ATTENTION_FAULTS)
@pytest.mark.parametrize("dtype", [bf16, f16], ids=str)
def test_faults_in_attention_are_found(dtype: DType, fault: Fault) -> None:
    graph, inputs, expected = prepared_attention(dtype)
    bad = evaluate(graph, inputs, fault)
    assert not np.array_equal(bad[0], expected.outputs[0])
    assert not compare(bad, expected).ok


# Tolerances on demand


@pytest.fixture
def finely_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tolerance, "cut", lambda graph: cut(graph, 1, 1, 1))


@pytest.mark.usefixtures("finely_cut")
@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("dtype", [f32, bf16], ids=str)
def test_another_correct_kernel_passes_in_pieces(name: str, dtype) -> None:
    sizes, read = GRAPHS[name]
    graph = graph_of([spec(s, dtype) for s in sizes], read)
    inputs = sample_inputs(graph, 0)
    expected = reference(graph, inputs)
    for kernel in range(4):
        got = [np.ascontiguousarray(v) for v in evaluate(graph, inputs, other_kernel(kernel))]
        outcome = compare(got, expected)
        assert outcome.ok, outcome.detail


@pytest.mark.usefixtures("finely_cut")
@pytest.mark.parametrize("seed", range(60))
@pytest.mark.sweep(0.3)
def test_the_verdict_is_that_of_all_runs(seed: int) -> None:
    graph = any_graph(Seeded(seed))
    inputs = sample_inputs(graph, seed)
    rng = np.random.default_rng(seed)
    everything = reference(graph, inputs)
    fixed = Reference(everything.outputs, [None if a is None else Fixed(a) for a in everything.atol])
    for size in (1, 2, 20, 300):
        got = [o.copy() for o in everything.outputs]
        for array in got:
            flat = array.reshape(-1).view(np.uint8 if array.dtype == np.bool_ else f"i{array.itemsize}")
            if flat.size:
                few = rng.integers(0, flat.size, 3)
                flat[few] = flat[few] ^ 1 if array.dtype == np.bool_ else flat[few] + rng.integers(-size, size + 1, 3)
        assert compare(got, reference(graph, inputs)).ok == compare(got, fixed).ok == compare(got, everything).ok


@pytest.mark.usefixtures("finely_cut")
@pytest.mark.parametrize("seed", in_turn(range(4), 1, "behind roundings"))
@pytest.mark.soak
def test_the_verdict_is_that_of_all_runs_behind_roundings(seed: int) -> None:
    graph = mixed(bf16, 48, 70, 9)
    inputs = sample_inputs(graph, seed)
    everything = reference(graph, inputs)
    (atol,) = everything.atol
    assert atol is not None
    fixed = Reference(everything.outputs, [Fixed(atol)])
    rng = np.random.default_rng(seed)
    verdicts: set[bool] = set()
    for share in (0.3, 0.7, 0.95, 1.3):
        off = round_to(everything.outputs[0].astype(np.float32) + share * atol * (rng.random(atol.shape) < 0.1), bf16)
        verdict = compare([off], reference(graph, inputs)).ok
        assert verdict == compare([off], fixed).ok == compare([off], everything).ok
        verdicts.add(verdict)
    assert verdicts == {True, False}


def test_kernels_that_differ_by_an_ulp_need_no_perturbed_run(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, inputs, _ = prepared("layer norm bf16")
    expected = reference(graph, inputs)
    monkeypatch.setattr(tolerance, "Perturbation", None)
    got = [o.copy() for o in expected.outputs]
    got[0].view(np.uint16)[::3] += 1
    assert compare(got, expected).ok


def test_only_pieces_with_larger_differences_are_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, inputs, _ = prepared("softmax f32")
    seen: set[int] = set()

    class Noting(tolerance.Bounds):
        def __call__(self, node: Node, as_large: Node, operands: tuple[np.ndarray, ...], piece: int) -> np.ndarray:
            seen.add(piece)
            return super().__call__(node, as_large, operands, piece)

    monkeypatch.setattr(tolerance, "Bounds", Noting)
    expected = reference(graph, inputs)
    got = [o.copy() for o in expected.outputs]
    got[0].view(np.uint32)[ROWS // 2, ::7] += 3
    assert compare(got, expected).ok
    assert len(seen) == 1
