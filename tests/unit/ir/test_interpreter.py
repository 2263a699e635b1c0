"""The interpreter: views and reductions against NumPy, rounding at every node, memory, broadcast operands."""

import ml_dtypes
import numpy as np
import pytest

from fusion_ir import building as build
from fusion_ir.arithmetic.cache_blocks import BLOCK_ELEMENTS, blocks
from fusion_ir.arithmetic.conversions import round_to
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.core.scalar import Scalar
from fusion_ir.dtype import DTYPES, bf16, f16, f32, f64, i8, i64
from fusion_ir.ops import make, make_input
from fusion_ir.reference.interpreter import InputError, evaluate, interpret
from testing.tensors import evaluate_all, evaluate_one, graph_of, same_bits, spec
from tests.support.small_graphs import random_graph

RNG = np.random.default_rng(0)
CUBE = RNG.standard_normal((4, 5, 6)).astype(np.float32)


def shape(*sizes: int):
    return shape_of(sizes)


# Views

VIEWS = [
    ("reshape", {"shape": shape(5, 24)}, lambda x: x.reshape(5, 24)),
    ("permute", {"dims": (2, 0, 1)}, lambda x: x.transpose(2, 0, 1)),
    ("broadcast_in_dim", {"shape": shape(4, 2, 5, 6), "dims": (0, 2, 3)},
     lambda x: np.broadcast_to(x[:, None], (4, 2, 5, 6))),
    ("slice", {"start": (1, 0, 2), "stop": (4, 5, 6), "step": (2, 1, 3)}, lambda x: x[1:4:2, :, 2:6:3]),
    ("slice", {"start": (4, 0, 0), "stop": (4, 5, 6), "step": (1, 1, 1)}, lambda x: x[4:]),
    ("pad", {"low": (1, 0, 2), "high": (0, 3, 1), "value": Scalar.of(7, f32)},
     lambda x: np.pad(x, ((1, 0), (0, 3), (2, 1)), constant_values=7)),
    ("pad", {"low": (-1, 2, 0), "high": (2, -4, -6), "value": Scalar.of(7, f32)},
     lambda x: np.pad(x[1:, :1, :0], ((0, 2), (2, 0), (0, 0)), constant_values=7)),
    ("pad", {"low": (-6, 0, 0), "high": (5, 0, 0), "value": Scalar.of(7, f32)},
     lambda x: np.full((3, 5, 6), 7, np.float32)),
    ("pad", {"low": (5, 0, 0), "high": (-6, 0, 0), "value": Scalar.of(7, f32)},
     lambda x: np.full((3, 5, 6), 7, np.float32)),
]  # fmt: skip


@pytest.mark.parametrize(("op", "attrs", "expected"), VIEWS, ids=lambda v: v if isinstance(v, str) else "")
@pytest.mark.parametrize("dtype", [f32, bf16, DTYPES["f8e5m2"]], ids=str)
def test_views_against_numpy(op: str, attrs, expected, dtype) -> None:
    x = round_to(CUBE, dtype)
    attrs = {k: Scalar.of(v.value, dtype) if isinstance(v, Scalar) else v for k, v in attrs.items()}
    got = evaluate_one(lambda n: make(op, [n], attrs), x)
    assert same_bits(got, round_to(np.ascontiguousarray(expected(x.astype(np.float32))), dtype))


def test_pad_is_what_its_formula_says() -> None:
    x = np.arange(5, dtype=np.int64)
    for low in range(-7, 4):
        for high in range(-7, 4):
            if 5 + low + high < 0:
                continue
            attrs = {"low": (low,), "high": (high,), "value": Scalar.of(-1, i64)}
            got = evaluate_one(lambda n, a=attrs: make("pad", [n], a), x)
            assert got.tolist() == [i - low if 0 <= i - low < 5 else -1 for i in range(5 + low + high)]


def test_cat_squeeze_expand_full() -> None:
    x = CUBE
    assert same_bits(evaluate_one(lambda n: make("cat", [n, n, n], {"axis": 1}), x), np.concatenate([x, x, x], 1))
    line = x[:, :1, :1]
    assert same_bits(evaluate_one(lambda n: make("squeeze", [n], {"axes": (1, 2)}), line), line[:, 0, 0])
    assert same_bits(evaluate_one(lambda n: make("expand", [n], {"shape": shape(4, 3, 6)}), x[:, :1]), x[:, [0, 0, 0]])
    constant = evaluate_one(lambda n: make("full", [], {"shape": shape(2, 3), "value": Scalar.of(-0.0, bf16)}), x)
    assert same_bits(constant, np.full((2, 3), -0.0, ml_dtypes.bfloat16))


def test_iota_rounds_the_product_and_the_sum() -> None:
    attrs = {"shape": shape(2, 40), "axis": 1, "start": Scalar.of(0.1, f32), "step": Scalar.of(0.3, f32)}
    got = evaluate_one(lambda n: make("iota", [], attrs), CUBE)
    line = np.float32(0.1) + np.float32(0.3) * np.arange(40, dtype=np.float32)
    assert same_bits(got, np.stack([line, line]))
    attrs = {"shape": shape(300), "axis": 0, "start": Scalar.of(100, i8), "step": Scalar.of(3, i8)}
    wrapped = evaluate_one(lambda n: make("iota", [], attrs), CUBE)
    assert wrapped.tolist() == [(100 + 3 * i + 128) % 256 - 128 for i in range(300)]
    attrs = {"shape": shape(20), "axis": 0, "start": Scalar.of(1, bf16), "step": Scalar.of(2.0**-8, bf16)}
    narrow = evaluate_one(lambda n: make("iota", [], attrs), CUBE)
    assert same_bits(narrow, round_to(1 + 2.0**-8 * np.arange(20), bf16))


# Rounding


def test_every_node_rounds() -> None:
    """(x + y) - x in bf16 is not y: the sum is rounded to bf16 before the difference."""
    x, y = np.array([256.0], ml_dtypes.bfloat16), np.array([1.0], ml_dtypes.bfloat16)
    got = evaluate_one(lambda a, b: make("sub", [make("add", [a, b]), a]), x, y)
    assert got.tolist() == [0.0]
    wide = evaluate_one(
        lambda a, b: build.cast(build.sub(build.add(build.cast(a, f32), build.cast(b, f32)), build.cast(a, f32)), bf16),
        x,
        y,
    )
    assert wide.tolist() == [1.0]


def test_f16_arithmetic_happens_in_f32() -> None:
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    got = evaluate_one(lambda a: make("mul", [a, build.full(a.shape, 1.1, f16)]), x)
    with np.errstate(all="ignore"):
        expected = (x.astype(np.float32) * np.float32(np.float16(1.1))).astype(np.float16)
    assert same_bits(got, expected)


# Reductions and scans

REDUCED = [((0,), (5, 6)), ((1,), (4, 6)), ((2,), (4, 5)), ((0, 2), (5,)), ((0, 1, 2), ())]


@pytest.mark.parametrize(("axes", "sizes"), REDUCED)
def test_reductions_against_numpy(axes: tuple[int, ...], sizes: tuple[int, ...]) -> None:
    x = CUBE
    wide = x.astype(np.float64)
    expected = {
        "sum": wide.sum(axes), "prod": wide.prod(axes), "mean": wide.mean(axes), "max": wide.max(axes),
        "min": wide.min(axes),
    }  # fmt: skip
    for op, value in expected.items():
        got = evaluate_one(lambda n, o=op: make(o, [n], {"axes": axes}), x)
        assert got.shape == sizes
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, value, rtol=1e-5, atol=1e-6)
    for correction in (0, 1, 2):
        got = evaluate_one(lambda n, c=correction: make("var", [n], {"axes": axes, "correction": c}), x)
        np.testing.assert_allclose(got, wide.var(axes, ddof=correction), rtol=1e-5)
    flags = x > 0.5
    assert (evaluate_one(lambda n: make("any", [n], {"axes": axes}), flags) == flags.any(axes)).all()
    assert (evaluate_one(lambda n: make("all", [n], {"axes": axes}), flags) == flags.all(axes)).all()


def test_sums_of_narrow_types_accumulate_wide() -> None:
    x = np.full(4096, 1 + 2.0**-7, ml_dtypes.bfloat16)
    assert evaluate_one(lambda n: make("sum", [n], {"axes": (0,)}), x).item() == 4128.0
    assert evaluate_one(lambda n: make("sum", [n], {"axes": (0,)}), np.full(1000, 127, np.int8)).item() == 127_000
    assert evaluate_one(lambda n: make("sum", [n], {"axes": (0,)}), np.ones(1000, np.bool_)).item() == 1000
    big = np.full(4, 2**62, np.int64)
    assert evaluate_one(lambda n: make("sum", [n], {"axes": (0,)}), big).item() == 0
    assert evaluate_one(lambda n: make("prod", [n], {"axes": (0,)}), np.full(9, 128, np.uint8)).item() == -(2**63)
    long = np.full(1 << 20, 0.1, np.float32)
    assert abs(evaluate_one(lambda n: make("sum", [n], {"axes": (0,)}), long).item() / (0.1 * (1 << 20)) - 1) < 1e-6


def test_empty_reductions() -> None:
    x = np.empty((3, 0), np.float32)
    expected = {"sum": [0.0] * 3, "prod": [1.0] * 3}
    for op, value in expected.items():
        assert evaluate_one(lambda n, o=op: make(o, [n], {"axes": (1,)}), x).tolist() == value
    assert np.isnan(evaluate_one(lambda n: make("mean", [n], {"axes": (1,)}), x)).all()
    assert np.isnan(evaluate_one(lambda n: make("var", [n], {"axes": (1,), "correction": 0}), x)).all()
    flags = np.empty((3, 0), np.bool_)
    assert evaluate_one(lambda n: make("any", [n], {"axes": (1,)}), flags).tolist() == [False] * 3
    assert evaluate_one(lambda n: make("all", [n], {"axes": (1,)}), flags).tolist() == [True] * 3
    assert evaluate_one(lambda n: make("max", [n], {"axes": (0,)}), x).shape == (0,)


def test_variance_of_one_element() -> None:
    x = np.array([[3.0], [np.inf]], np.float32)
    got = evaluate_all(lambda n: [make("var", [n], {"axes": (1,), "correction": c}) for c in (0, 1, 2)], x)
    assert [np.isnan(g[0]) for g in got] == [False, True, True]
    assert got[0][0] == 0


def test_nan_and_zeros_in_max_min_and_arg() -> None:
    nan = np.nan
    x = np.array([[1, nan, 3, nan], [-0.0, 0.0, -0.0, -1], [0.0, -0.0, 5, 5], [-1, -0.0, -0.0, -3]], np.float32)
    top = evaluate_one(lambda n: make("max", [n], {"axes": (1,)}), x)
    low = evaluate_one(lambda n: make("min", [n], {"axes": (1,)}), x)
    assert same_bits(top, np.array([nan, 0.0, 5.0, -0.0], np.float32))
    assert same_bits(low, np.array([nan, -1, -0.0, -3], np.float32))
    assert evaluate_one(lambda n: make("argmax", [n], {"axis": 1}), x).tolist() == [1, 0, 2, 1]
    assert evaluate_one(lambda n: make("argmin", [n], {"axis": 1}), x).tolist() == [1, 3, 0, 3]
    for dtype in (bf16, f16):
        narrow = round_to(x, dtype)
        assert same_bits(evaluate_one(lambda n: make("max", [n], {"axes": (1,)}), narrow), round_to(top, dtype))


def test_cumsum_runs_left_to_right() -> None:
    x = RNG.standard_normal((3, 50)).astype(np.float32)
    got = evaluate_one(lambda n: make("cumsum", [n], {"axis": 1}), x)
    total = x[:, 0].copy()
    for i in range(50):
        total = total if i == 0 else (total + x[:, i]).astype(np.float32)
        assert same_bits(got[:, i], total)
    narrow = round_to(x, bf16)
    wide = np.add.accumulate(narrow.astype(np.float32), axis=0)
    assert same_bits(evaluate_one(lambda n: make("cumsum", [n], {"axis": 0}), narrow), round_to(wide, bf16))
    assert evaluate_one(lambda n: make("cumsum", [n], {"axis": 0}), np.array([200, 100], np.uint8)).tolist() == [
        200,
        300,
    ]


# Gathers


def test_gathers_clamp() -> None:
    x = np.arange(20, dtype=np.float32).reshape(4, 5)
    index = np.array([[0, 9, -3], [3, 2, 1]])
    rows = np.clip(index, 0, 3)
    assert same_bits(evaluate_one(lambda n, i: make("gather", [n, i], {"axis": 0}), x, index), x[rows, [[0, 1, 2]]])
    columns = np.array([[-1], [7], [2], [0]], np.int32)
    expected = np.take_along_axis(x, np.clip(columns, 0, 4).astype(np.int64), 1)
    assert same_bits(evaluate_one(lambda n, i: make("take_along_axis", [n, i], {"axis": 1}), x, columns), expected)
    picked = evaluate_one(lambda n, i: make("index_select", [n, i], {"axis": 1}), x, np.array([4, -9, 99, 0]))
    assert same_bits(picked, x[:, [4, 0, 4, 0]])


def test_gathers_of_nothing() -> None:
    none = np.empty((0,), np.int64)
    empty = np.empty((0, 5), ml_dtypes.bfloat16)
    assert evaluate_one(lambda n, i: make("index_select", [n, i], {"axis": 0}), empty, none).shape == (0, 5)
    some = np.empty((2, 0), np.int64)
    got = evaluate_one(lambda n, i: make("gather", [n, i], {"axis": 0}), np.ones((3, 4), np.float32), some)
    assert got.shape == (2, 0)


# The interpreter itself


def materialised(graph: Graph, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """Evaluates with every operand dense and every pointwise op over its whole extent at once."""

    def override(node: Node, operands: tuple[np.ndarray, ...]) -> np.ndarray:
        from fusion_ir.arithmetic.conversions import widen
        from fusion_ir.ops import OPS, OpKind

        dense = [np.array(x, order="C") for x in operands]
        with np.errstate(all="ignore"):
            if OPS[node.op].kind is OpKind.POINTWISE:
                return round_to(np.asarray(OPS[node.op].reference(node, *(widen(x) for x in dense))), node.dtype)
            return OPS[node.op].reference(node, *dense)

    return evaluate(graph, inputs, override)


@pytest.mark.parametrize("seed", range(40))
def test_repeated_axes_are_computed_once_with_the_same_result(seed: int) -> None:
    from fusion_ir.reference.sample_inputs import sample_inputs

    graph = random_graph(seed)
    inputs = sample_inputs(graph, seed)
    for got, expected in zip(interpret(graph, inputs), materialised(graph, inputs), strict=True):
        assert got.flags.c_contiguous
        assert same_bits(got, np.array(expected, order="C"))


def test_repeated_axes_are_not_materialised() -> None:
    graph = graph_of([spec((1, 8), f32)], lambda x: build.exp(build.mul(build.expand(x, (1 << 20, 8)), 2.0)))
    (value,) = evaluate(graph, [np.ones((1, 8), np.float32)])
    assert value.strides[0] == 0
    assert value.shape == (1 << 20, 8)


@pytest.mark.parametrize(
    "sizes", [(3, 40_000), (70_000,), (2, 3, 5, 7), (33_000, 2), (1, 1, 90_000), (0, 5), (5, 0), ()]
)
def test_blocks_cover_every_element_once(sizes: tuple[int, ...]) -> None:
    count = np.zeros(sizes, np.int8)
    for block in blocks(sizes):
        count[block] += 1
        assert count[block].size <= BLOCK_ELEMENTS
    assert (count == 1).all()


def test_large_tensors_in_any_layout() -> None:
    """More than one block, operands in different memory orders, one of them repeated."""
    x = RNG.standard_normal((50, 40, 60)).astype(np.float32)
    y = RNG.standard_normal((60, 50)).astype(np.float32)

    def build_it(a: Node, b: Node) -> Node:
        return build.add(build.permute(a, (2, 0, 1)), build.unsqueeze(b, 2))

    assert same_bits(evaluate_one(build_it, x, y), x.transpose(2, 0, 1) + y[:, :, None])
    strided = np.asfortranarray(x)
    graph = graph_of([spec(x.shape, f32), spec(y.shape, f32)], build_it)
    assert same_bits(interpret(graph, [strided, y])[0], x.transpose(2, 0, 1) + y[:, :, None])


def test_outputs_may_repeat_and_pass_inputs_through() -> None:
    x = CUBE.copy()
    got = evaluate_all(lambda n: [n, make("neg", [n]), n], x)
    assert same_bits(got[0], x)
    assert same_bits(got[2], x)
    assert not np.shares_memory(got[0], x)
    viewed = evaluate_one(lambda n: make("permute", [n], {"dims": (2, 1, 0)}), x)
    assert not np.shares_memory(viewed, x)
    assert viewed.flags.c_contiguous


def test_values_go_when_their_last_reader_is_done() -> None:
    """A chain of a hundred 4 MB tensors never holds more than a few."""
    import tracemalloc

    def chain(x: Node) -> Node:
        for _ in range(100):
            x = make("neg", [x])
        return x

    graph = graph_of([spec((1 << 20,), f32)], chain)
    x = np.ones(1 << 20, np.float32)
    tracemalloc.start()
    interpret(graph, [x])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 << 20


def test_deep_graphs_do_not_recurse() -> None:
    def chain(x: Node) -> Node:
        for _ in range(5000):
            x = make("neg", [x])
        return x

    assert evaluate_one(chain, np.array([1.0], np.float32)).tolist() == [1.0]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ([], "1 inputs, got 0"),
        ([np.zeros((2, 2), np.float32)], r"input 0 is f32\[2, 3\], got float32\[2, 2\]"),
        ([np.zeros((2, 3), np.float64)], "got float64"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(arrays: list[np.ndarray], message: str) -> None:
    given = spec((2, 3), f32)
    graph = Graph((given,), (OutputSpec(make_input(0, given), dense_strides((2, 3))),))
    with pytest.raises(InputError, match=message):
        interpret(graph, arrays)


def test_rank_0_and_f64() -> None:
    got = evaluate_one(lambda a, b: make("add", [make("exp", [a]), b]), np.array(1.0), np.array(2.0))
    assert got.shape == ()
    assert got.dtype == f64.numpy
    assert got.item() == np.exp(1.0) + 2
