"""Axis maps of views against what the interpreter's references read."""

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest

from fusion_ir.core.extent import shape_of
from fusion_ir.core.graph import InputSpec
from fusion_ir.core.node import Node
from fusion_ir.core.scalar import Scalar
from fusion_ir.dtype import i32
from fusion_ir.ops import OPS, OpKind, axis_maps_of, kept_axes, make, make_input
from fusion_ir.ops.axis_maps import AxisMap
from testing.random_graphs import Maker, Seeded
from testing.tensors import spec

FILL = -1
VIEWS = [name for name, row in OPS.items() if row.kind is OpKind.VIEW and row.arity != 0]


def numbered(view: Node) -> tuple[Node, list[np.ndarray]]:
    """A view of int32 operands whose elements are numbered through, so that each says where it is from; a pad fills
    with FILL."""
    args = [make_input(i, InputSpec(a.shape, i32, spec(a.sizes, i32).strides)) for i, a in enumerate(view.args)]
    attrs = {name: Scalar.of(FILL, i32) if name == "value" else value for name, value in view.attrs}
    arrays: list[np.ndarray] = []
    first = 0
    for arg in args:
        arrays.append(np.arange(first, first + arg.elements, dtype=np.int32).reshape(arg.sizes))
        first += arg.elements
    return make(view.op, args, attrs), arrays


def random_views(seed: int) -> Iterator[Node]:
    """Views of one random graph, and each of them again of axes of one element."""
    maker = Maker(Seeded(seed), exact=True, max_elements=300)
    for sizes in ((2, 1, 3), (4, 6), (1, 5, 1, 2), (0, 3)):
        maker.nodes.append(maker.of_shape(sizes, i32))
    for _ in range(12):
        maker.step([maker.view])
    yield from (n for n in maker.nodes if n.op in VIEWS)


def sources(axis_map: AxisMap, index: tuple[int, ...]) -> list[int | None]:
    """The index into an operand, with None along axes that the map says nothing about."""
    return [None if s is None else s.start + s.step * (0 if s.axis is None else index[s.axis]) for s in axis_map]


def agrees(view: Node, arrays: list[np.ndarray], result: np.ndarray) -> bool:
    """Whether each element of the view is of the operand, and from the place, that the maps say."""
    maps = axis_maps_of(view)
    for index in product(*map(range, view.sizes)):
        found = [
            set(array[tuple(slice(None) if at is None else at for at in place)].flat)
            for array, place in ((a, sources(m, index)) for a, m in zip(arrays, maps, strict=True))
            if all(at is None or 0 <= at < n for at, n in zip(place, array.shape, strict=True))
        ]
        if len(found) > 1 or result[index] not in (found[0] if found else {FILL}):
            return False
    return True


def test_each_view_of_operands_has_axis_maps() -> None:
    assert [name for name, row in OPS.items() if row.axis_maps is not None] == VIEWS


@pytest.mark.parametrize("op", VIEWS)
def test_views_read_where_their_axis_maps_say(op: str) -> None:
    seen = 0
    for seed in range(60):
        for view in random_views(seed):
            if view.op == op and view.elements <= 4000:
                given, arrays = numbered(view)
                assert agrees(given, arrays, OPS[op].reference(given, *arrays)), (seed, view, view.attrs)
                seen += 1
    assert seen > 20


def test_kept_axes_have_the_operands_elements_in_order() -> None:
    for seed in range(60):
        for view in random_views(seed):
            given, arrays = numbered(view)
            result = OPS[view.op].reference(given, *arrays)
            for array, kept in zip(arrays, kept_axes(given), strict=True):
                for axis, own in kept.items():
                    assert array.shape[own] == result.shape[axis]
                    for at in range(result.shape[axis]):
                        there = set(result.take(at, axis).flat) - {FILL}
                        assert view.op == "cat" or there <= set(array.take(at, own).flat), (seed, view, view.attrs)


def of_sizes(op: str, *operands: tuple[int, ...], **attrs: tuple[int, ...]) -> tuple[AxisMap, ...]:
    shape = {"shape": shape_of(attrs.pop("shape"))} if "shape" in attrs else {}
    return axis_maps_of(make(op, [make_input(i, spec(s, i32)) for i, s in enumerate(operands)], {**attrs, **shape}))


def test_maps_of_single_views() -> None:
    assert of_sizes("slice", (8, 6), start=(2, 0), stop=(8, 6), step=(3, 1)) == (((0, 2, 3), (1, 0, 1)),)
    assert of_sizes("broadcast_in_dim", (1, 5), shape=(4, 7, 5), dims=(1, 2)) == (((1, 0, 0), (2, 0, 1)),)
    assert of_sizes("permute", (3, 4, 5), dims=(2, 0, 1)) == (((1, 0, 1), (2, 0, 1), (0, 0, 1)),)
    assert of_sizes("squeeze", (3, 1, 5), axes=(1,)) == (((0, 0, 1), (None, 0, 0), (1, 0, 1)),)


@pytest.mark.parametrize(
    ("before", "after", "axes"),
    [
        ((4, 6), (4, 2, 3), (0, None)),
        ((2, 8, 12, 40), (2, 96, 40), (0, None, None, 2)),
        ((6, 8), (8, 6), (None, None)),
        ((5, 1, 3), (1, 5, 3, 1), (1, "one", 2)),
        ((0, 2, 3), (0, 1, 2, 3), (0, 2, 3)),
        ((0, 2, 3), (0, 3, 2), (None, None, None)),
    ],
)
def test_reshapes_keep_axes_of_one_extent_with_as_many_elements_before_them(
    before: tuple[int, ...], after: tuple[int, ...], axes: tuple[int | str | None, ...]
) -> None:
    (found,) = of_sizes("reshape", before, shape=after)
    assert tuple(None if s is None else "one" if not s.step else s.axis for s in found) == axes
