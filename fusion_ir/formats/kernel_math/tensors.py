"""Tensors as a %kernel_math dump writes them each time they are mentioned: T5_l___bfloat[bS12{1}, iS16{32}rf].

`T5` is the name, `l` the memory, `__bfloat` the dtype. An axis is i (ordinary), b (broadcast) or r (reduced away), a
number that no other tensor's axis has, and an extent. A broadcast axis that was expanded is written `bS3{1 ex 8}`, in
older dumps `bS3{8}`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fusion_ir.core.aliases import dtype_hint
from fusion_ir.core.limits import LIMITS, check_sizes
from fusion_ir.dtype import DTYPES, DType
from fusion_ir.errors import FormatError, excerpt
from fusion_ir.formats.kernel_math.scalars import SCALAR_NAME, Scalars
from fusion_ir.formats.kernel_math.tokens import Cursor, Token

TENSOR = re.compile(r"(T[0-9]{1,18})_([glst])_(\w+)\Z", re.ASCII)
_AXIS = re.compile(r"([a-z])([A-Za-z.]*?)([0-9]{1,18})\Z", re.ASCII)
_SCHEDULED = ("ca_pos", "produce_pos", "maybe_produce_pos", "compute_with")

# nvFuser's index type has 32 or 64 bits as the launch needs; values are the same in 64.
KERNEL_DTYPES: dict[str, DType] = {
    "double": DTYPES["f64"],
    "float": DTYPES["f32"],
    "__half": DTYPES["f16"],
    "__bfloat": DTYPES["bf16"],
    "__e4m3": DTYPES["f8e4m3"],
    "__e5m2": DTYPES["f8e5m2"],
    "int8_t": DTYPES["i8"],
    "int16_t": DTYPES["i16"],
    "int": DTYPES["i32"],
    "int64_t": DTYPES["i64"],
    "nvfuser_index_t": DTYPES["i64"],
    "uint8_t": DTYPES["u8"],
    "bool": DTYPES["bool"],
}


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis; `kind` is i, b or r. `expanded`: a broadcast axis along which one element repeats."""

    kind: str
    number: int
    extent: int
    expanded: bool = False

    def __str__(self) -> str:
        return f"{self.kind}S{self.number}{{{self.extent}}}"


@dataclass(frozen=True, slots=True)
class Mention:
    """A tensor as it is written in one place. `tag` is the (Avg), (Var) or (Count) behind it, or ""."""

    name: str
    memory: str
    dtype: DType
    axes: tuple[Axis, ...]
    place: str
    tag: str = ""

    @property
    def kept(self) -> tuple[Axis, ...]:
        """The axes that the tensor has; those that its own reduction took away are only written."""
        return tuple(axis for axis in self.axes if axis.kind != "r")

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(axis.extent for axis in self.kept)

    def __str__(self) -> str:
        return f"{self.name}_{self.memory} {self.dtype}[{', '.join(str(axis) for axis in self.axes)}]"

    def same(self, other: "Mention") -> bool:
        """Whether both mentions write one tensor: name, memory, dtype and every axis are equal."""
        return replace(self, place="", tag="") == replace(other, place="", tag="")


def read_mention(cursor: Cursor, scalars: Scalars, given: Sequence[int] | None = None) -> Mention:
    """The tensor that comes next. `given` states the extents of an input whose symbolic ones are not known yet.

    Raises FormatError with line and column.
    """
    head = cursor.peek()
    match = TENSOR.match(head.text)
    if match is None:
        raise cursor.error("a tensor such as T5_l_float[iS3{64}]")
    cursor.take()
    name, memory, word = match[1], match[2], match[3]
    if word not in KERNEL_DTYPES:
        hint = dtype_hint(word, KERNEL_DTYPES, {spelled: dtype.name for spelled, dtype in KERNEL_DTYPES.items()})
        raise FormatError(head.place, f"{name}: unknown dtype {excerpt(word)}{hint}")
    cursor.expect("[")
    axes: list[Axis] = []
    if cursor.peek().text == "0" and cursor.at("]", 1):  # older dumps write rank 0 as [ 0 ]
        cursor.take()
    while not cursor.at("]"):
        if axes:
            cursor.expect(",")
        position = sum(axis.kind != "r" for axis in axes)
        known = None if given is None or position >= len(given) else given[position]
        axes.append(_axis(cursor, scalars, known))
        if len(axes) > LIMITS.rank + LIMITS.rank:
            raise FormatError(head.place, f"{name} has more than {LIMITS.rank + LIMITS.rank} axes")
    cursor.expect("]")
    _refuse_schedule(cursor, name)
    if len({axis.number for axis in axes}) != len(axes):
        raise FormatError(head.place, f"{name} has an axis number twice")
    mention = Mention(name, memory, KERNEL_DTYPES[word], tuple(axes), head.place, _tag(cursor))
    check_sizes(head.place, mention.sizes)
    return mention


def axis_number(token: Token) -> int | None:
    """The number of the axis that a token begins, None where it begins none."""
    match = _AXIS.match(token.text)
    return int(match[3]) if match is not None and match[2] == "S" else None


def read_axis(cursor: Cursor, scalars: Scalars) -> Axis:
    """The axis that comes next."""
    return _axis(cursor, scalars, None)


def _axis(cursor: Cursor, scalars: Scalars, given: int | None) -> Axis:
    """`iS16{32}rf`. `given` is the value of an extent that is a name and has no value yet."""
    token = cursor.peek()
    match = _AXIS.match(token.text) if token.kind == "word" else None
    if match is None or not match[2]:
        raise cursor.error("an axis such as iS3{64}")
    if match[2] != "S":
        raise _scheduled(token.place, f"axis {token.text} is bound to {match[2]}")
    if match[1] not in "irb":
        raise FormatError(token.place, f"axis {token.text} is of type {match[1]}, expected i, r or b")
    cursor.take()
    cursor.expect("{")
    name = cursor.peek().text
    if given is not None and SCALAR_NAME.match(name) and cursor.at("}", 1):
        scalars.values.setdefault(name, given)
    place, extent, expanded = cursor.peek().place, scalars.integer(cursor), False
    if cursor.skip("ex"):
        extent, expanded = scalars.integer(cursor), True
    if cursor.at(":"):
        raise FormatError(cursor.peek().place, f"axis {token.text} starts or stops inside its extent: not read")
    cursor.expect("}")
    if extent < 0:
        raise FormatError(place, f"axis {token.text} has extent {extent}, expected 0 or more")
    if given is not None and extent != given:
        raise FormatError(place, f"axis {token.text} has extent {extent}, but {given} is stated beside the text")
    if cursor.peek().kind == "word" and not cursor.skip("rf"):
        raise _scheduled(cursor.peek().place, f"axis {token.text} is followed by {excerpt(cursor.peek().text)}")
    expanded = match[1] == "b" and (expanded or extent != 1)
    return Axis(match[1], int(match[3]), extent, expanded)


def _refuse_schedule(cursor: Cursor, name: str) -> None:
    token = cursor.peek()
    if token.text in _SCHEDULED:
        raise _scheduled(token.place, f"{name} has {token.text}")


def _scheduled(place: str, found: str) -> FormatError:
    return FormatError(place, f"{found}: a scheduled dump, whose axes are loops; expected one from before scheduling")


def _tag(cursor: Cursor) -> str:
    """`(Avg)` and the like, behind the results and operands of a Welford."""
    if not (cursor.at("(") and cursor.at(")", 2) and cursor.peek(1).text in ("Avg", "Var", "Count")):
        return ""
    cursor.take()
    tag = cursor.take().text
    cursor.take()
    return tag
