"""Values at which functions break, of every dtype, and tensors of PyTorch with the same bits."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fusion_ir.arithmetic.conversions import ulp
from fusion_ir.core.graph import Graph, OutputSpec
from fusion_ir.dtype import DTYPES, DType, compute_dtype
from fusion_ir.ops import OPS, make, make_input
from fusion_ir.reference.interpreter import interpret
from testing.tensors import spec

_BITS = {"bf16": np.int16, "f8e4m3": np.uint8, "f8e5m2": np.uint8}  # of what NumPy has no type of its own for
_TORCH = {
    "f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "f8e4m3": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8",
    "bool": "bool",
}  # fmt: skip


def special_values(dtype: DType) -> np.ndarray:
    """Zeros, ones, infinities, NaN, subnormals, the smallest normal and the largest numbers; edges of integers."""
    if dtype.kind == "bool":
        return np.array([False, True])
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        width = 8 * dtype.bytes
        edges = [info.min, info.min + 1, -3, -2, -1, 0, 1, 2, 3, 7, width - 1, width, info.max // 2, info.max]
        return np.array(sorted({v for v in edges if info.min <= v <= info.max}), dtype.numpy)
    largest = 448.0 if dtype.name == "f8e4m3" else 2.0**dtype.highest * (2 - 2.0 ** (1 - dtype.digits))
    normal, subnormal = 2.0**dtype.least_normal, 2.0**dtype.lowest
    positive = [
        0.0, subnormal, 2 * subnormal, normal - subnormal, normal, 0.1, 0.25, 1 / 3, 0.5, 0.7,
        1 - 2.0**-dtype.digits, 1.0, 1 + 2.0 ** (1 - dtype.digits), 1.5, 2.0, 2.5, 3.0, 7.0, 80.0, largest / 2, largest,
    ]  # fmt: skip
    infinities = [] if dtype.name == "f8e4m3" else [np.inf, -np.inf]
    wide = np.array([*positive, *(-v for v in positive), *infinities, np.nan])
    return (wide if dtype.name == "f64" else wide.astype(np.float32)).astype(dtype.numpy)


def to_torch(torch: Any, array: np.ndarray, name: str) -> Any:
    """The tensor with the array's bits."""
    given = np.ascontiguousarray(array)
    if name in _BITS:
        return torch.from_numpy(given.view(_BITS[name]).copy()).view(getattr(torch, _TORCH[name]))
    return torch.from_numpy(given.copy())


def from_torch(torch: Any, tensor: Any) -> tuple[np.ndarray, str]:
    """The tensor's bits as an array, and the name of its dtype."""
    name = next(ours for ours, theirs in _TORCH.items() if tensor.dtype == getattr(torch, theirs))
    if name in _BITS:
        bits = tensor.contiguous().view(torch.int16 if name == "bf16" else torch.uint8).numpy()
        return bits.view(DTYPES[name].numpy), name
    return tensor.contiguous().numpy(), name


ENDANGERED = (
    "pow", "atan2", "log", "log1p", "sqrt", "rsqrt", "exp", "expm1", "tanh", "erf", "sigmoid", "reciprocal", "sign",
    "maximum", "minimum", "fmod", "remainder", "floordiv", "div", "lt", "ge", "ne", "isfinite", "square",
)  # fmt: skip


def special_graph(dtype: DType, ops: Sequence[str] = ENDANGERED) -> tuple[Graph, list[np.ndarray]]:
    """A graph of these ops, and of casts to integers, over two inputs; and all special values against all, of a number
    that no vector divides."""
    a, b = (v.ravel() for v in np.meshgrid(special_values(dtype), special_values(dtype)))
    odd = len(a) - 1 + len(a) % 2
    arrays = [a[:odd], b[:odd]]
    inputs = tuple(spec((odd,), dtype) for _ in arrays)
    x, y = (make_input(i, s) for i, s in enumerate(inputs))
    nodes = [make(op, [x, y][: OPS[op].arity]) for op in ops]  # type: ignore[misc]
    nodes += [make("cast", [x], {"dtype": DTYPES[name]}) for name in ("i8", "u8", "i32", "i64", "bool", "f8e4m3")]
    return Graph(inputs, tuple(OutputSpec(n, (1,)) for n in nodes)), arrays


def unlike_reference(graph: Graph, arrays: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> list[str]:
    """Where results of a kernel are not the interpreter's: beyond the ulps of the op's row, or no number, or of another
    sign."""
    found: list[str] = []
    for output, want, got in zip(graph.outputs, interpret(graph, arrays), results, strict=True):
        node = output.node
        same = got == want
        if node.dtype.is_float:
            a, b = want.astype(np.float64), got.astype(np.float64)
            ulps = OPS[node.op].ulps if node.dtype == compute_dtype(node.dtype) else min(OPS[node.op].ulps, 1)
            with np.errstate(invalid="ignore"):
                near = np.abs(a - b) <= ulps * ulp(want).astype(np.float64)
            same = ((a == b) | (np.isfinite(a) & near)) & (np.signbit(a) == np.signbit(b)) | np.isnan(a) & np.isnan(b)
        for i in np.flatnonzero(~np.asarray(same))[:3]:
            found.append(f"{node.op}({', '.join(str(x[i]) for x in arrays)}) = {got[i]}, expected {want[i]}")
    return found
