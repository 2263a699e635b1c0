"""Unification: stores that read the same values iterate together.

Axes start out private to a store. Two indices of one node with equal structure (coefficients and extents, dimension by
dimension) equate their axes: first exactly, then up to constants (neighbours share cache lines), then by position
between outputs of equal shape. Axes of one store never merge, so every merge is a renaming and always correct.

    out0[i0, i1] = x[i0, i1] + 1;  out1[i2, i3] = x[i2, i3 + 64]   ->   both over (i0, i1)
"""

from itertools import combinations, pairwise

from codegen.lowering.index import Affine, Axis, var
from codegen.lowering.stores import Pulled

Pairs = list[tuple[Axis, Axis]]


class _Classes:
    """Union-find over axes, with the pairs that must stay apart."""

    def __init__(self, pulled: Pulled) -> None:
        self._members: dict[Axis, set[Axis]] = {}
        self._apart: dict[Axis, set[Axis]] = {}
        for store in pulled.stores:
            for a, b in combinations(store.axes, 2):
                self._apart.setdefault(a, set()).add(b)
                self._apart.setdefault(b, set()).add(a)

    def of(self, axis: Axis) -> set[Axis]:
        return self._members.get(axis) or {axis}

    def name(self, axis: Axis) -> Axis:
        """The member that stands for the class: the one made first."""
        return min(self.of(axis), key=lambda a: a.uid)

    def same(self, a: Axis, b: Axis) -> bool:
        return b in self.of(a)

    def clash(self, a: Axis, b: Axis) -> bool:
        other = self.of(b)
        return any(self._apart.get(x, set()) & other for x in self.of(a))

    def merge(self, pairs: Pairs) -> None:
        for a, b in pairs:
            if not self.same(a, b) and not self.clash(a, b):
                union = self.of(a) | self.of(b)
                for member in union:
                    self._members[member] = union

    def renaming(self) -> dict[Axis, Affine]:
        return {a: var(self.name(a)) for a in self._members if self.name(a) is not a}


def unify(pulled: Pulled) -> None:
    """Renames axes in `pulled.stores`."""
    _, puller, _ = pulled.pull()
    classes = _Classes(pulled)
    for up_to_constant in (False, True):
        for seen in puller.visits.values():
            indices = list(seen)
            # Each index against the first with its structure and its predecessor: a chain reaches all of them.
            for x, y in dict.fromkeys([*((indices[0], y) for y in indices[1:]), *pairwise(indices)]):
                pairs = _match_all(x, y, up_to_constant)
                if pairs is not None and not any(classes.clash(a, b) for a, b in pairs):
                    classes.merge(pairs)
    for s, t in combinations(pulled.stores, 2):
        if pulled.graph.outputs[s.out].node.sizes == pulled.graph.outputs[t.out].node.sizes:
            for x, y in zip(s.index, t.index, strict=True):
                classes.merge(_match(x, y, up_to_constant=False) or [])
    renaming = classes.renaming()
    pulled.stores = [s.subst(renaming) for s in pulled.stores]


def _match_all(x: tuple[Affine, ...], y: tuple[Affine, ...], up_to_constant: bool) -> Pairs | None:
    pairs: Pairs = []
    for p, q in zip(x, y, strict=True):
        found = _match(p, q, up_to_constant)
        if found is None:
            return None
        pairs += found
    return pairs


def _match(x: Affine, y: Affine, up_to_constant: bool) -> Pairs | None:
    """The axes to equate so that x equals y; None where their structure differs."""
    if len(x.terms) != len(y.terms) or (x.c != y.c and not up_to_constant):
        return None
    pairs: Pairs = []
    for (a, k), (b, q) in zip(x.terms, y.terms, strict=True):
        if not (isinstance(a, Axis) and isinstance(b, Axis) and k == q and a.extent == b.extent):
            return None
        pairs.append((a, b))
    return pairs
