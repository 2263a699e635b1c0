"""A call of an aten op as a lowering sees it, and the dtypes in which PyTorch computes it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as KIND
from torch._prims_common import elementwise_dtypes

from fuseplan_client.torch.wire import NARROW_FLOATS, Number, Refused, Tensor, Writer

aten, prims = torch.ops.aten, torch.ops.prims

# A lowering gets the call and the op's arguments, in which tensors are those of the wire, and gives what the op gives.
# It raises Refused where the wire has no words for the call.
Lowering = Callable[..., Any]


@dataclass(frozen=True)
class Call:
    """One call of an op. target: the overload. out: its result as fake tensors, from which lowerings take shape and
    dtype. operands: its positional arguments, with fake tensors."""

    writer: Writer
    target: Any
    out: Any
    operands: tuple[Any, ...] = ()

    @property
    def name(self) -> str:
        """The op's name without namespace and overload: "add"."""
        return self.target.overloadpacket.__name__

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the only result."""
        return tuple(self.out.shape)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the only result."""
        return self.out.dtype

    def full(self, value: Number) -> Tensor:
        """The result as a constant tensor."""
        return self.writer.full(self.shape, value, self.dtype)


def wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which PyTorch's kernels compute on `dtype`: f32 for narrower floats."""
    return torch.float32 if dtype in NARROW_FLOATS else dtype


@cache
def _sample(dtype: torch.dtype, rank: int) -> torch.Tensor:
    return torch.empty((1,) * rank, dtype=dtype, device="meta")


def promoted(operands: Sequence[Tensor | Number], kind: KIND) -> tuple[torch.dtype, torch.dtype]:
    """(dtype in which operands meet, dtype of the result), as PyTorch promotes them; neither is widened to compute."""
    given = [_numeric(o) for o in operands]
    meet, result = elementwise_dtypes(*given, type_promotion_kind=kind)
    if kind != KIND.ALWAYS_BOOL:
        return result, result
    narrow = elementwise_dtypes(*given, type_promotion_kind=KIND.DEFAULT)[1]
    return (narrow if narrow in NARROW_FLOATS else meet), result


def _numeric(operand: Tensor | Number) -> Any:
    if not isinstance(operand, Tensor):
        return operand
    if operand.number:
        return 1.0 if operand.dtype.is_floating_point else 1
    return _sample(operand.dtype, min(operand.rank, 1))


def in_f32(lowering: Lowering) -> Lowering:
    """A lowering whose operands of 16 and 8 bits are taken as f32, and whose results are rounded once, to the dtypes
    that PyTorch's have: the accuracy of a kernel that computes a formula in one go."""

    def lower(call: Call, *args: Any, **kwargs: Any) -> Any:
        widened = [_widened(a) for a in args]
        found = lowering(call, *widened, **{k: _widened(v) for k, v in kwargs.items()})
        if isinstance(found, tuple):
            return tuple(f if f is None else f.cast(o.dtype) for f, o in zip(found, call.out, strict=True))
        return found.cast(call.dtype)

    return lower


def _widened(value: Any) -> Any:
    return value.cast(wide(value.dtype)) if isinstance(value, Tensor) else value


def static(value: Any, what: str) -> Any:
    """An argument that a graph must hold as it stands. Raises Refused where it is known at run time alone."""
    if isinstance(value, Tensor):
        raise Refused(f"{what} is known at run time alone")
    return value


def axes_of(dims: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Axes counted from the front, in order; None and [] mean all."""
    if dims is None or (not isinstance(dims, int) and not dims):
        return tuple(range(rank))
    return tuple(sorted({d % rank for d in ([dims] if isinstance(dims, int) else dims)})) if rank else ()
