"""Library calls of the GPU: what is described computes what the graph says, and what no call computes is refused."""

from collections.abc import Callable, Iterator
from itertools import permutations, product

import numpy as np
import pytest

from codegen.gemm.call_arrays import compute_call
from codegen.gemm.library_call import library_call
from codegen.kernel import Reject
from fusion_ir import building as build
from fusion_ir.accuracy.comparison import compare
from fusion_ir.accuracy.tolerance import reference
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import DTYPES, DType, bf16, f16, f32, f64
from fusion_ir.records import LibraryCall
from fusion_ir.reference.sample_inputs import sample_inputs
from tests.support.products import dense_graph, einsum_graph, mlp, spec

FLOATS = (f16, bf16, f32, f64)


def described(graph: Graph) -> LibraryCall:
    call = library_call(graph)
    assert isinstance(call, LibraryCall), call
    return LibraryCall.model_validate_json(call.text())


def refused(graph: Graph) -> str:
    call = library_call(graph)
    assert isinstance(call, Reject), call
    return call.reason


def flat(array: np.ndarray, span: int) -> np.ndarray:
    """The memory of a tensor."""
    words = array.view(f"u{array.itemsize}")
    return np.lib.stride_tricks.as_strided(words, (span,), (array.itemsize,)).view(array.dtype)


def outcome(graph: Graph, call: LibraryCall, *, integers: bool = False) -> str:
    """The difference between the call's result and the graph's, in words; "" where they agree."""
    inputs = sample_inputs(graph, 3, integers=integers)
    (output,) = graph.outputs
    memory = [flat(x, s.span) for x, s in zip(inputs, graph.inputs, strict=True)]
    out = np.full(output.span, 77, output.node.dtype.numpy)
    compute_call(call, [*memory, out])
    words = out.view(f"u{out.itemsize}")
    seen = np.lib.stride_tricks.as_strided(words, output.node.sizes, [s * out.itemsize for s in output.strides])
    found = compare([seen.view(out.dtype)], reference(graph, inputs))
    return "" if found.ok else found.detail


def check(graph: Graph) -> LibraryCall:
    call = described(graph)
    assert outcome(graph, call) == ""
    assert outcome(graph, call, integers=True) == ""
    return call


@pytest.mark.parametrize("batch", ["", "z"])
def test_every_layout(batch: str) -> None:
    sizes = {"z": 3, "m": 19, "k": 33, "n": 23}
    orders = [list(map("".join, permutations(batch + pair))) for pair in ("mk", "kn", "mn")]
    taken = 0
    for a, b, out in product(*orders):
        graph = einsum_graph(a, b, out, sizes)
        if not batch or "z" not in (a[-1], b[-1], out[-1]):
            call = check(graph)
            assert (call.batch, call.loops) == (3 if batch else 1, ())
            taken += 1
    assert taken == (4**3 if batch else 8)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_every_dtype_with_every_epilogue(dtype: DType) -> None:
    def plain(x: Node, w: Node, b: Node, y: Node) -> Node:
        return build.matmul(x, w)

    def scaled(x: Node, w: Node, b: Node, y: Node) -> Node:
        return build.addmm(y, x, w, 0.5, 2.0)

    def biased(x: Node, w: Node, b: Node, y: Node) -> Node:
        return build.addmm(b, x, w)

    def quarter(x: Node, w: Node, b: Node, y: Node) -> Node:
        return build.addmm(b, x, w, alpha=0.25)

    def both(x: Node, w: Node, b: Node, y: Node) -> Node:
        wide = f64 if dtype == f64 else f32
        total = build.add(build.cast(build.matmul(x, w, wide), wide), build.cast(y, wide))
        total = build.add(total, build.broadcast_to(build.cast(b, wide), total.shape))
        return build.cast(total, dtype)

    inputs = [(37, 65), (65, 48), (48,), (37, 48)]
    calls = [check(dense_graph(inputs, f, dtype)) for f in (plain, scaled, biased, quarter, both)]
    assert [(c.alpha, c.beta, c.c is not None, c.bias is not None) for c in calls] == [
        (1.0, 0.0, False, False),
        (2.0, 0.5, True, False),
        (1.0, 0.0, False, True),
        (0.25, 0.0, False, True),
        (1.0, 1.0, True, True),
    ]
    assert {c.compute for c in calls} == {"f64" if dtype == f64 else "f32"}


def shapes() -> Iterator[tuple[str, Graph]]:
    yield "linear of rank 3", dense_graph([(8, 32, 64), (48, 64), (48,)], build.linear, f16)
    yield "a column", dense_graph([(700, 100), (100, 1)], build.matmul)
    yield "a row", dense_graph([(1, 100), (100, 70)], build.matmul, bf16)
    yield "attention scores", einsum_graph("thd", "shd", "hts", {"t": 45, "s": 51, "h": 4, "d": 64}, f16)
    yield "attention values", einsum_graph("hts", "shd", "thd", {"t": 45, "s": 51, "h": 4, "d": 64}, f16)
    yield "two batch axes", einsum_graph("bhmk", "bhkn", "bmhn", {"b": 2, "h": 3, "m": 17, "k": 32, "n": 24})
    yield "weights of every batch", einsum_graph("bmk", "kn", "bmn", {"b": 5, "m": 17, "k": 32, "n": 24})
    yield (
        "a slice with rows apart",
        dense_graph(
            [spec((40, 96), (100, 1)), spec((96, 64), (1, 128))],
            lambda x, w: build.matmul(build.slice_(x, [3, 16], [39, 80]), build.slice_(w, [16, 0], [80, 64])),
        ),
    )
    yield (
        "a bias of each head",
        dense_graph(
            [(6, 20, 64), (6, 64, 40), (6, 40)],
            lambda x, w, b: build.add(build.matmul(x, w), build.broadcast_in_dim(b, [6, 20, 40], [0, 2])),
        ),
    )


@pytest.mark.parametrize(("name", "graph"), list(shapes()), ids=lambda x: x if isinstance(x, str) else "")
def test_shapes(name: str, graph: Graph) -> None:
    check(graph)


def test_a_result_with_rows_apart_and_a_matrix_added_likewise() -> None:
    graph = dense_graph([(24, 64), (64, 40), spec((24, 40), (50, 1))], lambda x, w, y: build.add(build.matmul(x, w), y))
    graph = Graph(graph.inputs, (OutputSpec(graph.outputs[0].node, (64, 1)),))
    call = check(graph)
    assert call.c is not None
    assert (call.c.leading, call.d.leading) == (50, 64)


def test_alignment_is_that_of_every_address() -> None:
    aligned = [InputSpec(s.shape, s.dtype, s.strides, 256) for s in (spec((6, 24, 40), None, f16), spec((6, 40, 56)))]
    x, w = aligned[0], InputSpec(aligned[1].shape, f16, aligned[1].strides, 256)
    call = check(
        dense_graph(
            [x, w],
            lambda x, w: build.matmul(build.slice_(x, [0, 0, 8], [6, 24, 40]), build.slice_(w, [0, 8, 0], [6, 40, 56])),
        )
    )
    assert call.a.alignment_bytes == 16  # 8 elements in
    assert call.b.alignment_bytes == 128  # 8 rows in, 6 matrices of 4,480 bytes
    assert call.d.alignment_bytes == 64


Compute = Callable[..., Node]
TWO: list[tuple[int, ...]] = [(32, 64), (64, 48)]
RELU = "relu behind the product: cuBLASLt's relu makes 0 of NaN"
REFUSED: list[tuple[str, list[tuple[int, ...]], DType, Compute]] = [
    ("none of the library's epilogues", TWO, f32, lambda x, w: build.exp(build.matmul(x, w))),
    ("add is read more than once", [*TWO, (48,), (32, 48)], f32, mlp),
    ("rounded to f16", [*TWO, (48,)], f16, lambda x, w, b: build.add(build.matmul(x, w), b)),
    (
        "adds 1 * in2 with strides 1 and 0", [*TWO, (32, 1)], f32,
        lambda x, w, b: build.add(build.matmul(x, w), b),
    ),
    (RELU, TWO, f32, lambda x, w: build.relu(build.matmul(x, w))),
    (RELU, [*TWO, (48,)], f16, lambda x, w, b: build.relu(build.addmm(b, x, w))),
    (RELU, [*TWO, (48,)], f32, lambda x, w, b: build.add(build.relu(build.matmul(x, w)), b)),
    ("is read more than once", TWO, f32, lambda x, w: (lambda p: build.mul(p, p))(build.matmul(x, w))),
    ("what is added is computed", [*TWO, (48,)], f32, lambda x, w, b: build.add(build.matmul(x, w), build.exp(b))),
    ("operand a is computed", TWO, f32, lambda x, w: build.matmul(build.exp(x), w)),
    (
        "sum up one element", [(32, 3, 64), (64, 3, 48)], f32,
        lambda x, w: build.einsum(x, w, [0, 1, 2], [2, 1, 3], [0, 3]),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("reason", "inputs", "dtype", "compute"), REFUSED, ids=range(len(REFUSED)))
def test_what_no_call_computes_is_refused(
    reason: str, inputs: list[tuple[int, ...]], dtype: DType, compute: Compute
) -> None:
    assert reason in refused(dense_graph(inputs, compute, dtype))


def test_integers_and_mixed_results_are_refused() -> None:
    assert "multiplies floats" in refused(dense_graph([(32, 64), (64, 48)], build.matmul, DTYPES["i32"]))
    assert "multiplies no f32 by f32 to f16" in refused(
        dense_graph([(32, 64), (64, 48)], lambda x, w: build.matmul(x, w, f16))
    )


@pytest.mark.parametrize(("field", "value"), [("leading", 31), ("turned", True), ("batch_stride", 960)])
def test_a_wrong_description_is_seen(field: str, value: int) -> None:
    graph = einsum_graph("zmk", "zkn", "zmn", {"z": 3, "m": 32, "k": 32, "n": 32})
    call = check(graph)
    assert outcome(graph, call.model_copy(update={"a": call.a.model_copy(update={field: value})})) != ""


def test_a_matrix_beyond_its_memory_is_refused() -> None:
    graph = einsum_graph("mk", "kn", "mn", {"m": 32, "k": 32, "n": 32})
    call = check(graph)
    wrong = call.model_copy(update={"a": call.a.model_copy(update={"offset": 1})})
    with pytest.raises(ValueError, match="ends at element 1024 of a tensor of 1024"):
        outcome(graph, wrong)


def test_tf32_keeps_ten_bits_of_fraction() -> None:
    graph = dense_graph([(32, 64), (64, 48)], build.matmul)
    call = described(graph).model_copy(update={"compute": "tf32"})
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(n).astype(np.float32) for n in (32 * 64, 64 * 48))
    out = np.zeros(32 * 48, np.float32)
    compute_call(call, [a, b, out])

    def rounded(x: np.ndarray) -> np.ndarray:
        fraction, exponent = np.frexp(x.astype(np.float64))
        return np.ldexp(np.rint(fraction * 2**11) / 2**11, exponent)

    expected = rounded(a).reshape(32, 64) @ rounded(b).reshape(64, 48)
    np.testing.assert_allclose(out.reshape(32, 48), expected, rtol=1e-5, atol=1e-5)
    assert not np.allclose(out.reshape(32, 48), a.reshape(32, 64) @ b.reshape(64, 48), rtol=1e-5, atol=1e-5)
