"""Graphs whose tensors are on CUDA devices, as far as PyTorch knows them without one: what plans can say of them."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

# ruff: noqa: E402  PyTorch is an extra
from fuseplan_client.torch.devices import CPU, CudaDevice, device_of
from fuseplan_client.torch.export import export
from fuseplan_client.torch.partition import partition
from fuseplan_client.torch.support import Support
from fuseplan_client.torch.wire import wire_dtype
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves

aten = torch.ops.aten
bf16, f16, f32, i64 = torch.bfloat16, torch.float16, torch.float32, torch.int64
Shape = tuple[Any, ...]


def traced(function: Callable[..., Any], *shapes: Shape, device: str = "cuda") -> tuple[Any, list[Any]]:
    """The graph of a function of fake tensors, and these. shapes: sizes, then a dtype, then another device."""
    mode = FakeTensorMode()
    with mode:
        args = []
        for shape in shapes:
            place = shape[-1] if isinstance(shape[-1], str) else device
            *sizes, dtype = shape[:-1] if isinstance(shape[-1], str) else shape
            args.append(torch.empty(sizes, dtype=dtype, device=place))
        return make_fx(function)(*args), args


def block(x: Any, norm: Any, w1: Any, w2: Any) -> Any:
    """A transformer block's half, with what frameworks make on the device meanwhile."""
    h = torch.nn.functional.layer_norm(x, (64,), norm)
    q, k, v = (h @ w1).view(2, 16, 3, 4, 16).permute(2, 0, 3, 1, 4).unbind(0)
    o = aten._scaled_dot_product_flash_attention.default(q, k, v, 0.0, True)[0]
    y = x + o.transpose(1, 2).reshape(2, 16, 64) @ w2
    angle = torch.cos(torch.arange(16, device=x.device, dtype=f32)).unsqueeze(1)
    y = torch.where(angle > 0, y * angle.to(y.dtype), torch.zeros((), device=x.device, dtype=y.dtype))
    return torch.nn.functional.gelu(y) * 2 + torch.full((1,), 3.0, device=x.device, dtype=y.dtype)


def test_a_block_is_planned_around_what_plans_do_not_say() -> None:
    module, _ = traced(block, (2, 16, 64, bf16), (64, bf16), (64, 192, bf16), (64, 64, bf16))
    device = device_of(module)
    assert isinstance(device, CudaDevice) and (device.name, device.target()) == ("cuda:0", "cuda:0")
    support = Support(device.name)
    parts = partition(module, support, 2)
    assert len(parts.groups) == 2
    for name in parts.groups:
        call = next(n for n in parts.module.graph.nodes if n.op == "call_module" and n.target == name)
        exported = export(getattr(parts.module, name), [a.meta["val"] for a in call.args])
        assert exported.buffers and exported.body["nodes"]
    left = {n.target for n in parts.module.graph.nodes if n.op == "call_function" and not support.verdict(n).said}
    assert aten._scaled_dot_product_flash_attention.default in left


# Ops that give other dtypes, or are others, than on the CPU.
ON_CUDA: dict[str, tuple[Callable[..., Any], tuple[Shape, ...]]] = {
    "layer norm": (lambda x, w: aten.native_layer_norm.default(x, [64], w, w, 1e-5), ((8, 64, bf16), (64, bf16))),
    "its gradient": (
        lambda g, x, m, r, w: aten.native_layer_norm_backward.default(g, x, [64], m, r, w, w, [True, True, True]),
        ((8, 64, bf16), (8, 64, bf16), (8, 1, f32), (8, 1, f32), (64, bf16)),
    ),
    "softmax to f32": (lambda x: aten._softmax.default(x, -1, True), ((8, 64, f16),)),
    "logarithm of softmax to f32": (lambda x: aten._log_softmax.default(x, -1, True), ((8, 64, f16),)),
    "gradient to f16": (
        lambda g, y: aten._softmax_backward_data.default(g, y, -1, f16),
        ((8, 64, f32), (8, 64, f32)),
    ),
    "batch norm": (
        lambda x, w: aten._native_batch_norm_legit_functional.default(x, w, w, w, w, True, 0.1, 1e-5),
        ((2, 64, 4, 4, bf16), (64, f32)),
    ),
    "group norm": (
        lambda x, w: aten.native_group_norm.default(x, w, w, 2, 64, 16, 4, 1e-5),
        ((2, 64, 4, 4, bf16), (64, bf16)),
    ),
}


@pytest.mark.parametrize("name", ON_CUDA)
def test_results_have_the_dtypes_that_they_have_there(name: str) -> None:
    function, shapes = ON_CUDA[name]
    module, args = traced(function, *shapes)
    support = Support("cuda:0")
    calls = [n for n in module.graph.nodes if n.op == "call_function"]
    assert not [(n, support.verdict(n).reason) for n in calls if not support.verdict(n).said]
    exported = export(module, args)
    (output,) = (n for n in module.graph.nodes if n.op == "output")
    results = [n.meta["val"] for n in tree_leaves(output.args) if n is not None]
    assert [(b.sizes, b.dtype) for b in exported.buffers] == [(tuple(r.shape), r.dtype) for r in results]
    assert all(wire_dtype(b.dtype) for b in exported.buffers)


def test_masks_of_dropout_are_drawn_by_pytorch() -> None:
    """Its generator for a device is the device's own."""
    module, _ = traced(lambda x: aten.native_dropout.default(x.exp() * 2, 0.1, True)[0] * 3 + 1, (8, 64, f32))
    parts = partition(module, Support("cuda:0"), 1)
    assert len(parts.groups) == 2
    kept = [n.target for n in parts.module.graph.nodes if n.op == "call_function"]
    assert aten.native_dropout.default in kept


def test_tensors_elsewhere_stay_outside_of_groups() -> None:
    """A number on the CPU is read by PyTorch's op, which knows how."""
    module, _ = traced(lambda x, t: (x * t).exp() * 2 + 1, (8, 64, f32), (f32, "cpu"))
    device = device_of(module)
    assert isinstance(device, CudaDevice)
    support = Support(device.name)
    product, *others = (n for n in module.graph.nodes if n.op == "call_function")
    assert support.verdict(product).reason == "on cpu"
    assert all(support.verdict(n).said for n in others)
    assert len(partition(module, support, 2).groups) == 1


def test_graphs_on_several_devices_stay_pytorchs() -> None:
    module, _ = traced(lambda x, y: (x.exp() * 2, y.exp() * 2), (8, f32, "cuda:0"), (8, f32, "cuda:1"))
    assert device_of(module) == "cuda:0 and cuda:1"
    assert device_of(traced(torch.exp, (8, f32), device="cpu")[0]) is CPU
    assert device_of(traced(torch.exp, (8, f32), device="xpu")[0]) == "xpu:0"
