"""Dtypes that PyTorch's CPU kernels give where its fake tensors foresee others.

A norm of bf16 or f16 with parameters in f32, as under autocast, keeps its statistics in f32; fake tensors say bf16 or
f16. Its backward kernel takes no others (PyTorch 2.13: "mixed dtype (CPU): expect parameter to have scalar type of
Float"). New running statistics have the dtype of the old ones.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule, Node

aten = torch.ops.aten

Value = Any  # a node's argument or result: a fake tensor, where it is a tensor
Foreseen = Callable[[Sequence[Value]], Mapping[int, torch.dtype]]


def _norm(parameters: Sequence[int], running: Sequence[int] = ()) -> Foreseen:
    """parameters: positions of arguments, any of which may be None; statistics are results 1 and 2. running: positions
    of the old ones, in whose places from result 3 on the new ones are."""

    def dtypes(args: Sequence[Value]) -> Mapping[int, torch.dtype]:
        given = [args[i] for i in parameters if i < len(args) and isinstance(args[i], torch.Tensor)]
        dtype: torch.dtype = given[0].dtype if given else args[0].dtype
        new = {3 + k: args[i].dtype for k, i in enumerate(running) if isinstance(args[i], torch.Tensor)}
        return {1: dtype, 2: dtype, **new}

    return dtypes


def _group_norm_backward(args: Sequence[Value]) -> Mapping[int, torch.dtype]:
    """The gradient of the input has the input's dtype, by way of f32 statistics."""
    return {0: args[1].dtype}


KERNELS: Mapping[Any, Foreseen] = {
    aten.native_layer_norm.default: _norm((2, 3)),
    aten.native_group_norm.default: _norm((1, 2)),
    aten.native_group_norm_backward.default: _group_norm_backward,
    aten._native_batch_norm_legit.no_stats: _norm((1, 2)),
    aten._native_batch_norm_legit_no_training.default: _norm((1, 2, 3, 4)),
    aten._native_batch_norm_legit_functional.default: _norm((1, 2, 3, 4), (3, 4)),
}
SAME = (aten.detach.default, aten.alias.default)


def foresee(module: GraphModule) -> None:
    """Puts into the values that nodes are known by what the kernels will give, in place."""
    for node in module.graph.nodes:
        kernel, results = KERNELS.get(node.target), node.meta.get("val")
        first = next((r for r in results if isinstance(r, FakeTensor)), None) if isinstance(results, tuple) else None
        if kernel is None or first is None or first.device.type != "cpu":  # of a gradient that nobody asks for: None
            continue
        dtypes = kernel([a.meta.get("val") if isinstance(a, Node) else a for a in node.args])
        with torch.no_grad(), first.fake_mode:
            found = tuple(_of(value, dtypes.get(i)) for i, value in enumerate(results))
        node.meta["val"] = found
        for user in node.users:
            if user.target is operator.getitem:
                _give(user, found[user.args[1]])


def _give(node: Node, value: Value) -> None:
    """Notes the value of a node, and of those that only pass it on."""
    node.meta["val"] = value
    for user in node.users:
        if user.target in SAME:
            _give(user, value)


def _of(value: Value, dtype: torch.dtype | None) -> Value:
    return value.to(dtype) if dtype is not None and isinstance(value, torch.Tensor) else value
