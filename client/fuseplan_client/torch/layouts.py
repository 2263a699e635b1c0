"""Convolutions on tensors whose channels lie innermost ("channels last").

On CPUs, convolutions by PyTorch (oneDNN) take 1.1 to 2.6 times as long on tensors of the usual layout: f32 and bf16, 4
to 32 images of 64 and 128 channels, 3 x 3, forward and backward (measured with AVX-512 and AMX, PyTorch 2.13; Inductor
turns to this layout for all of them). What lies between convolutions keeps it, as far as it takes any layout; in
groups, a change of layout is how a result is stored. Results of a graph lie as they did.
"""

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg
from torch.utils._pytree import tree_leaves

from fuseplan_client.torch.decompositions import fake_mode_of
from fuseplan_client.torch.kernel_values import steps, value_of
from fuseplan_client.torch.partition import copied
from fuseplan_client.torch.symbols import is_symbolic

aten = torch.ops.aten
# By their arguments that have this layout then.
CONVOLUTIONS: dict[Any, tuple[int, ...]] = {
    aten.convolution.default: (0, 1),
    aten.convolution_backward.default: (0, 1, 2),
}
TRANSPOSED: dict[Any, int] = {aten.convolution.default: 6, aten.convolution_backward.default: 7}  # argument
LEAST_ELEMENTS = 1 << 12  # of a convolution's input: below, a call takes longer than its work
# Elements of the input for each of the weights, by dtype, from which on it is worth to copy both: 28 x 28 pixels of 128
# channels took 12 % less in f32, of which PyTorch's copies are 6, and 32 % less in bf16; four such images 33 and 60 %.
LEAST_IMAGE = {torch.float32: 2.0, torch.bfloat16: 0.5, torch.float16: 0.5}
# Ops that give results in the layout of what they are given, on fake tensors as on others. Not all pointwise ones do:
# `logaddexp`, `copysign` and the logical ones lie otherwise than their fake tensors say where operands are broadcast.
POINTWISE = (
    "abs clamp clamp_max clamp_min elu erf exp gelu gelu_backward hardsigmoid hardsigmoid_backward hardswish "
    "hardswish_backward hardtanh hardtanh_backward leaky_relu leaky_relu_backward log log1p mish neg reciprocal relu "
    "round rsqrt sigmoid sigmoid_backward sign silu silu_backward softplus sqrt tanh tanh_backward threshold_backward"
)
OF_TWO = "add div eq ge gt le lt mul ne sub"  # tensors, or a tensor and a number
FREE = frozenset(
    {
        operator.getitem,
        aten.alias.default,
        aten.avg_pool2d.default,
        aten.clone.default,
        aten.detach.default,
        aten.max_pool2d_with_indices.default,
        aten.maximum.default,
        aten.mean.dim,
        aten.minimum.default,
        aten.native_batch_norm.default,
        aten.native_batch_norm_backward.default,
        aten._native_batch_norm_legit.default,
        aten._native_batch_norm_legit_functional.default,
        aten._native_batch_norm_legit_no_training.default,
        aten.pow.Tensor_Scalar,
        aten._to_copy.default,
        aten.sum.dim_IntList,
        aten.where.self,
        *(getattr(aten, name).default for name in POINTWISE.split()),
        *(getattr(getattr(aten, name), form) for name in OF_TWO.split() for form in ("Tensor", "Scalar")),
    }
)
OF_THE_TRACE = ("val", "tensor_meta", "eager_input_vals")  # parts of a node's `meta` that are about its own value


def channels_last(module: GraphModule) -> GraphModule:
    """The graph with convolutions on channels-last tensors, as a new module; the module itself where it has none that
    would be on others."""
    if not any(_is_slower(node) for node in module.graph.nodes):
        return module
    graph = copied(module.graph)
    mode = fake_mode_of([n.meta.get("val") for n in graph.nodes])
    with torch.no_grad(), mode:
        _Layouts(graph).turn()
    graph.eliminate_dead_code()
    return GraphModule(module, graph)


@dataclass
class _Layouts:
    """A graph whose values get other strides, node by node. before: values as they were traced, of nodes that have
    others now. turned, restored: copies of nodes in the layout of channels last, and in that of before."""

    graph: Graph
    before: dict[Node, Any] = field(default_factory=dict)
    turned: dict[Node, Node] = field(default_factory=dict)
    restored: dict[Node, Node] = field(default_factory=dict)

    def turn(self) -> None:
        """Turns all convolutions, and what lies between them."""
        for node in list(self.graph.nodes):
            if node.op == "call_function":
                self._call(node)
            else:
                self._restore_operands(node)

    def _restore_operands(self, node: Node) -> None:
        node.args = map_arg(node.args, lambda n: self._restored(n, node))
        node.kwargs = map_arg(node.kwargs, lambda n: self._restored(n, node))

    def _call(self, node: Node) -> None:
        if _is_slower(node):
            places = CONVOLUTIONS[node.target]
            node.args = tuple(self._turned(a, node) if i in places else a for i, a in enumerate(node.args))
        elif node.target in FREE:
            self._agree(node)
        else:
            self._restore_operands(node)
        if any(n in self.before or n in self.turned.values() for n in node.all_input_nodes):
            self._follow(node)

    def _agree(self, node: Node) -> None:
        """Where one operand of an op lies so, all of the same rank do: what it gives does then, too."""
        operands = [n for n in node.all_input_nodes if _is_image(n.meta.get("val"))]
        if any(n in self.before or n in self.turned.values() for n in operands):
            node.args = map_arg(node.args, lambda n: self._turned(n, node) if n in operands else n)
            node.kwargs = map_arg(node.kwargs, lambda n: self._turned(n, node) if n in operands else n)

    def _follow(self, node: Node) -> None:
        """Gives a node the value of its operands' layouts."""
        args, kwargs = map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
        value, old = value_of(node.target, args, kwargs), node.meta.get("val")
        if _strides(value) != _strides(old):
            self.before[node] = old
            node.meta["val"] = value
            node.meta.pop("tensor_meta", None)

    def _turned(self, node: Any, reader: Node) -> Any:
        if not isinstance(node, Node) or _lies_so(node.meta["val"]):
            return node
        if node not in self.turned:
            self.turned[node] = self._copy(node, reader, torch.channels_last)
        return self.turned[node]

    def _restored(self, node: Node, reader: Node) -> Node:
        if node not in self.before or not isinstance(node.meta["val"], torch.Tensor):
            return node
        if node not in self.restored:
            self.restored[node] = self._as_before(node, reader, self.before[node])
        return self.restored[node]

    def _as_before(self, node: Node, reader: Node, old: torch.Tensor) -> Node:
        """The node's value with the strides of `old`. Raises ValueError where these leave gaps, or meet."""
        if steps(node.meta["val"]) == steps(old):  # but for axes of one element, whose strides say nothing
            return self._made(node, reader, aten.as_strided.default, (node, [*old.shape], [*old.stride()]), {})
        outward = sorted(range(old.dim()), key=lambda i: (-old.stride()[i], i))
        made = node
        if outward != sorted(outward):
            made = self._made(made, reader, aten.permute.default, (made, outward), {})
        made = self._copy(made, reader, torch.contiguous_format)
        if outward != sorted(outward):
            back = sorted(range(old.dim()), key=outward.__getitem__)
            made = self._made(made, reader, aten.permute.default, (made, back), {})
        if steps(made.meta["val"]) != steps(old):
            raise ValueError(f"a result with strides {old.stride()} among convolutions")
        if made.meta["val"].stride() != old.stride():
            made = self._made(made, reader, aten.as_strided.default, (made, [*old.shape], [*old.stride()]), {})
        return made

    def _copy(self, node: Node, reader: Node, form: torch.memory_format) -> Node:
        return self._made(node, reader, aten.clone.default, (node,), {"memory_format": form})

    def _made(self, node: Node, reader: Node, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Node:
        with self.graph.inserting_before(reader):
            made = self.graph.call_function(op, args, kwargs)
        of = node if reader.op == "output" else reader  # says whether it is of the backward pass
        made.meta = {k: v for k, v in of.meta.items() if k not in OF_THE_TRACE}
        made.meta["val"] = op(node.meta["val"], *args[1:], **kwargs)
        return made


def _is_slower(node: Node) -> bool:
    """Whether a convolution is in two dimensions, on a CPU, and on a large image that lies otherwise."""
    if node.op != "call_function" or node.target not in CONVOLUTIONS or node.args[TRANSPOSED[node.target]]:
        return False
    operands: list[Any] = [node.args[i] for i in CONVOLUTIONS[node.target]]
    values: list[Any] = [n.meta.get("val") for n in operands]
    if not all(_is_image(v) and v.device.type == "cpu" and v.dtype in LEAST_IMAGE for v in values):
        return False
    *_, x, w = values
    least = max(LEAST_ELEMENTS, LEAST_IMAGE[x.dtype] * w.numel())
    return x.numel() >= least and not all(map(_lies_so, values))


def _is_image(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() == 4 and not is_symbolic(value)


def _lies_so(value: torch.Tensor) -> bool:
    return value.is_contiguous(memory_format=torch.channels_last)


def _strides(value: Any) -> Sequence[Any]:
    return [v.stride() if isinstance(v, torch.Tensor) else None for v in tree_leaves((value,))]
