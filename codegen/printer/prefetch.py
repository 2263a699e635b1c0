"""Prefetches in loops over lanes: of the row that comes next, or of memory that is read only once."""

from collections.abc import Iterator
from dataclasses import dataclass

from codegen.lowering.access import pattern
from codegen.lowering.index import Affine, Axis
from codegen.lowering.program import Key, Program
from codegen.lowering.value import Value

LEAST_RUN_BYTES = 4096  # shortest run of consecutive bytes that is worth a prefetch
CACHED_BYTES = 256 << 10  # bytes of one tensor that stay in the second cache for sure


@dataclass(frozen=True)
class Fetch:
    """Consecutive elements of a tensor from `offset` on, of `itemsize` bytes each."""

    tensor: str
    offset: Affine
    itemsize: int


def next_row(program: Program, key: Key) -> list[Fetch]:
    """The loads of the next row, fetched during the costliest of several passes over a row; none for other blocks."""
    for depth in range(len(key.path), 0, -1):
        passes = _passes(program, key, depth)
        if len(passes) > 1:
            break
    else:
        return []
    if not key.lane or key is not max(passes, key=program.cost):
        return []
    row = key.path[depth - 1].axis
    loads = (v for k in passes for v in _loads(program, k, key.lane) if v.offset.coef(row))
    return list(dict.fromkeys(_fetch(v, v.offset.coef(row)) for v in loads))


def _passes(program: Program, key: Key, depth: int) -> list[Key]:
    """Blocks in loops of their own over the same axes as those of `key`, inside the outermost `depth` loops of it."""
    inner = [loop.axis for loop in key.path[depth:]]
    return [
        k
        for k in program.blocks
        if k.path[:depth] == key.path[:depth]
        and [loop.axis for loop in k.path[depth:]] == inner
        and k.lane is key.lane
        and not k.dims
    ]


def read_once(program: Program, key: Key, ahead_bytes: int) -> list[Fetch]:
    """The loads in long runs of memory that no other iteration and no other block reads, `ahead_bytes` further on; none
    where that is 0. Fetched into the first cache alone, where the CPU can do so, they drive nothing out of others."""
    if not key.lane or not ahead_bytes:
        return []
    loops = {key.lane, *key.dims, *(loop.axis for loop in key.path)}
    once = (
        v
        for v in _loads(program, key, key.lane)
        if loops <= set(v.offset.axes)
        and (key, v) not in program.across
        and sum(v in block.values for block in program.blocks.values()) == 1
        and _run(v.offset, key.lane) * v.dtype.bytes >= LEAST_RUN_BYTES
    )
    return [_fetch(v, _later(v.offset, key, ahead_bytes // v.dtype.bytes, v.dtype.bytes)) for v in once]


def _later(e: Affine, key: Key, elements: int, itemsize: int) -> int:
    """Distance in memory, in elements, to the load that comes `elements` elements later. Where the loops step over
    memory after each short run, as sums down columns do, and come back to it only when the cache has forgotten it, the
    distance is that to a later iteration's run."""
    assert key.lane
    run = key.lane.extent
    for axis in (*reversed(key.dims), *(loop.axis for loop in reversed(key.path))):
        step = e.coef(axis)
        if step != run:
            is_short, is_long = run * itemsize < LEAST_RUN_BYTES, axis.extent * run * itemsize >= CACHED_BYTES
            return step * -(-elements // run) if step and is_short and is_long else elements
        run *= axis.extent
    return elements


def _loads(program: Program, key: Key, lane: Axis) -> Iterator[Value]:
    """The loads of a block that read consecutive elements along the lanes."""
    for v in program.blocks[key].ordered():
        if v.op == "load" and not v.offset.fetched and pattern(v.offset, lane, 1, 1).kind == "vector":
            yield v


def _fetch(v: Value, further: int) -> Fetch:
    return Fetch(f"in{v.tensor}", v.offset + further, v.dtype.bytes)


def _run(e: Affine, lane: Axis) -> int:
    """Consecutive elements that an access steps through, loops in whatever order."""
    run, axes = lane.extent, {a for a in e.axes if a is not lane and a not in e.opaque_axes}
    while following := next((a for a in axes if e.coef(a) == run), None):
        run *= following.extent
        axes.remove(following)
    return run
