"""aten graphs as the back end sees them, run by the interpreter, and compared with eager PyTorch."""

import operator
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import ml_dtypes
import numpy as np
import torch
from fuseplan_client.torch import Exported, Refused, export, partition
from fuseplan_client.torch.export import NOTHING, is_view
from fuseplan_client.torch.kernel_values import foresee
from fuseplan_client.torch.wire import DTYPES, Tensor, Writer
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch._functorch.aot_autograd import aot_function
from torch._functorch.partitioners import default_partition
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_leaves

from fusion_ir.formats.json.wire import from_wire
from fusion_ir.reference.interpreter import interpret


@dataclass(frozen=True)
class Traced:
    """One graph of AOTAutograd's, with inputs that it was called with. kind: forward, backward, inference."""

    kind: str
    module: GraphModule
    inputs: tuple[Any, ...]


def traced(function: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> list[Traced]:
    """The graphs of a function of tensors, forward, and backward where results depend on tensors with gradients.

    Raises whatever PyTorch raises where it cannot trace the function.
    """
    found: list[Traced] = []

    def cut(joint: GraphModule, inputs: Sequence[Any], **how: Any) -> tuple[GraphModule, GraphModule]:
        foresee(joint)
        return default_partition(joint, inputs, **how)

    def compiler(kind: str) -> Callable[..., Any]:
        def compiled(module: GraphModule, _: Any) -> Callable[..., Any]:
            if kind == "inference":
                foresee(module)

            def call(*args: Any) -> Any:
                found.append(Traced(kind, module, tuple(_kept(a) for a in args)))
                return module(*args)

            return make_boxed_func(call)

        return compiled

    run = aot_function(
        function,
        compiler("forward"),
        compiler("backward"),
        partition_fn=cut,
        inference_compiler=compiler("inference"),
        keep_inference_input_mutations=True,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = [r for r in tree_leaves(run(*tensors)) if isinstance(r, torch.Tensor) and r.requires_grad]
        given = [t for t in tensors if t.requires_grad]
        if results and given:
            random = torch.Generator().manual_seed(0)
            grads = [torch.rand(r.shape, generator=random, dtype=torch.float32).to(r.dtype) for r in results]
            torch.autograd.grad(results, given, grads, allow_unused=True)
    return found


def _kept(value: Any) -> Any:
    """A tensor with the layout and elements that it has now: eager graphs may write over it later."""
    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach()
    if value.layout != torch.strided or value.is_quantized:
        return value
    copy = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
    return value if 0 in value.stride() else copy.copy_(value)


def examples_of(module: GraphModule) -> list[Any]:
    """The fake tensors of the placeholders of a graph without symbols."""
    return [n.meta["val"] for n in module.graph.nodes if n.op == "placeholder"]


def run(exported: Exported, inputs: Sequence[Any]) -> list[Any]:
    """The outputs of the module that was exported, by the interpreter, as the back end puts them together."""
    graph = from_wire(exported.body).graph
    arrays: list[np.ndarray] = []
    for read in exported.reads:
        value = inputs[read.position]
        if read.number:
            arrays.append(np.array(value, np.float64))
        else:
            arrays.append(array_of(value.as_strided(read.sizes, read.strides, value.storage_offset())))
    computed = [
        torch.empty_strided(b.sizes, b.strides, dtype=b.dtype).copy_(tensor_of(a, b.dtype).reshape(b.sizes))
        for a, b in zip(interpret(graph, arrays), exported.buffers, strict=True)
    ]
    results: list[Any] = []
    for output in exported.outputs:
        if output.source == "value":
            results.append(output.value)
            continue
        base = computed[output.index] if output.source == "computed" else inputs[output.index]
        view = output.view
        results.append(
            base if view is None else base.as_strided(view.sizes, view.strides, base.storage_offset() + view.offset)
        )
    return results


_OF_ML_DTYPES: dict[torch.dtype, Any] = {
    torch.bfloat16: ml_dtypes.bfloat16,
    torch.float8_e4m3fn: ml_dtypes.float8_e4m3fn,
    torch.float8_e5m2: ml_dtypes.float8_e5m2,
}


def array_of(value: torch.Tensor) -> np.ndarray:
    """A tensor's elements as NumPy holds them."""
    value = value.detach()
    if value.dtype in _OF_ML_DTYPES:
        integers = torch.int16 if value.dtype.itemsize == 2 else torch.uint8
        return value.contiguous().view(integers).numpy().view(_OF_ML_DTYPES[value.dtype])
    return value.numpy()


def tensor_of(array: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    """The inverse of `array_of`."""
    if dtype in _OF_ML_DTYPES:
        integers = np.dtype(np.int16 if dtype.itemsize == 2 else np.uint8)
        return torch.from_numpy(np.ascontiguousarray(array).view(integers)).view(dtype)
    return torch.from_numpy(np.ascontiguousarray(array))


# How far results may be from eager PyTorch's, relative to the element, and to the largest one of its tensor: kernels
# of PyTorch's sum in other orders, and its vectorised functions are within 2 to 4 units in the last place. At 16 bits
# both round at the same places, up to functions that PyTorch's kernels compute with a rounding in between.
RELATIVE = {torch.float64: 1e-11, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
SUMS_TO_NOTHING = 1e-13  # of numbers about 1 in f64, which there is nothing wider to compare with
TO_LARGEST = {torch.float64: 1e-12, torch.float32: 4e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


def difference(
    found: Any,
    expected: Any,
    slack: float = 1.0,
    *,
    values: bool = True,
    beside: Any = None,
    dtype: torch.dtype | None = None,
) -> str:
    """How a result differs from eager PyTorch's by more than is allowed, or "".

    slack: times what is usual. beside: a more exact result, from which eager PyTorch's is as far as `found` may be,
    eight times over. dtype: the narrowest that was computed in, where it is not the result's.
    """
    if not isinstance(expected, torch.Tensor):
        return "" if found == expected else f"{found!r} instead of {expected!r}"
    mine, theirs = [(t.shape, t.dtype, t.stride() if t.numel() > 1 else None) for t in (found, expected)]
    if mine[:2] != theirs[:2]:
        return f"{mine} instead of {theirs}"
    if not expected.numel() or not values:
        return ""
    if not expected.dtype.is_floating_point:
        wrong = found != expected
    else:
        mine, theirs = found.double(), expected.double()
        finite = theirs[theirs.isfinite()]
        largest = float(finite.abs().max()) if finite.numel() else 0.0
        coarse = max((expected.dtype, dtype or expected.dtype), key=RELATIVE.__getitem__)
        near = theirs.abs() * RELATIVE[coarse] + largest * TO_LARGEST[coarse] + SUMS_TO_NOTHING
        if isinstance(beside, torch.Tensor) and beside.shape == theirs.shape and beside.is_floating_point():
            off = (theirs - beside.double()).abs()
            near = near + 8 * (off[off.isfinite()].max() if off.isfinite().any() else 0.0)
        same = (mine == theirs) | (mine.isnan() & theirs.isnan())
        wrong = ~(same | ((mine - theirs).abs() <= slack * near))
    if not wrong.any():
        return ""
    place = tuple(int(i) for i in wrong.nonzero()[0])
    values_there = f"{found[place].item()!r} instead of {expected[place].item()!r}"
    return f"{int(wrong.sum())} of {wrong.numel()} elements, at {list(place)} {values_there}"


class _Noting(Writer):
    """A writer that keeps what it took each node's shape and dtype to be."""

    def op(self, op: str, args: Any, shape: Any, dtype: torch.dtype, /, **attrs: Any) -> Tensor:
        """The node, noted."""
        made = super().op(op, args, shape, dtype, **attrs)
        self.__dict__.setdefault("noted", {})[made.name] = (made.shape, DTYPES[made.dtype])
        return made


def exported_and_checked(module: GraphModule, examples: Sequence[Any]) -> Exported:
    """The export of a module, each node of which is of the shape and dtype that its lowering took it to be of."""
    writers: list[_Noting] = []

    def writer() -> _Noting:
        writers.append(_Noting())
        return writers[-1]

    with mock.patch("fuseplan_client.torch.export.Writer", writer):
        exported = export(module, examples)
    named, noted = from_wire(exported.body), writers[0].__dict__.get("noted", {})
    for node, name in zip(named.graph.nodes, named.node_names, strict=bool(named.node_names)):
        if name in noted and (node.sizes, node.dtype.name) != noted[name]:
            raise AssertionError(f"{name}, {node.op}: {node.dtype}{list(node.sizes)}, written as {noted[name]}")
    return exported


@dataclass(frozen=True)
class Outcome:
    """said: the whole graph, but for writes to inputs at its end. partly: groups of it; refused: nothing of it, both
    with the reason. empty: nothing is computed. wrong, fault (an exception of ours): with what."""

    state: str
    detail: str = ""


# Ops whose results PyTorch lets share memory with their operand though their schemas do not say so.
SHARING = ("aten.unsafe_split", "aten._unsafe_view")


def outcome(graph: Traced, *, slack: float = 1.0, values: bool = True) -> Outcome:
    """Exports a graph, or else its parts, runs these by the interpreter, and compares with eager PyTorch. values: False
    where elements may be anything."""
    try:
        exported = exported_and_checked(graph.module, examples_of(graph.module))
    except Refused as refused:
        if str(refused) == NOTHING:
            return Outcome("empty")
        return _in_parts(graph, str(refused), slack)
    except Exception as error:
        return Outcome("fault", f"{type(error).__name__}: {error}")
    inputs = [_kept(v) for v in graph.inputs]
    try:
        found = run(exported, inputs)
    except Exception as error:
        return Outcome("fault", f"run: {type(error).__name__}: {error}")
    wrong = _disagreement(graph, found, inputs, slack, values)
    shared = "" if wrong or _has(graph.module, SHARING) else _wrong_memory(graph, exported, inputs)
    return Outcome("wrong", wrong or shared) if wrong or shared else Outcome("said")


def _has(module: GraphModule, names: Sequence[str]) -> bool:
    return any(str(n.target).startswith(names[0]) or str(n.target).startswith(tuple(names)) for n in nodes_of(module))


def _in_parts(graph: Traced, reason: str, slack: float) -> Outcome:
    """The outcome of a graph that is not exported as a whole: its groups by the interpreter, the rest by PyTorch."""
    try:
        parts = partition(graph.module, least_ops=1)
        if not parts.groups:
            return Outcome("refused", reason)
        for name in parts.groups:
            setattr(parts.module, name, _Interpreted(getattr(parts.module, name)))
    except Refused as refused:
        return Outcome("fault", f"a group is refused: {refused}")
    except Exception as error:
        return Outcome("fault", f"in parts: {type(error).__name__}: {error}")
    inputs, again = [_kept(v) for v in graph.inputs], [_kept(v) for v in graph.inputs]
    try:
        with torch.no_grad(), torch.random.fork_rng():
            torch.manual_seed(0)
            found = tree_leaves((parts.module(*again),), is_leaf=_none)
    except Exception as error:
        return Outcome("fault", f"run in parts: {type(error).__name__}: {error}")
    wrong = _disagreement(graph, found, inputs, slack, True)
    for i, (mine, theirs) in enumerate(zip(again, inputs, strict=True)):  # which the graph may have written to
        wrong = wrong or (f"input {i} afterwards: {d}" if (d := difference(mine, theirs, slack)) else "")
    if wrong:
        return Outcome("wrong", f"in parts: {wrong}")
    left = [n for n in nodes_of(parts.module) if n.target is not operator.getitem and not is_view(n)]
    written = all(n.target is torch.ops.aten.copy_.default for n in left)
    return Outcome("said") if written else Outcome("partly", reason)


class _Interpreted(torch.nn.Module):
    """A group of nodes, run by the interpreter."""

    def __init__(self, module: GraphModule) -> None:
        super().__init__()
        self.exported = exported_and_checked(module, examples_of(module))

    def forward(self, *inputs: Any) -> Any:
        """The outputs of the group."""
        return tuple(run(self.exported, inputs))


def _disagreement(graph: Traced, found: Sequence[Any], inputs: list[Any], slack: float, values: bool) -> str:
    """The first output that differs, or "". Results far from eager's count as equal where eager's own are as far from
    those of the same graph in f64: then the graph amplifies roundings."""
    wide = [_kept(v) for v in inputs]
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        expected = tree_leaves((graph.module(*inputs),), is_leaf=_none)
    dtypes = {v.dtype for n in graph.module.graph.nodes for v in tree_leaves((n.meta.get("val"),)) if _is_float(v)}
    narrowest = max(dtypes, key=RELATIVE.__getitem__, default=None)
    exact: list[Any] | None = None
    for i, (mine, theirs) in enumerate(zip(found, expected, strict=True)):
        wrong = difference(mine, theirs, slack, values=values, dtype=narrowest)
        if wrong and exact is None:
            exact = _in_f64(graph.module, wide)
        if wrong and exact and difference(mine, theirs, slack, beside=exact[i], dtype=narrowest):
            return f"output {i}: {wrong}"
    return ""


def _in_f64(module: GraphModule, inputs: list[Any]) -> list[Any]:
    """The outputs of a graph whose float inputs are taken as f64; those of the graph itself where that does not run."""
    given = [v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v for v in inputs]
    try:
        with torch.no_grad(), torch.random.fork_rng():
            torch.manual_seed(0)
            return tree_leaves((module(*given),), is_leaf=_none)
    except Exception:
        with torch.no_grad(), torch.random.fork_rng():
            torch.manual_seed(0)
            return tree_leaves((module(*inputs),), is_leaf=_none)


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in RELATIVE


def _none(value: Any) -> bool:
    return value is None


def _wrong_memory(graph: Traced, exported: Exported, inputs: Sequence[Any]) -> str:
    """How outputs are said to be in memory of inputs and are not, or the other way round."""
    with torch.no_grad():
        expected = tree_leaves((graph.module(*inputs),), is_leaf=_none)
    for i, (output, theirs) in enumerate(zip(exported.outputs, expected, strict=True)):
        if not isinstance(theirs, torch.Tensor) or not theirs.numel():
            continue
        storage = theirs.untyped_storage().data_ptr()
        owners = {
            j for j, v in enumerate(inputs) if isinstance(v, torch.Tensor) and v.untyped_storage().data_ptr() == storage
        }
        ours = {output.index} if output.source == "input" else set()
        if not ours <= owners or bool(ours) != bool(owners):
            return f"output {i}: is in the memory of inputs {owners}, said {ours}"
    return ""


def nodes_of(module: GraphModule) -> list[Node]:
    """The calls of a graph."""
    return [n for n in module.graph.nodes if n.op == "call_function"]
