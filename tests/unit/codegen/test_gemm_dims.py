"""Contractions as matrix products: strides through every view, and calls that compute what the interpreter does."""

import random
from collections.abc import Iterator, Sequence
from itertools import permutations, product

import numpy as np
import pytest

from codegen.gemm.call import GemmCall, choose_call, extent
from codegen.gemm.dims import Contraction, Dim, contraction, long_contract, merged, stored_product
from codegen.kernel import Reject
from fusion_ir import building as build
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import bf16, f32, f64
from fusion_ir.ops import make
from fusion_ir.reference.interpreter import evaluate
from tests.support.products import dense_graph, einsum_graph, spec
from tests.support.whole import WHOLE, seed, some

B, M, K, N = 3, 19, 33, 23


def traced(graph: Graph) -> Contraction | Reject:
    """The contraction that family `aten` finds in the graph, or its reason for refusing the graph."""
    node = long_contract(graph)
    if isinstance(node, Reject):
        return node
    digits = stored_product(graph, node)
    return digits if isinstance(digits, Reject) else contraction(graph, node, digits)


def computed(c: Contraction, inputs: list[np.ndarray], out: np.ndarray) -> None:
    """Every product at the addresses that the axes say, into the memory of `out`."""
    a, b = (flat(inputs[m.tensor])[m.offset :] for m in (c.a, c.b))
    for point in product(*(range(d.extent) for d in c.dims)):
        i, j, k = places(c.dims, point)
        out[k] += a[i] * b[j]


def called(call: GemmCall, inputs: list[np.ndarray], out: np.ndarray) -> None:
    """Computes the call into `out` as the library does, with its checks of the leading dimensions."""
    m, n, k = extent(call.m), extent(call.n), call.k.extent
    assert call.lda >= (m if call.a_turned else k)
    assert call.ldb >= (k if call.b_turned else n)
    assert call.ldc >= n
    a, b = (flat(inputs[x.tensor])[x.offset :] for x in (call.of.a, call.of.b))
    done: set[int] = set()
    for point in product(*(range(d.extent) for d in call.loops)):
        at_a, at_b, at_c = places(call.loops, point)
        left = matrix(a[at_a:], k, m, call.lda).T if call.a_turned else matrix(a[at_a:], m, k, call.lda)
        right = matrix(b[at_b:], n, k, call.ldb).T if call.b_turned else matrix(b[at_b:], k, n, call.ldb)
        into = matrix(out[at_c:], m, n, call.ldc)
        adds = any(x for x, d in zip(point, call.loops, strict=True) if d.summed)
        assert adds == (at_c in done)
        done.add(at_c)
        into[...] = left @ right + (into if adds else 0)


def places(dims: Sequence[Dim], point: Sequence[int]) -> tuple[int, int, int]:
    """Offsets in a, in b and in the result of a point of these axes."""
    pairs = list(zip(point, dims, strict=True))
    return sum(x * d.a for x, d in pairs), sum(x * d.b for x, d in pairs), sum(x * d.c for x, d in pairs)


def matrix(memory: np.ndarray, rows: int, columns: int, step: int) -> np.ndarray:
    """A view of row-major elements; fails where it would leave the memory."""
    assert (rows - 1) * step + columns <= memory.size
    return np.lib.stride_tricks.as_strided(memory, (rows, columns), (step * memory.itemsize, memory.itemsize))


def flat(x: np.ndarray) -> np.ndarray:
    """The memory of a tensor, from its first element to its last."""
    span = 1 + sum((n - 1) * s // x.itemsize for n, s in zip(x.shape, x.strides, strict=True))
    return np.lib.stride_tricks.as_strided(x, (span,), (x.itemsize,))


def integers(graph: Graph, seed: int = 0) -> list[np.ndarray]:
    """Small integers in each input's layout."""
    rng = np.random.default_rng(seed)
    found = []
    for s in graph.inputs:
        memory = rng.integers(-3, 4, s.span).astype(s.dtype.numpy)
        strides = [x * memory.itemsize for x in s.strides]
        found.append(np.lib.stride_tricks.as_strided(memory, s.sizes, strides))
    return found


def check(graph: Graph) -> GemmCall:
    """Axes and call both give the interpreter's result, in the layout of the output."""
    found = traced(graph)
    assert isinstance(found, Contraction), found
    call = choose_call(found)
    assert isinstance(call, GemmCall), call
    inputs = integers(graph)
    (expected,) = evaluate(graph, inputs)
    (output,) = graph.outputs
    added_up = np.zeros(output.span, output.node.dtype.numpy)
    computed(found, inputs, added_up)
    written = np.full(output.span, np.nan, output.node.dtype.numpy)
    called(call, inputs, written)
    for memory in (added_up, written):
        strides = [s * memory.itemsize for s in output.strides]
        np.testing.assert_array_equal(np.lib.stride_tricks.as_strided(memory, output.node.sizes, strides), expected)
    return call


@pytest.mark.parametrize(("a", "b", "out"), list(product(permutations("mk"), permutations("kn"), permutations("mn"))))
def test_every_layout_of_two_matrices_is_one_call(a: tuple[str, ...], b: tuple[str, ...], out: tuple[str, ...]) -> None:
    call = check(einsum_graph("".join(a), "".join(b), "".join(out), {"m": M, "k": K, "n": N}))
    assert call.loops == ()
    assert call.products == M * K * N


@pytest.mark.soak
def test_every_place_of_a_batch_axis() -> None:
    for a, b, out in some(product(permutations("zmk"), permutations("zkn"), permutations("zmn")), 20):
        graph = einsum_graph("".join(a), "".join(b), "".join(out), {"z": B, "m": M, "k": K, "n": N})
        if "z" in (a[-1], b[-1], out[-1]):
            found = traced(graph)
            assert isinstance(found, Contraction)
            assert isinstance(choose_call(found), Reject), (a, b, out)
        else:
            call = check(graph)
            assert [d.extent for d in call.loops] == [B]


def test_axes_of_one_kind_merge_where_they_step_as_one() -> None:
    assert check(einsum_graph("pqk", "kn", "pqn", {"p": 2, "q": M, "k": K, "n": N})).loops == ()
    assert check(einsum_graph("mpq", "npq", "mn", {"p": 2, "q": K, "m": M, "n": N})).loops == ()
    assert check(einsum_graph("mk", "pkq", "mpq", {"p": 2, "q": N, "m": M, "k": K})).loops == (
        Dim(2, 0, K * N, N, False),
    )
    summed = check(einsum_graph("mpq", "pnq", "mn", {"p": 9, "q": K, "m": M, "n": N})).loops
    assert [d.summed for d in summed] == [True]


def views() -> Iterator[tuple[str, Graph]]:
    """Operands and products behind views of every kind."""

    def heads(x: Node, w: Node) -> Node:
        return build.matmul(build.permute(build.reshape(x, [M, 4, K]), [1, 0, 2]), w)

    yield "heads", dense_graph([(M, 4 * K), (4, K, N)], heads)
    yield (
        "merged heads",
        dense_graph(
            [(4, M, K), (4 * K, N)],
            lambda x, w: build.matmul(build.reshape(build.permute(x, [1, 0, 2]), [M, 4 * K]), w),
        ),
    )
    yield (
        "product split into heads",
        dense_graph(
            [(M, K), (K, 4 * N)], lambda x, w: build.permute(build.reshape(build.matmul(x, w), [M, 4, N]), [1, 0, 2])
        ),
    )
    yield (
        "product with its axes merged",
        dense_graph([(M, K), (K, N)], lambda x, w: build.reshape(build.matmul(x, w), [M * N])),
    )
    yield "product turned", dense_graph([(M, K), (K, N)], lambda x, w: build.permute(build.matmul(x, w), [1, 0]))
    yield (
        "slices",
        dense_graph(
            [(M + 5, K + 3), (K + 9, N + 4)],
            lambda x, w: build.matmul(
                make("slice", [x], {"start": (2, 3), "stop": (M + 2, K + 3), "step": (1, 1)}),
                make("slice", [w], {"start": (9, 1), "stop": (K + 9, N + 1), "step": (1, 1)}),
            ),
        ),
    )
    yield (
        "every other row",
        dense_graph(
            [(2 * M, K), (K, N)],
            lambda x, w: build.matmul(make("slice", [x], {"start": (1, 0), "stop": (2 * M, K), "step": (2, 1)}), w),
        ),
    )
    yield (
        "a batch that repeats one operand",
        dense_graph(
            [(B, M, K), (K, N)], lambda x, w: build.matmul(x, build.expand(build.reshape(w, [1, K, N]), [B, K, N]))
        ),
    )
    yield "one operand twice", dense_graph([(M, K)], lambda x: build.matmul(x, build.permute(x, [1, 0])))
    yield "a vector", dense_graph([(200, K), (K,)], build.matmul)
    yield "a row", dense_graph([(1, K), (K, 200)], build.matmul)
    yield "f64", dense_graph([(M, K), (K, N)], build.matmul, f64)


@pytest.mark.parametrize(("name", "graph"), list(views()), ids=lambda x: x if isinstance(x, str) else "")
def test_views_are_seen_through(name: str, graph: Graph) -> None:
    check(graph)


@pytest.mark.soak
def test_strides_of_inputs_and_outputs() -> None:
    rng = random.Random(0 if WHOLE else seed())
    for _ in range(60 if WHOLE else 8):
        sizes = [(M, K), (K, N)]
        turned = [rng.random() < 0.5 for _ in range(3)]
        gaps = [rng.choice((0, 0, 1, 7)) for _ in range(3)]
        x, w = (spec(s, strided(s, t, g)) for s, t, g in zip(sizes, turned, gaps, strict=False))
        nodes = dense_graph([x, w], build.matmul)
        (output,) = nodes.outputs
        check(Graph(nodes.inputs, (OutputSpec(output.node, strided((M, N), turned[2], gaps[2])),)))


def strided(sizes: tuple[int, int], turned: bool, gap: int) -> tuple[int, int]:
    """Strides of a matrix with `gap` elements of room between rows, or between columns."""
    return (1, sizes[0] + gap) if turned else (sizes[1] + gap, 1)


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        (dense_graph([(M, 16), (16, N)], build.matmul), "16 products is summed in order"),
        (dense_graph([(M, K), (K, N)], lambda x, w: build.matmul(build.exp(x), w)), "operand a is computed"),
        (dense_graph([(M, K), (K, N)], lambda x, w: build.matmul(x, build.exp(w))), "operand b is computed"),
        (dense_graph([(M, K), (K, N)], lambda x, w: build.exp(build.matmul(x, w))), "is no view of the product"),
        (dense_graph([(M, K), (K, N)], lambda x, w: build.sum_(build.matmul(x, w), [0])), "contract, sum"),
        (dense_graph([(M, N), (M, N)], build.add), "no contraction"),
        (
            dense_graph([(M, K), (K, N)], lambda x, w: (build.matmul(x, w), build.exp(x))),
            "writes other tensors than the product alone",
        ),
        (
            dense_graph([(M, 16), (M, 17), (33, N)], lambda x, y, w: build.matmul(build.cat([x, y], 1), w)),
            "operand a is put together from pieces",
        ),
        (
            dense_graph([(K, N)], lambda w: build.matmul(build.full([M, K], 1.0, f32), w)),
            "operand a is not in memory",
        ),
        (
            dense_graph([(M, K), (K, N)], lambda x, w: build.cast(build.matmul(x, w), bf16)),
            "is no view of the product: is computed",
        ),
        (dense_graph([(0, K), (K, N)], build.matmul), "empty"),
    ],
)
def test_what_no_library_computes_is_refused_in_words(graph: Graph, reason: str) -> None:
    found = traced(graph)
    assert isinstance(found, Reject)
    assert reason in found.reason


def test_operands_and_products_may_be_narrower_than_the_sum() -> None:
    for graph in (
        dense_graph([(M, K), (K, N)], build.matmul, bf16),
        dense_graph([(M, K), (K, N)], lambda x, w: build.matmul(x, w, bf16)),
    ):
        found, wide = traced(graph), traced(dense_graph([(M, K), (K, N)], build.matmul))
        assert isinstance(found, Contraction)
        assert found.dtype is f32
        assert found == wide


def test_merging_keeps_to_its_side() -> None:
    dims = [Dim(4, 12, 0, 60, False), Dim(3, 4, 0, 20, False), Dim(4, 1, 0, 1, True)]
    assert merged(dims) == (Dim(12, 4, 0, 20, False), dims[2])
    assert merged(dims, apart=60) == tuple(dims)
    assert merged(dims, apart=20) == merged(dims)


def test_specs_are_what_they_say() -> None:
    assert spec((2, 3)) == InputSpec(shape_of((2, 3)), f32, dense_strides((2, 3)), 4)
