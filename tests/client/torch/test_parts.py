"""The ways to compute a group in parts: what each leaves to PyTorch, and that all give what the group gives."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")

# ruff: noqa: E402  PyTorch is an extra
from fuseplan_client.torch.parts import ATTENTION, PRODUCTS, WAYS, parts_of, ways_of
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F


def traced(call: Any, *inputs: Any) -> GraphModule:
    with torch.no_grad():
        return make_fx(call, tracing_mode="fake")(*inputs)


def block(x: Any, w: Any) -> Any:
    q, k, v = ((x @ w).view(1, 16, 3, 2, 8).permute(2, 0, 3, 1, 4)).unbind(0)
    mixed = F.scaled_dot_product_attention((q.exp() + 1).tanh(), k, v, is_causal=True)
    return ((mixed * 2).exp() + 1).tanh()


def product(x: Any, w: Any) -> Any:
    return ((x.exp() + 1) @ w).tanh() * 2


X, W = torch.randn(1, 16, 16), torch.randn(16, 48)


def test_each_way_leaves_something_else() -> None:
    assert ways_of(traced(block, X, W)) == ["products", "attention"]
    assert ways_of(traced(product, X, W)) == ["products"]
    assert ways_of(traced(lambda x: F.scaled_dot_product_attention(x, x, x) + 1, torch.randn(1, 2, 8, 8))) == [
        "products"
    ], "attention is all that either leaves"
    assert ways_of(traced(torch.tanh, X)) == []


@pytest.mark.parametrize("way", WAYS)
def test_parts_give_what_the_group_gives(way: str) -> None:
    """Groups of a way have nothing of what it leaves, and attention's do have the products."""
    module, inside = traced(block, X, W), set[Any]()

    def place(parent: GraphModule, name: str, _: int) -> Any:
        group = getattr(parent, name)
        inside.update(n.target for n in group.graph.nodes)
        return group

    parts = parts_of(module, way, "cpu", 2, place)
    assert parts is not None
    assert parts.left == way
    assert not inside & WAYS[way]
    assert bool(inside & (PRODUCTS - ATTENTION)) == (way == "attention")
    torch.testing.assert_close(parts([X, W]), module(X, W), rtol=0, atol=0)


def test_nothing_but_a_product_has_no_parts() -> None:
    module = traced(torch.matmul, torch.randn(8, 8), torch.randn(8, 8))
    (way,) = ways_of(module)
    assert parts_of(module, way, "cpu", 2, lambda parent, name, _: getattr(parent, name)) is None
