"""Nodes of a fusion graph: immutable, hash-consed, in SSA form, one result each."""

import threading
import weakref
from dataclasses import dataclass, field
from math import prod
from typing import TypeVar, Union, cast

from fusion_ir.core.extent import Shape, sizes
from fusion_ir.core.scalar import Scalar
from fusion_ir.dtype import DType

# The value of an attribute. Floating-point attributes are `Scalar`s, so that equality is equality of bits.
Attr = Union[int, bool, str, DType, Scalar, Shape, tuple[int, ...], None]
T = TypeVar("T")


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Node:
    """`op(args; attrs): dtype[shape]`. Equal nodes are one object: compare with `is`.

    Made by `fusion_ir.ops.make` (or `make_input`), which applies the op's dtype and shape rules; never directly.
    """

    op: str
    args: "tuple[Node, ...]"
    attrs: tuple[tuple[str, Attr], ...]
    shape: Shape
    dtype: DType
    sizes: tuple[int, ...] = field(init=False)
    elements: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", sizes(self.shape))
        object.__setattr__(self, "elements", prod(self.sizes))

    def attr(self, name: str, kind: type[T]) -> T:
        """The attribute `name`, which must be a `kind`. Raises KeyError, TypeError."""
        for key, value in self.attrs:
            if key == name:
                if not isinstance(value, kind):
                    raise TypeError(f"attribute {name} of {self.op} is {value!r}, expected {kind.__name__}")
                return value
        raise KeyError(f"{self.op} has no attribute {name}")

    def ints(self, name: str) -> tuple[int, ...]:
        """The attribute `name`, a tuple of integers (axes, widths, indices)."""
        return cast("tuple[int, ...]", self.attr(name, tuple))

    def over(self, args: "tuple[Node, ...]") -> "Node":
        """This op with the operands `args`, which have the types of its own operands; the node itself where they are
        its own."""
        return self if args == self.args else _intern(self.op, args, self.attrs, self.shape, self.dtype)

    @property
    def rank(self) -> int:
        return len(self.sizes)

    @property
    def bytes(self) -> int:
        """Bytes of the dense tensor."""
        return self.elements * self.dtype.bytes

    def __repr__(self) -> str:
        return f"<{self.op} {self.dtype}{list(self.sizes)}>"


_interned: "weakref.WeakValueDictionary[tuple[object, ...], Node]" = weakref.WeakValueDictionary()
_lock = threading.Lock()


def intern(op: str, args: tuple[Node, ...], attrs: dict[str, Attr], shape: Shape, dtype: DType) -> Node:
    """The one node with these fields. `attrs` in any order."""
    return _intern(op, args, tuple(sorted(attrs.items(), key=lambda item: item[0])), shape, dtype)


def _intern(op: str, args: tuple[Node, ...], items: tuple[tuple[str, Attr], ...], shape: Shape, dtype: DType) -> Node:
    key = (op, args, items, shape, dtype)
    with _lock:
        node = _interned.get(key)
        if node is None:
            node = _interned[key] = Node(op, args, items, shape, dtype)
        return node
