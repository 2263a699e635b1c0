"""Ops that PyTorch's samples do not show, or not at values that matter: attention, lists, scatters, losses."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.support.aten_graphs import Traced, examples_of, exported_and_checked, outcome, run, traced
from tests.support.whole import in_turn

aten = torch.ops.aten


def said(function: Callable[..., Any], *tensors: torch.Tensor, slack: float = 1.0) -> list[Traced]:
    """The graphs of a function, each of which is said as a whole and agrees with eager."""
    graphs = traced(function, tensors)
    for graph in graphs:
        found = outcome(graph, slack=slack)
        assert found.state in ("said", "empty"), f"{graph.kind}: {found}"
    return graphs


def gradients(*tensors: torch.Tensor) -> list[torch.Tensor]:
    return [t.requires_grad_() for t in tensors]


MASKS: dict[str, Callable[[int, int], torch.Tensor | None]] = {
    "none": lambda q, k: None,
    "bool": lambda q, k: (torch.arange(q)[:, None] + 2 > torch.arange(k)[None, :]).expand(2, 3, q, k),
    "float": lambda q, k: torch.linspace(-2, 2, q * k).view(1, 1, q, k),
    "rows that see nothing": lambda q, k: (torch.arange(q)[:, None] % 3 != 1).expand(q, k).expand(2, 1, q, k),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention_and_its_gradients(mask: str, dtype: torch.dtype) -> None:
    query, key, value = (torch.randn(2, 3, n, 8).to(dtype) for n in (5, 7, 7))
    seen = MASKS[mask](5, 7)
    if seen is not None and seen.dtype == torch.bool:
        seen = torch.zeros(seen.shape).masked_fill(~seen, float("-inf"))
    others = [] if seen is None else [seen.to(dtype)]

    def function(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        return aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, attn_mask=mask)[0]

    graphs = said(function, *gradients(query, key, value), *others)
    assert [g.kind for g in graphs] == ["forward", "backward"]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_attention_as_models_call_it(causal: bool, scale: float | None) -> None:
    tensors = gradients(*(torch.randn(1, 2, 9, 16) for _ in range(3)))
    graphs = said(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale), *tensors)
    targets = [n.target for g in graphs for n in g.module.graph.nodes]
    assert aten._scaled_dot_product_flash_attention_for_cpu.default in targets
    assert aten._scaled_dot_product_flash_attention_for_cpu_backward.default in targets


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("heads", "groups"), [(4, 2), (6, 3), (3, 1)])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_of_grouped_queries(heads: int, groups: int, causal: bool, dtype: torch.dtype) -> None:
    query, key, value = (torch.randn(2, n, 9, 16).to(dtype) for n in (heads, groups, groups))

    def function(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)

    graphs = said(function, *gradients(query, key, value))
    assert [g.kind for g in graphs] == ["forward", "backward"]


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("shape", [(5,), (4, 5), (2, 5, 3), (2, 5, 3, 3)])
@pytest.mark.parametrize("ignored", [-100, 2])
def test_likelihoods_and_the_sum_of_their_weights(reduction: str, shape: tuple[int, ...], ignored: int) -> None:
    """Without a batch as well: there PyTorch sums weights whatever is asked."""
    target = torch.randint(0, 5, (*shape[:1], *shape[2:]) if len(shape) > 1 else ())
    for weights in ((), (torch.rand(5),)):

        def function(x: torch.Tensor, at: torch.Tensor, *weight: torch.Tensor) -> torch.Tensor:
            return F.nll_loss(x, at, *weight, ignore_index=ignored, reduction=reduction)

        graphs = said(function, *gradients(torch.randn(shape)), target, *weights)
        assert [g.kind for g in graphs] == ["forward", "backward"]


OPTIMIZERS = {
    "SGD": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
    "Adam": {"amsgrad": True, "weight_decay": 0.1},
    "AdamW": {"weight_decay": 0.1},
    "RMSprop": {"momentum": 0.9, "centered": True},
    "Adagrad": {"lr_decay": 0.1},
    "NAdam": {},
    "RAdam": {},
    "Adamax": {},
    "Adadelta": {},
    "Rprop": {},
}


@pytest.mark.parametrize("name", in_turn(OPTIMIZERS, 4, "optimizers"))
def test_steps_of_optimizers_on_lists_of_tensors(name: str) -> None:
    """The functions on lists that optimizers are made of, in the order in which they call them."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils._python_dispatch import TorchDispatchMode

    called: list[Any] = []

    class Noted(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func.overloadpacket.__name__.startswith("_foreach"):
                called.append((func, args, kwargs or {}))
            return func(*args, **(kwargs or {}))

    parameters = [torch.nn.Parameter(torch.rand(3, 2)), torch.nn.Parameter(torch.rand(5))]
    optimizer = getattr(torch.optim, name)(parameters, foreach=True, **OPTIMIZERS[name])
    for p in parameters:
        p.grad = torch.rand(p.shape)
    optimizer.step()
    with Noted():
        optimizer.step()
    assert called
    from fuseplan_client.torch.decompositions import lowered
    from fuseplan_client.torch.wire import Writer

    mode = FakeTensorMode()
    for func, args, kwargs in called:
        packet = func.overloadpacket.__name__.removesuffix("_")
        target = getattr(getattr(aten, packet), func._overloadname)
        fakes = torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: mode.from_tensor(t.detach()), args)
        writer = Writer()
        with mode:
            out = target(*fakes, **kwargs)
        given = torch.utils._pytree.tree_map_only(
            torch.Tensor, lambda t, w=writer: w.input(f"i{len(w.inputs)}", t.shape, t.dtype), list(fakes)
        )
        assert len(lowered(writer, mode, target, given, kwargs, out)) == len(args[0])


LISTS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: torch._foreach_add(a, b, alpha=0.5),
    "sub": lambda a, b: torch._foreach_sub(a, 2.0),
    "mul": lambda a, b: torch._foreach_mul(a, [0.5, 3.0]),
    "div": lambda a, b: torch._foreach_div(a, b),
    "scaled by a tensor": lambda a, b: torch._foreach_mul(a, torch.tensor(0.7)),
    "addcmul": lambda a, b: torch._foreach_addcmul(a, b, b, 0.3),
    "addcdiv": lambda a, b: torch._foreach_addcdiv(a, b, b, [0.3, 0.6]),
    "lerp": lambda a, b: torch._foreach_lerp(a, b, 0.1),
    "lerp by tensors": lambda a, b: torch._foreach_lerp(a, b, a),
    "pow": lambda a, b: torch._foreach_pow(a, 2),
    "maximum": lambda a, b: torch._foreach_maximum(a, b),
    "clamp_max": lambda a, b: torch._foreach_clamp_max(a, 0.5),
    "sqrt": lambda a, b: torch._foreach_sqrt(a),
    "norm": lambda a, b: torch._foreach_norm(a),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", in_turn(LISTS, 6, "lists"))
def test_ops_on_lists(name: str, dtype: torch.dtype) -> None:
    def function(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor) -> Any:
        return LISTS[name]([a, b], [c, d])

    said(function, *(torch.rand(n, 3).to(dtype) + 0.1 for n in (4, 2, 4, 2)))


def test_gradients_of_a_maximum_and_of_losses_go_to_one_place() -> None:
    x = torch.randn(6, 9)
    said(lambda x: x.max(1)[0] + x.min(1)[0], *gradients(x))
    target = torch.tensor([0, 8, 3, -100, 2, 2])
    for reduction, weights in in_turn(itertools.product(("mean", "sum", "none"), ([], [torch.rand(9)])), 2, "losses"):
        said(
            lambda x, t, *w, r=reduction: F.cross_entropy(x, t, *w, reduction=r, label_smoothing=0.1),
            *gradients(torch.randn(6, 9)),
            target,
            *weights,
        )
    said(F.cross_entropy, *gradients(torch.randn(2, 9, 4, 5)), torch.randint(0, 9, (2, 4, 5)))
    said(F.cross_entropy, *gradients(torch.randn(9)), torch.tensor(4))


SCATTERS: dict[str, Callable[[torch.Tensor], Any]] = {
    "one place a row": lambda x: x.scatter(1, torch.tensor([[2], [0], [6], [6]]), -1.0),
    "fewer rows": lambda x: x.scatter(1, torch.tensor([[2, 2], [0, 1]]), torch.tensor([[5.0, 6.0, 9], [7, 8, 9]])),
    "added": lambda x: x.scatter_add(0, torch.tensor([[2, 2, 0], [0, 2, 0]]), torch.ones(2, 3)),
    "slices": lambda x: x.index_copy(1, torch.tensor([3, 0, 3]), torch.arange(12.0).view(4, 3)),
    "slices added": lambda x: x.index_add(1, torch.tensor([3, 0, 3]), torch.arange(12.0).view(4, 3), alpha=2),
    "slices filled": lambda x: x.index_fill(0, torch.tensor([1, -1]), 7.0),
    "put": lambda x: x.index_put([torch.tensor([[0], [3]]), torch.tensor([-1, 2, 2])], torch.arange(6.0).view(2, 3)),
    "put on one axis": lambda x: aten.index_put(x, [None, torch.tensor([5, 5, 1])], torch.arange(3.0)),
    "put and added": lambda x: x.index_put([torch.tensor([3, 3, 0])], torch.ones(3, 7), accumulate=True),
    "put by a mask": lambda x: x.index_put([x > 0.5], torch.tensor(9.0)),
    "put by a mask of rows": lambda x: x.index_put([x[:, 0] > 0.5], torch.tensor(9.0)),
}


@pytest.mark.parametrize("name", SCATTERS)
def test_scatters_of_few_places(name: str) -> None:
    said(SCATTERS[name], torch.rand(4, 7))


def test_scatters_of_many_places_are_refused() -> None:
    (graph,) = traced(lambda x, i: x.scatter(1, i, 1.0), [torch.rand(4, 9), torch.randint(0, 9, (4, 9))])
    assert outcome(graph).state == "refused"
    assert "more than a few" in outcome(graph).detail


def edges(x: torch.Tensor, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Messages along edges, as libraries for graphs add them up: an index expanded to the shape of what it places."""
    sent = x[source] * 0.5
    return torch.zeros_like(x).scatter_add(0, target.view(-1, 1).expand_as(sent), sent)


MANY: dict[str, Callable[..., Any]] = {
    "added along one axis": lambda x, y, i, j: x.index_add(0, i, y, alpha=3),
    "put and added": lambda x, y, i, j: x.index_put([i - 20], y, accumulate=True),
    "put and added by two indices": lambda x, y, i, j: x.index_put([i, j], y[:, 0], accumulate=True),
    "put and added by indices apart": lambda x, y, i, j: aten.index_put(
        x.view(20, 3, 3), [i, None, j % 3], y[:, :3], True
    ),
    "one value added": lambda x, y, i, j: x.index_put([i], torch.tensor(2.0, dtype=x.dtype), accumulate=True),
    "expanded": lambda x, y, i, j: x.scatter_add(0, i.view(-1, 1).expand(-1, 9), y),
    "expanded, of fewer columns": lambda x, y, i, j: x.scatter_add(0, i.view(-1, 1).expand(-1, 4), y),
    "expanded along rows": lambda x, y, i, j: x.scatter_add(1, j.expand(9, -1), y.t()),
    "of one column": lambda x, y, i, j: x.scatter_add(0, i.view(-1, 1), y),
    "of one axis": lambda x, y, i, j: x[:, 0].scatter_add(0, i, y[:, 2]),
    "reduced by sums": lambda x, y, i, j: x.scatter_reduce(0, i.view(-1, 1).expand(-1, 9), y, "sum"),
    "reduced by sums alone": lambda x, y, i, j: x.scatter_reduce(
        0, j.view(-1, 1).expand(-1, 9), y, "sum", include_self=False
    ),
    "reduced by means": lambda x, y, i, j: x.scatter_reduce(1, j.expand(9, -1), y.t(), "mean"),
    "reduced by means alone": lambda x, y, i, j: x.scatter_reduce(
        0, j.view(-1, 1).expand(-1, 4), y[:, :4], "mean", include_self=False
    ),
    "messages": lambda x, y, i, j: edges(x, i, j + 3),
    "a table's gradient": lambda x, y, i, j: aten.embedding_dense_backward(y, i, 20, -1, False),
    "a table's gradient, padded": lambda x, y, i, j: aten.embedding_dense_backward(
        y.view(3, 11, 9), i.view(3, 11), 20, 5, False
    ),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", MANY)
def test_sums_of_many_places(name: str, dtype: torch.dtype) -> None:
    """Whole numbers: PyTorch rounds sums of 16 bits at every step."""
    x, y = torch.randint(-4, 5, (20, 9)).to(dtype), torch.randint(-4, 5, (33, 9)).to(dtype)
    said(MANY[name], x, y, torch.randint(0, 20, (33,)), torch.randint(0, 9, (33,)))


def test_gradients_of_tables_and_of_rows_picked() -> None:
    table, index = torch.randn(50, 8), torch.randint(0, 50, (6, 70))
    graphs = said(lambda w, i: F.embedding(i, w, padding_idx=3), *gradients(table), index)
    assert [g.kind for g in graphs] == ["forward", "backward"]
    said(lambda w, i: w[i].tanh(), *gradients(torch.randn(50, 8)), index)
    said(lambda w, i: w.index_select(0, i.view(-1)).exp(), *gradients(torch.randn(50, 8)), index)


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8, torch.bool])
def test_sums_of_whole_numbers_wrap(dtype: torch.dtype) -> None:
    x, y = (torch.randint(0, 2 if dtype == torch.bool else 100, (n,)).to(dtype) for n in (10, 90))
    index = torch.randint(0, 10, (90,))
    said(lambda x, y, i: x.index_put([i], y, accumulate=True), x, y, index)
    if dtype != torch.bool:
        said(lambda x, y, i: x.index_add(0, i, y), x, y, index)


def test_masks_of_uint8_are_refused() -> None:
    """PyTorch takes them for masks where values are added, and for nothing else. They were taken for places."""

    def function(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return x.index_put([mask], torch.tensor(1.0), accumulate=True)

    (graph,) = traced(function, [torch.rand(6, 4), torch.randint(0, 2, (6,), dtype=torch.uint8)])
    assert "a mask of uint8" in outcome(graph).detail


@pytest.mark.parametrize("reduce", ["prod", "amax", "amin"])
def test_scatters_by_products_and_extremes_are_refused(reduce: str) -> None:
    tensors = [torch.rand(9, 4), torch.randint(0, 9, (30, 1)).expand(30, 4), torch.rand(30, 4)]
    (graph,) = traced(lambda x, i, y: x.scatter_reduce(0, i, y, reduce), tensors)
    assert f"a scatter by {reduce}" in outcome(graph).detail


def test_places_out_of_range_along_any_axis_add_nothing() -> None:
    """PyTorch raises. One beyond the end of a row was added in the next row."""
    x, y = torch.zeros(6, 4), torch.ones(5)
    i, j = torch.tensor([0, 1, 2, 7, 4]), torch.tensor([0, 4, 2, 3, -5])
    (graph,) = traced(
        lambda x, i, j, y: (x * 2).index_put((i, j), y * 1, accumulate=True), [x, i.clamp(0, 5), j.clamp(-4, 3), y]
    )
    (found,) = run(exported_and_checked(graph.module, examples_of(graph.module)), [x, i, j, y])
    assert found.nonzero().tolist() == [[0, 0], [2, 2]]


def test_sums_by_an_index_of_its_own_for_each_slice_are_refused() -> None:
    tensors = [torch.rand(9, 4), torch.randint(0, 9, (30, 4)), torch.rand(30, 4)]
    (graph,) = traced(lambda x, i, y: x.scatter_add(0, i, y), tensors)
    assert outcome(graph).state == "refused"
    assert "more than a few" in outcome(graph).detail


def test_tables_whose_gradients_are_divided_by_frequency_are_refused() -> None:
    def function(y: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return aten.embedding_dense_backward(y, index, 9, -1, True)

    (graph,) = traced(function, [torch.rand(30, 4), torch.randint(0, 9, (30,))])
    assert "divided by frequency" in outcome(graph).detail


def test_infinite_slices_do_not_spoil_other_sums() -> None:
    source = torch.tensor([[1.0], [float("inf")], [float("nan")]])
    said(lambda x, source: x.index_add(0, torch.tensor([0, 1, 2]), source), torch.rand(5, 1), source)


POOLS: dict[str, Callable[[torch.Tensor], Any]] = {
    "average": lambda x: F.avg_pool2d(x, 3, 2, 1),
    "average of what is inside": lambda x: F.avg_pool2d(x, (3, 2), (2, 3), 1, count_include_pad=False),
    "average, last window cut off": lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
    "average over a number": lambda x: F.avg_pool2d(x, 2, divisor_override=3),
    "average of rows": lambda x: F.avg_pool1d(x[0], 3, 1, 1),
    "average in space": lambda x: F.avg_pool3d(x, (1, 2, 3)),
    "largest": lambda x: F.max_pool2d(x, 3, 2, 1),
    "largest, apart": lambda x: F.max_pool2d(x, 2, 1, 1, dilation=2),
    "largest, last window cut off": lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True),
    "largest in space": lambda x: F.max_pool3d(x, (1, 3, 2), return_indices=True)[0],
    "equal windows": lambda x: F.adaptive_avg_pool2d(x, (2, 4)),
    "one window": lambda x: F.adaptive_avg_pool2d(x, 1),
}


@pytest.mark.parametrize("name", in_turn(POOLS, 3, "pools"))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_pools_and_their_gradients(name: str, dtype: torch.dtype) -> None:
    if (name, dtype) == ("average in space", torch.bfloat16):
        pytest.skip("PyTorch has none")
    said(POOLS[name], *gradients(torch.randn(2, 3, 8, 12).to(dtype)), slack=2)


def test_the_largest_of_windows_of_nan_and_of_minus_infinity() -> None:
    x = torch.randn(1, 1, 6, 6)
    x[0, 0, 1, 1], x[0, 0, 3:, 3:] = float("nan"), float("-inf")
    said(lambda x: F.max_pool2d(x, 3, 1, 1, return_indices=True), x)


def test_strides_over_the_memory_of_a_tensor() -> None:
    x = torch.rand(4, 6)
    said(lambda x: x.as_strided((3, 4), (5, 2), 1) + 1, x)
    said(lambda x: x.as_strided((3, 4), (5, 2), 1) + 1, x.t().contiguous().t())
    said(lambda x: (x * 2).t().contiguous().as_strided((2, 2, 2), (1, 1, 6), 3) + 1, x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_norms_with_weights_and_their_gradients(dtype: torch.dtype) -> None:
    x, w, b = torch.randn(4, 6, 5).to(dtype), torch.rand(6).to(dtype), torch.rand(6).to(dtype)
    said(lambda x, w, b: F.layer_norm(x.transpose(1, 2), (6,), w, b), *gradients(x, w, b), slack=2)
    said(lambda x, w, b: F.group_norm(x, 3, w, b), *gradients(x, w, b), slack=2)
    said(lambda x, b: F.layer_norm(x.transpose(1, 2), (6,), None, b), x.detach(), b.detach())
    said(lambda x, w: F.layer_norm(x.transpose(1, 2), (5, 6), w.expand(5, 6)), *gradients(x, w), slack=2)
    said(lambda x: F.layer_norm(x[0, 0], (5,)), *gradients(x), slack=2)
    said(lambda x, w: F.rms_norm(x.transpose(1, 2), (6,), w), *gradients(x, w), slack=2)
