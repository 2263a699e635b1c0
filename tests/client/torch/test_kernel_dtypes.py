"""Norms of half floats with wider parameters: what PyTorch's CPU kernels give, forward and backward."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch")

# ruff: noqa: E402  PyTorch is an extra
from fuseplan_client.torch.kernel_dtypes import KERNELS, foresee
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

from tests.support.aten_graphs import outcome, traced
from tests.support.whole import in_turn

aten = torch.ops.aten
HALVES = (torch.bfloat16, torch.float16)
PAIRS = [(x, p) for x in HALVES for p in (torch.float32, x)]  # of an input and its parameters
C, G = 6, 3


def half(*sizes: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(*sizes).to(dtype)


def calls(op: Any, x: torch.dtype, p: torch.dtype, has: Sequence[bool]) -> list[tuple[Any, ...]]:
    """Arguments for an op with an input of dtype `x` and parameters of dtype `p`: weight and bias where `has` them."""
    image = half(4, C, 5, 3, dtype=x)
    weight, bias = (torch.rand(C).to(p) + 0.5 if h else None for h in has)
    mean, var = torch.zeros(C, dtype=p), torch.ones(C, dtype=p)
    name = op.overloadpacket.__name__
    if name == "native_layer_norm":
        rows = torch.ones(3).to(p)
        return [(image, [3], rows if has[0] else None, rows if has[1] else None, 1e-5)]
    if name == "native_group_norm":
        return [(image, weight, bias, 4, C, 15, G, 1e-5)]
    if name == "native_group_norm_backward":
        _, m, r = aten.native_group_norm(image, weight, bias, 4, C, 15, G, 1e-5)
        return [(image, image, m, r, weight, 4, C, 15, G, [of_x, has[0], all(has)]) for of_x in (True, False)]
    if op is aten._native_batch_norm_legit.no_stats:
        return [(image, weight, bias, True, 0.1, 1e-5)]
    if op is aten._native_batch_norm_legit_no_training.default:
        return [(image, weight, bias, mean, var, 0.1, 1e-5)]
    return [(image, weight, bias, mean, var, training, 0.1, 1e-5) for training in (True, False)]


def graph_of(op: Any, args: Sequence[Any]) -> tuple[GraphModule, list[torch.Tensor]]:
    """A graph of one call, with all of its tensors as inputs."""
    tensors = [a for a in args if isinstance(a, torch.Tensor)]

    def call(*given: torch.Tensor) -> Any:
        left = iter(given)
        return op(*(next(left) if isinstance(a, torch.Tensor) else a for a in args))

    return make_fx(call, tracing_mode="fake")(*tensors), tensors


def described(value: torch.Tensor | None) -> Any:
    return None if value is None else (value.dtype, tuple(value.shape))


@pytest.mark.parametrize("op", list(KERNELS), ids=str)
@pytest.mark.parametrize(("x", "p"), [(torch.float32, torch.float32), *PAIRS])
@pytest.mark.parametrize("has", [(True, True), (True, False), (False, True), (False, False)])
def test_values_are_foreseen_as_kernels_give_them(op: Any, x: torch.dtype, p: torch.dtype, has: Sequence[bool]) -> None:
    torch.manual_seed(0)
    for args in calls(op, x, p, has):
        real = op(*args)
        module, _ = graph_of(op, args)
        foresee(module)
        (results,) = next(n for n in module.graph.nodes if n.op == "output").args
        foreseen = [None if r is None else r.meta["val"] for r in tree_leaves(results, is_leaf=lambda v: v is None)]
        said = [
            [None if t is None else (t.dtype, tuple(t.shape)) for t in side]
            for side in (foreseen, [*tree_leaves(real)])
        ]
        assert said[0] == said[1], args


def layer(x: Any, weight: Any, bias: Any) -> Any:
    return F.layer_norm(x, x.shape[-1:], weight[: x.shape[-1]], bias[: x.shape[-1]])


def group(x: Any, weight: Any, bias: Any) -> Any:
    return F.group_norm(x, G, weight, bias)


def batch(x: Any, weight: Any, bias: Any) -> Any:
    return F.batch_norm(x, None, None, weight, bias, training=True)


def batch_with_statistics(x: Any, weight: Any, bias: Any) -> Any:
    return F.batch_norm(x, bias.detach().clone(), weight.detach().abs() + 0.5, weight, bias, training=True)


def batch_by_statistics(x: Any, weight: Any, bias: Any) -> Any:
    return F.batch_norm(x, bias.detach(), weight.detach().abs() + 0.5, weight, bias)


NORMS = [layer, group, batch, batch_with_statistics, batch_by_statistics]


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(("x", "p"), in_turn(PAIRS, 2, "mixed norms"))
@pytest.mark.parametrize("grad", [True, False])
def test_mixed_norms_are_said_as_kernels_compute_them(
    norm: Callable[..., Any], x: torch.dtype, p: torch.dtype, grad: bool
) -> None:
    torch.manual_seed(0)
    image = half(4, C, 5, 5, dtype=x).requires_grad_(grad)
    weight, bias = (torch.randn(C).to(p).requires_grad_(grad) for _ in range(2))
    graphs = traced(lambda *given: norm(*given).float().square(), [image, weight, bias])
    assert [g.kind for g in graphs] == (["forward", "backward"] if grad else ["inference"])
    found = [outcome(g, slack=2) for g in graphs]
    assert all(f.state in ("said", "partly") for f in found), found
    assert found[0].state == "said", found
