"""Dtypes and layouts that PyTorch's CPU kernels give where its fake tensors foresee others (PyTorch 2.13).

A norm of bf16 or f16 with parameters in f32, as under autocast, keeps its statistics in f32; fake tensors say bf16 or
f16. Its backward kernel takes no others (PyTorch 2.13: "mixed dtype (CPU): expect parameter to have scalar type of
Float"). New running statistics have the dtype of the old ones.

Norms of tensors that lie otherwise than row-major, or channels-last, give row-major ones; fake tensors lie as their
operands. What reads those lies otherwise, too, and a `view` of the traced graph may be none of what a kernel gave.

Of pointwise ops that have kernels of their own, fake tensors lie as what these are decomposed into does. The kernels
have orders of operands of their own, or give row-major tensors.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch._prims_common import suggest_memory_format
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.utils._pytree import tree_leaves, tree_map

from fuseplan_client.torch.symbols import is_symbolic

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


def _like(place: int) -> Callable[[Sequence[Value]], torch.memory_format]:
    """The memory format that an operand has, row-major where it has several, or none."""

    def form(args: Sequence[Value]) -> torch.memory_format:
        return next((f for f in FORMATS.get(args[place].dim(), ()) if _lies(args[place], f)), torch.contiguous_format)

    return form


def _suggested(place: int) -> Callable[[Sequence[Value]], torch.memory_format]:
    """The memory format that PyTorch's `suggest_memory_format` says for an operand, of which strides of axes with one
    element tell, too; row-major where the operand has another."""

    def form(args: Sequence[Value]) -> torch.memory_format:
        found: torch.memory_format = suggest_memory_format(args[place])
        return found if _lies(args[place], found) else torch.contiguous_format

    return form


def _lies(value: torch.Tensor, form: torch.memory_format) -> bool:
    return value.is_contiguous(memory_format=form)


FORMATS = {
    4: (torch.contiguous_format, torch.channels_last),
    5: (torch.contiguous_format, torch.channels_last_3d),
}
# The memory format of the first result, by the arguments; of graphs that are `tolerant`.
LAYOUTS: Mapping[Any, Callable[[Sequence[Value]], torch.memory_format]] = {
    aten.native_batch_norm.default: _like(0),
    aten._native_batch_norm_legit.default: _like(0),
    aten._native_batch_norm_legit.no_stats: _like(0),
    aten._native_batch_norm_legit_no_training.default: _like(0),
    aten._native_batch_norm_legit_functional.default: _like(0),
    aten.native_group_norm.default: _suggested(0),
    aten.native_batch_norm_backward.default: _suggested(1),
    aten.native_group_norm_backward.default: _suggested(1),
    aten.native_layer_norm_backward.default: lambda args: torch.contiguous_format,
}
# Ops whose results lie as the sum of these operands would, added in this order.
SUMS: Mapping[Any, Sequence[int]] = {
    **dict.fromkeys(
        (
            aten.softplus_backward.default,
            aten.hardswish_backward.default,
            aten.hardsigmoid_backward.default,
            aten.hardtanh_backward.default,
            aten.logit_backward.default,
            aten.native_dropout_backward.default,
            aten.copysign.Tensor,
            aten.floor_divide.default,
            aten.div.Tensor_mode,
            aten.xlogy.Tensor,
            aten.logaddexp.default,
            aten.heaviside.default,
        ),
        (0, 1),
    ),
    aten.leaky_relu_backward.default: (1, 0),
    aten.threshold_backward.default: (1, 0),
    aten._prelu_kernel_backward.default: (1, 0),
    aten.elu_backward.default: (0, 5),
    aten.huber_loss.default: (0,),
    aten.binary_cross_entropy.default: (0,),
    aten.log_sigmoid_backward.default: (0,),
}
ROW_MAJOR = (
    aten.glu_backward.default,
    aten._log_softmax_backward_data.default,
    aten.mse_loss_backward.default,
    aten.huber_loss_backward.default,
    aten.smooth_l1_loss_backward.default,
    aten.log_sigmoid_forward.default,
    aten.pow.Scalar,
)
# As `suggest_memory_format` has it for this operand.
SUGGESTED: Mapping[Any, int] = {
    aten.roll.default: 0,
    aten.channel_shuffle.default: 0,
    aten.reflection_pad2d_backward.default: 1,
}
SAME = (aten.detach.default, aten.alias.default)
VIEWS = (aten.view.default, aten._unsafe_view.default)


def value_of(target: Any, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    """Results of a kernel, as a fake tensor or several, for fake tensors in their mode. A `view` of a tensor that it
    is none of is a copy: see `tolerant`."""
    try:
        results = target(*args, **kwargs)
    except (RuntimeError, ValueError):
        if target not in VIEWS:
            raise
        results = aten.reshape.default(*args, **kwargs)
    first = next((v for v in tree_leaves((results,)) if isinstance(v, torch.Tensor)), None)
    return _given(target, args, results) if first is not None and first.device.type == "cpu" else results


def foresee(module: GraphModule) -> None:
    """Puts into the values that nodes are known by what the kernels will give, in place."""
    changed = set[Node]()
    for node in module.graph.nodes:
        old = node.meta.get("val")
        first = next((v for v in tree_leaves((old,)) if isinstance(v, FakeTensor)), None)
        if node.op != "call_function" or first is None or first.device.type != "cpu":
            continue
        with torch.no_grad(), first.fake_mode:
            new = _foreseen(node, old, changed)
        if described(new) != described(old):
            node.meta["val"] = new
            node.meta.pop("tensor_meta", None)
            changed.add(node)


def described(value: Value) -> Sequence[Any]:
    """Dtype and layout of each tensor in a value, but for strides of axes with one element."""
    tensors = [v if isinstance(v, torch.Tensor) else None for v in tree_leaves((value,), is_leaf=lambda v: v is None)]
    return [None if t is None else (t.dtype, *t.shape, *steps(t)) for t in tensors]


def steps(value: torch.Tensor) -> Sequence[int]:
    """Strides of the axes with more than one element."""
    return [stride for n, stride in zip(value.shape, value.stride(), strict=True) if n != 1]


def _foreseen(node: Node, old: Value, changed: set[Node]) -> Value:
    """The value of a node, some of whose operands may have another one than when it was traced."""
    given: Any = map_arg((node.args, node.kwargs), lambda n: n.meta.get("val"))
    args, kwargs = given
    if changed.isdisjoint(node.all_input_nodes):
        return _given(node.target, args, old)
    if node.target is operator.getitem:
        return args[0][args[1]]
    if node.target in SAME:
        return args[0]
    if any(map(is_symbolic, tree_leaves((args, old)))):  # what it is made of again would add guards to its sizes
        return old
    try:
        return value_of(node.target, args, kwargs)
    except (RuntimeError, ValueError, TypeError):  # fake kernels that take no operands of two dtypes, as real ones do
        return old


def _given(target: Any, args: Sequence[Value], results: Value) -> Value:
    """Results as fake tensors foresee them, with dtypes and layouts of the kernel's."""
    if target in SUMS or target in ROW_MAJOR or target in SUGGESTED:
        if any(map(is_symbolic, tree_leaves((args, results)))):
            return results
        return tree_map(partial(_laid_out, target, args), results)
    if not isinstance(results, tuple) or not (target in KERNELS or target in LAYOUTS):
        return results
    dtypes = KERNELS[target](args) if target in KERNELS else {}
    found = [_of(value, dtypes.get(i)) for i, value in enumerate(results)]
    if target in LAYOUTS and isinstance(found[0], torch.Tensor) and not is_symbolic(found[0]):
        found[0] = found[0].contiguous(memory_format=LAYOUTS[target](args))
    return tuple(found)


def _laid_out(target: Any, args: Sequence[Value], value: Value) -> Value:
    """A result of a kernel that is named in SUMS, ROW_MAJOR or SUGGESTED."""
    if not isinstance(value, torch.Tensor):
        return value
    if target in SUGGESTED:
        return value.contiguous(memory_format=_suggested(SUGGESTED[target])(args))
    if target in ROW_MAJOR:
        return value.contiguous()
    first, *others = (args[i] for i in SUMS[target])
    like: torch.Tensor = aten.add.Tensor(first, others[0]) if others else aten.clone.default(first)
    if not isinstance(like, torch.Tensor) or like.shape != value.shape:  # reduced, or of numbers
        return value
    return torch.empty_strided(value.shape, like.stride(), dtype=value.dtype, device=value.device)


def _of(value: Value, dtype: torch.dtype | None) -> Value:
    return value.to(dtype) if dtype is not None and isinstance(value, torch.Tensor) else value
