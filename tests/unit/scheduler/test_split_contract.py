"""Splitting contractions: when, into what, and with the same values."""

import numpy as np
import pytest

from codegen.families import FAMILIES
from fusion_ir import building as build
from fusion_ir.accuracy.comparison import compare
from fusion_ir.accuracy.tolerance import reference
from fusion_ir.core.extent import shape_of
from fusion_ir.core.graph import Graph, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType, bf16, f16, f32, f64, i8
from fusion_ir.ops import make, make_input
from fusion_ir.reference.interpreter import interpret
from fusion_ir.reference.sample_inputs import sample_inputs
from scheduler.rewrites.prepare import prepare
from scheduler.rewrites.rules.split_contract import split_contract, split_long_contract
from scheduler.rewrites.rules.split_reduction import Tasks
from tests.support.devices import CUDA_DEVICE
from tests.support.kernels import dense, graph_of
from tests.support.offers import with_alternatives
from tests.support.products import dense_graph, einsum_graph, mlp

BLOCKS = 264


def product(m: int, n: int, k: int, dtype: DType = bf16) -> Node:
    return build.matmul(*(make_input(i, dense(*sizes, dtype=dtype)) for i, sizes in enumerate(((m, k), (k, n)))))


def parts(node: Node | None) -> int | None:
    """Number of parts of a contraction that was split, without the rest; None where it was not split."""
    if node is None:
        return None
    total = node.args[0] if node.op in ("cast", "add") else node
    assert (total.op, total.args[0].op, total.ints("axes")) == ("sum", "contract", (0,))
    return total.args[0].sizes[0]


def test_before_and_after() -> None:
    node = product(64, 128, 4096)
    x, w = node.args
    axes = {"a_axes": (1, 0, -1, 2), "b_axes": (0, -1, 2, 1), "reduced": 1, "acc": f32, "out_dtype": f32}
    each = make("contract", [build.reshape(x, (64, 8, 512)), build.reshape(w, (8, 512, 128))], axes)
    assert each.shape == shape_of((8, 64, 128))
    assert split_contract(node, BLOCKS) is build.cast(make("sum", [each], {"axes": (0,)}), bf16)


@pytest.mark.parametrize(
    ("m", "n", "k", "count"),
    [
        (64, 4096, 8192, None),  # 64 tiles
        (64, 1024, 8192, 16),
        (64, 64, 1 << 15, 32),
        (512, 256, 4096, 8),
        (64, 1024, 1000, None),  # too short
        (64, 1024, 4099, None),  # a prime
        (8, 1024, 8192, None),  # rows of sums
        (4096, 4096, 8192, None),
    ],
)
def test_when(m: int, n: int, k: int, count: int | None) -> None:
    assert parts(split_contract(product(m, n, k), BLOCKS)) == count


def test_integers_stay_whole() -> None:
    assert split_contract(product(64, 64, 1 << 15, i8), BLOCKS) is None
    assert split_long_contract(product(64, 64, 1 << 15, i8), 16) is None


def test_only_blocks_of_threads_have_contractions_split_for_good() -> None:
    graph = graph_of((dense(64, 8192), dense(8192, 64)), product(64, 64, 8192, f32))
    assert "split-contraction" not in prepare(graph, Tasks(16)).rewrites
    assert "split-contraction" in prepare(graph, Tasks(BLOCKS, 128)).rewrites
    assert "split-contraction" not in prepare(graph, Tasks(BLOCKS, 128), "exact").rewrites


@pytest.mark.parametrize(
    ("m", "n", "k", "count"),
    [
        (48, 48, 20000, 20),  # of 1,000 products
        (48, 48, 4096, 8),
        (48, 48, 20011, 19),  # a prime: and one of what is left
        (2, 2, 1 << 18, 256),
        (256, 256, 4096, 8),
        (257, 16, 4096, None),  # not that long
        (16, 257, 4096, None),
        (1, 48, 20000, None),  # a row of sums
        (48, 1, 20000, None),
        (16, 16, 4000, None),  # little to do
    ],
)
def test_when_cpus_may(m: int, n: int, k: int, count: int | None) -> None:
    """Parts of 512 to 1,024 products; a task for each of 16 where that is enough for them."""
    assert parts(split_long_contract(product(m, n, k, f32), 16)) == count


@pytest.mark.parametrize("dtype", [f64, f32, bf16, f16], ids=str)
@pytest.mark.parametrize(
    ("a", "b", "out"),
    [
        ("mk", "kn", "mn"),
        ("km", "kn", "mn"),
        ("mk", "nk", "nm"),
        ("mkp", "pkn", "mn"),
        ("pkm", "knp", "nm"),
        ("kmp", "kn", "pmn"),
    ],
)
def test_the_same_values_on_cpus(a: str, b: str, out: str, dtype: DType) -> None:
    """With the long axis in every place, extents that parts divide, and a prime."""
    for k in (40_960, 40_009):
        graph = einsum_graph(a, b, out, {"m": 5, "n": 7, "k": k, "p": 3}, dtype)
        (node,) = (n for n in graph.nodes if n.op == "contract")
        found = split_long_contract(node, 16)
        assert found is not None
        assert (found.sizes, found.dtype) == (node.sizes, node.dtype)
        split = with_alternatives(graph, {node: found})
        assert split is not None
        inputs = sample_inputs(graph, 3)
        assert compare(interpret(split, inputs), reference(graph, inputs)).ok
        integers = sample_inputs(graph, 3, integers=True)
        for got, expected in zip(interpret(split, integers), interpret(graph, integers), strict=True):
            assert np.allclose(got.astype(np.float64), expected.astype(np.float64), rtol=1e-2)


@pytest.mark.parametrize("dtype", [bf16, f32], ids=str)
def test_the_same_values(dtype: DType) -> None:
    """Split contractions of a layer, and of an einsum whose operands have their axes in other places, compute the
    values of the graph."""
    layer = dense_graph([(16, 2048), (2048, 24), (24,), (16, 24)], mlp, dtype)
    letters = [[ord(c) for c in text] for text in ("kbm", "nkb", "bnm")]
    turned = dense_graph([(1024, 2, 16), (24, 1024, 2)], lambda x, w: build.einsum(x, w, *letters), dtype)
    for graph in (layer, turned):
        split = prepare(graph, Tasks(BLOCKS, 128))
        assert "split-contraction" in split.rewrites
        inputs = sample_inputs(graph, 3)
        assert compare(interpret(split.graph, inputs), reference(graph, inputs)).ok
        integers = sample_inputs(graph, 3, integers=True)
        for got, expected in zip(interpret(split.graph, integers), interpret(graph, integers), strict=True):
            assert np.allclose(got.astype(np.float64), expected.astype(np.float64), rtol=1e-2)


def test_the_parts_are_one_product_of_the_family() -> None:
    """With whole accesses: parts begin at multiples of runs."""
    node = split_contract(product(64, 128, 4096), BLOCKS)
    assert node is not None
    each = node.args[0].args[0]
    specs = (dense(64, 4096, dtype=bf16), dense(4096, 128, dtype=bf16))
    graph = Graph(specs, (OutputSpec(each, (64 * 128, 128, 1)),))
    matmul = FAMILIES["matmul"]
    assert matmul.accepts(graph, CUDA_DEVICE) is None
    kernel = matmul.emit(graph, matmul.space(graph, CUDA_DEVICE)[0], CUDA_DEVICE)
    assert {(a.tensor, a.width) for a in kernel.accesses} == {("in0", 8), ("in1", 8), ("out0", 4)}
