"""Tiling the lanes: a long lane axis becomes tiles, so that there is an outer loop to spread and kept arrays stay small."""

from collections.abc import Sequence

from codegen.lowering.index import Axes, Axis, var
from codegen.lowering.write import Write, rewritten


def tile_lane(
    writes: Sequence[Write], lane: Axis, tile: int, axes: Axes
) -> tuple[list[Write], Axis, dict[Axis, tuple[Axis, int]]]:
    """lane -> tile * outer + inner. Returns the writes, the inner axis, and the tail where the extent is no multiple.

    The last tile then reaches beyond the extent: emitters stop its lanes at (outer, extent).
    """
    outer, inner = axes.new(-(-lane.extent // tile)), axes.new(tile)
    e = var(outer) * tile + var(inner)

    def own(of: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(x for a in of for x in ((outer, inner) if a is lane else (a,)))

    tiled = rewritten(writes, lambda x: x.subst({lane: e}), own)
    return tiled, inner, ({inner: (outer, lane.extent)} if lane.extent % tile else {})
