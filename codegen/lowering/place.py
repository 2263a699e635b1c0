"""Placement: every value gets a place in one tree of serial loops.

A write's nest is the serial axes that its value varies with, in one global order. A value's path is the longest prefix
of that nest made only of axes it varies with (over several writes: the shortest). Its other serial axes become
dimensions of a kept array, filled in loops of its own at that path; what varies along lanes is computed for all lanes
there. Cheap values (loads, exact casts of loads) are computed again where they are used, and so is what would exceed
the cap.

    out[t, h, d] = x[t, h, d] * cos(f[t, d])  ->  loop t: { lanes d: keep c = cos(f); loop h: lanes d: out = x * c }
"""

from collections.abc import Sequence
from itertools import takewhile

from codegen.lowering.index import Axis, volume
from codegen.lowering.lanes import lane_of
from codegen.lowering.program import Block, Key, Program
from codegen.lowering.value import Value
from codegen.lowering.write import Write


def place(
    writes: Sequence[Write],
    widths: dict[Axis, int],
    tiles: dict[Axis, tuple[Axis, int]],
    *,
    keep_bytes: int,
) -> Program:
    """The loop program of `writes`. keep_bytes: cap of one kept array."""
    order = _order(writes, set(widths))
    nests = [_nest(w, order, {outer for outer, _ in tiles.values()}) for w in writes]
    program = Program(widths, tiles, order, {}, {})
    placer = _Placer(program, _paths(writes, nests), keep_bytes)
    for write, nest in zip(writes, nests, strict=True):
        placer.write(write, nest)
    return program


def _order(writes: Sequence[Write], lanes: set[Axis]) -> list[Axis]:
    """Serial axes: those that most written bytes vary with go outside; ties in the order of the output's dimensions."""
    weight: dict[Axis, int] = {}
    first: dict[Axis, int] = {}
    for w in writes:
        for position, a in enumerate(w.axes):
            if a in lanes:
                continue
            first[a] = min(position, first.get(a, position))
            weight[a] = weight.get(a, 0) + (volume(w.axes) * w.itemsize if a in w.value.deps else 0)
    return sorted(weight, key=lambda a: (-weight[a], first[a], a.uid))


def _nest(write: Write, order: list[Axis], over_tiles: set[Axis]) -> tuple[Axis, ...]:
    """The serial loops around a write: axes that its value varies with, and tiles; if there is none, all of its own."""
    varies = tuple(a for a in order if a in write.value.deps or (a in over_tiles and a in write.axes))
    return varies or tuple(a for a in order if a in write.axes)


def _paths(writes: Sequence[Write], nests: list[tuple[Axis, ...]]) -> dict[Value, tuple[Axis, ...]]:
    paths: dict[Value, tuple[Axis, ...]] = {}
    for write, nest in zip(writes, nests, strict=True):
        stack, seen = [write.value], set[Value]()
        while stack:
            v = stack.pop()
            if v in seen:
                continue
            seen.add(v)
            path = tuple(takewhile(lambda a, v=v: a in v.deps, nest))
            if v not in paths or len(path) < len(paths[v]):
                paths[v] = path
            stack.extend(v.args)
    return paths


class _Placer:
    def __init__(self, program: Program, paths: dict[Value, tuple[Axis, ...]], keep_bytes: int) -> None:
        self.program, self.paths, self.keep_bytes = program, paths, keep_bytes

    def home(self, v: Value) -> Key:
        """Where a value is computed once for all its users."""
        lane = next((a for a in self.program.widths if a in v.deps), None)
        serial = tuple(a for a in self.program.order if a in v.deps)
        return Key(self.paths[v], lane, tuple(a for a in serial if a not in self.paths[v]))

    def write(self, w: Write, nest: tuple[Axis, ...]) -> None:
        lane = lane_of(w, list(self.program.widths))
        home = self.home(w.value)
        if home.dims or len(home.path) < len(nest):  # shared with a write of a shorter nest: written from its own
            home = Key(nest)
        key = Key(home.path, lane)
        repeats = tuple(a for a in w.axes if a is not lane and a not in key.path)
        self.program.blocks.setdefault(key, Block()).writes.append((w, repeats))
        self.need(w.value, key)

    def need(self, v: Value, at: Key) -> None:
        """Makes `v` available in block `at`, and what it is computed from in the block that computes it."""
        stack = [(v, at)]
        while stack:
            v, at = stack.pop()
            if v.op == "const":
                continue
            key = self.home(v)
            if (v.is_cheap and at.lane) or self.kept_bytes(v, key) > self.keep_bytes:
                key = at
            block = self.program.blocks.setdefault(key, Block())
            if key != at and (key.lane or key.dims):
                self.program.kept[v] = key
            if v not in block.values:
                block.values[v] = None
                stack.extend((a, key) for a in v.args)

    def kept_bytes(self, v: Value, key: Key) -> int:
        lanes = self.program.vectors(key.lane) * self.program.widths[key.lane] if key.lane else 1
        return volume(key.dims) * lanes * v.dtype.bytes
