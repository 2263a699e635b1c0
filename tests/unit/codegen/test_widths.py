"""Vector widths per tensor: the pointwise rows of the table that nvFuser's rules give, one analysis for all of them."""

import pytest

from codegen.families import FAMILIES
from codegen.families.loop_nest import vector_lanes
from codegen.kernel import Kernel
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.core.scalar import Scalar
from fusion_ir.dtype import f32
from fusion_ir.ops import make, make_input
from tests.support.devices import CUDA_DEVICE


class Build:
    def __init__(self) -> None:
        self.inputs: list[InputSpec] = []

    def input(self, *sizes: int, strides: tuple[int, ...] | None = None, alignment: int = 16) -> Node:
        self.inputs.append(InputSpec(shape_of(sizes), f32, strides or dense_strides(sizes), alignment))
        return make_input(len(self.inputs) - 1, self.inputs[-1])

    def kernel(self, out: Node, strides: tuple[int, ...] | None = None) -> Kernel:
        graph = Graph(tuple(self.inputs), (OutputSpec(out, strides or dense_strides(out.sizes)),))
        return FAMILIES["pointwise"].emit(graph, "pointwise{vec=4,x=32,y=4,per=1}", CUDA_DEVICE)


def widths(kernel: Kernel) -> dict[str, list[tuple[str, int]]]:
    found: dict[str, list[tuple[str, int]]] = {}
    for access in kernel.accesses:
        found.setdefault(access.tensor, []).append((access.kind, access.width))
    return found


def broadcast(x: Node, *shape: int) -> Node:
    return make("broadcast_in_dim", (x,), {"shape": shape_of(shape), "dims": tuple(range(x.rank))})


def cut(x: Node, start: tuple[int, ...], stop: tuple[int, ...]) -> Node:
    return make("slice", (x,), {"start": start, "stop": stop, "step": (1,) * x.rank})


def pad(x: Node, low: int, high: int) -> Node:
    return make("pad", (x,), {"low": (low,), "high": (high,), "value": Scalar.of(0, f32)})


V4, V2, V1 = ("vector", 4), ("vector", 2), ("vector", 1)


def test_inner_broadcast_is_a_splat() -> None:
    b = Build()
    a, x = b.input(1024, 2, 1), b.input(1024, 2, 512)
    k = b.kernel(make("add", (broadcast(a, 1024, 2, 512), x)))
    assert widths(k) == {"in0": [("splat", 1)], "in1": [V4], "out0": [V4]}


def test_two_inner_axes_merge_for_the_tensors_that_have_both() -> None:
    b = Build()
    a, x = b.input(1024, 1, 2), b.input(1024, 512, 2)
    k = b.kernel(make("add", (broadcast(a, 1024, 512, 2), x)))
    assert widths(k) == {"in0": [("tile", 2)], "in1": [V4], "out0": [V4]}


def test_a_permuted_memory_order() -> None:
    b = Build()
    a, x = b.input(1024, 128, 25, strides=(3200, 1, 128)), b.input(1, 128, 1)
    k = b.kernel(make("add", (a, broadcast(x, 1024, 128, 25))), strides=(3200, 1, 128))
    assert widths(k) == {"in0": [V4], "in1": [V4], "out0": [V4]}


def test_slice_by_four() -> None:
    b = Build()
    k = b.kernel(make("neg", (cut(b.input(1 << 20), (4,), ((1 << 20) - 4,)),)))
    assert widths(k) == {"in0": [V4], "out0": [V4]}


@pytest.mark.parametrize(("low", "high", "written"), [(2, 2, 2), (0, 2, 4), (4, 4, 4), (1, 3, 1)])
def test_pad(low: int, high: int, written: int) -> None:
    """The padding becomes pieces of its own: the middle reads from element 0 on, 4 wide, and is written at `low`.

    nvFuser iterates over the padded output and so narrows the input to 2 where low is 2.
    """
    b = Build()
    k = b.kernel(make("neg", (pad(b.input(1 << 20), low, high),)))
    assert widths(k)["in0"] == [V4]
    assert ("vector", written) in widths(k)["out0"]


def test_slice_of_the_outer_axis() -> None:
    b = Build()
    k = b.kernel(make("neg", (cut(b.input(1 << 20, 2), (4, 0), ((1 << 20) - 4, 2)),)))
    assert widths(k) == {"in0": [V4], "out0": [V4]}


def test_odd_row_stride_narrows_the_input_only() -> None:
    b = Build()
    k = b.kernel(make("neg", (cut(b.input(1024, 1025, 3), (0, 4, 0), (1024, 1024, 3)),)))
    assert widths(k) == {"in0": [V1], "out0": [V4]}


def test_three_windows_of_one_tensor() -> None:
    b = Build()
    x = b.input(128)
    windows = [cut(x, (s,), (s + 124,)) for s in (4, 2, 0)]
    k = b.kernel(make("add", (make("add", tuple(windows[:2])), windows[2])))
    assert widths(k) == {"in0": [V2, V4], "out0": [V4]}


def test_a_misaligned_pointer_narrows_that_tensor_only() -> None:
    b = Build()
    k = b.kernel(make("add", (b.input(64, 128, alignment=8), b.input(64, 128))))
    assert widths(k) == {"in0": [V2], "in1": [V4], "out0": [V4]}


@pytest.mark.parametrize(("gap", "width"), [(1, 1), (2, 2), (4, 4)])
def test_padded_rows(gap: int, width: int) -> None:
    b = Build()
    k = b.kernel(make("add", (b.input(64, 128, strides=(128 + gap, 1)), b.input(64, 128))))
    assert widths(k) == {"in0": [("vector", width)], "in1": [V4], "out0": [V4]}


@pytest.mark.parametrize(
    ("extent", "width", "lanes"),
    [
        (4096, 64, 64),
        (96, 64, 32),  # a second vector of 64 would be half empty
        (80, 64, 16),
        (100, 64, 64),  # nothing divides it
        (1000, 64, 64),  # one masked vector of sixteen
        (3, 64, 4),
        (1, 16, 1),
    ],
)
def test_lanes_of_a_vector(extent: int, width: int, lanes: int) -> None:
    assert vector_lanes(extent, width) == lanes
