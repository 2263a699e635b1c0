"""Labels of axes over several tensors: which axes of a product's factors are one, how far views split and merge them.

An axis is a tuple of labels, the outermost first; axes of extent 1 have none. A reshape that splits an axis splits its
label everywhere:

    reshape([M, 768] -> [M, 12, 64]): (m), (d)  ->  (m), (h), (p), and d is (h, p) wherever it is
"""

from collections.abc import Iterable, Sequence
from math import prod

Label = int
Axis = tuple[Label, ...]


class Labels:
    """Labels with their extents. Splitting and equating them changes what every axis that has them stands for."""

    def __init__(self) -> None:
        self._extents: list[int] = []
        self._parts: dict[Label, Axis] = {}

    def axis(self, extent: int) -> Axis:
        """A new axis."""
        if extent == 1:
            return ()
        self._extents.append(extent)
        return (len(self._extents) - 1,)

    def extent(self, axis: Axis) -> int:
        """Elements along an axis."""
        return prod(self._extents[label] for label in axis)

    def resolved(self, axis: Axis) -> Axis:
        """An axis as it is by now."""
        found: list[Label] = []
        for label in axis:
            found += self.resolved(self._parts[label]) if label in self._parts else [label]
        return tuple(found)

    def all_of(self, axes: Iterable[Axis]) -> set[Label]:
        """The labels of some axes as they are by now."""
        return {label for axis in axes for label in self.resolved(axis)}

    def regrouped(self, axes: Sequence[Axis], sizes: Sequence[int]) -> tuple[Axis, ...] | None:
        """The axes of a reshape to `sizes` of a tensor with these axes; None where extents do not nest."""
        left = [label for axis in axes for label in self.resolved(axis)]
        found: list[Axis] = []
        for size in sizes:
            axis: list[Label] = []
            while size > 1:
                label = left.pop(0)
                extent = self._extents[label]
                if size % extent:
                    if extent % size:
                        return None
                    label, rest = self._split(label, size)
                    left.insert(0, rest)
                    extent = size
                axis.append(label)
                size //= extent
            found.append(tuple(axis))
        return tuple(found)

    def equate(self, a: Axis, b: Axis) -> bool:
        """Makes two axes one, label by label. False, with some of them split, where extents do not nest."""
        left, right = list(self.resolved(a)), list(self.resolved(b))
        while left and right:
            x, y = left.pop(0), right.pop(0)
            m, n = self._extents[x], self._extents[y]
            if max(m, n) % min(m, n):
                return False
            if m > n:
                x, rest = self._split(x, n)
                left.insert(0, rest)
            elif n > m:
                y, rest = self._split(y, m)
                right.insert(0, rest)
            if x != y:
                self._parts[y] = (x,)
            left, right = list(self.resolved(tuple(left))), list(self.resolved(tuple(right)))
        return not left and not right

    def _split(self, label: Label, outer: int) -> tuple[Label, Label]:
        """Two labels that a label is by now, the first of extent `outer`."""
        (first,), (rest,) = self.axis(outer), self.axis(self._extents[label] // outer)
        self._parts[label] = (first, rest)
        return first, rest
