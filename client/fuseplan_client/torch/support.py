"""Which nodes the wire format has words for: each is tried by itself, once for each op, shapes and arguments."""

import operator
from collections.abc import Hashable, Set
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Node
from torch.fx.node import map_arg
from torch.utils._pytree import tree_leaves, tree_map

from fuseplan_client.torch.aten.table import LOWERINGS
from fuseplan_client.torch.aten.views import LAYOUT_OPS
from fuseplan_client.torch.decompositions import UNKNOWN_SHAPES, fake_mode_of, lowered, name_of
from fuseplan_client.torch.draws import DRAWS
from fuseplan_client.torch.export import plain, unreadable
from fuseplan_client.torch.symbols import SYMBOLS, hint, is_symbolic
from fuseplan_client.torch.wire import Refused, Tensor, Writer

COMPOSITES = frozenset(("gelu", "layer_norm", "log_softmax", "softmax"))
SEVERAL = 4  # ops that one of these stands for, at least


@dataclass(frozen=True)
class Verdict:
    """said: a plan can compute the node. direct: by a lowering, not a decomposition. reason: why it cannot. steps: ops
    of the wire format that it takes; those that stand for several count as such."""

    said: bool
    direct: bool = False
    reason: str = ""
    steps: int = 0


@dataclass
class Support:
    """Verdicts on nodes. device: that plans are for, as PyTorch names it. left: ops that are to stay with PyTorch."""

    device: str = "cpu"
    left: Set[Any] = frozenset()
    _of_nodes: dict[Node, Verdict] = field(default_factory=dict)
    _of_calls: dict[Hashable, Verdict] = field(default_factory=dict)

    def verdict(self, node: Node) -> Verdict:
        """The verdict on one node."""
        if node.op != "call_function":
            return Verdict(False, reason="no call")
        if node not in self._of_nodes:
            self._of_nodes[node] = self._verdict(node)
        return self._of_nodes[node]

    def _verdict(self, node: Node) -> Verdict:
        if node.target is operator.getitem:
            source = node.args[0]
            return self.verdict(source) if isinstance(source, Node) else Verdict(False, reason="no call")
        if node.target in self.left:
            return Verdict(False, reason="left to PyTorch")
        if node.target in DRAWS:
            return Verdict(False, reason="draws random numbers")
        schema = getattr(node.target, "_schema", None)
        if schema is None:
            return Verdict(False, reason=f"no such op: {name_of(node.target)}")
        if schema.is_mutable:
            return Verdict(False, reason=f"mutation in place: {name_of(node.target)}")
        if not any(isinstance(v, torch.Tensor) for v in tree_leaves((node.meta.get("val"),))):
            return Verdict(False, reason="gives no tensor")
        if elsewhere := self._elsewhere(node):
            return Verdict(False, reason=f"on {elsewhere}")
        try:
            key = node.target, signature((node.args, node.kwargs)), _layout(node)
        except TypeError:
            return self._tried(node)
        if key not in self._of_calls:
            self._of_calls[key] = self._tried(node)
        return self._of_calls[key]

    def _elsewhere(self, node: Node) -> str:
        """Another device that a tensor of the op's is on, "" where none is."""
        values = tree_leaves([n.meta.get("val") for n in (*node.all_input_nodes, node)])
        found = (str(v.device) for v in values if isinstance(v, torch.Tensor))
        return next((device for device in found if device != self.device), "")

    def _tried(self, node: Node) -> Verdict:
        try:
            steps = _write(node)
        except Refused as refused:
            return Verdict(False, reason=str(refused))
        except UNKNOWN_SHAPES:
            return Verdict(False, reason=f"{name_of(node.target)}: what it gives depends on data")
        except Exception as error:  # a fault of ours costs this op, never the program
            return Verdict(False, reason=f"fault: {type(error).__name__}: {str(error)[:200]}")
        return Verdict(True, direct=node.target in LOWERINGS, steps=steps)


def _layout(node: Node) -> Hashable:
    """Strides of the operand of an op whose lowering depends on them."""
    if node.target not in LAYOUT_OPS:
        return None
    value = node.args[LAYOUT_OPS[node.target]].meta["val"]  # type: ignore[union-attr]
    return tuple(map(hint, value.stride())), hint(value.storage_offset())


def _write(node: Node) -> int:
    """Writes the node's op alone, of operands as they are known before the first call. Returns `Verdict.steps`. Raises
    Refused."""
    writer = Writer()
    mode = fake_mode_of([n.meta.get("val") for n in (*node.all_input_nodes, node)])
    metas = {n: concrete(n.meta["val"], mode) for n in node.all_input_nodes}

    def operand(n: Node) -> Any:
        return tree_map(lambda v: _input(writer, v), metas[n])

    args, kwargs = plain(map_arg((node.args, node.kwargs), operand))
    out = node.meta["val"]
    if any(is_symbolic(v) for v in tree_leaves((out, [n.meta["val"] for n in node.all_input_nodes]))):
        fake_args, fake_kwargs = map_arg((node.args, node.kwargs), metas.__getitem__)
        with torch.no_grad(), mode:
            out = node.target(*fake_args, **fake_kwargs)  # type: ignore[operator]
    with torch.no_grad():
        operands = map_arg(node.args, metas.__getitem__) if node.target in LAYOUT_OPS else ()
        lowered(writer, mode, node.target, args, kwargs, out, operands)
    return sum(SEVERAL if row["op"] in COMPOSITES else 1 for row in writer.nodes)


def _input(writer: Writer, value: Any) -> Any:
    name = f"i{len(writer.inputs)}"
    if isinstance(value, torch.Tensor):
        if reason := unreadable(value):
            raise Refused(reason)
        return writer.input(name, value.shape, value.dtype)
    if isinstance(value, float):
        return Tensor(writer, writer.input(name, (), torch.float64).name, (), torch.float64, number=True)
    return value


def concrete(value: Any, mode: FakeTensorMode) -> Any:
    """A value of whole sizes for one whose sizes are symbols: those that it was traced with."""
    if isinstance(value, torch.Tensor) and is_symbolic(value):
        sizes, strides = [hint(n) for n in value.shape], [hint(n) for n in value.stride()]
        with mode:
            return torch.empty_strided(sizes, strides, dtype=value.dtype, device=value.device)
    if isinstance(value, SYMBOLS):
        return hint(value)
    if isinstance(value, list | tuple):
        return type(value)(concrete(v, mode) for v in value)
    return value


def signature(value: Any) -> Hashable:
    """Facts of a value that its lowering depends on: of nodes those of their results. Raises TypeError for others."""
    if isinstance(value, Node):
        return "node", signature(value.meta.get("val"))
    if isinstance(value, torch.Tensor):
        sizes = tuple(map(hint, value.shape))
        return sizes, value.dtype, unreadable(value)
    if isinstance(value, SYMBOLS):
        return "symbol", type(value).__name__, hint(value)
    if isinstance(value, list | tuple):
        return tuple(map(signature, value))
    if isinstance(value, dict):
        return tuple((k, signature(v)) for k, v in sorted(value.items()))
    hash(value)
    return type(value).__name__, repr(value) if isinstance(value, float) else value
