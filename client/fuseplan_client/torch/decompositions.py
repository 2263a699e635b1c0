"""One call of an op as nodes of the wire: by its lowering, or by the decomposition that PyTorch has for it.

A decomposition is a Python function of tensors. It runs on fake tensors, and each op that it calls is written where it
is called; no graph is traced. Nothing but what is written out is taken apart: ops that stay with PyTorch stay whole.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
import torch._refs  # registers decompositions
from torch._decomp import decomposition_table
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedFakeTensorException,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from fuseplan_client.torch.aten.call import Call
from fuseplan_client.torch.aten.table import LOWERINGS
from fuseplan_client.torch.kernel_values import KERNELS
from fuseplan_client.torch.wire import Refused, Tensor, Writer, wire_dtype

# Raised where the shape of a result, or a number, depends on the elements of tensors.
UNKNOWN_SHAPES = (DataDependentOutputException, DynamicOutputShapeException, UnsupportedFakeTensorException)


class LoweringFault(Exception):
    """A lowering wrote another shape or dtype than PyTorch's: a fault of ours, with both in the message."""


@cache
def decompositions() -> Mapping[Any, Callable[..., Any]]:
    """Decompositions of the ops that have no lowering."""
    return {op: function for op, function in decomposition_table.items() if op not in LOWERINGS}


def is_known(target: Any) -> bool:
    """Whether an op has a lowering or a decomposition; the latter may lead to an op that has none."""
    return target in LOWERINGS or target in decompositions() or _is_composite(target)


def _is_composite(target: Any) -> bool:
    return isinstance(target, torch._ops.OpOverload) and target._can_decompose()


def name_of(target: Any) -> str:
    """An op as reasons call it: "aten.sort"."""
    if isinstance(target, torch._ops.OpOverload):
        return f"{target.namespace}.{target.overloadpacket.__name__}"
    return getattr(target, "__name__", str(target))


def lowered(
    writer: Writer,
    mode: FakeTensorMode,
    target: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    out: Any,
    operands: Sequence[Any] = (),
) -> Any:
    """The results of one call on tensors of the wire. out: PyTorch's results as fake tensors of `mode`; operands: the
    arguments, for ops that depend on how these lie in memory. Raises Refused, and LoweringFault where shapes or dtypes
    are not those of `out`."""
    if any(isinstance(o, torch.Tensor) and _unsaid(o) for o in tree_leaves((out,))):
        for o in tree_leaves((out,)):
            if isinstance(o, torch.Tensor):
                wire_dtype(o.dtype)
        raise Refused("a tensor that is not dense in memory")
    lowering = LOWERINGS.get(target)
    if lowering is not None:
        found = lowering(Call(writer, target, out, tuple(operands)), *args, **kwargs)
    else:
        device = next((o.device for o in tree_leaves((out,)) if isinstance(o, torch.Tensor)), torch.device("cpu"))
        found = _Decomposed(writer, mode, device).results(target, args, kwargs)
        found = _as_given(found, out) if target in KERNELS else found
    _check(target, found, out)
    return found


def _as_given(found: Sequence[Any], out: Sequence[Any]) -> Sequence[Any]:
    """Results of a decomposition, which fake tensors have their dtypes from, in those of the kernel."""
    return [f.cast(o.dtype) if isinstance(f, Tensor) and o is not None else f for f, o in zip(found, out, strict=True)]


def _unsaid(value: torch.Tensor) -> bool:
    return value.dtype.is_complex or value.is_quantized or value.layout != torch.strided


def _check(target: Any, found: Any, out: Any) -> None:
    """Raises LoweringFault unless shapes and dtypes are those of PyTorch's results; a result that is None does not
    count, as nobody reads it."""
    several = (tuple, list)
    ours = found if isinstance(found, several) else (found,)
    theirs = out if isinstance(out, several) else (out,)
    if len(ours) != len(theirs):
        raise LoweringFault(f"{name_of(target)}: {len(ours)} results, expected {len(theirs)}")
    for mine, its in zip(ours, theirs, strict=True):
        if isinstance(mine, several):
            _check(target, mine, its)
            continue
        if not isinstance(mine, Tensor) or not isinstance(its, torch.Tensor):
            continue
        if (mine.shape, mine.dtype) != (tuple(its.shape), its.dtype):
            wrote, expected = f"{mine.dtype}{list(mine.shape)}", f"{its.dtype}{list(its.shape)}"
            raise LoweringFault(f"{name_of(target)}: wrote {wrote}, expected {expected}")


class _Decomposed(TorchDispatchMode):
    """Writes the ops that are called on fake tensors while it is entered. device: that these are on, for some ops give
    other dtypes on another one."""

    def __init__(self, writer: Writer, fake: FakeTensorMode, device: torch.device) -> None:
        super().__init__()
        self.writer, self.device = writer, device
        self.fake = fake
        self.written: dict[int, tuple[torch.Tensor, Tensor]] = {}  # by identity of the fake tensor, which is kept

    def results(self, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The results of a call on tensors of the wire. Raises Refused."""
        with torch.no_grad(), self.fake:
            stand_in = tree_map(self._stand_in, (list(args), dict(kwargs)))
            try:
                found = self._taken_apart(target, *stand_in)
            except UNKNOWN_SHAPES:
                raise Refused(f"{name_of(target)}: what it gives depends on data") from None
        return tree_map(self._result, found)

    def _stand_in(self, value: Any) -> Any:
        """A fake tensor for one of the wire."""
        if not isinstance(value, Tensor):
            return value
        if value.number:
            raise Refused("a number that is known at run time alone, in an op that is taken apart")
        made = torch.empty(value.shape, dtype=value.dtype, device=self.device)
        self.written[id(made)] = made, value
        return made

    def _result(self, value: Any) -> Any:
        return self._known(value) if isinstance(value, torch.Tensor) else value

    def _known(self, value: torch.Tensor) -> Tensor:
        if id(value) in self.written:
            return self.written[id(value)][1]
        if not isinstance(value, FakeTensor) and value.numel() == 1:
            return self.writer.full(tuple(value.shape), value.item(), value.dtype)
        if isinstance(value, FakeTensor) and value.constant is not None and value.numel() == 1:
            return self.writer.full(tuple(value.shape), value.constant.item(), value.dtype)
        raise Refused("a tensor constant inside an op")

    def _taken_apart(self, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        function = decompositions().get(target)
        if function is None and _is_composite(target):
            function = target.decompose
        if function is None:
            raise Refused(f"no such op: {name_of(target)}")
        with self:
            found = function(*args, **kwargs)
        if found is NotImplemented:
            raise Refused(f"no such op: {name_of(target)}")
        return found

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Writes one op, or takes it apart further."""
        kwargs = kwargs or {}
        if func.namespace == "prim":  # a tensor's device or layout
            return func(*args, **kwargs)
        if func not in LOWERINGS:
            return self._taken_apart(func, args, kwargs)
        out = func(*args, **kwargs)
        wire_args, wire_kwargs = tree_map(self._operand, (list(args), dict(kwargs)))
        found = lowered(self.writer, self.fake, func, wire_args, wire_kwargs, out, args)
        for mine, its in zip(tree_leaves((found,)), tree_leaves((out,)), strict=True):
            if isinstance(its, torch.Tensor):
                self.written[id(its)] = its, mine
        return out

    def _operand(self, value: Any) -> Any:
        return self._known(value) if isinstance(value, torch.Tensor) else value


def fake_mode_of(values: Any) -> FakeTensorMode:
    """The mode of the fake tensors among `values`; a new one where there is none."""
    modes = [v.fake_mode for v in tree_leaves(values) if isinstance(v, FakeTensor)]
    return modes[0] if modes else FakeTensorMode(allow_non_fake_inputs=True)
