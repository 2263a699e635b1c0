"""Promotion and broadcasting: how loose operands become the equal shapes and dtypes that the language wants."""

from collections.abc import Iterable, Sequence

from fusion_ir.core.extent import Extent, Shape, shape_of
from fusion_ir.core.node import Node
from fusion_ir.core.scalar import Scalar
from fusion_ir.dtype import DTYPES, DType, bool_, f32, i64
from fusion_ir.ops import RuleError, make

Number = int | float | bool
Operand = Node | int | float | bool
Axes = int | Sequence[int] | None
Sizes = Sequence[int | Extent]

_CATEGORY = {"bool": 0, "uint": 1, "int": 1, "float": 2}


def promote(dtypes: Iterable[DType]) -> DType:
    """The dtype in which operands of these dtypes meet, as in torch.

    Floats beat integers, integers beat bool. f16 with bf16, and one f8 with the other, give f32; u8 with i8 gives i16.
    Raises RuleError without dtypes.
    """
    result: DType | None = None
    for dtype in dtypes:
        result = dtype if result is None else _promote_two(result, dtype)
    if result is None:
        raise RuleError("there is no operand to take a dtype from")
    return result


def _promote_two(a: DType, b: DType) -> DType:
    if a == b:
        return a
    if _CATEGORY[a.kind] != _CATEGORY[b.kind]:
        return a if _CATEGORY[a.kind] > _CATEGORY[b.kind] else b
    if a.bytes == b.bytes:
        return DTYPES["i16"] if a.is_integer else f32
    return a if a.bytes > b.bytes else b


def number_dtype(value: Number) -> DType:
    """The dtype of a Python number where no tensor says otherwise: bool, i64 or f32."""
    if isinstance(value, bool):
        return bool_
    return i64 if isinstance(value, int) else f32


def common_dtype(values: Iterable[Operand]) -> DType:
    """The dtype in which operands meet, as in torch: `promote` over the tensors that have axes.

    Tensors without axes count where their category (bool, integer, float) is above that of tensors with axes, and
    Python numbers where theirs is above that of all tensors.
    """
    values = list(values)
    nodes = [v for v in values if isinstance(v, Node)]
    groups = (
        [v.dtype for v in nodes if v.rank],
        [v.dtype for v in nodes if not v.rank],
        [number_dtype(v) for v in values if not isinstance(v, Node)],
    )
    dtype: DType | None = None
    for group in (group for group in groups if group):
        other = promote(group)
        if dtype is None or _CATEGORY[other.kind] > _CATEGORY[dtype.kind]:
            dtype = other if dtype is None else promote((dtype, other))
    return promote([]) if dtype is None else dtype


def cast(x: Node, dtype: DType) -> Node:
    """`x` in `dtype`; `x` itself where it already is."""
    return x if x.dtype == dtype else make("cast", [x], {"dtype": dtype})


def full(sizes: Sizes, value: Number, dtype: DType | None = None) -> Node:
    """The constant `value`. Raises RuleError where an integer dtype cannot hold it."""
    dtype = dtype or number_dtype(value)
    try:
        scalar = Scalar.of(value, dtype)
    except (ValueError, OverflowError) as error:
        raise RuleError(f"full: {error}") from None
    return make("full", [], {"shape": shape_of(sizes), "value": scalar})


def broadcast_shapes(shapes: Sequence[Shape]) -> Shape:
    """The shape to which all broadcast, trailing axes aligned. Raises RuleError naming the axis."""
    rank = max((len(s) for s in shapes), default=0)
    result = list(shape_of([1] * rank))
    for shape in shapes:
        for axis, extent in enumerate(shape, rank - len(shape)):
            if result[axis].is_one:
                result[axis] = extent
            elif not extent.is_one and extent != result[axis]:
                raise RuleError(f"shapes {[list(s) for s in shapes]} do not broadcast: axis {axis} of the result")
    return tuple(result)


def broadcast_to(x: Node, sizes: Sizes) -> Node:
    """`x` repeated to `sizes`, trailing axes aligned; `x` itself where nothing changes. Raises RuleError."""
    shape = shape_of(sizes)
    if x.shape == shape:
        return x
    if x.rank > len(shape):
        raise RuleError(f"{list(x.sizes)} does not broadcast to {list(shape)}: it has more axes")
    return make("broadcast_in_dim", [x], {"shape": shape, "dims": tuple(range(len(shape) - x.rank, len(shape)))})


def aligned(values: Sequence[Operand], dtype: DType | None = None) -> list[Node]:
    """Every operand in one shape, and in `dtype` (the common one where not given). Raises RuleError."""
    dtype = dtype or common_dtype(values)
    shape = broadcast_shapes([v.shape for v in values if isinstance(v, Node)])
    return [
        broadcast_to(cast(v, dtype), shape) if isinstance(v, Node) else full(shape, v, dtype)
        for v in values
    ]  # fmt: skip


def loses(value: Operand, dtype: DType) -> bool:
    """Whether an operand that does not take part in promotion would be rounded on its way to `dtype`, which is float:
    a number that is none of its values, or a tensor without axes of a wider type."""
    if isinstance(value, Node):
        return not value.rank and value.dtype.is_float and not dtype.holds(value.dtype)
    exact = Scalar.of(value, wide(dtype)).value
    return exact == exact and Scalar.of(value, dtype).value != exact  # NaN stays NaN


def as_float(dtype: DType) -> DType:
    """`dtype` where it is floating-point, else f32."""
    return dtype if dtype.is_float else f32


def wide(dtype: DType) -> DType:
    """The dtype in which composites on `dtype` compute: f64 for f64, else f32."""
    return dtype if dtype.name == "f64" else f32


def normal_axis(axis: int, rank: int) -> int:
    """`axis` counted from the front. Raises RuleError."""
    if not -rank <= axis < rank:
        raise RuleError(f"axis {axis} is out of range for rank {rank}")
    return axis % rank


def normal_axes(axes: Axes, rank: int) -> tuple[int, ...]:
    """`axes` counted from the front, sorted; None means all. Raises RuleError for one that is given twice."""
    if axes is None:
        return tuple(range(rank))
    given = (axes,) if isinstance(axes, int) else tuple(axes)
    normal = sorted(normal_axis(a, rank) for a in given)
    if len(set(normal)) != len(normal):
        raise RuleError(f"axes {list(given)} name an axis twice")
    return tuple(normal)
