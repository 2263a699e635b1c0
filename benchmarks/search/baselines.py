"""Baselines for the search: simpler ways to cut a graph, which choose from the search's kernel families.

nvFuser and Inductor merge along edges while that is legal and, at the most, expected to gain; none looks at all cuts
together.
"""

from collections.abc import Callable, Mapping

from scheduler.bitset import bits
from scheduler.segments.atoms import Atoms
from scheduler.segments.greedy_merge import Regions

Accepts = Callable[[int], bool]
Cost = Callable[[int], float]
Partition = tuple[int, ...]  # masks over atoms


def unfused(atoms: Atoms) -> Partition:
    """A segment for each atom."""
    return tuple(1 << a for a in range(len(atoms)))


def greedy(atoms: Atoms, accepts: Accepts, cost_us: Cost) -> Partition:
    """Producers merged with their readers, in topological order, wherever some family takes both together and that is
    predicted to take no longer than both apart."""
    regions = Regions(atoms)
    for a in range(len(atoms)):
        for producer in bits(atoms.preds[a]):
            apart_us = cost_us(regions.region[a]) + cost_us(regions.region[producer])
            regions.join(a, producer, lambda m, apart_us=apart_us: accepts(m) and cost_us(m) <= apart_us)
    return regions.masks()


def largest(atoms: Atoms, accepts: Accepts) -> Partition:
    """Producers merged with their readers wherever some family takes both together, until there are none."""
    regions = Regions(atoms)
    edges = [(a, p) for a in range(len(atoms)) for p in bits(atoms.preds[a])]
    grown = True
    while grown:
        joined = [regions.join(a, p, accepts) for a, p in edges]
        grown = any(joined)
    return regions.masks()


def baselines(atoms: Atoms, accepts: Accepts, cost_us: Cost) -> Mapping[str, Partition]:
    """The partitions of all baselines, by name."""
    return {
        "no fusion": unfused(atoms),
        "greedy producer-consumer merging": greedy(atoms, accepts, cost_us),
        "largest legal fusion": largest(atoms, accepts),
    }
