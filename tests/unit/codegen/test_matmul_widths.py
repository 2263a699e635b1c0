"""Vector widths per tensor of tiled products: the rows about contractions of the table that nvFuser's rules give."""

import pytest

from codegen.families import FAMILIES
from fusion_ir import building as build
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType, bf16, f16, f32
from fusion_ir.ops import make
from tests.support.devices import CUDA_DEVICE
from tests.support.products import dense_graph, mlp

MATMUL = FAMILIES["matmul"]
M, N, K = 504, 136, 248
V8, V4, V2, V1 = (("vector", n) for n in (8, 4, 2, 1))


def tensor(*sizes: int, dtype: DType = f16, strides: tuple[int, ...] | None = None, alignment: int = 16) -> InputSpec:
    return InputSpec(shape_of(sizes), dtype, strides or dense_strides(sizes), alignment)


def widths(graph: Graph) -> dict[str, tuple[str, int]]:
    """How the default schedule accesses each tensor; each of them in one way."""
    kernel = MATMUL.emit(graph, MATMUL.space(graph, CUDA_DEVICE)[0], CUDA_DEVICE)
    found = {a.tensor: (a.kind, a.width) for a in kernel.accesses}
    assert len(found) == len(kernel.accesses), kernel.accesses
    return found


def matmul(a: InputSpec, b: InputSpec, *, turned: bool = False, to: DType = f16) -> Graph:
    """a b, or a b^T."""
    return dense_graph([a, b], lambda x, w: build.matmul(x, build.permute(w, [1, 0]) if turned else w, to))


def test_everything_contiguous() -> None:
    a, b = tensor(M, K), tensor(K, N)
    assert widths(matmul(a, b)) == {"in0": V8, "in1": V8, "out0": V8}
    assert widths(matmul(a, b, to=f32)) == {"in0": V8, "in1": V8, "out0": V4}


def test_odd_depth() -> None:
    assert widths(matmul(tensor(M, 249), tensor(249, N))) == {"in0": V1, "in1": V8, "out0": V8}
    assert widths(matmul(tensor(M, 249), tensor(N, 249), turned=True)) == {"in0": V1, "in1": V1, "out0": V8}


def test_odd_columns() -> None:
    assert widths(matmul(tensor(M, K), tensor(K, 137))) == {"in0": V8, "in1": V1, "out0": V1}
    assert widths(matmul(tensor(M, K), tensor(137, K), turned=True)) == {"in0": V8, "in1": V8, "out0": V1}


def test_a_pointer_moved_by_two_elements() -> None:
    assert widths(matmul(tensor(M, K, alignment=4), tensor(K, N))) == {"in0": V2, "in1": V8, "out0": V8}


@pytest.mark.parametrize(("gap", "width"), [(1, V1), (2, V2), (4, V4), (8, V8)])
def test_padded_rows(gap: int, width: tuple[str, int]) -> None:
    assert widths(matmul(tensor(M, K, strides=(K + gap, 1)), tensor(K, N))) == {"in0": width, "in1": V8, "out0": V8}


def test_each_tensor_of_an_epilogue_has_its_own() -> None:
    specs = [tensor(M, K), tensor(K, N), tensor(N, alignment=2), tensor(M, N, strides=(N + 4, 1))]
    assert widths(dense_graph(specs, mlp)) == {"in0": V8, "in1": V8, "in2": V1, "in3": V4, "out0": V8}


def test_rows_share_one_element() -> None:
    graph = dense_graph(
        [tensor(M, K), tensor(K, N), tensor(M, 1, dtype=f32)],
        lambda x, w, s: build.mul(build.cast(build.matmul(x, w), f32), s),
    )
    assert widths(graph) == {"in0": V8, "in1": V8, "in2": ("splat", 1), "out0": V4}


@pytest.mark.parametrize(("heads", "width"), [(15, 8), (10, 4), (12, 2), (8, 1), (24, 1)])
def test_views_behind_the_product(heads: int, width: int) -> None:
    """Rows of 120 columns become heads of 120 / heads: a run of columns ends where a head does."""

    def apart(x: Node, w: Node) -> Node:
        return build.permute(build.reshape(build.matmul(x, w), [M, heads, 120 // heads]), [1, 0, 2])

    assert widths(dense_graph([tensor(M, K), tensor(K, 120)], apart))["out0"][1] == width


def test_a_turned_result_turns_the_product() -> None:
    graph = dense_graph([tensor(M, K), tensor(K, N)], lambda x, w: build.permute(build.matmul(x, w), [1, 0]))
    assert widths(graph) == {"in0": V8, "in1": V8, "out0": V8}


def test_operands_in_any_order_of_axes() -> None:
    """[h, t, d] and [h, d, n] over h and d: depth in whole heads, no copies."""
    letters = [[ord(c) for c in text] for text in ("htd", "hdn", "tn")]
    graph = dense_graph([tensor(4, 64, 32), tensor(4, 32, 96)], lambda x, w: build.einsum(x, w, *letters))
    assert widths(graph) == {"in0": V8, "in1": V8, "out0": V8}


def test_a_slice_in_the_way() -> None:
    def cut(x: Node, start: int) -> Node:
        return make("slice", [x], {"start": (0, start), "stop": (x.sizes[0], start + K), "step": (1, 1)})

    for start, width in ((0, V8), (8, V8), (4, V4), (2, V2), (1, V1)):
        graph = dense_graph([tensor(M, 264), tensor(K, N)], lambda x, w, s=start: build.matmul(cut(x, s), w))
        assert widths(graph) == {"in0": width, "in1": V8, "out0": V8}


def test_cast_operands_are_computed_from_whole_accesses() -> None:
    graph = dense_graph(
        [tensor(M, K, dtype=f32), tensor(K, N, dtype=bf16)], lambda x, w: build.matmul(build.cast(x, bf16), w)
    )
    assert widths(graph) == {"in0": V4, "in1": V8, "out0": V8}


def test_strided_results_are_written_one_by_one() -> None:
    graph = matmul(tensor(M, K), tensor(K, N))
    apart = Graph(graph.inputs, (OutputSpec(graph.outputs[0].node, (2 * N, 2)),))
    assert widths(apart)["out0"] == ("strided", 1)
