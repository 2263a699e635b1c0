"""MIGraphX's quantizelinear and dequantizelinear: between real numbers and integers (or 8-bit floats) of a scale.

    quantizelinear(x, scale, zero)     saturate(round(x / scale) + zero)    halves to even, the quotient in x's dtype
    dequantizelinear(q, scale, zero)   (q - zero) scale                     rounded once

Operands have equal extents, as broadcasts stand before them. Without a zero point it is 0; what `out_type` or it does
not say is u8.
"""

from collections.abc import Sequence

from fusion_ir import building as build
from fusion_ir.core.node import Node
from fusion_ir.dtype import DTYPES, DType, f32, f64
from fusion_ir.formats.migraphx.row import Attributes, Known, Row
from fusion_ir.formats.migraphx.types import MIGRAPHX_DTYPES, TYPE_NUMBERS
from fusion_ir.ops import RuleError


def _check(x: Node, scale: Node, zero: Node | None) -> None:
    for name, operand in (("scale", scale), ("zero point", zero)):
        if operand is not None and operand.sizes != x.sizes:
            raise RuleError(f"the {name} has extents {list(operand.sizes)}, expected {list(x.sizes)}")
    if not scale.dtype.is_float:
        raise RuleError(f"the scale is {scale.dtype}, expected a floating-point dtype")


def _quantised_type(zero: Node | None, out_type: str) -> DType:
    """Raises RuleError for an unknown one, and where the two differ."""
    name = TYPE_NUMBERS.get(out_type) or MIGRAPHX_DTYPES.get(out_type)
    if out_type and name is None:
        raise RuleError(f"out_type is {out_type}, expected one of {list(MIGRAPHX_DTYPES)}")
    dtype = DTYPES[name] if name else zero.dtype if zero is not None else DTYPES["u8"]
    if zero is not None and zero.dtype != dtype:
        raise RuleError(f"the zero point is {zero.dtype}, but out_type is {dtype}")
    return dtype


def _largest(dtype: DType) -> float:
    """The largest number of an 8-bit float type."""
    return 448.0 if dtype.name == "f8e4m3" else 57344.0


def _quantize(x: Node, scale: Node, zero: Node | None = None, out_type: str = "", axis: int = 1) -> Node:
    """`axis`, which older releases print, is that of a scale not yet broadcast, and says nothing here."""
    _check(x, scale, zero)
    if x.dtype != scale.dtype:
        raise RuleError(f"expected a scale of {x.dtype} as x is, got {scale.dtype}")
    dtype = _quantised_type(zero, out_type)
    if dtype.kind == "bool" or (dtype.is_float and dtype.bytes > 1):
        raise RuleError(f"the result is {dtype}, expected integers or 8-bit floats")
    inner = f64 if x.dtype == f64 or dtype.digits > f32.digits else f32
    steps = build.cast(build.round_(build.div(x, scale)), inner)
    moved = steps if zero is None else build.add(steps, build.cast(zero, inner))
    if dtype.is_float:
        moved = build.clamp(moved, -_largest(dtype), _largest(dtype))
    return build.cast(moved, dtype)  # of integers, casts saturate


def _dequantize(q: Node, scale: Node, zero: Node | None = None, axis: int = 1) -> Node:
    """Computed where the difference is exact, and the product is rounded once."""
    _check(q, scale, zero)
    if zero is not None and zero.dtype != q.dtype:
        raise RuleError(f"the zero point is {zero.dtype}, expected {q.dtype} as the operand is")
    small = q.dtype.digits < 16 and (zero is None or q.dtype.is_integer)
    inner = f32 if small and scale.dtype != f64 else f64
    real = build.cast(q, inner)
    moved = real if zero is None else build.sub(real, build.cast(zero, inner))
    return build.cast(build.mul(moved, build.cast(scale, inner)), scale.dtype)


def _quantize_operands(result: Known, operands: Sequence[Known], attributes: Attributes) -> Sequence[Known]:
    """x and the scale have one dtype, the zero point that of the result."""
    dtype = next((o.dtype for o in operands[:2] if o.dtype is not None), None)
    return [Known(result.sizes, dtype), Known(result.sizes, dtype), Known(result.sizes, result.dtype)][: len(operands)]


def _dequantize_operands(result: Known, operands: Sequence[Known], attributes: Attributes) -> Sequence[Known]:
    """The scale has the dtype of the result; what is scaled and the zero point have one of their own."""
    dtype = next((o.dtype for i, o in enumerate(operands) if i != 1 and o.dtype is not None), None)
    return [Known(result.sizes, dtype), Known(result.sizes, result.dtype), Known(result.sizes, dtype)][: len(operands)]


QUANTISED: dict[str, Row] = {
    "quantizelinear": Row(_quantize, _quantize_operands),
    "dequantizelinear": Row(_dequantize, _dequantize_operands),
}
