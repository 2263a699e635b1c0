"""Extents of axes: expressions, all of them literals today, so that symbolic sizes need no rewrite.

Shape rules compute with `Extent`; whoever needs a number asks `sizes(shape)` and thereby says that it needs literals.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod


@dataclass(frozen=True, slots=True)
class Extent:
    """The literal extent of one axis, >= 0. Arithmetic gives extents; `//` must divide."""

    value: int

    def __post_init__(self) -> None:
        if self.value < 0:
            raise ValueError(f"extent {self.value} is negative")

    def __hash__(self) -> int:
        return self.value

    def __add__(self, other: "Extent | int") -> "Extent":
        return Extent(self.value + _value(other))

    def __sub__(self, other: "Extent | int") -> "Extent":
        return Extent(self.value - _value(other))

    def __mul__(self, other: "Extent | int") -> "Extent":
        return Extent(self.value * _value(other))

    def __floordiv__(self, other: "Extent | int") -> "Extent":
        quotient, rest = divmod(self.value, _value(other))
        if rest:
            raise ValueError(f"extent {self.value} is not a multiple of {_value(other)}")
        return Extent(quotient)

    def __repr__(self) -> str:
        return str(self.value)

    @property
    def is_one(self) -> bool:
        return self.value == 1


Shape = tuple[Extent, ...]


def _value(e: "Extent | int") -> int:
    return e.value if isinstance(e, Extent) else e


def shape_of(sizes_: "Iterable[int | Extent]") -> Shape:
    """Shape from integers or extents."""
    return tuple(e if isinstance(e, Extent) else Extent(e) for e in sizes_)


def sizes(shape: Shape) -> tuple[int, ...]:
    """The extents as integers."""
    return tuple(e.value for e in shape)


def elements(shape: Shape) -> int:
    """Number of elements of a tensor of this shape."""
    return prod(sizes(shape))


def dense_strides(sizes_: Iterable[int]) -> tuple[int, ...]:
    """Row-major strides, in elements. Axes of extent 0 count as 1, so that strides stay positive."""
    strides: list[int] = []
    step = 1
    for size in reversed(tuple(sizes_)):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))
