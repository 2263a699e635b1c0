"""Tiling the lanes: a long lane axis becomes tiles, so that an outer loop can be spread and kept arrays stay small."""

from collections.abc import Sequence

from codegen.lowering.index import Axes, Axis, var
from codegen.lowering.write import Write, rewritten


def tile_lane(writes: Sequence[Write], lane: Axis, tile: int, axes: Axes) -> tuple[list[Write], Axis, Axis]:
    """lane -> tile * outer + inner. Returns the writes, outer and inner.

    Where the extent is no multiple of the tile the last one reaches beyond it: emitters stop its lanes at the extent.
    """
    outer, inner = axes.new(-(-lane.extent // tile)), axes.new(tile)
    e = var(outer) * tile + var(inner)

    def own(of: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(x for a in of for x in ((outer, inner) if a is lane else (a,)))

    return rewritten(writes, lambda x: x.subst({lane: e}), own), outer, inner
