"""Which segments there are to choose from: sets of atoms that some kernel family accepts.

Four sources, the first always complete, the others capped (`CandidateSettings`):
- single atoms, greedily merged regions, cones of the outputs, the whole graph;
- convex connected sets, grown one neighbour at a time, from small to large;
- disconnected siblings (horizontal fusion), which growing by neighbours never reaches: unions of two of the former;
- segments that compute light tensors again which others compute too (`scheduler.segments.output_sets`).
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations

import rustworkx as rx

from fusion_ir.records import Reason
from scheduler.bitset import bits
from scheduler.segments.acceptance import Acceptance
from scheduler.segments.atoms import Atoms
from scheduler.segments.greedy_merge import Likeness, merged, with_siblings
from scheduler.segments.output_sets import computing_again, is_light, pieces_of
from scheduler.segments.segment import Segment
from scheduler.segments.segment_mask import SegmentMask

PROLOGUE_WEIGHT = 1e-3  # of a segment that runs once for each version of the constants: ties go to the least work


@dataclass(frozen=True)
class CandidateSettings:
    """max_atoms: atoms of a grown candidate. max_grown: grown candidates of the graph's own atoms that are kept.
    max_alternative: grown candidates that hold an alternative, of which covers of large graphs take few.
    max_grown_in_all: both kinds together. max_unions: unions of siblings tried, among `max_paired` segments. max_again:
    candidates tried that compute again what others compute too; as many again with alternatives."""

    max_atoms: int = 20
    max_grown: int = 2_000
    max_alternative: int = 1_000
    max_grown_in_all: int = 2_250
    max_unions: int = 1_000
    max_paired: int = 100
    max_again: int = 500


@dataclass(frozen=True, eq=False)
class Candidate:
    """A segment and the families that accept it, at least one. The segment is built when it is first looked at."""

    families: Acceptance

    @property
    def segment(self) -> Segment:
        return self.families.segment

    @property
    def is_prologue(self) -> bool:
        """Whether a plan runs it once for each version of the graph's constants."""
        return self.families.atoms.is_constant(self.families.piece.members)

    @property
    def weight(self) -> float:
        """Factor of the segment's time in the cost of a cover: `PROLOGUE_WEIGHT` for a prologue, else 1."""
        return PROLOGUE_WEIGHT if self.is_prologue else 1.0

    @property
    def keeps_a_prologue_out(self) -> bool:
        """Whether it writes, at every run, a tensor that depends on constants alone: a prologue would do so once."""
        constant = self.families.atoms.constants
        if not constant:
            return False
        members, writes = self.families.piece
        return bool(writes & constant) and bool(members & ~constant)


@dataclass(frozen=True)
class Candidates:
    """accepted: in the order found. regions: partitions of the graph's own atoms into accepted segments, the coarsest
    first; the last one is the atoms by themselves. ask: the families' answer to one more piece."""

    atoms: Atoms
    accepted: dict[SegmentMask, Candidate]
    regions: tuple[tuple[int, ...], ...]
    reasons: tuple[Reason, ...]
    ask: "Ask" = lambda _: None

    def whole(self, members: int) -> Candidate | None:
        """The candidate of these atoms that writes all that others may read."""
        return self.accepted.get(self.atoms.piece(members))


Ask = Callable[[SegmentMask], Candidate | None]


def find_candidates(
    atoms: Atoms,
    ask: Ask,
    settings: CandidateSettings = CandidateSettings(),
    beat: Callable[[], None] = lambda: None,
) -> Candidates:
    """Candidates of a graph. `ask(piece)`: the families' answer, called once for each. beat: called for every set of
    atoms that is considered."""
    finder, plain = _Finder(atoms, ask, beat), atoms.plain
    n = len(plain)
    for a in range(len(atoms)):
        finder.accepts(1 << a)
    singles = tuple(1 << a for a in range(n))
    forward = merged(plain, range(n), finder.accepts)
    backward = merged(plain, reversed(range(n)), finder.accepts)
    components = _components(plain)
    finder.accepts(plain.all)
    blocks = list(dict.fromkeys((*forward, *backward, *components, *_output_cones(plain))))
    blocks = [b for b in blocks if finder.accepts(b)]
    siblings = [with_siblings(plain, p, finder.accepts) for p in (forward, backward)]
    kept, reasons = _grow(finder, settings, range(n), atoms.givens, settings.max_grown)
    room = min(settings.max_alternative, settings.max_grown_in_all - kept)
    reasons += _grow(finder, settings, range(n, len(atoms)), atoms.all, room)[1]
    own = (m for m in finder.sets if not m & ~atoms.givens)
    blocks += [*_readers(plain), *sorted(own, key=lambda m: (m.bit_count(), m))]
    reasons += _unions(finder, blocks, settings)
    reasons += _again(finder, settings)
    partitions = sorted(dict.fromkeys((*siblings, forward, backward)), key=len)
    regions = dict.fromkeys((*partitions, singles))
    return Candidates(atoms, finder.accepted, tuple(regions), tuple(reasons), ask)


class _Finder:
    """Asks the families once per piece and remembers. sets: of atoms that are accepted."""

    def __init__(self, atoms: Atoms, ask: Ask, beat: Callable[[], None]) -> None:
        self.atoms = atoms
        self.ask = ask
        self.beat = beat
        self.accepted: dict[SegmentMask, Candidate] = {}
        self.sets: dict[int, None] = {}
        self.rejected: set[int] = set()

    def accepts(self, members: int) -> bool:
        """Whether the set is convex and some family accepts it."""
        self.beat()
        if members in self.sets:
            return True
        if not members or members in self.rejected:
            return False
        for piece in pieces_of(self.atoms, members):
            if self.atoms.is_possible(piece) and self.takes(piece):
                self.sets[members] = None
        if members not in self.sets:
            self.rejected.add(members)
            return False
        return True

    def takes(self, piece: SegmentMask) -> bool:
        """Whether some family accepts the segment."""
        self.beat()
        if piece not in self.accepted and (candidate := self.ask(piece)):
            self.accepted[piece] = candidate
        return piece in self.accepted


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
    readers: list[list[int]] = [[] for _ in atoms.tensors]
    for a, reads in enumerate(atoms.reads):
        for t in bits(reads):
            readers[t].append(a)
    for own in readers:
        if len(own) > 1:
            yield from (1 << a for a in own)


def _unions(finder: _Finder, blocks: list[int], settings: CandidateSettings) -> Iterator[Reason]:
    """Tries unions of two disjoint blocks without an edge between them, the likeliest first."""
    atoms, limit = finder.atoms, settings.max_unions
    distinct = list(dict.fromkeys(blocks))
    if len(distinct) > settings.max_paired:
        text = f"disconnected siblings: paired {settings.max_paired} of {len(distinct)} connected segments"
        yield Reason(kind="cap", text=text)
    likeness, pairs = Likeness(atoms), list[tuple[int, int, int]]()
    for one, other in combinations(distinct[: settings.max_paired], 2):
        if one & other or any((atoms.preds[a] | atoms.succs[a]) & other for a in bits(one)):
            continue
        pairs.append((-likeness(one, other), len(pairs), one | other))
    for _, _, union in sorted(pairs)[:limit]:
        finder.accepts(union)
    if len(pairs) > limit:
        yield Reason(kind="cap", text=f"disconnected siblings: tried {limit} of {len(pairs)} pairs")


def _grow(
    finder: _Finder, settings: CandidateSettings, start: range, within: int, most: int
) -> tuple[int, list[Reason]]:
    """Grows convex connected sets by size, from the accepted single atoms of `start`, by one atom of `within` at a
    time, through accepted sets, up to `most` of them. Returns how many there are, and what limited them."""
    atoms = finder.atoms
    near = [_near(atoms, a) & within for a in range(len(atoms))]
    level = [1 << a for a in start if 1 << a in finder.sets]
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
                if kept >= most:
                    what = "connected segments" if start.start == 0 else "connected segments with alternatives"
                    text = f"{kept} {what} of up to {size} atoms; larger ones only as regions"
                    return kept, [Reason(kind="cap", text=text)]
                grown[larger] = None
                kept += 1
        if not grown:
            return kept, []
        level = sorted(grown)
    if settings.max_atoms >= len(atoms) or not level:
        return kept, []
    text = f"connected segments have at most {settings.max_atoms} atoms; larger ones only as regions"
    return kept, [Reason(kind="cap", text=text)]


def _near(atoms: Atoms, a: int) -> int:
    """Atoms that produce what the atom reads, or read what it produces. Atoms that depend on constants alone and are
    not light have no neighbours and are none: computed once, they gain nothing from a larger launch, nor from being
    computed at every run."""
    if atoms.constants >> a & 1 and not is_light(atoms, a):
        return 0
    near = atoms.succs[atoms.stands[a]]
    for t in bits(atoms.preds[a]):
        for producer in atoms.hypergraph.producers[t]:
            near |= 1 << producer
    dear = sum(1 << b for b in bits(near & atoms.constants) if not is_light(atoms, b))
    return near & ~dear


def _again(finder: _Finder, settings: CandidateSettings) -> Iterator[Reason]:
    """Tries segments that compute again what others compute too, the smallest first: `max_again` that would be there
    without alternatives, and as many others. Yields where that was a cap."""
    smallest = sorted(finder.accepted, key=lambda p: (p.members.bit_count(), p))
    for own, what in ((True, ""), (False, " with alternatives")):
        for tried, larger in enumerate(_larger(finder, (p for p in smallest if finder.atoms.is_own(p) == own))):
            if tried >= settings.max_again:
                yield Reason(kind="cap", text=f"segments{what} that compute again what others compute: tried {tried}")
                break
            finder.takes(larger)


def _larger(finder: _Finder, pieces: Iterable[SegmentMask]) -> Iterator[SegmentMask]:
    """Segments of `computing_again` to try, piece by piece; a piece's series ends at the first that is not accepted."""
    for piece in pieces:
        for larger in computing_again(finder.atoms, piece):
            if larger not in finder.accepted:
                yield larger
            if larger not in finder.accepted:
                break
