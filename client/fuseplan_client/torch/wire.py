"""A writer of graphs in the wire format: names, attributes, constants by their bits. It knows no op of PyTorch's."""

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import torch

DTYPES: dict[torch.dtype, str] = {
    torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16",
    torch.int8: "i8", torch.int16: "i16", torch.int32: "i32", torch.int64: "i64", torch.uint8: "u8", torch.bool: "bool",
    torch.float8_e4m3fn: "f8e4m3", torch.float8_e5m2: "f8e5m2",
}  # fmt: skip
NARROW_FLOATS = (torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)
MOST_AXES = 12
MOST_NODES = 20_000
MOST_TENSORS = 4_096  # inputs, outputs, operands of a node
MOST_ALIGNMENT_BYTES = 32

Number = int | float | bool


class Refused(Exception):
    """The wire format, or this client, has no words for an op; the message is the reason, which tables count."""


def refuse(reason: str) -> NoReturn:
    """Raises Refused, where an expression is wanted."""
    raise Refused(reason)


def wire_dtype(dtype: torch.dtype) -> str:
    """The wire's name of a dtype. Raises Refused where it has none."""
    if dtype not in DTYPES:
        raise Refused(f"dtype {str(dtype).removeprefix('torch.')}")
    return DTYPES[dtype]


def constant(value: Number, dtype: torch.dtype) -> str:
    """A number rounded to `dtype`, by its bits: 1.0 in f32 is "f32:0x3f800000". Infinities and NaN have no JSON.

    Integers wrap, and floats go to 16 bits by way of f32, as PyTorch has both. Raises Refused for other dtypes.
    """
    name = wire_dtype(dtype)
    if dtype == torch.bool:
        return f"bool:0x{int(bool(value)):02x}"
    if not dtype.is_floating_point:
        bits = int(value) & ((1 << 8 * dtype.itemsize) - 1)
    elif dtype == torch.float64:
        bits = _bits("<d", "<Q", float(value))
    else:
        single = _bits("<f", "<I", float(value))
        if dtype == torch.float32:
            bits = single
        elif dtype == torch.bfloat16:
            # To nearest even: the upper half, one more where the lower half is above its middle, or on it and odd.
            bits = (single + 0x7FFF + (single >> 16 & 1)) >> 16 if value == value else single >> 16
        elif dtype == torch.float16:
            bits = _bits("<e", "<H", struct.unpack("<f", struct.pack("<I", single))[0])
        else:
            raise Refused(f"a constant of dtype {name}")
    return f"{name}:0x{bits:0{2 * dtype.itemsize}x}"


def rounded(value: Number, dtype: torch.dtype) -> float:
    """A number rounded to a float dtype of 16 or more bits, as a Python float."""
    bits = int(constant(value, dtype).partition(":")[2], 16)
    if dtype == torch.bfloat16:
        dtype, bits = torch.float32, bits << 16
    formats = {torch.float64: ("<Q", "<d"), torch.float32: ("<I", "<f"), torch.float16: ("<H", "<e")}
    integer, number = formats[dtype]
    return struct.unpack(number, struct.pack(integer, bits))[0]


def _bits(float_format: str, integer_format: str, value: float) -> int:
    """The bits of a float in a format of `struct`; infinity where it is too large."""
    try:
        packed = struct.pack(float_format, value)
    except OverflowError:
        packed = struct.pack(float_format, math.copysign(math.inf, value))
    return struct.unpack(integer_format, packed)[0]


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A tensor of the graph that `writer` writes. number: it stands for a Python number, which promotes as one does."""

    writer: "Writer"
    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    number: bool = False

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def cast(self, dtype: torch.dtype) -> "Tensor":
        """The tensor in `dtype`; itself where it is already."""
        return (
            self if self.dtype == dtype else self.writer.op("cast", [self], self.shape, dtype, dtype=wire_dtype(dtype))
        )

    def reshape(self, shape: Sequence[int]) -> "Tensor":
        """The elements in row-major order in another shape; itself where nothing changes."""
        sizes = tuple(shape)
        return self if self.shape == sizes else self.writer.op("reshape", [self], sizes, self.dtype, shape=list(sizes))

    def broadcast(self, shape: Sequence[int]) -> "Tensor":
        """The tensor repeated to `shape`, trailing axes aligned; itself where nothing changes."""
        sizes = tuple(shape)
        if self.shape == sizes:
            return self
        return self.writer.op("broadcast_to", [self], sizes, self.dtype, shape=list(sizes))

    def permute(self, dims: Sequence[int]) -> "Tensor":
        """Axis i of the result is axis dims[i]; negative ones count from the end."""
        order = [d % self.rank for d in dims]
        if order == list(range(self.rank)):
            return self
        return self.writer.op("permute", [self], [self.shape[d] for d in order], self.dtype, dims=order)

    def transposed(self, first: int = -2, second: int = -1) -> "Tensor":
        """The tensor with two axes exchanged."""
        order = list(range(self.rank))
        order[first], order[second] = order[second], order[first]
        return self.permute(order)

    def unsqueeze(self, axis: int) -> "Tensor":
        """A new axis of extent 1, at this position of the result."""
        axis %= self.rank + 1
        return self.reshape((*self.shape[:axis], 1, *self.shape[axis:]))

    def sliced(self, axis: int, start: int, stop: int, step: int = 1) -> "Tensor":
        """Each `step`-th element from start to stop along one axis; bounds as Python's."""
        axis %= self.rank
        start, stop, step = slice(start, stop, step).indices(self.shape[axis])
        stop = max(start, stop)
        if (start, stop, step) == (0, self.shape[axis], 1):
            return self
        starts, stops, steps = [0] * self.rank, list(self.shape), [1] * self.rank
        starts[axis], stops[axis], steps[axis] = start, stop, step
        shape = (*self.shape[:axis], -(-(stop - start) // step), *self.shape[axis + 1 :])
        return self.writer.op("slice", [self], shape, self.dtype, start=starts, stop=stops, step=steps)

    def select(self, axis: int, index: int) -> "Tensor":
        """One slice, without its axis."""
        axis %= self.rank
        index %= self.shape[axis]
        return self.sliced(axis, index, index + 1).reshape(self.shape[:axis] + self.shape[axis + 1 :])

    def pad(self, low: Sequence[int], high: Sequence[int], value: Number = 0) -> "Tensor":
        """Elements of `value` before and behind each axis; negative widths crop."""
        if not any(low) and not any(high):
            return self
        shape = [n + before + behind for n, before, behind in zip(self.shape, low, high, strict=True)]
        attrs = {"low": list(low), "high": list(high), "value": constant(value, self.dtype)}
        return self.writer.op("pad", [self], shape, self.dtype, **attrs)

    def pointwise(self, op: str, *others: "Tensor | Number", dtype: torch.dtype | None = None) -> "Tensor":
        """A pointwise op of this tensor and others, which broadcast and are cast to its dtype. dtype: of the result."""
        operands = [self, *(self.writer.value(o, self.dtype) for o in others)]
        shape = broadcast_shapes(*(o.shape for o in operands))
        return self.writer.op(op, operands, shape, dtype or self.dtype)

    def compared(self, op: str, other: "Tensor | Number") -> "Tensor":
        """A pointwise op whose result is bool."""
        return self.pointwise(op, other, dtype=torch.bool)

    def __add__(self, other: "Tensor | Number") -> "Tensor":
        return self.pointwise("add", other)

    def __sub__(self, other: "Tensor | Number") -> "Tensor":
        return self.pointwise("sub", other)

    def __mul__(self, other: "Tensor | Number") -> "Tensor":
        return self.pointwise("mul", other)

    def __truediv__(self, other: "Tensor | Number") -> "Tensor":
        return self.pointwise("div", other)

    def __radd__(self, other: Number) -> "Tensor":
        return self.writer.value(other, self.dtype) + self

    def __rsub__(self, other: Number) -> "Tensor":
        return self.writer.value(other, self.dtype) - self

    def __rmul__(self, other: Number) -> "Tensor":
        return self * other

    def __rtruediv__(self, other: Number) -> "Tensor":
        return self.writer.value(other, self.dtype) / self

    def __neg__(self) -> "Tensor":
        return self.pointwise("neg")

    def reduced(self, op: str, axes: Sequence[int], keepdims: bool = False, **attrs: Any) -> "Tensor":
        """A reduction over `axes`, which are counted from the front; in the tensor's dtype."""
        shape = [1 if a in axes else n for a, n in enumerate(self.shape) if keepdims or a not in axes]
        return self.writer.op(op, [self], shape, self.dtype, axes=sorted(axes), keepdims=keepdims, **attrs)


def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The shape to which all broadcast, trailing axes aligned. Raises ValueError where they do not."""
    result = [1] * max((len(s) for s in shapes), default=0)
    for shape in shapes:
        for axis, n in enumerate(shape, len(result) - len(shape)):
            if n != 1 and result[axis] not in (1, n):
                raise ValueError(f"shapes {[list(s) for s in shapes]} do not broadcast")
            result[axis] = n if n != 1 else result[axis]
    return tuple(result)


@dataclass
class Writer:
    """The inputs, nodes and outputs of a graph as they are written. Equal nodes are written once."""

    inputs: list[dict[str, Any]] = field(default_factory=list)
    nodes: list[dict[str, Any]] = field(default_factory=list)
    outputs: list[dict[str, Any]] = field(default_factory=list)
    dtypes: dict[str, torch.dtype] = field(default_factory=dict)  # of inputs and nodes
    _written: dict[str, str] = field(default_factory=dict)

    def input(
        self,
        name: str,
        shape: Sequence[int],
        dtype: torch.dtype,
        strides: Sequence[int] | None = None,
        alignment_bytes: int = 16,
        version: str | None = None,
    ) -> Tensor:
        """A tensor that the graph reads. strides: in elements; version: of a constant. Raises Refused."""
        if len(shape) > MOST_AXES:
            raise Refused(f"more than {MOST_AXES} axes")
        row: dict[str, Any] = {"name": name, "shape": list(shape), "dtype": wire_dtype(dtype)}
        if strides is not None:
            row["strides"] = list(strides)
        row["alignment"] = max(min(alignment_bytes, MOST_ALIGNMENT_BYTES), dtype.itemsize)
        if version is not None:
            row["constant"] = version
        self.inputs.append(row)
        self.dtypes[name] = dtype
        return Tensor(self, name, tuple(shape), dtype)

    def op(self, op: str, args: Sequence[Tensor], shape: Sequence[int], dtype: torch.dtype, /, **attrs: Any) -> Tensor:
        """The result of one op, whose shape and dtype the caller knows. Raises Refused beyond the format's limits."""
        if len(shape) > MOST_AXES:
            raise Refused(f"more than {MOST_AXES} axes")
        if len(args) > MOST_TENSORS:
            raise Refused(f"more than {MOST_TENSORS:,} operands of one op")
        names = [a.name for a in args]
        key = f"{op}{names}{attrs}"
        name = self._written.get(key)
        if name is None:
            if len(self.nodes) >= MOST_NODES:
                raise Refused(f"more than {MOST_NODES:,} nodes")
            name = self._written[key] = f"n{len(self.nodes)}"
            self.nodes.append({"name": name, "op": op, "args": names, "attrs": attrs})
            self.dtypes[name] = dtype
        return Tensor(self, name, tuple(shape), dtype)

    def full(self, shape: Sequence[int], value: Number, dtype: torch.dtype) -> Tensor:
        """The constant `value`, rounded to `dtype`."""
        return self.op("full", [], shape, dtype, shape=list(shape), value=constant(value, dtype))

    def value(self, value: Tensor | Number, dtype: torch.dtype) -> Tensor:
        """A tensor, or a number as a tensor without axes, in `dtype`."""
        return value.cast(dtype) if isinstance(value, Tensor) else self.full((), value, dtype)

    def iota(
        self,
        shape: Sequence[int],
        axis: int = 0,
        start: Number = 0,
        step: Number = 1,
        dtype: torch.dtype = torch.int64,
    ) -> Tensor:
        """start + step * index along `axis`."""
        bounds = {"start": constant(start, dtype), "step": constant(step, dtype)}
        return self.op("iota", [], shape, dtype, shape=list(shape), axis=axis, **bounds)

    def where(self, condition: Tensor, x: Tensor | Number, y: Tensor | Number, dtype: torch.dtype) -> Tensor:
        """x where the condition holds, else y; both in `dtype`."""
        x, y = self.value(x, dtype), self.value(y, dtype)
        return self.op("where", [condition, x, y], broadcast_shapes(condition.shape, x.shape, y.shape), dtype)

    def cat(self, tensors: Sequence[Tensor], axis: int) -> Tensor:
        """Tensors of one dtype one after the other along an axis; the first as it is where it is alone."""
        first = tensors[0]
        if len(tensors) == 1:
            return first
        axis %= first.rank
        shape = (*first.shape[:axis], sum(t.shape[axis] for t in tensors), *first.shape[axis + 1 :])
        return self.op("cat", tensors, shape, first.dtype, axis=axis)

    def output(self, tensor: Tensor, strides: Sequence[int], name: str) -> None:
        """Adds an output. Raises Refused beyond the format's limit."""
        if len(self.outputs) >= MOST_TENSORS:
            raise Refused(f"more than {MOST_TENSORS:,} outputs")
        self.outputs.append({"node": tensor.name, "name": name, "strides": list(strides)})

    def body(self) -> dict[str, Any]:
        """The graph as a JSON value. Nodes that no output needs are left out."""
        needed = {row["node"] for row in self.outputs}
        kept: list[dict[str, Any]] = []
        for node in reversed(self.nodes):  # operands are written before their users
            if node["name"] in needed:
                needed.update(node["args"])
                kept.append(node)
        return {
            "format": "fuseplan.graph",
            "version": 1,
            "inputs": [row for row in self.inputs if row["name"] in needed],
            "nodes": kept[::-1],
            "outputs": self.outputs,
        }
