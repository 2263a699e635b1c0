"""`fd.define_tensor`: extents, and strides from contiguity and stride order."""

from collections.abc import Mapping, Sequence

from fusion_ir.dtype import DType
from fusion_ir.errors import FormatError
from fusion_ir.extent import dense_strides, shape_of
from fusion_ir.formats.nvfuser_values import Values, bind, describe, integers, resolve
from fusion_ir.formats.python_text import Argument, Call
from fusion_ir.formats.signature import Parameter
from fusion_ir.graph import InputSpec
from fusion_ir.layout import check_strides, normal_strides
from fusion_ir.limits import check_sizes

Given = Mapping[str, Sequence[int]]

# Releases of nvFuser differ in what they call extents and contiguity.
_EXTENTS = ("shape", "sizes", "symbolic_sizes")
_CONTIGUITY = ("contiguity", "contiguous")
_PARAMETERS: tuple[Parameter, ...] = (
    Parameter("shape", "ints", False, True),
    Parameter("contiguity", "bools", False, True),
    Parameter("dtype", "dtype", False, True),
    Parameter("is_cpu", "bool", False, True),
    Parameter("stride_order", "ints", False, True),
    Parameter("sizes", "ints", False, True),
    Parameter("symbolic_sizes", "ints", False, True),
    Parameter("contiguous", "bools", False, True),
    Parameter("strides", "ints", False, True),
    Parameter("static_sizes", "bool", False, True),
)


def define_tensor(call: Call, name: str, values: Values, sizes: Given, strides: Given) -> InputSpec:
    """The input that a call of `define_tensor` describes; `sizes` and `strides` say by name what the text leaves open.

    Raises FormatError with line and column.
    """
    given = {p.name: a for p, a in bind(call, _PARAMETERS) if resolve(values, a) is not None}
    written = next((given[k] for k in _EXTENTS if k in given), None)
    if written is None:
        raise FormatError(call.place, "fd.define_tensor: argument shape is missing")
    dtype = resolve(values, given["dtype"]) if "dtype" in given else None
    if not isinstance(dtype, DType):
        found = describe(dtype) if "dtype" in given else "none"
        raise FormatError(call.place, f"fd.define_tensor: argument dtype: expected a DataType, got {found}")
    extents = _extents(written.place, name, integers(values, written, "shape"), sizes.get(name))
    place = call.place
    if name in strides:
        result = tuple(strides[name])
    elif "strides" in given:
        place, result = given["strides"].place, integers(values, given["strides"], "strides")
    else:
        contiguity = next((given[k] for k in _CONTIGUITY if k in given), None)
        order = given.get("stride_order")
        axes = memory_order(order.place, integers(values, order, "stride_order"), len(extents)) if order else None
        flags = _flags(call.place, values, contiguity, len(extents))
        result = strides_of(contiguity.place if contiguity else call.place, name, extents, flags, axes)
    check_strides(place, extents, result, written=False)
    return InputSpec(shape_of(extents), dtype, normal_strides(extents, result))


def memory_order(place: str, order: Sequence[int], rank: int) -> tuple[int, ...]:
    """Axes from the outermost in memory to the innermost, from the ranks of their strides.

    [2, 0, 1] -> (0, 2, 1)
    """
    if sorted(order) != list(range(rank)):
        raise FormatError(place, f"stride_order {list(order)} is no permutation of 0 to {rank - 1}")
    return tuple(sorted(range(rank), key=lambda axis: -order[axis]))


def strides_of(
    place: str, name: str, extents: tuple[int, ...], flags: Sequence[bool | None], axes: tuple[int, ...] | None
) -> tuple[int, ...]:
    """Strides from contiguity `flags`, which are in memory order like `axes`: outermost first.

    True: the stride is that of the next inner axis that is no broadcast, times its extent (innermost: 1). None: a
    broadcast, extent 1, or stride 0 where it was expanded. False: any stride, so the text does not say which.

        extents [2, 3, 1, 5], flags [True, True, None, True], axes (0, 1, 2, 3)  ->  (15, 5, 5, 1)
        extents [4, 8], flags [True, True], axes (1, 0)                          ->  (1, 4)
    """
    strides = list(dense_strides(extents))
    step: int | None = 1
    for axis, flag in zip(reversed(axes or range(len(extents))), reversed(flags), strict=True):
        if flag is None:
            strides[axis] = strides[axis] if extents[axis] == 1 else 0
        elif flag and step is not None:
            strides[axis] = step
            step *= extents[axis]
        elif extents[axis] > 1:
            what = f"axis {axis} of {name} is not contiguous, so its stride is not in the text"
            raise FormatError(place, f"{what}: state the strides of {name} beside it, or contiguity True")
        else:
            step = None  # an axis of extent 1 with an unknown stride: what is outside of it is unknown too
    return tuple(strides)


def _extents(place: str, name: str, written: tuple[int, ...], given: Sequence[int] | None) -> tuple[int, ...]:
    """The extents as written, -1 replaced by those that were given beside the text."""
    extents = written
    if given is not None:
        if len(given) != len(written):
            raise FormatError(place, f"{name} has rank {len(written)}, but {len(given)} sizes are given for it")
        for axis, (known, size) in enumerate(zip(written, given, strict=True)):
            if known not in (-1, size):
                raise FormatError(place, f"axis {axis} of {name} has extent {known}, but {size} is given for it")
        extents = tuple(given)
    if -1 in extents:
        symbolic = f"axis {extents.index(-1)} of {name} has a symbolic extent (-1)"
        raise FormatError(place, f"{symbolic}: state the sizes of {name} beside the text")
    check_sizes(place, extents)
    return extents


def _flags(place: str, values: Values, contiguity: Argument | None, rank: int) -> list[bool | None]:
    """One flag per axis; one for all is allowed, and none means contiguous."""
    if contiguity is None:
        return [True] * rank
    value = resolve(values, contiguity)
    if isinstance(value, bool):
        return [value] * rank
    flags = [f for f in value if f is None or isinstance(f, bool)] if isinstance(value, list) else []
    if not isinstance(value, list) or len(value) != rank or len(flags) != rank:
        expected = f"expected a list of {rank} times True, False or None"
        raise FormatError(contiguity.place, f"argument contiguity: {expected}, got {describe(value)}")
    return flags
