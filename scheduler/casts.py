"""What changes no value: casts to wider types and views, which are recomputed, moved and dropped freely."""

from fusion_ir.dtype import DType
from fusion_ir.node import Node
from fusion_ir.ops import OPS, OpKind

# Significand bits with the implicit one, exponent of the smallest subnormal, exponent of the largest value.
_FLOATS: dict[str, tuple[int, int, int]] = {
    "f64": (53, -1074, 1023),
    "f32": (24, -149, 127),
    "f16": (11, -24, 15),
    "bf16": (8, -133, 127),
    "f8e4m3": (4, -9, 8),
    "f8e5m2": (3, -16, 15),
}
# Bits of the largest magnitude (the lowest value of a signed type is a power of two), and whether there are negatives.
_INTEGERS: dict[str, tuple[int, bool]] = {
    "bool": (1, False),
    "u8": (8, False),
    "i8": (7, True),
    "i16": (15, True),
    "i32": (31, True),
    "i64": (63, True),
}


def is_exact(source: DType, target: DType) -> bool:
    """Whether every value of `source` is a value of `target`, so that casting there and back gives the same value."""
    if source == target:
        return True
    if source.is_float:
        if not target.is_float:
            return False
        (p, low, high), (q, lower, higher) = _FLOATS[source.name], _FLOATS[target.name]
        return p <= q and low >= lower and high <= higher
    bits, negative = _INTEGERS[source.name]
    if target.is_float:
        significand, _, largest = _FLOATS[target.name]
        return bits <= significand and bits <= largest
    wide, signed = _INTEGERS[target.name]
    return bits <= wide and signed >= negative


def is_free(node: Node) -> bool:
    """View ops, and casts to a type that holds every value of the operand's."""
    if node.op == "input":
        return False
    if node.op == "cast":
        return is_exact(node.args[0].dtype, node.dtype)
    return OPS[node.op].kind is OpKind.VIEW
