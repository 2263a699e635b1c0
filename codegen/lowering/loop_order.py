"""Order of the serial loops; and of every value its path, the loops that it is computed inside, and its phases.

`placement` defines these terms and builds the program from them.
"""

from collections.abc import Iterable, Sequence, Set
from itertools import takewhile
from math import prod

from codegen.lowering.index import Axis, volume
from codegen.lowering.value import REDUCES, Value
from codegen.lowering.write import Write

Axes = tuple[Axis, ...]
Phases = tuple[int, ...]


def order_of(writes: Sequence[Write], values: Sequence[Value], lanes: set[Axis]) -> list[Axis]:
    """Serial axes, outermost first.

    Axes that no reduction and no scan runs over come first, so that results of reductions are at hand where they are
    read, and tasks can share the loops outside of scans. Among them, an axis that more written bytes vary with comes
    first, ties in the order of the output's dimensions. Reductions that are spread again (`_spread`) should end soon:
    their axes come next to last. Axes that are only reduced come last, the largest stride outside.
    """
    bound = {a for v in values for a in v.bound}
    soon = {a for v in _spread(values) for a in v.bound}
    weight: dict[Axis, int] = {}
    first: dict[Axis, int] = {}
    for w in writes:
        for position, a in enumerate(w.axes):
            first[a] = min(position, first.get(a, position))
            weight[a] = weight.get(a, 0) + (volume(w.axes) * w.itemsize if a in w.value.deps else 0)
    stride: dict[Axis, int] = {}
    for v in values:
        for t, k in v.offset.terms if v.op == "load" else ():
            if isinstance(t, Axis):
                stride[t] = max(stride.get(t, 0), k)
    late = bound.union(*(v.scanned for v in values))
    written = sorted(weight, key=lambda a: (a in late, a in soon, -weight[a], first[a], a.uid))
    reduced = sorted(bound - set(weight), key=lambda a: (-stride.get(a, 0), a.uid))
    return [a for a in (*written, *reduced) if a not in lanes]


def _spread(values: Sequence[Value]) -> set[Value]:
    """Reductions that are read where more varies than in their results."""
    above: dict[Value, set[Value]] = {}
    found: set[Value] = set()
    for v in values:
        above[v] = {a for a in v.args if a.op in REDUCES}.union(*[above[a] for a in v.args])
        if above[v]:
            own = v.ranges
            found.update(r for r in above[v] if not own <= r.deps)
    return found


def nest_of(write: Write, order: list[Axis], over_tiles: set[Axis]) -> Axes:
    """The serial loops around a write: axes that its value varies with, and tiles; if there is none, all of its own."""
    varies = tuple(a for a in order if a in write.value.deps or (a in over_tiles and a in write.axes))
    return varies or tuple(a for a in order if a in write.axes)


def paths_of(
    writes: Sequence[Write],
    nests: Sequence[Axes],
    values: Sequence[Value],
    order: Sequence[Axis],
    widths: dict[Axis, int],
    keep_bytes: int,
    threads: int = 1,
) -> dict[Value, Axes]:
    """Path of every value, the serial axes that it is computed inside: the longest prefix that the nests of all its
    users share, of axes that loops around it may run over (`_around`). threads: number of threads that share lanes."""
    nests_of: dict[Value, dict[Axes, None]] = {}
    for write, nest in zip(writes, nests, strict=True):
        nests_of.setdefault(write.value, {})[nest] = None
    paths: dict[Value, Axes] = {}
    for v in reversed(values):  # users first
        around = _around(v, order, widths, keep_bytes, threads)
        paths[v] = _shared(tuple(takewhile(lambda a, around=around: a in around, nest)) for nest in nests_of[v])
        bound = v.bound
        inside = paths[v] + tuple([a for a in order if a in bound]) if bound else paths[v]
        for arg in v.args:
            nests_of.setdefault(arg, {})[inside] = None
    return paths


def _around(v: Value, order: Sequence[Axis], widths: dict[Axis, int], keep_bytes: int, threads: int) -> Set[Axis]:
    """The axes that loops around a value may run over. A reduction stands outside the loops over axes that come later
    in the order than its own, with an accumulator for each of their points, if these take at most `keep_bytes`."""
    places = [order.index(a) for a in v.bound if a in order]
    if not places:
        return v.deps
    later = v.deps.intersection(order[min(places) :])
    own = v.ranges
    lanes = prod(-(-a.extent // threads) if a in v.deps else width for a, width in widths.items() if a in own)
    return v.deps - later if volume(later) * lanes * v.dtype.bytes <= keep_bytes else v.deps


def _shared(paths: Iterable[Axes]) -> Axes:
    """The longest common prefix."""
    first, *others = paths
    for other in others:
        first = tuple(a for a, _ in takewhile(lambda pair: pair[0] is pair[1], zip(first, other, strict=False)))
    return first


def phases_of(values: Sequence[Value], paths: dict[Value, Axes]) -> dict[Value, Phases]:
    """Phases of every value, one at each prefix of its path, from the empty prefix to the whole path."""
    found: dict[Value, Phases] = {}
    for v in values:
        found[v] = phases_after(v.args, len(paths[v]), paths, found)
    return found


def phases_after(args: Sequence[Value], depth: int, paths: dict[Value, Axes], phases: dict[Value, Phases]) -> Phases:
    """The earliest phases, at depths up to `depth` of one path, at which all of `args` can be read."""

    found = [0] * (depth + 1)
    for a in args:
        own, end = phases[a], len(paths[a])
        for d in range(min(depth, end) + 1):
            ready = own[d] + (d == end and a.op in REDUCES)
            found[d] = max(found[d], ready)
    return tuple(found)
