"""Writes: stores by element offset. From here on node indices are gone; only offsets of loads and writes remain."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from codegen.lowering.index import Affine, Axis, Opaque
from codegen.lowering.stores import MAX_VALUES, Pulled
from codegen.lowering.value import INDEXED, Value, Values, cone, rewrite_offsets


@dataclass(frozen=True, eq=False)
class Write:
    """`out[offset] = value` for every point of `axes` (outermost dimension first). Axes not in value.deps repeat it."""

    out: int
    offset: Affine
    value: Value
    axes: tuple[Axis, ...]
    itemsize: int


def writes_of(pulled: Pulled) -> list[Write]:
    """The stores with their values."""
    roots, _, _ = pulled.pull()
    return [Write(s.out, pulled.offset(s), v, s.axes, v.dtype.bytes) for s, v in zip(pulled.stores, roots, strict=True)]


def expressions(writes: Sequence[Write]) -> list[Affine]:
    """Every index expression of a kernel: offsets of writes and loads, indices, and what is inside opaque terms."""
    found = [w.offset for w in writes]
    found += [v.offset for v in cone(w.value for w in writes) if v.op in INDEXED]
    for e in found:
        found += [t.of for t, _ in e.terms if isinstance(t, Opaque)]
    return list(dict.fromkeys(found))


def rewritten(
    writes: Sequence[Write], change: Callable[[Affine], Affine], axes_of: Callable[[tuple[Axis, ...]], tuple[Axis, ...]]
) -> list[Write]:
    """The writes over new expressions and axes."""
    roots = rewrite_offsets(Values(MAX_VALUES), [w.value for w in writes], change, axes_of)
    return [Write(w.out, change(w.offset), v, axes_of(w.axes), w.itemsize) for w, v in zip(writes, roots, strict=True)]
