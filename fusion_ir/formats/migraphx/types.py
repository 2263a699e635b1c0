"""Element types and literals as MIGraphX prints them."""

import re
from collections.abc import Sequence

from fusion_ir import building as build
from fusion_ir.core.aliases import dtype_hint
from fusion_ir.core.layout import check_strides
from fusion_ir.core.limits import LIMITS, check_count, check_sizes
from fusion_ir.core.node import Node
from fusion_ir.core.scalar import Scalar
from fusion_ir.dtype import DTYPES, DType
from fusion_ir.errors import FormatError, excerpt
from fusion_ir.formats.migraphx.lines import Type, Word

MIGRAPHX_DTYPES: dict[str, str] = {
    "half_type": "f16",
    "float_type": "f32",
    "double_type": "f64",
    "bf16_type": "bf16",
    "fp8e4m3fn_type": "f8e4m3",
    "fp8e5m2_type": "f8e5m2",
    "int8_type": "i8",
    "int16_type": "i16",
    "int32_type": "i32",
    "int64_type": "i64",
    "uint8_type": "u8",
    "bool_type": "bool",
}
_SPELLING = {ours: theirs for theirs, ours in MIGRAPHX_DTYPES.items()}

# `convert[target_type=2]`: the numbers that every release gives these types.
TYPE_NUMBERS: dict[str, str] = {
    "0": "bool", "1": "f16", "2": "f32", "3": "f64", "4": "u8", "5": "i8", "7": "i16", "8": "i32", "9": "i64",
}  # fmt: skip

# Six digits are printed. They say which value it was for types of at most 11 significant bits; of the wider ones, a
# value that needs no more than four digits is taken for the decimal that somebody wrote.
_WIDE_DIGITS = 4
_INTEGER = re.compile(r"-?\d{1,20}", re.ASCII)
_NUMBER = re.compile(r"-?(?:\d{1,40}(?:\.\d{0,40})?(?:e[-+]?\d{1,4})?|inf|nan)", re.ASCII)


def dtype_of(place: str, name: str) -> DType:
    """The dtype called `half_type` and so on. Raises FormatError."""
    if name not in MIGRAPHX_DTYPES:
        known = list(MIGRAPHX_DTYPES)
        raise FormatError(place, f"element type {excerpt(name)} is not read, expected one of {known}"
                          f"{dtype_hint(name, known, MIGRAPHX_DTYPES)}")  # fmt: skip
    return DTYPES[MIGRAPHX_DTYPES[name]]


def spell(dtype: DType, sizes: Sequence[int], strides: Sequence[int] | None = None) -> str:
    """The type as MIGraphX prints it: `half_type, {2, 3}, {3, 1}`."""
    lists = [sizes] if strides is None else [sizes, strides]
    return ", ".join([_SPELLING[dtype.name], *(f"{{{', '.join(map(str, items))}}}" for items in lists)])


def checked(type_: Type) -> DType:
    """The type's dtype, extents and strides checked. Raises FormatError."""
    dtype = dtype_of(type_.place, type_.name)
    check_sizes(type_.place, type_.sizes)
    check_strides(type_.place, type_.sizes, type_.strides, written=False)
    return dtype


def number(word: Word) -> float:
    """A number as printed: 1, -0.5, 1e-05, inf. Raises FormatError."""
    if not _NUMBER.fullmatch(word.text):
        raise FormatError(word.place, f"expected a number, got {excerpt(word.text)}")
    return float(word.text)


def literal(word: Word, dtype: DType, sizes: Sequence[int]) -> Node | None:
    """`{0.5, 2}` as a constant; None for `{ ... }` and where the printed digits do not say which value it was.

    Raises FormatError for another number of values than `sizes` have, and for values that the dtype lacks.
    """
    if word.text.strip() == "...":
        return None
    check_count(word.place, "values", word.text.count(",") + 1, LIMITS.operands)
    items = [Word(item.strip(), word.place) for item in word.text.split(",")] if word.text.strip() else []
    count = 1
    for size in sizes:
        count *= size
    if len(items) != count:
        raise FormatError(word.place, f"the literal has {len(items)} values, its extents {list(sizes)} want {count}")
    values = [_value(item, dtype) for item in items]
    if any(v is None for v in values):
        return None
    scalars = [Scalar.of(v, dtype) for v in values if v is not None]
    if not scalars or len(set(scalars)) == 1:
        return build.full(sizes, scalars[0].value if scalars else 0, dtype)
    return build.reshape(build.cat([build.full([1], s.value, dtype) for s in scalars]), sizes)


def _value(item: Word, dtype: DType) -> float | int | None:
    """One value; None where its digits leave it open. Raises FormatError."""
    if dtype.is_float:
        value = number(item)
        digits = item.text.lstrip("-").partition("e")[0].replace(".", "").strip("0")
        return None if dtype.name in ("f32", "f64") and len(digits) > _WIDE_DIGITS and digits.isdigit() else value
    if not _INTEGER.fullmatch(item.text):
        raise FormatError(item.place, f"expected an integer, got {excerpt(item.text)}")
    value = int(item.text)
    try:
        if dtype.name == "bool" and value not in (0, 1):
            raise ValueError(f"{value} is not a value of bool")
        Scalar.of(value, dtype)
    except (ValueError, OverflowError) as error:
        raise FormatError(item.place, str(error)) from None
    return value
