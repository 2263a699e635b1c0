"""scatter_sum by its definition: dtypes, axes, places that repeat or lie outside; rules, cuts, copies and errors."""

from itertools import product

import numpy as np
import pytest

from fusion_ir import building as B
from fusion_ir.accuracy.comparison import compare
from fusion_ir.accuracy.tolerance import reference
from fusion_ir.core.graph import Graph
from fusion_ir.dtype import DTYPES, DType, f32, i64
from fusion_ir.ops import RuleError, make
from fusion_ir.reference.chunking import cut
from fusion_ir.reference.evaluation import Evaluation, EvaluationSchedule
from fusion_ir.reference.interpreter import evaluate
from fusion_ir.reference.sample_inputs import sample_inputs
from fusion_ir.reference.shrink import reduced
from fusion_ir.text.printing import print_graph
from fusion_ir.text.reading import parse_graph
from testing.tensors import evaluate_all, graph_of, same_bits, spec, tensor
from tests.support.other_kernels import other_kernel
from tests.support.whole import some

RNG = np.random.default_rng(0)


def scattered(sizes: tuple[int, ...], axis: int, extent: int, dtype: DType = f32) -> Graph:
    inputs = [spec(sizes, dtype), spec((sizes[axis],), i64)]
    return graph_of(inputs, lambda x, index: B.scatter_sum(x, axis, index, extent))


def by_definition(x: np.ndarray, index: np.ndarray, axis: int, extent: int) -> np.ndarray:
    """Slice after slice, in the dtype of `x`."""
    result = np.zeros((*x.shape[:axis], extent, *x.shape[axis + 1 :]), x.dtype)
    before = (slice(None),) * axis
    for i, m in enumerate(index.tolist()):
        if 0 <= m < extent:
            result[(*before, m)] += x[(*before, i)]
    return result


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16", "i64", "i32", "i8", "u8", "bool"])
def test_whole_numbers_of_every_dtype(dtype: str) -> None:
    """Sums of small whole numbers are exact in every dtype: f32 inside of 16 bits, i64 of integers and bool."""
    numbers = RNG.integers(0, 2 if dtype == "bool" else 5, (3, 40, 5))
    index = RNG.integers(-2, 9, 40)
    (found,) = evaluate_all(lambda x, i: B.scatter_sum(x, 1, i, 7), numbers.astype(DTYPES[dtype].numpy), index)
    assert found.dtype == (DTYPES[dtype] if DTYPES[dtype].is_float else i64).numpy
    np.testing.assert_array_equal(found.astype(np.float64), by_definition(numbers, index, 1, 7))


@pytest.mark.parametrize(("axis", "places"), [*product(range(3), ["i32", "i64"])])
def test_each_axis_as_pytorch_adds(axis: int, places: str) -> None:
    torch = pytest.importorskip("torch")
    x = RNG.standard_normal((4, 9, 6))
    index = RNG.integers(0, 5, x.shape[axis]).astype(DTYPES[places].numpy)
    (found,) = evaluate_all(lambda x, i: B.scatter_sum(x, axis, i, 5), x, index)
    sizes = [5 if a == axis else n for a, n in enumerate(x.shape)]
    expected = torch.zeros(sizes, dtype=torch.float64).index_add(axis, torch.tensor(index), torch.tensor(x))
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-14, atol=1e-14)


def test_halves_are_rounded_once() -> None:
    x = np.array([2048, 1, 1, 1, 1], np.float16)
    (found,) = evaluate_all(lambda x, i: B.scatter_sum(x, 0, i, 2), x, np.zeros(5, np.int64))
    assert found.tolist() == [2052, 0]


def test_places_outside_count_nowhere() -> None:
    ends = np.iinfo(np.int64)
    index = np.array([0, 3, -1, 4, ends.min, ends.max, 3])
    (found,) = evaluate_all(lambda x, i: B.scatter_sum(x, 0, i, 4), np.arange(7.0) + 1, index)
    assert found.tolist() == [1, 0, 0, 9]


@pytest.mark.parametrize("sizes", [(0, 3), (5, 0), (0, 0)])
def test_nothing_to_add(sizes: tuple[int, int]) -> None:
    x, index = np.ones(sizes, np.float32), np.zeros(sizes[0], np.int64)
    (found,) = evaluate_all(lambda x, i: B.scatter_sum(x, 0, i, 4), x, index)
    expected = np.zeros((4, sizes[1]))
    if sizes[0]:
        expected[0] = sizes[0]
    np.testing.assert_array_equal(found, expected)
    assert not np.signbit(found).any()
    (none,) = evaluate_all(lambda x, i: B.scatter_sum(x, 0, i, 0), x, index)
    assert none.shape == (0, sizes[1])


RULES = [
    ((tensor(0, (4, 5), f32), tensor(1, (4,), f32)), {"axis": 0, "extent": 3}, "must be i32 or i64"),
    ((tensor(0, (4, 5), f32), tensor(1, (4, 1), i64)), {"axis": 0, "extent": 3}, "rank 1"),
    ((tensor(0, (4, 5), f32), tensor(1, (4,), i64)), {"axis": 1, "extent": 3}, "extent 5 in the operand, the index 4"),
    ((tensor(0, (4, 5), f32), tensor(1, (4,), i64)), {"axis": 2, "extent": 3}, "axis 2"),
    ((tensor(0, (4, 5), f32), tensor(1, (4,), i64)), {"axis": 0, "extent": -1}, "0 or more, got -1"),
]


@pytest.mark.parametrize(("args", "attrs", "why"), RULES)
def test_rules(args: tuple[object, ...], attrs: dict[str, int], why: str) -> None:
    with pytest.raises(RuleError, match=why):
        make("scatter_sum", args, attrs)  # type: ignore[arg-type]


def test_text_comes_back() -> None:
    g = scattered((4, 5), 1, 9)
    text = print_graph(g)
    assert "scatter_sum" in text
    assert print_graph(parse_graph(text).graph) == text


@pytest.mark.parametrize("axis", range(3))
def test_pieces_have_the_bits_of_the_whole(axis: int) -> None:
    g = scattered((24, 30, 26), axis, 7)
    inputs = sample_inputs(g, 0)
    pieces = cut(g, piece_elements=1, least_elements=1, least_run=1)
    assert pieces.axes[g.outputs[0].node] != axis
    (found,) = Evaluation(EvaluationSchedule(pieces), inputs).outputs()
    assert same_bits(found, evaluate(g, inputs)[0])


def test_small_copies_have_fewer_slices_and_places() -> None:
    small = reduced(scattered((1 << 12, 64), 0, 1 << 13), 1 << 10).outputs[0].node
    assert small.args[0].sizes[0] == small.args[1].sizes[0] < 1 << 12
    assert small.sizes[0] == small.attr("extent", int) < 1 << 13


def test_sampled_places_lie_mostly_inside() -> None:
    index = sample_inputs(scattered((4000, 1), 0, 9), 0)[1]
    outside = (index < 0) | (index > 8)
    assert 0 < outside.sum() < 400
    assert (index < 0).any() and (index > 8).any()


@pytest.mark.parametrize("seed", some(range(20), 5))
def test_other_orders_agree_and_a_missing_slice_does_not(seed: int) -> None:
    g = scattered((500, 8), 0, 11)
    inputs = sample_inputs(g, seed)
    x, index = inputs
    expected = reference(g, inputs)
    assert compare([by_definition(x[::-1], index[::-1], 0, 11)], expected).ok
    without = x.copy()
    without[int(np.flatnonzero((index >= 0) & (index < 11))[seed])] = 0
    assert not compare([by_definition(without, index, 0, 11)], expected).ok


def test_sums_of_sums_carry_their_errors() -> None:
    """Slices that err themselves, and sums of few, in another order of terms."""
    g = graph_of(
        [spec((60, 40), f32), spec((60,), i64), spec((60,), i64)],
        lambda x, i, j: B.exp(B.scatter_sum(B.mul(B.sin(x), B.index_select(B.scatter_sum(x, 0, i, 9), 0, j)), 0, i, 7)),
    )
    inputs = sample_inputs(g, 0)
    expected = reference(g, inputs)
    for seed in range(4):
        assert compare(evaluate(g, inputs, other_kernel(seed)), expected).ok
