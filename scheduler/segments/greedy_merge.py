"""Partitions of the atoms into regions: neighbours merged greedily, then siblings, wherever that is accepted."""

from collections.abc import Callable, Iterable
from graphlib import TopologicalSorter
from typing import NamedTuple

from scheduler.bitset import bits, first
from scheduler.segments.atoms import Atoms

Accepts = Callable[[int], bool]  # whether a set of atoms can be one segment

NEXT = 16  # of regions that have something in common, that each is paired with


def merged(atoms: Atoms, order: Iterable[int], accepts: Accepts) -> tuple[int, ...]:
    """A partition: each atom, in the order given, joins the regions of its neighbours wherever that is accepted."""
    regions = Regions(atoms)
    for a in order:
        for neighbour in bits(atoms.preds[a] | atoms.succs[a]):
            regions.join(a, neighbour, accepts)
    return regions.masks()


def with_siblings(atoms: Atoms, partition: tuple[int, ...], accepts: Accepts) -> tuple[int, ...]:
    """The partition with regions joined wherever that is accepted, the pairs of greatest `Likeness` first."""
    regions = Regions(atoms, partition)
    for one, other in _siblings(atoms, partition):
        regions.join(first(one), first(other), accepts)
    return regions.masks()


def _siblings(atoms: Atoms, partition: tuple[int, ...]) -> list[tuple[int, int]]:
    """Pairs of regions, the likeliest to be joined first: each with the next few of all, of those that read one of its
    tensors, and of those that write one of its shapes."""
    likeness = Likeness(atoms)
    alike: dict[object, list[int]] = {}
    for i, mask in enumerate(partition):
        reads, shapes = likeness.of(mask)
        for trait in ("all", *bits(reads), *shapes):
            alike.setdefault(trait, []).append(i)
    near = {(i, j) for own in alike.values() for at, i in enumerate(own) for j in own[at + 1 : at + 1 + NEXT]}
    ordered = sorted((-likeness(partition[i], partition[j]), i, j) for i, j in near)
    return [(partition[i], partition[j]) for _, i, j in ordered]


class Regions:
    """A partition under merging that stays free of cycles.

    Regions are kept in a topological order (Pearce and Kelly, "A dynamic topological sort algorithm for directed
    acyclic graphs", 2006): what leads from one to another lies between the two, and only that is walked.
    """

    def __init__(self, atoms: Atoms, partition: Iterable[int] | None = None) -> None:
        self.atoms = atoms
        self.region = [1 << a for a in range(len(atoms))]
        self._links = {1 << a: _Links(*links) for a, links in enumerate(_links_of(atoms))}
        self._position = {1 << a: a for a in range(len(atoms))}
        for mask in partition or ():
            one, *others = (1 << a for a in bits(mask))
            for other in others:
                self._unite(one, other)
                one |= other
        if partition:
            reads = {m: [self.region[p] for p in bits(self._links[m].preds & ~m)] for m in self.masks()}
            self._position = {m: i for i, m in enumerate(TopologicalSorter(reads).static_order())}

    def masks(self) -> tuple[int, ...]:
        """The regions, in the order of their lowest atoms."""
        return tuple(dict.fromkeys(self.region))

    def join(self, a: int, b: int, accepts: Accepts) -> bool:
        """Merges the regions of two atoms if that closes no cycle among regions and is accepted."""
        one, other = sorted((self.region[a], self.region[b]), key=self._position.__getitem__)
        if one == other or self._links[one].below & self._links[other].above & ~(one | other):  # not convex
            return False
        after = self._between(one, other, forward=True)
        if after is None or not accepts(one | other):
            return False
        before = self._between(other, one, forward=False)
        assert before is not None, "what leads from one to the other does so both ways"
        at = self._position
        order = (*sorted(before, key=at.__getitem__), one | other, *sorted(after, key=at.__getitem__))
        places = sorted([at.pop(one), at.pop(other), *(at[region] for region in (*before, *after))])
        self._unite(one, other)
        at.update(zip(order, places, strict=False))  # one place is left over
        return True

    def _unite(self, one: int, other: int) -> None:
        mask = one | other
        self._links[mask] = self._links.pop(one).joined(self._links.pop(other))
        for a in bits(mask):
            self.region[a] = mask

    def _between(self, start: int, goal: int, *, forward: bool) -> set[int] | None:
        """Regions between two in the order that the start leads to (`forward`), or that lead to the start; None where
        one of them connects start and goal."""
        at = self._position
        low, high = sorted((at[start], at[goal]))
        found, stack = set[int](), [start]
        while stack:
            region = stack.pop()
            links = self._links[region]
            near = (links.succs if forward else links.preds) & ~region
            if region != start and near & goal:
                return None
            near &= ~(start | goal)
            while near:
                following = self.region[first(near)]
                near &= ~following
                if low < at[following] < high and following not in found:
                    found.add(following)
                    stack.append(following)
        return found


class _Links(NamedTuple):
    """Atoms around a set of atoms. preds, succs: read by, and readers of, any of them. above, below: on any path to,
    and from, any of them."""

    preds: int
    succs: int
    above: int
    below: int

    def joined(self, other: "_Links") -> "_Links":
        return _Links(*(a | b for a, b in zip(self, other, strict=True)))


def _links_of(atoms: Atoms) -> Iterable[tuple[int, int, int, int]]:
    """By atom, the fields of `_Links` for that atom alone."""
    below = [0] * len(atoms)
    for a in reversed(range(len(atoms))):
        below[a] = atoms.succs[a]
        for s in bits(atoms.succs[a]):
            below[a] |= below[s]
    return zip(atoms.preds, atoms.succs, atoms.ancestors, below, strict=True)


class Likeness:
    """How alike two sets of atoms are: 2 for a tensor that both read, 1 for a shape that both write."""

    def __init__(self, atoms: Atoms) -> None:
        self._atoms = atoms
        self._known: dict[int, tuple[int, frozenset[tuple[int, ...]]]] = {}  # tensors read, shapes written

    def __call__(self, one: int, other: int) -> int:
        (reads, shapes), (other_reads, other_shapes) = self.of(one), self.of(other)
        return 2 * bool(reads & other_reads) + (not shapes.isdisjoint(other_shapes))

    def of(self, members: int) -> tuple[int, frozenset[tuple[int, ...]]]:
        """Tensors that a set of atoms reads, and shapes that it writes."""
        if members not in self._known:
            atoms = self._atoms
            shapes = frozenset(atoms.nodes[a].sizes for a in bits(atoms.writes_of(members)))
            self._known[members] = atoms.reads_of(members), shapes
        return self._known[members]
