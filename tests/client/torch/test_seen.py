"""Layouts of results as kernels give them, where fake tensors foresee others: plans are asked for with these."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from fuseplan_client.torch.export import Refused, export
from fuseplan_client.torch.group import _faked
from fuseplan_client.torch.kernel_values import described, foresee
from fuseplan_client.torch.seen import is_as_foreseen, seen
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves

from tests.support.aten_graphs import run
from tests.support.tensor_layouts import lying
from tests.support.whole import in_turn

aten = torch.ops.aten

BACKWARD = {
    "softplus": (1.0, 20.0), "silu": (), "gelu": (), "sigmoid": (), "tanh": (), "hardswish": (), "hardsigmoid": (),
    "hardtanh": (-1.0, 1.0), "leaky_relu": (0.1, False), "threshold": (0.0,), "mish": (), "softshrink": (0.5,),
    "hardshrink": (0.5,), "logit": (0.1,),
}  # fmt: skip
BINARY = (
    "add.Tensor", "mul.Tensor", "maximum", "atan2", "fmod.Tensor", "copysign.Tensor", "logaddexp", "fmax",
    "heaviside", "floor_divide", "xlogy.Tensor",
)  # fmt: skip


def overload(name: str) -> Any:
    packet, _, found = name.partition(".")
    return getattr(getattr(aten, packet), found or "default")


OPS: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    **{f"{name}_backward": lambda a, b, n=name, e=extra: getattr(aten, f"{n}_backward").default(a, b, *e)
       for name, extra in BACKWARD.items()},
    **{name: lambda a, b, n=name: overload(n)(a, b) for name in BINARY},
    "elu_backward": lambda a, b: aten.elu_backward.default(a, 1, 1, 1, False, b),
    "native_dropout_backward": lambda a, b: aten.native_dropout_backward.default(a, b > 0, 1.1),
    "mse_loss_backward": lambda a, b: aten.mse_loss_backward.default(a, a, b, 0),
    "huber_loss_backward": lambda a, b: aten.huber_loss_backward.default(a, a, b, 0, 1.0),
    "smooth_l1_loss_backward": lambda a, b: aten.smooth_l1_loss_backward.default(a, a, b, 0, 1.0),
    "binary_cross_entropy": lambda a, b: aten.binary_cross_entropy.default(a.sigmoid(), b.sigmoid(), None, 0),
    "log_softmax_backward": lambda a, b: aten._log_softmax_backward_data.default(a, b, 1, torch.float32),
    "softmax_backward": lambda a, b: aten._softmax_backward_data.default(a, b, 1, torch.float32),
    "glu_backward": lambda a, b: aten.glu_backward.default(aten.glu.default(a, 1), b, 1),
    "log_sigmoid": lambda a, b: aten.log_sigmoid_forward.default(a)[0] + b,
    "where": lambda a, b: torch.where(b > 0, a, b),
    "pow.Scalar": lambda a, b: aten.pow.Scalar(2, a),
    "roll": lambda a, b: torch.roll(a, 1, 1),
    "prelu_backward": lambda a, b: aten._prelu_kernel_backward.default(a, b, a),
    "native_layer_norm": lambda a, b: aten.native_layer_norm.default(a, [a.shape[-1]], None, None, 1e-5)[0] * b,
    "addcmul": lambda a, b: torch.addcmul(a, b, a),
}  # fmt: skip
AFTER: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "as it is": lambda y: y,
    "transposed": lambda y: y.transpose(1, 2),
    "transposed and read": lambda y: y.transpose(1, 2) * 2,
    "flat": lambda y: y.reshape(-1),
    "two": lambda y: y[:, 1:] + y[:, :-1],
}


def some_lying(sizes: Sequence[int]) -> list[torch.Tensor]:
    """About nine: a part, repeated, row-major, with channels last, and others."""
    part, *others = lying(sizes).values()
    return [part, *others[:: 3 if len(sizes) > 3 else 1]]


def check(module: GraphModule, args: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> None:
    """A plan asked for with what was seen gives what PyTorch gives, where that lies."""
    exported = export(module, _faked(args), seen=seen(module, args))
    found = run(exported, list(args))
    assert described(found) == described(expected)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("name", in_turn(OPS, 4, "layouts that are seen"))
@pytest.mark.parametrize("sizes", [(2, 6, 4), (2, 4, 6, 8), (2, 1, 4)], ids=str)
def test_results_lie_as_they_were_seen(name: str, sizes: tuple[int, ...]) -> None:
    if "glu" in name:
        sizes = (sizes[0], 4, *sizes[2:])
    tensors, right, refused = some_lying(sizes), 0, set[str]()
    pairs = in_turn(itertools.product(tensors, tensors, AFTER.values()), 60, name)
    for a, b, after in pairs:

        def function(a: torch.Tensor, b: torch.Tensor, after: Any = after) -> Any:
            results = tree_leaves(OPS[name](a, b))
            return (*map(after, results[:1]), *results[1:], a)

        module = make_fx(lambda a, b: function(a, b), tracing_mode="fake")(a, b)
        try:
            check(module, (a, b), function(a, b))
            right += 1
        except Refused as error:
            refused.add(str(error).partition(":")[0])
    assert right > len(pairs) // 4 or refused == {"no such op"}, refused


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("sizes", [(2, 6, 4), (2, 4, 6, 8), (2, 1, 4)], ids=str)
def test_layouts_of_pointwise_ops_are_foreseen(name: str, sizes: tuple[int, ...]) -> None:
    if "glu" in name:
        sizes = (sizes[0], 4, *sizes[2:])
    tensors = some_lying(sizes)
    for a, b in in_turn(itertools.product(tensors, repeat=2), 12, name):
        module = make_fx(lambda a, b: tree_leaves(OPS[name](a, b)), tracing_mode="fake")(a, b)
        foresee(module)
        assert is_as_foreseen(module, tree_leaves(OPS[name](a, b))), [t.stride() for t in (a, b)]


def test_a_view_that_was_none_is_memory_of_its_own() -> None:
    """The trace has a view of a row-major result; the kernel's lies otherwise, and what is given is a copy."""

    def function(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = aten.native_dropout_backward.default(a, b > 0, 2.0)
        return aten.view.default(y, [24]), y

    a, b = (torch.randn(4, 6).t() for _ in range(2))
    module = make_fx(function, tracing_mode="fake")(a, b)
    assert aten.view.default in [n.target for n in module.graph.nodes]
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        module(a, b)
    what = seen(module, (a, b))
    assert what is not None
    assert [n.target for n in what.copies if n.target in (aten.view.default, aten.reshape.default)]
    flat, whole = run(export(module, _faked((a, b)), seen=what), [a, b])
    assert whole.stride() == (1, 6)
    torch.testing.assert_close(flat, whole.reshape(-1))
    torch.testing.assert_close(whole, a * (b > 0) * 2)


def test_what_was_foreseen_is_not_run_twice() -> None:
    a = torch.randn(3, 4)
    module = make_fx(lambda a: (a.exp(), a.t()), tracing_mode="fake")(a)
    assert is_as_foreseen(module, module(a))
    assert not is_as_foreseen(module, (a.exp().t().contiguous().t(), a.t()))
