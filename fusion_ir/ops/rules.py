"""Shared dtype and shape rules, and typed access to attributes.

Rules raise RuleError; `make` puts the op's name in front.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from fusion_ir.core.extent import Shape, shape_of, sizes
from fusion_ir.core.node import Attr, Node
from fusion_ir.core.scalar import Scalar
from fusion_ir.dtype import DType, bool_
from fusion_ir.ops.row import RuleError

Args = Sequence[Node]
Attrs = Mapping[str, Attr]
DTypeRule = Callable[[Args, Attrs], DType]
T = TypeVar("T")


def attr(attrs: Attrs, name: str, kind: type[T]) -> T:
    """Attribute `name`, whose kind `make` has checked already."""
    value = attrs[name]
    if not isinstance(value, kind):
        raise RuleError(f"attribute {name} is {value!r}, expected {kind.__name__}")
    return value


def ints(attrs: Attrs, name: str) -> tuple[int, ...]:
    """Attribute `name` as a tuple of integers."""
    return tuple(int(v) for v in attr(attrs, name, tuple))  # type: ignore[call-overload]


def shape_attr(attrs: Attrs, name: str = "shape") -> Shape:
    """Attribute `name` as a shape."""
    return shape_of(attr(attrs, name, tuple))  # type: ignore[arg-type]


def scalar_attr(attrs: Attrs, name: str) -> Scalar:
    """Attribute `name` as a constant."""
    return attr(attrs, name, Scalar)


# dtype rules


def _one_dtype(args: Args) -> DType:
    first = args[0].dtype
    for position, arg in enumerate(args):
        if arg.dtype != first:
            raise RuleError(f"operands must have one dtype, operand 0 is {first}, operand {position} is {arg.dtype}")
    return first


def same(args: Args, attrs: Attrs) -> DType:
    """Any dtype, one for all operands."""
    return _one_dtype(args)


def floats(args: Args, attrs: Attrs) -> DType:
    """One floating-point dtype."""
    dtype = _one_dtype(args)
    if not dtype.is_float:
        raise RuleError(f"expected a floating-point dtype, got {dtype}")
    return dtype


def numbers(args: Args, attrs: Attrs) -> DType:
    """One floating-point or integer dtype."""
    dtype = _one_dtype(args)
    if dtype == bool_:
        raise RuleError("expected a floating-point or integer dtype, got bool")
    return dtype


def integers(args: Args, attrs: Attrs) -> DType:
    """One integer dtype."""
    dtype = _one_dtype(args)
    if not dtype.is_integer:
        raise RuleError(f"expected an integer dtype, got {dtype}")
    return dtype


def bits(args: Args, attrs: Attrs) -> DType:
    """One integer dtype, or bool."""
    dtype = _one_dtype(args)
    if dtype.is_float:
        raise RuleError(f"expected an integer dtype or bool, got {dtype}")
    return dtype


def booleans(args: Args, attrs: Attrs) -> DType:
    """bool only."""
    dtype = _one_dtype(args)
    if dtype != bool_:
        raise RuleError(f"expected bool, got {dtype}")
    return dtype


def to_bool(rule: DTypeRule) -> DTypeRule:
    """Operands as `rule` says, the result is bool."""

    def rule_to_bool(args: Args, attrs: Attrs) -> DType:
        rule(args, attrs)
        return bool_

    return rule_to_bool


def selected(args: Args, attrs: Attrs) -> DType:
    """where: a bool condition, then two operands of one dtype."""
    if args[0].dtype != bool_:
        raise RuleError(f"the condition must be bool, got {args[0].dtype}")
    return _one_dtype(args[1:])


def dtype_attr(args: Args, attrs: Attrs) -> DType:
    """The attribute `dtype`."""
    return attr(attrs, "dtype", DType)


# shape rules


def equal_shapes(args: Args, attrs: Attrs) -> Shape:
    """Pointwise: all operands have the shape of the first, and so has the result."""
    for position, arg in enumerate(args):
        if arg.shape != args[0].shape:
            raise RuleError(
                f"operands must have equal shapes, operand 0 has {list(args[0].sizes)}, "
                f"operand {position} has {list(arg.sizes)}"
            )
    return args[0].shape


def check_axes(axes: Sequence[int], rank: int) -> None:
    """Rejects axes that are out of range. Order and repetition were checked with the attribute's kind."""
    for axis in axes:
        if not 0 <= axis < rank:
            raise RuleError(f"axis {axis} is out of range for rank {rank}")


def rank_of(shape: Shape) -> int:
    """Number of axes."""
    return len(sizes(shape))
