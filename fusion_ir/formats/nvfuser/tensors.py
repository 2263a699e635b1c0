"""`fd.define_tensor`: extents, and strides from contiguity and stride order."""

import itertools
from collections.abc import Callable, Mapping, Sequence

from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import InputSpec
from fusion_ir.core.layout import check_strides, normal_strides
from fusion_ir.core.limits import LIMITS, check_sizes
from fusion_ir.dtype import DType, f32
from fusion_ir.errors import FormatError
from fusion_ir.formats.nvfuser.python_text import Argument, PythonCall
from fusion_ir.formats.nvfuser.values import Values, bind, describe, integers, resolve
from fusion_ir.formats.side_file import stated_beside
from fusion_ir.formats.signature import Parameter

Given = Mapping[str, Sequence[int]]

# Releases of nvFuser differ in what they call extents and contiguity.
_SHOWN = 6  # inputs that a message shows, where their names are not long
_SHOWN_CHARS = 400
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


def define_tensor(
    call: PythonCall,
    name: str,
    values: Values,
    sizes: Given,
    strides: Given,
    open_inputs: Callable[[], Mapping[str, Sequence[int]]],
) -> InputSpec:
    """The input that a call of `define_tensor` describes; `sizes` and `strides` say by name what the text leaves open.

    `open_inputs` gives all inputs of the definition with symbolic extents, for the message where these are missing.
    Raises FormatError with line and column.
    """
    stated = {p.name: a for p, a in bind(call, _PARAMETERS)}
    given = {name: a for name, a in stated.items() if resolve(values, a) is not None}
    written = next((given[k] for k in _EXTENTS if k in given), None)
    if written is None:
        raise FormatError(call.place, "fd.define_tensor: argument shape is missing")
    dtype = resolve(values, stated["dtype"]) if "dtype" in stated else f32  # nvFuser's default is Float
    if not isinstance(dtype, DType):
        what = f"expected a DataType, got {describe(dtype)}"
        raise FormatError(call.place, f"fd.define_tensor: argument dtype: {what}")
    extents = _extents(written.place, name, integers(values, written, "shape"), sizes.get(name), open_inputs)
    place = call.place
    if name in strides:
        result = tuple(strides[name])
    elif "strides" in given:
        place, result = given["strides"].place, integers(values, given["strides"], "strides")
    else:
        contiguity = next((given[k] for k in _CONTIGUITY if k in given), None)
        order = given.get("stride_order")
        axes = memory_order(order.place, integers(values, order, "stride_order"), len(extents)) if order else None
        flags = _flags(values, contiguity, len(extents))
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
            dense = {"inputs": {name: {"strides": list(dense_strides(extents))}}}
            advice = stated_beside(f"the strides of {name}", dense)
            raise FormatError(place, f"{what}: {advice}; or contiguity=True in the text, where it is dense")
        else:
            step = None  # an axis of extent 1 with an unknown stride: what is outside of it is unknown too
    return tuple(strides)


def _extents(
    place: str,
    name: str,
    written: tuple[int, ...],
    given: Sequence[int] | None,
    open_inputs: Callable[[], Mapping[str, Sequence[int]]],
) -> tuple[int, ...]:
    """The extents as written, -1 replaced by those that were given beside the text."""
    extents = written
    if given is not None:
        if len(given) != len(written):
            raise FormatError(place, f"{name} has rank {len(written)}, but {len(given)} sizes are given for it")
        for axis, (known, size) in enumerate(zip(written, given, strict=True)):
            if known not in (-1, size):
                raise FormatError(place, f"axis {axis} of {name} has extent {known}, but {size} is given for it")
        extents = tuple(given)
    check_sizes(place, [0 if n == -1 else n for n in extents])
    if -1 in extents:
        symbolic = f"axis {extents.index(-1)} of {name} has a symbolic extent (-1)"
        raise FormatError(place, f"{symbolic}: {_sizes_advice({name: written, **open_inputs()})}")
    return extents


def open_shapes(calls: Sequence[PythonCall]) -> dict[str, list[int]]:
    """The shapes of a definition's tensors that have symbolic extents, by name, as far as their text says them."""
    found: dict[str, list[int]] = {}
    for call in calls:
        given = [*[v for k, v in call.keywords.items() if k in _EXTENTS], *call.args[:1]]
        if call.path != "define_tensor" or len(call.targets) != 1 or not given or not isinstance(given[0].value, list):
            continue
        if len(given[0].value) > LIMITS.rank:
            continue
        written = [item.value if type(item.value) is int else -1 for item in given[0].value]
        if -1 in written:
            found[call.targets[0]] = written
    return found


def leaves_strides_open(call: PythonCall, spec: InputSpec) -> bool:
    """Whether the text says nothing of how a tensor lies in memory. nvFuser takes contiguity False then: the strides
    are known once the kernel runs."""
    said = len(call.args) > 1 or any(name in call.keywords for name in (*_CONTIGUITY, "strides"))
    return not said and any(n > 1 for n in spec.sizes)


def _sizes_advice(shapes: Mapping[str, Sequence[int]]) -> str:
    """Advice to state shapes in the side file, with a number in place of every extent that only the sender knows."""
    known = {n for shape in shapes.values() for n in shape}
    number = next(n for n in itertools.count(64, 64) if n not in known)
    stated = {name: {"shape": [number if n == -1 else n for n in shape]} for name, shape in shapes.items()}
    some = dict(itertools.islice(stated.items(), _SHOWN))
    while len(some) > 1 and len(str(some)) > _SHOWN_CHARS:
        some.popitem()
    rest = f"; and so on for {len(stated) - len(some)} more" if len(stated) > len(some) else ""
    return f"{stated_beside('the sizes', {'inputs': some})}, with your sizes for {number}{rest}"


def _flags(values: Values, contiguity: Argument | None, rank: int) -> list[bool | None]:
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
