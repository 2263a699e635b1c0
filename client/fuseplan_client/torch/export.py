"""A graph module of aten ops, whose nodes know their values' shapes, as a graph of the wire format.

Outputs are what PyTorch's are: views of inputs stay views, the same tensor twice is one, and an input that is handed on
is that input; `Exported` says so, and the body has none of it.
"""

import operator
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.utils._pytree import tree_leaves, tree_map

from fuseplan_client.torch.aten.views import LAYOUT_OPS
from fuseplan_client.torch.decompositions import UNKNOWN_SHAPES, fake_mode_of, lowered, name_of
from fuseplan_client.torch.excess_precision import is_pointwise, widened
from fuseplan_client.torch.kernel_values import value_of
from fuseplan_client.torch.symbols import SYMBOLS, hint, is_symbolic
from fuseplan_client.torch.tensor_layout import Layout, Seen, layout_of
from fuseplan_client.torch.wire import MOST_ALIGNMENT_BYTES, MOST_NODES, Refused, Tensor, Writer

NOTHING = "nothing is computed"


@dataclass(frozen=True)
class Read:
    """An input of the body: one of the module's, or what is stored of it where it repeats itself.

    position: among the module's inputs. sizes, strides: of the tensor to pass, in elements, which begins where the
    module's input does; an axis that repeats has extent 1 here. alignment_bytes: of its first element, at least.
    number: the module's input is a Python float, to be passed as an f64 tensor without axes.
    """

    position: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    alignment_bytes: int
    number: bool = False


@dataclass(frozen=True)
class Buffer:
    """Memory that an output of the body is written to: strides in elements, no element twice."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class View:
    """A view of a tensor, as `as_strided` makes it; strides and offset in elements, this from the tensor's own."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class Output:
    """An output of the module. computed: the body's output `index`; input: the module's input `index`; value: `value`,
    a number or None. view: of that tensor, where it is not the whole as it is."""

    source: Literal["computed", "input", "value"]
    index: int = 0
    view: View | None = None
    value: int | float | bool | None = None


@dataclass(frozen=True)
class Exported:
    """body: the wire graph as a JSON value. reads: its inputs, in order. buffers: its outputs, in order. outputs: the
    module's outputs, in its order. sequence: the module gives a tuple or list, not one tensor."""

    body: dict[str, Any]
    reads: tuple[Read, ...]
    buffers: tuple[Buffer, ...]
    outputs: tuple[Output, ...]
    sequence: bool


def export(
    module: GraphModule,
    examples: Sequence[Any],
    alignment_bytes: int = 16,
    *,
    excess_precision: bool = False,
    seen: Seen | None = None,
) -> Exported:
    """The module's graph for inputs like `examples`: fake tensors of whole sizes; or numbers, of which integers and
    bools become part of the graph, and floats inputs of it.

    alignment_bytes: of the first elements of tensors at offset 0 of their storage. excess_precision: values of bf16
    that one op alone reads need not be rounded (`excess_precision.widened`). seen: what the ops gave for such inputs,
    where that is not what the module foresaw. Raises Refused with the reason, and LoweringFault for a fault of ours.
    """
    return _Export(module, examples, alignment_bytes, excess_precision, seen).exported()


class _Export:
    def __init__(
        self,
        module: GraphModule,
        examples: Sequence[Any],
        alignment_bytes: int,
        excess_precision: bool,
        seen: Seen | None,
    ) -> None:
        self.module, self.seen = module, seen
        self.alignment_bytes, self.excess_precision = alignment_bytes, excess_precision
        self.writer = Writer()
        self.mode = fake_mode_of(examples)
        self.examples = [_faked(e, self.mode) for e in examples]
        self.metas: dict[Node, Any] = {}  # results as PyTorch has them: fake tensors of whole sizes, and numbers
        self.values: dict[Node, Any] = {}  # the same with tensors of the wire
        self.positions: dict[Node, int] = {}
        self.reads: dict[str, Read] = {}
        self.rounded: set[str] = set()  # results of pointwise ops, by their names on the wire
        self.known = _are_those_of(module, self.examples)

    def exported(self) -> Exported:
        """Writes everything. Raises Refused."""
        placeholders = [n for n in self.module.graph.nodes if n.op == "placeholder"]
        for position, (node, example) in enumerate(zip(placeholders, self.examples, strict=True)):
            self._input(node, position, example)
        results: Any = ()
        with torch.no_grad():
            for node in self.module.graph.nodes:
                match node.op:
                    case "placeholder":
                        continue
                    case "call_function":
                        self._call(node)
                    case "output":
                        results = node.args[0]
                    case "get_attr":
                        self._attribute(node)
                    case _:
                        raise Refused(f"a node of kind {node.op}")
        sequence = isinstance(results, tuple | list)
        buffers: dict[Node, tuple[int, Buffer]] = {}
        outputs = tuple(self._output(r, buffers) for r in (results if sequence else (results,)))
        if not self.writer.outputs:
            raise Refused(NOTHING)
        body = self.writer.body()
        if self.excess_precision:
            given = [row["node"] for row in body["outputs"]]
            nodes = widened(body["nodes"], given, self.writer.dtypes, self.rounded)
            body["nodes"] = nodes if len(nodes) <= MOST_NODES else body["nodes"]
        reads = tuple(self.reads[row["name"]] for row in body["inputs"])
        return Exported(body, reads, tuple(b for _, b in buffers.values()), outputs, sequence)

    def _input(self, node: Node, position: int, example: Any) -> None:
        self.metas[node], self.positions[node] = example, position
        if not node.users:
            return
        name = f"i{position}"
        if isinstance(example, float):
            found = self.writer.input(name, (), torch.float64, (), 8)
            self.reads[name] = Read(position, (), (), torch.float64, 8, number=True)
            self.values[node] = Tensor(self.writer, found.name, (), torch.float64, number=True)
        elif not isinstance(example, torch.Tensor):
            self.values[node] = example
        else:
            reason = unreadable(example)
            self.values[node] = _Unreadable(reason) if reason else self._read(name, position, example)

    def _read(self, name: str, position: int, example: torch.Tensor) -> Tensor:
        """A tensor that is read; along axes that repeat, what is stored of it, broadcast."""
        repeats = [s == 0 and n > 1 for n, s in zip(example.shape, example.stride(), strict=True)]
        sizes = tuple(1 if r else n for n, r in zip(example.shape, repeats, strict=True))
        strides = tuple(1 if r else s for s, r in zip(example.stride(), repeats, strict=True))
        offset = int(example.storage_offset()) * example.element_size()
        alignment = min(self.alignment_bytes, MOST_ALIGNMENT_BYTES)
        while offset % alignment:
            alignment //= 2
        found = self.writer.input(name, sizes, example.dtype, strides, alignment)
        self.reads[name] = Read(position, sizes, strides, example.dtype, max(alignment, example.element_size()))
        return found.broadcast(example.shape)

    def _attribute(self, node: Node) -> None:
        """A tensor constant of the module: its value, where it has one element."""
        value: Any = self.module
        for part in str(node.target).split("."):
            value = getattr(value, part)
        if not isinstance(value, torch.Tensor) or isinstance(value, FakeTensor) or value.numel() != 1:
            raise Refused("a tensor constant inside the graph")
        self.metas[node] = self.mode.from_tensor(value)
        self.values[node] = self.writer.full(tuple(value.shape), value.item(), value.dtype)

    def _call(self, node: Node) -> None:
        args, kwargs = plain(map_arg((node.args, node.kwargs), self._value))
        if node.target is operator.getitem:
            self.metas[node] = self.metas[node.args[0]][node.args[1]]  # type: ignore[index]
            self.values[node] = args[0][args[1]]
            return
        out = self.metas[node] = self._meta(node)
        if not any(isinstance(v, torch.Tensor) for v in tree_leaves((out,))):
            self.values[node] = self._number(node, args, kwargs, out)
            return
        schema = getattr(node.target, "_schema", None)
        if schema is None:
            raise Refused(f"no such op: {name_of(node.target)}")
        if schema.is_mutable:
            raise Refused(f"mutation in place: {name_of(node.target)}")
        operands = map_arg(node.args, self._traced) if node.target in LAYOUT_OPS else ()
        before = len(self.writer.nodes)
        found = self.values[node] = lowered(self.writer, self.mode, node.target, args, kwargs, out, operands)
        if is_pointwise(node.target):  # what a copy hands on is another op's
            new = {row["name"] for row in self.writer.nodes[before:]}
            self.rounded |= new.intersection(t.name for t in tree_leaves((found,)) if isinstance(t, Tensor))

    def _value(self, node: Node) -> Any:
        value = self.values[node]
        if isinstance(value, _Unreadable):
            raise Refused(value.reason)
        return value

    def _traced(self, node: Node) -> Any:
        """A value as the trace foresaw it: its layout is the one that `as_strided` reads by (`tolerant`)."""
        value = node.meta.get("val")
        return self.metas[node] if value is None or is_symbolic(value) else value

    def _meta(self, node: Node) -> Any:
        """PyTorch's result of a node for these examples."""
        if self.seen is not None:
            return tree_map(lambda v: v.faked(self.mode) if isinstance(v, Layout) else v, self.seen.values[node])
        if self.known and "val" in node.meta:
            return node.meta["val"]
        args, kwargs = map_arg((node.args, node.kwargs), self.metas.__getitem__)
        try:
            with self.mode:
                return value_of(node.target, args, kwargs)
        except UNKNOWN_SHAPES:
            raise Refused(f"{name_of(node.target)}: what it gives depends on data") from None

    def _number(self, node: Node, args: Any, kwargs: Any, out: Any) -> Any:
        """A number that is computed of others. Those of floats that are known at run time alone are so, too."""
        given = [v for v in tree_leaves((args, kwargs)) if isinstance(v, Tensor) and v.number]
        if not given:
            if not isinstance(out, int | float | bool | type(None)):
                raise Refused(f"{name_of(node.target)}: what it gives depends on data")
            return out
        op = _ARITHMETIC.get(node.target) if callable(node.target) else None
        if op is None or kwargs or len(args) > 2:
            raise Refused(f"{name_of(node.target)} of numbers that are known at run time alone")
        first, *others = (self.writer.value(a, torch.float64) for a in args)
        found = first.pointwise(op, *others)
        return Tensor(self.writer, found.name, (), torch.float64, number=True)

    def _output(self, result: Any, buffers: dict[Node, tuple[int, Buffer]]) -> Output:
        if not isinstance(result, Node):
            return Output("value", value=result)
        meta = self.metas[result]
        if not isinstance(meta, torch.Tensor):
            value = self.values.get(result, meta)
            if isinstance(value, Tensor):
                raise Refused("an output that is a number known at run time alone")
            return Output("value", value=value)
        root = root_of(result, self.seen.copies if self.seen is not None else ())
        base = self.metas[root]
        if meta.dtype != base.dtype:
            raise Refused("an output whose bits are another tensor's in another dtype")
        if base.is_conj() != meta.is_conj() or base.is_neg() != meta.is_neg():
            raise Refused("an output that is conjugate or negative when it is read")
        view = None
        if root is not result:
            offset = int(meta.storage_offset()) - int(base.storage_offset())
            view = View(tuple(meta.shape), tuple(meta.stride()), offset)
        if root.op == "placeholder":
            return Output("input", self.positions[root], view)
        if root not in buffers:
            value = self._value(root)
            strides = tuple(base.stride())
            if not _written(base.shape, strides):
                raise Refused("an output that repeats itself (stride 0) or overlaps")
            self.writer.output(value, strides, f"o{len(buffers)}")
            buffers[root] = len(buffers), Buffer(tuple(base.shape), strides, base.dtype)
        return Output("computed", buffers[root][0], view)


@dataclass(frozen=True)
class _Unreadable:
    """An input that no wire graph can read, which matters where one does."""

    reason: str


_ARITHMETIC: Mapping[Callable[..., Any], str] = {
    operator.add: "add",
    operator.sub: "sub",
    operator.mul: "mul",
    operator.truediv: "div",
    operator.neg: "neg",
    operator.pow: "pow",
}


def plain(value: Any) -> Any:
    """Arguments with lists and dicts of their own: those of nodes cannot be changed, which decompositions may do."""
    if isinstance(value, list | tuple):
        made = [plain(v) for v in value]
        return tuple(made) if isinstance(value, tuple) else made
    return {k: plain(v) for k, v in value.items()} if isinstance(value, dict) else value


def root_of(node: Node, copies: Container[Node] = ()) -> Node:
    """The node whose memory a node's result is in: itself, or what it is a view of. copies: nodes that gave none."""
    while True:
        if node.op != "call_function":
            return node
        if node.target is operator.getitem:
            source = node.args[0]
            if not (isinstance(source, Node) and is_view(source)) or source in copies:
                return node
            node = source
        if not is_view(node) or node in copies:
            return node
        node = node.args[0]  # type: ignore[assignment]


def is_view(node: Node) -> bool:
    """Whether an op gives views of its first operand, by its schema."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or schema.is_mutable or not schema.arguments or not schema.returns:
        return False
    aliased = schema.arguments[0].alias_info
    return (
        aliased is not None
        and all(r.alias_info is not None for r in schema.returns)
        and bool(node.args and isinstance(node.args[0], Node))
    )


def _written(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether axes nest, so that no element is there twice."""
    if 0 in sizes:
        return True
    span = 1
    for stride, n in sorted((s, n) for s, n in zip(strides, sizes, strict=True) if n > 1):
        if stride < span:
            return False
        span += (n - 1) * stride
    return True


def unreadable(example: torch.Tensor) -> str:
    """The reason why an input cannot be read, or ""."""
    if example.layout != torch.strided:
        return "a tensor that is not dense in memory"
    if example.dtype.is_complex:
        return "complex numbers"
    if example.is_neg() or example.is_conj():
        return "a tensor that is negated when it is read"
    strides, sizes = list(map(hint, example.stride())), list(map(hint, example.shape))
    apart = [(s, n) for s, n in zip(strides, sizes, strict=True) if s]
    if 0 not in sizes and not _written([n for _, n in apart], [s for s, _ in apart]):
        return "an input that overlaps itself"
    return ""


def _faked(example: Any, mode: FakeTensorMode) -> Any:
    if isinstance(example, torch.Tensor) and not isinstance(example, FakeTensor):
        return mode.from_tensor(example, static_shapes=True)
    if is_symbolic(example):
        raise Refused("an example of symbolic size")
    if isinstance(example, FakeTensor) and example.fake_mode is not mode:
        return layout_of(example).faked(mode)
    return example


def _are_those_of(module: GraphModule, examples: Sequence[Any]) -> bool:
    """Whether the values that nodes know are for these examples."""
    placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
    for node, example in zip(placeholders, examples, strict=True):
        meta = node.meta.get("val")
        if isinstance(example, torch.Tensor):
            if not isinstance(meta, torch.Tensor) or _facts(meta) != _facts(example):
                return False
        elif isinstance(meta, SYMBOLS) or meta != example:
            return False
    return not any(isinstance(v, SYMBOLS) for n in module.graph.nodes for v in tree_leaves((n.meta.get("val"),)))


def _facts(value: torch.Tensor) -> Any:
    sizes = (*value.shape, *value.stride())
    if any(isinstance(n, torch.SymInt) for n in sizes):
        return None, value.dtype
    return tuple(sizes), value.dtype
