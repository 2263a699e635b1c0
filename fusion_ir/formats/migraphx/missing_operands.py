"""Types of operands that the text does not define, as far as the instruction that reads them determines them.

One function per family of ops: (result, operands as far as known, attributes) -> what is known of each operand, which
holds whatever the part of the program that is not shown may be.
"""

from collections.abc import Sequence
from dataclasses import replace

from fusion_ir.dtype import DTYPES, DType, bool_
from fusion_ir.formats.migraphx.row import Attributes, Known

_INTEGER_PRODUCTS = {"i32": DTYPES["i8"]}


def nothing(result: Known, operands: Sequence[Known], attributes: Attributes) -> Sequence[Known]:
    """Ops whose operands may be of any shape and dtype."""
    return [Known() for _ in operands]


def element_type(result: Known, operands: Sequence[Known], attributes: Attributes) -> Sequence[Known]:
    """Ops that lose extents of their operand: reshapes, slices, broadcasts, reductions."""
    return [Known(dtype=result.dtype) for _ in operands]


def first_element_type(result: Known, operands: Sequence[Known], attributes: Attributes) -> Sequence[Known]:
    """A gather: the data has the result's dtype; nothing is known of the indices."""
    return [Known(dtype=result.dtype), *(Known() for _ in operands[1:])]


def like_result(result: Known, operands: Sequence[Known], attributes: Attributes) -> Sequence[Known]:
    """Pointwise ops, softmax, copies: extents and dtype of the result; the layout is open."""
    return [replace(result, strides=None) for _ in operands]


def same_memory(result: Known, operands: Sequence[Known], attributes: Attributes) -> Sequence[Known]:
    """identity: extents, dtype and strides of the result."""
    return [result for _ in operands]


def extents_only(result: Known, operands: Sequence[Known], attributes: Attributes) -> Sequence[Known]:
    """A conversion: extents of the result; dtype and layout are open."""
    return [Known(sizes=result.sizes) for _ in operands]


def compared(result: Known, operands: Sequence[Known], attributes: Attributes) -> Sequence[Known]:
    """A comparison: its operands have one dtype, which is the result's unless that is bool."""
    known = next((o.dtype for o in operands if o.dtype is not None), None)
    dtype = known or (None if result.dtype == bool_ else result.dtype)
    return [Known(result.sizes, dtype) for _ in operands]


def selected(result: Known, operands: Sequence[Known], attributes: Attributes) -> Sequence[Known]:
    """where(condition, x, y): extents of the result; the condition is bool, x and y have the result's dtype."""
    return [Known(result.sizes, bool_), *(Known(result.sizes, result.dtype) for _ in operands[1:])]


def product(result: Known, operands: Sequence[Known], attributes: Attributes) -> Sequence[Known]:
    """dot and gemm: batch and M of A and batch and N of B stand in the result, K in the other operand; C is like it."""
    return _product(result, operands, result.dtype)


def quantised_product(result: Known, operands: Sequence[Known], attributes: Attributes) -> Sequence[Known]:
    """quant_dot: products of i8 are i32; those of 8-bit floats are f32, which does not say of which kind."""
    known = next((o.dtype for o in operands[:2] if o.dtype is not None), None)
    dtype = known or (_INTEGER_PRODUCTS.get(result.dtype.name) if result.dtype is not None else None)
    return _product(result, operands, dtype)


def _product(result: Known, operands: Sequence[Known], dtype: DType | None) -> Sequence[Known]:
    a, b = (operands[i].sizes if i < len(operands) else None for i in (0, 1))
    out = result.sizes
    if out is None or len(out) < 2:
        return nothing(result, operands, {})
    left = None if b is None or len(b) != len(out) else (*out[:-1], b[-2])
    right = None if a is None or len(a) != len(out) else (*out[:-2], a[-1], out[-1])
    found = [Known(left, dtype), Known(right, dtype), Known(out, result.dtype)]
    return [found[min(i, 2)] for i in range(len(operands))]


def transposed(result: Known, operands: Sequence[Known], attributes: Attributes) -> Sequence[Known]:
    """transpose: the permutation undone, extents and strides."""
    order = _integers(attributes, "permutation")
    if result.sizes is None or sorted(order) != list(range(len(result.sizes))):
        return element_type(result, operands, attributes)
    back = [order.index(axis) for axis in range(len(order))]
    strides = None if result.strides is None else tuple(result.strides[a] for a in back)
    return [Known(tuple(result.sizes[a] for a in back), result.dtype, strides) for _ in operands]


def unsqueezed(result: Known, operands: Sequence[Known], attributes: Attributes) -> Sequence[Known]:
    """unsqueeze: the new axes dropped; an extent that one took from the axis behind it goes back there."""
    axes = _normal(_integers(attributes, "axes"), result)
    if axes is None or result.sizes is None or len(axes) == len(result.sizes):
        return element_type(result, operands, attributes)
    sizes: list[int] = []
    taken = 1
    for axis, n in enumerate(result.sizes):
        if axis in axes:
            taken *= n
        else:
            sizes.append(n * taken)
            taken = 1
    if taken != 1:
        return element_type(result, operands, attributes)
    kept = [a for a in range(len(result.sizes)) if a not in axes]
    strides = None if result.strides is None else tuple(result.strides[a] for a in kept)
    return [Known(tuple(sizes), result.dtype, strides) for _ in operands]


def squeezed(result: Known, operands: Sequence[Known], attributes: Attributes) -> Sequence[Known]:
    """squeeze with its axes: they had extent 1."""
    given = _integers(attributes, "axes")
    if not given or result.sizes is None or min(given) < 0:
        return element_type(result, operands, attributes)
    rank = len(result.sizes) + len(given)
    if len(set(given)) != len(given) or max(given) >= rank:
        return element_type(result, operands, attributes)
    rest = iter(result.sizes)
    return [Known(tuple(1 if a in given else next(rest) for a in range(rank)), result.dtype) for _ in operands]


def concatenated(result: Known, operands: Sequence[Known], attributes: Attributes) -> Sequence[Known]:
    """concat: the one operand of unknown extents has along the axis what the others leave of the result's extent."""
    axis = attributes.get("axis", 0)
    axes = _normal((axis,) if isinstance(axis, int) else (), result)
    others = [o.sizes for o in operands if o.sizes is not None]
    if not axes or result.sizes is None or len(others) != len(operands) - 1:
        return element_type(result, operands, attributes)
    (at,) = axes
    rest = result.sizes[at] - sum(o[at] for o in others if len(o) == len(result.sizes))
    sizes = (*result.sizes[:at], rest, *result.sizes[at + 1 :])
    return [Known(sizes if rest >= 0 else None, result.dtype) for _ in operands]


def padded(result: Known, operands: Sequence[Known], attributes: Attributes) -> Sequence[Known]:
    """pad: the result without its margins."""
    pads = _integers(attributes, "pads")
    if result.sizes is None or len(pads) != 2 * len(result.sizes):
        return element_type(result, operands, attributes)
    sizes = tuple(n - pads[a] - pads[a + len(result.sizes)] for a, n in enumerate(result.sizes))
    return [Known(sizes if min(sizes, default=0) >= 0 else None, result.dtype) for _ in operands]


def _integers(attributes: Attributes, name: str) -> tuple[int, ...]:
    """The attribute, empty where it is left out."""
    value = attributes.get(name, ())
    return tuple(int(item) for item in value) if isinstance(value, tuple) else ()  # type: ignore[arg-type]


def _normal(axes: Sequence[int], result: Known) -> set[int] | None:
    """Axes of the result counted from the front; None where one is out of range."""
    rank = len(result.sizes or ())
    return {a % rank for a in axes} if all(-rank <= a < rank for a in axes) else None
