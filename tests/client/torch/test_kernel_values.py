"""Norms of half floats with wider parameters: what PyTorch's CPU kernels give, forward and backward."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch")

# ruff: noqa: E402  PyTorch is an extra
from fuseplan_client.torch.kernel_values import KERNELS, LAYOUTS, described, foresee
from fuseplan_client.torch.tolerant import tolerant
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

from tests.support.aten_graphs import outcome, traced
from tests.support.tensor_layouts import lying
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


SHAPES = [(3, 4), (3, 4, 5), (2, 4, 5, 6), (2, 3, 4, 2, 3), (1, 4, 5, 6), (2, 4, 1, 1), (2, 1, 5, 6)]


def norms_of(op: Any, x: torch.Tensor, grad: torch.Tensor) -> tuple[Any, ...]:
    """Arguments for a norm of `x` over channels, groups of them, or the last axis."""
    n, c = x.shape[:2]
    inner = x[0, 0].numel()
    w, b, mean, var = torch.ones(c), torch.zeros(c), torch.zeros(c), torch.ones(c)
    name = op.overloadpacket.__name__
    if name == "native_batch_norm_backward":
        return grad, x, w, mean, var, mean, var, True, 1e-5, [True] * 3
    if name == "native_group_norm":
        return x, w, b, n, c, inner, 1, 1e-5
    if name == "native_group_norm_backward":
        return grad, x, torch.zeros(n, 1), torch.ones(n, 1), w, n, c, inner, 1, [True] * 3
    if name == "native_layer_norm_backward":
        rows = torch.ones(*x.shape[:-1], 1)
        return grad, x, [x.shape[-1]], rows, rows, torch.ones(x.shape[-1]), torch.zeros(x.shape[-1]), [True] * 3
    if op is aten._native_batch_norm_legit.no_stats:
        return x, w, b, True, 0.1, 1e-5
    if op is aten._native_batch_norm_legit_no_training.default:
        return x, w, b, mean, var, 0.1, 1e-5
    return x, w, b, mean, var, True, 0.1, 1e-5


def is_backward(op: Any) -> bool:
    return op.overloadpacket.__name__.endswith("backward")


DTYPES = [  # gradients of mixed dtypes have rules of their own
    *((op, torch.float32) for op in LAYOUTS),
    *((op, torch.bfloat16) for op in LAYOUTS if not is_backward(op)),
]


@pytest.mark.parametrize(("op", "dtype"), DTYPES, ids=str)
@pytest.mark.parametrize("sizes", in_turn(SHAPES, 1, "layouts of norms"), ids=str)
def test_results_lie_as_kernels_lay_them(op: Any, sizes: Sequence[int], dtype: torch.dtype) -> None:
    tensors, seen = lying(sizes, dtype), 0
    for name, x in tensors.items():
        for other, grad in list(tensors.items())[:4] if is_backward(op) else [("", x)]:
            args = norms_of(op, x, grad)
            try:
                module, given = graph_of(op, args)
            except (RuntimeError, ValueError):
                continue  # PyTorch traces none
            foresee(module)
            (results,) = next(n for n in module.graph.nodes if n.op == "output").args
            real = tolerant(module)(*given)
            assert described(results[0].meta["val"]) == described(real[0]), (name, other)
            plain = op(*(a.contiguous() if isinstance(a, torch.Tensor) else a for a in args))
            for a, b in zip(real, plain, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-2, atol=1e-2, check_stride=False, equal_nan=True)
            seen += 1
    assert seen >= len(tensors) // 2


def test_what_reads_them_lies_otherwise_too() -> None:
    """A view that was one in the trace is a copy of what the kernel gives."""

    def function(x: Any) -> Any:
        y = aten._native_batch_norm_legit.no_stats(x.transpose(1, 2), None, None, True, 0.1, 1e-5)[0]
        return aten.view.default(aten.mul.Tensor(y.transpose(1, 2), 2.0), [12, 5])

    module = make_fx(function, tracing_mode="fake")(torch.randn(3, 4, 5))
    foresee(module)
    found = {n.target: n.meta["val"] for n in module.graph.nodes if n.op == "call_function"}
    assert found[aten.mul.Tensor].stride() == (20, 1, 4)
    assert found[aten.view.default].stride() == (5, 1)


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
