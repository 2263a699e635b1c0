"""Transposing tiles, by way of which tensors that are consecutive across the lanes are read and written.

Two axes are tiled: the lanes, and the axis `along` which a tensor's elements are consecutive. Loops within tiles come
last in the order of loops, so that a tile holds what all of them read, or write:

    out[t, l] = a[t, l] + b[l, t]  ->  loop T, L: { fill tile[t][l] = b[l, t];  loop t: lanes l: out = a + tile }
    out[l, t] = f(a[t, l])         ->  loop T, L: { loop t: lanes l: tile[t][l] = f(a);  empty out[l, t] = tile[t][l] }
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from codegen.lowering.index import Affine, Axes, Axis, volume
from codegen.lowering.lane_tiles import tile_lane
from codegen.lowering.program import Key, Program, Tile
from codegen.lowering.value import Value, cone
from codegen.lowering.write import Write

BLOCK = 16  # most lanes and rows of a block that is transposed in registers: tiles hold whole blocks
MAX_TILE_BYTES = 512 << 10  # of all tiles of a kernel: they lie on the stack of its thread


def along(e: Affine, lane: Axis) -> Axis | None:
    """The axis along which `e` takes consecutive elements, if it goes across `lane`; None if it does not."""
    opaque = e.opaque_axes
    if lane in opaque or e.coef(lane) < 2 or e.fetched:
        return None
    return next((t for t, k in e.terms if k == 1 and isinstance(t, Axis) and t not in opaque), None)


@dataclass(frozen=True)
class Turned:
    """Accesses across a lane axis. axes: the axes that they go along, most bytes first. itemsizes: bytes of an element,
    one for each load and each write."""

    axes: tuple[Axis, ...]
    itemsizes: tuple[int, ...]

    def tile_bytes(self, rows: int, columns: int) -> int:
        """Most bytes of all tiles of rows x columns: an access along one axis may vary with the others."""
        return sum(self.itemsizes) * rows ** len(self.axes) * columns


def turned(writes: Sequence[Write], lane: Axis) -> Turned:
    """The accesses across `lane`, without those along axes of reductions and scans."""
    own = [w for w in writes if lane in w.axes]
    values = cone(w.value for w in own)
    bound = {a for v in values for a in (*v.bound, *v.scanned)}
    accesses = [(v.offset, v.dtype.bytes) for v in values if v.op == "load"] + [(w.offset, w.itemsize) for w in own]
    found = [(axis, e, n) for e, n in accesses if (axis := along(e, lane)) is not None and axis not in bound]
    score: dict[Axis, int] = {}
    for axis, e, itemsize in found:
        score[axis] = score.get(axis, 0) + itemsize * volume(e.axes)
    return Turned(tuple(sorted(score, key=lambda a: (-score[a], a.uid))), tuple(n for *_, n in found))


def cut_axis(
    writes: Sequence[Write], axis: Axis, most: int, unit: int, axes: Axes, tiles: dict[Axis, tuple[Axis, int]]
) -> tuple[list[Write], Axis | None, Axis]:
    """Cuts an axis into tiles of about equal size, a multiple of `unit` of at most `most` elements, or one `unit` where
    that is more, and adds them to `tiles`. Returns the writes, the axis over the tiles (None where one tile holds all)
    and the axis within."""
    even = -(-axis.extent // -(-axis.extent // most))
    size = min(-(-even // unit), max(most // unit, 1)) * unit
    if size >= axis.extent:
        return list(writes), None, axis
    cut, outer, inner = tile_lane(writes, axis, size, axes)
    tiles[inner] = (outer, axis.extent)
    return cut, outer, inner


def add_tiles(program: Program, within: Collection[Axis], room: int = MAX_TILE_BYTES) -> None:
    """Lets accesses across the lanes go by way of tiles, as many as there is room for, in bytes. within: the serial
    axes within tiles, innermost loops."""
    known = set[Tile]()
    for key, block in program.blocks.items():
        reads = [(v, _read(v, key, within), v.dtype.bytes) for v in block.ordered() if v.op == "load"]
        writes = [(w, _written(w, key, within, repeats), w.itemsize) for w, repeats in block.writes]
        for access, tile, itemsize in (*reads, *writes):
            if tile is None:
                continue
            size = 0 if tile in known else _elements(tile) * itemsize
            if size <= room:
                room -= size
                known.add(tile)
                program.across[key, access] = tile


def _read(v: Value, key: Key, within: Collection[Axis]) -> Tile | None:
    axis = along(v.offset, key.lane) if key.lane else None
    if key.lane is None or axis is None or axis not in within:
        return None
    outside = {a for a in v.offset.axes if a not in within and a is not key.lane}
    depth = max((i + 1 for i, loop in enumerate(key.path) if loop.axis in outside), default=0)
    scope = key.path[:depth]
    around = {loop.axis for loop in scope}
    if around & set(within) or outside - around:
        return None
    return Tile(v, scope, axis, key.lane, tuple(a for a in v.offset.axes if a in within and a is not axis))


def _written(w: Write, key: Key, within: Collection[Axis], repeats: tuple[Axis, ...]) -> Tile | None:
    axis = along(w.offset, key.lane) if key.lane else None
    scope = tuple(loop for loop in key.path if loop.axis not in within)
    inside = tuple(loop.axis for loop in key.path[len(scope) :])
    if key.lane is None or axis not in inside or not scope or key.path[: len(scope)] != scope:
        return None
    return Tile(w, scope, axis, key.lane, tuple(a for a in inside if a is not axis), repeats)


def _elements(tile: Tile) -> int:
    """Elements of a tile, padded to whole blocks of BLOCK x BLOCK."""
    rows, columns = (-(-a.extent // BLOCK) * BLOCK for a in (tile.along, tile.lane))
    return rows * columns * volume(tile.others)
