"""Which segments there are to choose from: sets of atoms that some kernel family accepts.

Three sources, the first two always complete, the last one capped and grown from small to large:
- single atoms, greedily merged regions, cones of the outputs, the whole graph;
- disconnected siblings (horizontal fusion), which growing by neighbours never reaches: unions of the former;
- convex connected sets, grown one neighbour at a time.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import rustworkx as rx

from codegen.kernel import Reject
from fusion_ir.records import Reason
from scheduler.answers import Answers
from scheduler.atoms import Atoms
from scheduler.cover import bits
from scheduler.segment import Segment

PROLOGUE_WEIGHT = 1e-3  # of a segment that runs once for each version of the constants: ties go to the least work


@dataclass(frozen=True)
class CandidateSettings:
    """max_atoms: of a grown candidate. max_grown: grown candidates kept. max_unions: unions of siblings tried, among
    `max_paired` segments."""

    max_atoms: int = 20
    max_grown: int = 2_000
    max_unions: int = 1_000
    max_paired: int = 100


@dataclass(frozen=True, eq=False)
class Candidate:
    """A segment and the families that accept it, at least one. The segment is built when it is first looked at."""

    families: Answers

    @property
    def segment(self) -> Segment:
        return self.families.segment

    @cached_property
    def is_prologue(self) -> bool:
        """Whether a plan runs it once for each version of the graph's constants."""
        return self.families.atoms.is_constant(self.families.members)

    @property
    def weight(self) -> float:
        """What its time counts among those of a cover."""
        return PROLOGUE_WEIGHT if self.is_prologue else 1.0

    @cached_property
    def keeps_a_prologue_out(self) -> bool:
        """Whether it computes for others at every run what depends on constants alone: a prologue would, once."""
        atoms, members = self.families.atoms, self.families.members
        constant = members & atoms.constants
        return bool(constant) and constant != members and bool(atoms.writes_of(members) & constant)


@dataclass(frozen=True)
class Candidates:
    """accepted: by members, in the order found. regions: partitions of all atoms into accepted segments, the coarsest
    first; the last one is the atoms by themselves. refused: neighbours that no family takes together, by both their
    bits, with the families' words."""

    accepted: dict[int, Candidate]
    regions: tuple[tuple[int, ...], ...]
    refused: dict[int, str]
    reasons: tuple[Reason, ...]


Ask = Callable[[int], Candidate | Reject]


def find_candidates(atoms: Atoms, ask: Ask, settings: CandidateSettings = CandidateSettings()) -> Candidates:
    """Candidates of a graph. `ask(members)`: the families' answer, called once for each convex set."""
    finder = _Finder(atoms, ask)
    n = len(atoms)
    singles = tuple(1 << a for a in range(n))
    for a in singles:
        finder.accepts(a)
    forward = finder.merged(range(n))
    backward = finder.merged(reversed(range(n)))
    components = _components(atoms)
    finder.accepts(atoms.all)
    blocks = list(dict.fromkeys((*forward, *backward, *components, *_output_cones(atoms))))
    blocks = [b for b in blocks if finder.accepts(b)]
    siblings = [finder.with_siblings(forward), finder.with_siblings(backward)]
    reasons = [*_grow(finder, settings)]
    blocks += [*_readers(atoms), *sorted(finder.accepted, key=lambda m: (m.bit_count(), m))]
    reasons += _unions(finder, blocks, settings)
    partitions = sorted(dict.fromkeys((*siblings, forward, backward)), key=len)
    regions = dict.fromkeys((*partitions, singles))
    return Candidates(finder.accepted, tuple(regions), finder.refused, tuple(reasons))


class _Finder:
    """Asks the families once per set and remembers."""

    def __init__(self, atoms: Atoms, ask: Ask) -> None:
        self.atoms = atoms
        self.ask = ask
        self.accepted: dict[int, Candidate] = {}
        self.rejected: set[int] = set()
        self.refused: dict[int, str] = {}

    def accepts(self, members: int) -> bool:
        """Whether the set is convex and some family accepts it."""
        if members in self.accepted:
            return True
        if not members or members in self.rejected:
            return False
        answer = self.ask(members) if self.atoms.is_convex(members) else None
        if isinstance(answer, Candidate):
            self.accepted[members] = answer
            return True
        if isinstance(answer, Reject) and members.bit_count() == 2:
            self.refused[members] = answer.reason
        self.rejected.add(members)
        return False

    def merged(self, order: Iterable[int]) -> tuple[int, ...]:
        """A partition: each atom, in the order given, joins the regions of its neighbours wherever that is accepted."""
        regions = Regions(self.atoms)
        for a in order:
            for neighbour in bits(self.atoms.preds[a] | self.atoms.succs[a]):
                regions.join(a, neighbour, self.accepts)
        return regions.masks()

    def with_siblings(self, partition: tuple[int, ...]) -> tuple[int, ...]:
        """The partition with regions joined wherever that is accepted, those that read the same tensors first."""
        regions = Regions(self.atoms, partition)
        likeness = _Likeness(self.atoms)
        for one, other in sorted(combinations(partition, 2), key=lambda pair: -likeness(*pair)):
            first, second = next(bits(one)), next(bits(other))
            regions.join(first, second, self.accepts)
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

    def join(self, a: int, b: int, accepts: Callable[[int], bool]) -> bool:
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


def _components(atoms: Atoms) -> tuple[int, ...]:
    """Weakly connected components of the atoms."""
    graph: rx.PyDiGraph[int, None] = rx.PyDiGraph()
    graph.add_nodes_from(range(len(atoms)))
    graph.add_edges_from_no_data([(p, a) for a in range(len(atoms)) for p in bits(atoms.preds[a])])
    return tuple(sorted((sum(1 << a for a in c) for c in rx.weakly_connected_components(graph)), key=lambda m: m & -m))


def _output_cones(atoms: Atoms) -> Iterator[int]:
    """For each output, all that it depends on; then what it alone depends on."""
    for a in bits(atoms.outputs):
        cone = atoms.ancestors[a] | 1 << a
        yield cone
        own = 1 << a
        for b in sorted(bits(atoms.ancestors[a]), reverse=True):
            if not atoms.succs[b] & ~own and not atoms.outputs >> b & 1:
                own |= 1 << b
        yield own


def _readers(atoms: Atoms) -> Iterator[int]:
    """For each tensor, each of its readers where there are several."""
    for t in range(len(atoms.tensors)):
        readers = [a for a in range(len(atoms)) if atoms.reads[a] >> t & 1]
        if len(readers) > 1:
            yield from (1 << a for a in readers)


class _Likeness:
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


def _unions(finder: _Finder, blocks: list[int], settings: CandidateSettings) -> Iterator[Reason]:
    """Tries unions of two disjoint blocks without an edge between them, the likeliest first."""
    atoms, limit = finder.atoms, settings.max_unions
    distinct = list(dict.fromkeys(blocks))
    if len(distinct) > settings.max_paired:
        text = f"disconnected siblings: paired {settings.max_paired} of {len(distinct)} connected segments"
        yield Reason(kind="cap", text=text)
    likeness, pairs = _Likeness(atoms), list[tuple[int, int, int]]()
    for one, other in combinations(distinct[: settings.max_paired], 2):
        if one & other or any((atoms.preds[a] | atoms.succs[a]) & other for a in bits(one)):
            continue
        pairs.append((-likeness(one, other), len(pairs), one | other))
    for _, _, union in sorted(pairs)[:limit]:
        finder.accepts(union)
    if len(pairs) > limit:
        yield Reason(kind="cap", text=f"disconnected siblings: tried {limit} of {len(pairs)} pairs")


def _grow(finder: _Finder, settings: CandidateSettings) -> Iterator[Reason]:
    """Convex connected sets by size, from the single atoms, through sets that are accepted."""
    atoms = finder.atoms
    near = [p | s for p, s in zip(atoms.preds, atoms.succs, strict=True)]
    level = [1 << a for a in range(len(atoms)) if 1 << a in finder.accepted]
    kept = 0
    for size in range(2, settings.max_atoms + 1):
        grown: dict[int, None] = {}
        for mask in level:
            around = 0
            for a in bits(mask):
                around |= near[a]
            for a in bits(around & ~mask):
                larger = mask | 1 << a
                if larger in grown or not finder.accepts(larger):
                    continue
                if kept >= settings.max_grown:
                    text = f"{kept} connected segments of up to {size} atoms; larger ones only as regions"
                    yield Reason(kind="cap", text=text)
                    return
                grown[larger] = None
                kept += 1
        if not grown:
            return
        level = sorted(grown)
    if settings.max_atoms < len(atoms):
        text = f"connected segments have at most {settings.max_atoms} atoms; larger ones only as regions"
        yield Reason(kind="cap", text=text)
