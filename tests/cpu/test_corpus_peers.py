"""PyTorch's side of the corpus on a device other than the CPU, found out without one: over tensors that have a dtype
and a shape but no elements. What a peer makes is made where its inputs are, and statistics have the dtype that CUDA's
kernels ask for, which PyTorch checks nowhere else.

The device is `meta`: a PyTorch without CUDA does not even take slices of tensors that are said to be on `cuda`.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="needs PyTorch: the extra `bench`")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402  # pyright: ignore[reportMissingImports]
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402  # pyright: ignore[reportMissingImports]

from benchmarks.corpus import CASES  # noqa: E402
from benchmarks.corpus.case import Case, Peer  # noqa: E402
from benchmarks.gpu.entries import entries  # noqa: E402
from fusion_ir.core.graph import Graph  # noqa: E402
from fusion_ir.dtype import DType  # noqa: E402

TORCH_DTYPES = {
    "f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64,
    "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8,
}  # fmt: skip
DEVICE = "meta"
ANYWHERE = ("aten._to_copy.default", "aten.lift_fresh.default", "prim.device.default")  # of tensors wherever they are
SEED = 7

# Positions of mean and reciprocal deviation, and whether CUDA's kernel takes those of 16-bit tensors in f32: in
# PyTorch's aten/src/ATen/native/cuda, Normalization.cu, layer_norm_kernel.cu and group_norm_kernel.cu.
STATISTICS = {
    "aten.native_batch_norm_backward.default": ((5, 6), True),
    "aten.native_layer_norm_backward.default": ((3, 4), True),
    "aten.native_group_norm_backward.default": ((2, 3), False),
}


class OnDevice(TorchDispatchMode):
    """Fails at an operation with an operand on the CPU, which fake tensors let pass where it is one number, and at one
    with statistics that CUDA's kernel would refuse.

    statistics: how many operations with saved statistics there were.
    """

    def __init__(self) -> None:
        super().__init__()
        self.statistics = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, named = str(func), kwargs or {}
        if name not in ANYWHERE:
            for operand in tensors((*args, *named.values())):
                assert operand.device.type == DEVICE, f"{name} of a tensor {list(operand.shape)} on the CPU"
        if name in STATISTICS:
            self.statistics += 1
            positions, wide = STATISTICS[name]
            expected = torch.float32 if wide and args[0].dtype.itemsize == 2 else args[0].dtype
            assert [args[p].dtype for p in positions] == [expected] * 2, name
        return func(*args, **named)


def tensors(values: Sequence[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from tensors(value)


def fake(graph: Graph) -> list[Any]:
    """Inputs on the device. A seed is a number: fake tensors do not know theirs."""

    def one(sizes: Sequence[int], strides: Sequence[int], dtype: DType) -> Any:
        if not sizes and not dtype.is_float:
            return SEED
        return torch.empty_strided(sizes, strides, dtype=TORCH_DTYPES[dtype.name], device=DEVICE)

    return [one(i.sizes, i.strides, i.dtype) for i in graph.inputs]


def on_device(case: Case, function: Peer, dtype: str) -> OnDevice:
    """Runs the peer and looks at its outputs."""
    sizes = case.small[-1]
    graph = case.instance(dtype, sizes).graph
    with FakeTensorMode(allow_non_fake_inputs=False), OnDevice() as seen, torch.no_grad():
        outputs = case.peer(sizes, function)(*fake(graph))
    assert [(o.device.type, list(o.shape)) for o in outputs] == [(DEVICE, list(o.node.sizes)) for o in graph.outputs]
    return seen


def peers() -> list[Any]:
    """Each of the benchmark's: those of the corpus, and products of its own."""
    cases = {e.case.name: e.case for e in entries()} | dict(CASES)
    return [
        pytest.param(case, function, id=f"{case.name}-{i}")
        for case in cases.values()
        for i, function in enumerate(f for f in (case.torch, *case.also, case.agreeing) if f is not None)
    ]


@pytest.mark.sweep(0.3)
@pytest.mark.parametrize(("case", "function"), peers())
def test_peers_stay_on_their_device(case: Case, function: Peer) -> None:
    for dtype in ("bf16", "f32", "f64"):  # f64: where the others are compared with
        on_device(case, function, dtype)


@pytest.mark.parametrize("name", ["batch_norm_backward", "layer_norm_backward", "group_norm_backward"])
def test_statistics_are_looked_at(name: str) -> None:
    assert on_device(CASES[name], CASES[name].torch, "f16").statistics == 1


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: x * torch.arange(x.shape[-1]),
        lambda x: x * torch.tensor(2.0),
        lambda x: x[torch.zeros(x.shape[0], dtype=torch.int64)],
    ],
    ids=["vector", "scalar", "index"],
)
def test_a_tensor_left_on_the_cpu_is_noticed(wrong: Peer) -> None:
    with pytest.raises((AssertionError, RuntimeError), match=r"on the CPU|same device"):
        on_device(CASES["softmax"], wrong, "bf16")
