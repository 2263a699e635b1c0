"""Partitions of the atoms into regions: neighbours merged greedily, then siblings, wherever that is accepted."""

from collections.abc import Callable, Iterable
from itertools import combinations

from scheduler.atoms import Atoms
from scheduler.masks import bits

Accepts = Callable[[int], bool]  # whether a set of atoms can be one segment


def merged(atoms: Atoms, order: Iterable[int], accepts: Accepts) -> tuple[int, ...]:
    """A partition: each atom, in the order given, joins the regions of its neighbours wherever that is accepted."""
    regions = Regions(atoms)
    for a in order:
        for neighbour in bits(atoms.preds[a] | atoms.succs[a]):
            regions.join(a, neighbour, accepts)
    return regions.masks()


def with_siblings(atoms: Atoms, partition: tuple[int, ...], accepts: Accepts) -> tuple[int, ...]:
    """The partition with regions joined wherever that is accepted, those that read the same tensors first."""
    regions = Regions(atoms, partition)
    likeness = Likeness(atoms)
    for one, other in sorted(combinations(partition, 2), key=lambda pair: -likeness(*pair)):
        first, second = next(bits(one)), next(bits(other))
        regions.join(first, second, accepts)
    return regions.masks()


class Regions:
    """A partition under merging that stays free of cycles."""

    def __init__(self, atoms: Atoms, partition: Iterable[int] | None = None) -> None:
        self.atoms = atoms
        self.region = [1 << a for a in range(len(atoms))]
        for mask in partition or ():
            self._set(mask)

    def masks(self) -> tuple[int, ...]:
        """Regions by their lowest atom."""
        return tuple(dict.fromkeys(self.region))

    def join(self, a: int, b: int, accepts: Accepts) -> bool:
        """Merges the regions of two atoms if that closes no cycle among regions and is accepted."""
        one, other = self.region[a], self.region[b]
        if one == other or not self.atoms.is_convex(one | other):  # quicker than going from region to region
            return False
        if self._leads(one, other) or self._leads(other, one) or not accepts(one | other):
            return False
        self._set(one | other)
        return True

    def _set(self, mask: int) -> None:
        for a in bits(mask):
            self.region[a] = mask

    def _leads(self, start: int, goal: int) -> bool:
        """Whether a path leads from one region to the other by way of a third."""
        seen = start | goal
        queue = self._next(start) & ~seen
        while queue:
            region = self.region[(queue & -queue).bit_length() - 1]
            seen |= region
            following = self._next(region)
            if following & goal:
                return True
            queue = (queue | following) & ~seen
        return False

    def _next(self, region: int) -> int:
        after = 0
        for a in bits(region):
            after |= self.atoms.succs[a]
        return after & ~region


class Likeness:
    """2 for a tensor that both read, 1 for an output shape that both have."""

    def __init__(self, atoms: Atoms) -> None:
        self._atoms = atoms
        self._known: dict[int, tuple[int, frozenset[tuple[int, ...]]]] = {}  # tensors read, shapes written

    def __call__(self, one: int, other: int) -> int:
        (reads, shapes), (other_reads, other_shapes) = self._of(one), self._of(other)
        return 2 * bool(reads & other_reads) + (not shapes.isdisjoint(other_shapes))

    def _of(self, members: int) -> tuple[int, frozenset[tuple[int, ...]]]:
        if members not in self._known:
            atoms = self._atoms
            shapes = frozenset(atoms.nodes[a].sizes for a in bits(atoms.writes_of(members)))
            self._known[members] = atoms.reads_of(members), shapes
        return self._known[members]
