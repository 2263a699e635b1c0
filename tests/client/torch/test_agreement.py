"""Tolerances of a plan's results: as a whole, in an element, where PyTorch itself is off."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")

# ruff: noqa: E402  PyTorch is an extra
from fuseplan_client.torch import agreement
from fuseplan_client.torch.agreement import disagreement, roundings, terms
from torch.fx.experimental.proxy_tensor import make_fx

from tests.support.aten_graphs import traced


@pytest.fixture(params=[1 << 22, 100])
def chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors are compared at once, and some elements at a time."""
    monkeypatch.setattr(agreement, "CHUNK", request.param)


@pytest.mark.usefixtures("chunk")
def test_what_agrees_and_what_does_not() -> None:
    torch.manual_seed(0)
    x = torch.randn(37, 29)
    assert disagreement(x, x * (1 + 1e-5)) == ""
    assert disagreement(x, x * 1.001).startswith("output 0: off by 0.001 as a whole")
    one = x.clone()
    one[36, 28] += 0.02
    assert disagreement([x, one], [x, x]).startswith("output 1: ")
    assert disagreement(x.t(), x.t().contiguous()).startswith("output 0: expected")
    assert disagreement(x.t(), x.t().clone(memory_format=torch.preserve_format)) == ""
    special = x.clone()
    special[3, 4], special[30, 2] = torch.inf, torch.nan
    assert disagreement(special, special.clone()) == ""
    assert "infinities or NaN" in disagreement(x, special)
    assert "infinities or NaN" in disagreement(special, x)
    assert "infinities or NaN" in disagreement(special, torch.where(special == torch.inf, -torch.inf, special))
    whole = torch.full((50,), torch.nan)
    assert disagreement(whole, whole.clone()) == ""
    flags = x > 0
    assert disagreement(flags, flags.clone()) == ""
    assert "of its elements differ" in disagreement(flags, ~flags)
    assert disagreement(x[:0], x[:0].clone()) == ""
    assert disagreement(torch.tensor(2.0), torch.tensor(2.0)) == ""


@pytest.mark.parametrize(("precision", "off"), [("highest", 0.0), ("high", 1e-3), ("medium", 1e-2)])
def test_products_that_pytorch_rounds_itself(precision: str, off: float) -> None:
    """Where it may multiply in TF32 or bf16, it is PyTorch that is off."""
    x = torch.randn(64, 64)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        assert disagreement(x * (1 + off), x) == ""
        assert disagreement(x * (1 + max(3 * off, 1e-3)), x) != ""
    finally:
        torch.set_float32_matmul_precision(before)


def test_roundings_on_the_way_to_a_result() -> None:
    """A result is as exact as the coarsest dtype that a group computes on the way to it; what it is given is exact."""

    def function(x: torch.Tensor, w: torch.Tensor) -> Any:
        half = (x + 1).to(torch.float16)
        wide = w.float() * 2
        product = (w @ w).float()
        return wide, product, half, half.double() + 1, (wide > 0), product.argmax(), product + wide, w.sum(), x + 1

    (graph,) = traced(function, [torch.randn(4, 4), torch.randn(4, 4).bfloat16()])
    f32, f16, bf16 = torch.float32, torch.float16, torch.bfloat16
    assert roundings(graph.module) == [f32, bf16, f16, f16, f32, bf16, bf16, bf16, f32]


@pytest.mark.usefixtures("chunk")
@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_an_f32_result_of_halves(half: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.randn(37, 29)
    near, far, bound = x * (1 + torch.finfo(half).eps / 4), x * 1.2, agreement.TOLERANCE[half]
    assert disagreement(near, x) != ""
    assert disagreement([x, near], [x, x], [None, half]) == ""
    assert disagreement([near, x], [x, x], [torch.float32, half]).startswith("output 0: off by")
    assert disagreement(far, x, [half]).startswith("output 0: off by 0.2 as a whole, allowed are")
    assert disagreement(x * (1 + 0.9 * bound), x, [half]) == ""
    assert disagreement(x > 0, x > 0.5, [half]) != ""  # not of floats
    assert disagreement(near.double(), x.double(), [half]) == ""


def test_sums_that_kernels_add_one_after_the_other() -> None:
    """Gradients of a batch norm's parameters behind another norm, where they cancel: PyTorch's are off, a plan's are
    not; gradients that do not cancel have to be right."""
    aten = torch.ops.aten

    def backward(g: Any, x: Any, w: Any, mean: Any, rstd: Any) -> Any:
        return aten.native_batch_norm_backward(g, x, w, None, None, mean, rstd, True, 1e-5, [True] * 3)

    torch.manual_seed(0)
    x, w = torch.randn(2, 8, 112, 112), torch.ones(8)
    mean, rstd = x.mean((0, 2, 3)), (x.var((0, 2, 3), unbiased=False) + 1e-5).rsqrt()
    behind = backward(torch.randn(2, 8, 112, 112), x, w, mean, rstd)[0]
    module = make_fx(backward, tracing_mode="fake")(behind, x, w, mean, rstd)
    assert terms(module) == [1, 2 * 112 * 112, 2 * 112 * 112]
    for grad in (behind, behind.contiguous(memory_format=torch.channels_last)):
        kernel = backward(grad, x, w, mean, rstd)
        exact = [t.float() for t in backward(*(t.double() for t in (grad, x, w, mean, rstd)))]
        exact[0] = kernel[0]
        assert "output" in disagreement(exact, kernel, roundings(module))
        assert disagreement(exact, kernel, roundings(module), terms(module)) == ""
    kernel = backward(torch.rand(2, 8, 112, 112), x, w, mean, rstd)
    for k in (1, 2):
        other = [t * 1.01 if i == k else t for i, t in enumerate(kernel)]
        assert disagreement(other, kernel, roundings(module), terms(module)).startswith(f"output {k}: off by")
