"""The parameters of a function that builds nodes, as a reader needs them: of which kind, and which may be left out.

A reader's table maps an op's name to such a function; its annotations say what the text must give. So the parameters of
an op are written once, where they are used.
"""

import inspect
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, Union, get_args, get_origin, get_type_hints

from fusion_ir.core.extent import Extent
from fusion_ir.core.node import Node
from fusion_ir.core.scalar import Scalar
from fusion_ir.dtype import DType
from fusion_ir.formats.numbers import Number

# operand: a tensor or a number; given: the same, a number with its dtype. axes: one integer or several; reduced: these,
# or the dtype of a sum. sizes: extents, of which an op may let one be -1.
Kind = Literal[
    "tensor",
    "operand",
    "given",
    "scalar number",
    "reduced",
    "tensors",
    "ints",
    "axes",
    "sizes",
    "bools",
    "int",
    "number",
    "float",
    "bool",
    "str",
    "dtype",
    "scalar",
]


@dataclass(frozen=True, slots=True)
class Parameter:
    """`required`: has no default. `nullable`: may be None. `choices`: the words that a `str` may be."""

    name: str
    kind: Kind
    required: bool
    nullable: bool
    choices: tuple[str, ...] = ()


@cache
def parameters(function: Callable[..., object]) -> tuple[Parameter, ...]:
    """The parameters of `function`, in order. Raises TypeError for an annotation that no text can give."""
    hints = get_type_hints(function)
    return tuple(_parameter(p, hints[p.name]) for p in inspect.signature(function).parameters.values())


def _parameter(parameter: inspect.Parameter, hint: object) -> Parameter:
    options = set(get_args(hint)) if get_origin(hint) in (Union, types.UnionType) else {hint}
    nullable = type(None) in options
    kind, choices = _kind(options - {type(None)})
    return Parameter(parameter.name, kind, parameter.default is inspect.Parameter.empty, nullable, choices)


def _kind(options: set[object]) -> tuple[Kind, tuple[str, ...]]:
    for known, kind in _KINDS:
        if options == known:
            return kind, ()
    if len(options) == 1 and get_origin(hint := next(iter(options))) is Literal:
        return "str", tuple(str(word) for word in get_args(hint))
    raise TypeError(f"no text can give a {options}")


_KINDS: tuple[tuple[set[object], Kind], ...] = (
    ({Node}, "tensor"),
    ({Node, int, float, bool}, "operand"),
    ({Node, Number}, "given"),
    ({Number}, "scalar number"),
    ({int, Sequence[int], DType}, "reduced"),
    ({Sequence[Node]}, "tensors"),
    ({Sequence[int]}, "ints"),
    ({int, Sequence[int]}, "axes"),
    ({Sequence[int | Extent]}, "sizes"),
    ({Sequence[bool]}, "bools"),
    ({int}, "int"),
    ({int, float, bool}, "number"),
    ({float}, "float"),
    ({bool}, "bool"),
    ({str}, "str"),
    ({DType}, "dtype"),
    ({Scalar}, "scalar"),
)
