"""Tensors that an op makes of sizes and numbers alone."""

from collections.abc import Mapping
from typing import Any

import torch

from fuseplan_client.torch.aten.call import Call, Lowering, aten, prims
from fuseplan_client.torch.wire import Refused, Tensor


def _filled(position: int | None = None, value: int = 0) -> Lowering:
    """A constant: the argument at `position`, or `value`."""

    def lower(call: Call, *args: Any, **_: Any) -> Tensor:
        given = value if position is None else args[position]
        if isinstance(given, Tensor):
            return given.cast(call.dtype).broadcast(call.shape)
        if isinstance(given, complex):
            raise Refused("complex numbers")
        return call.full(given)

    return lower


def arange(call: Call, *args: Any, **_: Any) -> Tensor:
    """start, start + step, ...; the arguments are (end), (start, end) or (start, end, step)."""
    start = args[0] if len(args) > 1 else 0
    step = args[2] if len(args) > 2 else 1
    return _progression(call, start, step)


def iota(call: Call, length: int, *, start: int, step: int, **_: Any) -> Tensor:
    """start, start + step, ..."""
    return _progression(call, start, step)


def _progression(call: Call, start: Any, step: Any) -> Tensor:
    if isinstance(start, Tensor) or isinstance(step, Tensor):
        raise Refused("bounds of a range that are known at run time alone")
    dtype = call.dtype
    if not dtype.is_floating_point:
        return call.writer.iota(call.shape, 0, int(start), int(step), dtype)
    # PyTorch's kernel computes in the wide type, and rounds once.
    inner = torch.float64 if dtype == torch.float64 else torch.float32
    return call.writer.iota(call.shape, 0, start, step, inner).cast(dtype)


def eye(call: Call, *_: Any, **__: Any) -> Tensor:
    """1 on the diagonal, else 0."""
    rows, columns = call.writer.iota(call.shape, 0), call.writer.iota(call.shape, 1)
    return rows.compared("eq", columns).cast(call.dtype)


CONSTANTS: Mapping[Any, Lowering] = {
    aten.full.default: _filled(1),
    aten.full_like.default: _filled(1),
    aten.new_full.default: _filled(2),
    aten.scalar_tensor.default: _filled(0),
    aten.zeros.default: _filled(),
    aten.new_zeros.default: _filled(),
    aten.zeros_like.default: _filled(),
    aten.ones.default: _filled(value=1),
    aten.new_ones.default: _filled(value=1),
    aten.ones_like.default: _filled(value=1),
    # Whose elements may be anything: decompositions fill them.
    aten.empty.memory_format: _filled(),
    aten.empty_like.default: _filled(),
    aten.new_empty.default: _filled(),
    aten.new_empty_strided.default: _filled(),
    aten.empty_strided.default: _filled(),
    prims.empty_strided.default: _filled(),
    aten.arange.default: arange,
    aten.arange.start: arange,
    aten.arange.start_step: arange,
    prims.iota.default: iota,
    aten.eye.default: eye,
    aten.eye.m: eye,
}
