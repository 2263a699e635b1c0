"""Unification: stores that read the same values iterate together.

Axes start out private to a store. Two indices of one node with equal structure (coefficients and extents, dimension by
dimension) equate their axes: first exactly, then up to constants (neighbours share cache lines), then by position
between outputs of equal shape. Axes of one store never merge, so every merge is a renaming and always correct. An axis
that a reduction runs over may merge with any axis but those that its result varies with: its name is its own affair.

    out0[i0, i1] = x[i0, i1] + 1;  out1[i2, i3] = x[i2, i3 + 64]   ->   both over (i0, i1)
    y[i0, i1] = x[i0, i1] / sum over i2 of x[i0, i2]               ->   sum over i1 of x[i0, i1]

Where reductions meet reshapes, digits are aligned first: of two ways through one tensor each gets the other's radices.
"""

from collections.abc import Iterable, Iterator
from itertools import combinations, pairwise, product

from codegen.lowering.index import Affine, Axis, Refine, Split, var
from codegen.lowering.puller import Index, Puller
from codegen.lowering.reduction_axes import axes_of
from codegen.lowering.stores import Pulled

Pairs = list[tuple[Axis, Axis]]

# Splits on behalf of unification, and nodes that are pulled again for them in all: 2,628 for a block of Llama with 249
# nodes as one kernel, 69,000 and 3 s for a random graph of 191. What is not aligned by then is not shared.
MAX_ALIGNMENTS, MAX_PULLED = 64, 10_000


class _Classes:
    """Union-find over axes, with the pairs that must stay apart."""

    def __init__(self, pulled: Pulled, puller: Puller) -> None:
        self._members: dict[Axis, set[Axis]] = {}
        self._apart: dict[Axis, set[Axis]] = {}
        for store in pulled.stores:
            self._keep_apart(combinations(store.axes, 2))
        for node, pieces in pulled.bound.pieces.items():
            own = axes_of(e for piece in pieces for e in piece)
            self._keep_apart(combinations(own, 2))
            for index in puller.visits.get(node, ()):
                self._keep_apart(product(own, axes_of(index)))

    def _keep_apart(self, pairs: Iterable[tuple[Axis, Axis]]) -> None:
        for a, b in pairs:
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
    """Renames axes in `pulled`."""
    if pulled.bound.pieces:
        _align(pulled)
    _, puller, _ = pulled.pull()
    classes = _Classes(pulled, puller)
    for up_to_constant in (False, True):
        for seen in _ways(puller):
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
    pulled.rename(classes.renaming())


def _ways(puller: Puller) -> list[dict[Index, None]]:
    """The indices at which one node is read, and the offsets at which one input is."""
    return [*puller.visits.values(), *puller.offsets.values()]


def _align(pulled: Pulled) -> None:
    """Splits axes until of any two ways through a tensor neither has a digit where the other has two."""
    nodes = 0
    for _ in range(MAX_ALIGNMENTS):
        try:
            _, puller, _ = pulled.pull()
            nodes += sum(map(len, puller.visits.values()))
            request = next(_misaligned(puller), None) if nodes <= MAX_PULLED else None
        except Refine as error:
            request = error
        if request is None:
            return
        pulled.refine_axis(request)


def _misaligned(puller: Puller) -> Iterator[Split]:
    for seen in _ways(puller):
        first, *others = seen
        for other in others:
            for p, q in zip(first, other, strict=True):
                yield from (*_straddling(p, q), *_straddling(q, p))


def _straddling(e: Affine, other: Affine) -> Iterator[Split]:
    """Splits of the axes of `e` at the radices of `other`."""
    for axis, k in e.terms:
        for _, radix in other.terms:
            inner = radix // k
            if isinstance(axis, Axis) and radix % k == 0 and 1 < inner < axis.extent and axis.extent % inner == 0:
                yield Split(axis, inner)


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
