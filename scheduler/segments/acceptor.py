"""The families, asked: which of them accept a segment, and the kernels of their schedules. Answers are kept."""

from collections.abc import Collection, Mapping

from codegen.families import FAMILIES, TAKING_PARTS
from codegen.families.contraction_limits import is_heavy
from codegen.kernel import EmitError, Family, Kernel
from codegen.schedule import Variant
from fusion_ir.core.graph import Graph
from fusion_ir.ops import OpKind
from fusion_ir.records import Device
from scheduler.bitset import bits
from scheduler.segments.acceptance import Acceptance, Told
from scheduler.segments.atoms import Atoms
from scheduler.segments.boundary import Boundary
from scheduler.segments.contraction_filter import ContractionFilter
from scheduler.segments.enumeration import Candidate
from scheduler.segments.segment import Segment
from scheduler.segments.segment_mask import SegmentMask

SHARES_NOTHING = "naive"  # a family for what no other takes: says at once what it accepts, which is most


class Acceptor:
    """Asks families about segments on one device, each as little as is needed, and emits their kernels once."""

    def __init__(self, device: Device, families: Mapping[str, Family]) -> None:
        self.device = device
        self.families = families
        self._likely: dict[frozenset[OpKind], str] = {}  # families that accepted the last segments with such sums
        self._sure: dict[Graph, Collection[str]] = {}  # families
        self._are_ours = all(FAMILIES.get(name) is family for name, family in families.items())
        self._products: dict[Boundary, ContractionFilter] = {}  # by what there is one of for the atoms of a graph
        self._lonely: dict[tuple[Boundary, int], bool] = {}  # atoms
        self._told: dict[Graph, Told] = {}  # by families
        self._computable: dict[str, bool] = {}
        self._shares: dict[Graph, bool] = {}
        self._first: dict[tuple[str, str], tuple[str, ...]] = {}  # schedules, by segment and family
        self._kernels: dict[tuple[str, Variant], Kernel] = {}  # by segment

    def ask(self, atoms: Atoms, piece: SegmentMask) -> Candidate | None:
        """The candidate that computes these atoms; None where no family takes them in one launch. The family that
        shares nothing is for atoms that no other takes: where it alone accepts a segment without any, there is no
        candidate. Where that one accepts, and on a CPU, it is enough that another seems to: whether it does, its
        lowering tells once a cover holds the segment, as few candidates are. On a GPU registers refuse more of what
        seems to fit."""
        answers = self.answers(atoms, piece)
        if answers.known:
            return Candidate(answers)
        sums = frozenset([kind for kind, those in atoms.sums.items() if those & piece.members])
        likely = self._likely.get(sums, "")
        if self._are_ours and self._products_of(atoms).keep_apart(piece):
            accepting = None
        elif self.device.target == "cpu" or SHARES_NOTHING in answers:
            accepting = answers.seems(likely, but=SHARES_NOTHING)
        else:
            accepting = answers.any(likely)
        if accepting:
            self._likely[sums] = accepting
        elif not any(self._has_no_other(atoms, a) for a in bits(piece.members)) or SHARES_NOTHING not in answers:
            return None
        return Candidate(answers)

    def _products_of(self, atoms: Atoms) -> ContractionFilter:
        if atoms.boundary not in self._products:
            self._products[atoms.boundary] = ContractionFilter(atoms, self.device.target)
        return self._products[atoms.boundary]

    def _has_no_other(self, atoms: Atoms, atom: int) -> bool:
        """Whether an atom is taken by the family alone that shares nothing."""
        key = atoms.boundary, atom
        if key not in self._lonely:
            self._lonely[key] = self.answers(atoms, atoms.piece(1 << atom)).seems(but=SHARES_NOTHING) is None
        return self._lonely[key]

    def answers(self, atoms: Atoms, piece: SegmentMask) -> Acceptance:
        """The families' answers to computing these atoms in one launch, each asked for when it is needed."""
        return Acceptance(self.families, self.device, atoms, piece, self._sure_of(atoms.graph), self._told)

    def _sure_of(self, graph: Graph) -> Collection[str]:
        """Families that accept the whole graph, and so each of its parts."""
        if graph not in self._sure:
            able = [name for name in self.families if name in TAKING_PARTS]
            self._sure[graph] = [name for name in able if self.families[name].accepts(graph, self.device) is None]
        return self._sure[graph]

    def shares(self, graph: Graph) -> bool:
        """Whether some family but the one that shares nothing takes a graph in one launch."""
        if graph not in self._shares:
            others = (family for name, family in self.families.items() if name != SHARES_NOTHING)
            self._shares[graph] = any(family.accepts(graph, self.device) is None for family in others)
        return self._shares[graph]

    def computable(self, atoms: Atoms, atom: int) -> bool:
        """Whether some family not only accepts the atom with what is free below it, but lowers its default schedule
        too; of a heavy contraction, one that shares something."""
        candidate = self.ask(atoms, atoms.piece(1 << atom))
        if candidate is None:
            return False
        key = candidate.segment.key
        if key not in self._computable:
            left_out = SHARES_NOTHING if is_heavy(atoms.nodes[atom]) else ""
            cheapest_first = [f for f in reversed(list(self.families)) if f != left_out and f in candidate.families]
            self._computable[key] = any(self._emits(candidate.segment, f) for f in cheapest_first)
        return self._computable[key]

    def _emits(self, segment: Segment, family: str) -> bool:
        try:
            return self.first_kernel(segment, family) is not None
        except EmitError:
            return False

    def first_kernel(self, segment: Segment, family: str) -> Kernel | None:
        """The kernel of a family's first schedule, None if it has none. Raises EmitError."""
        schedules = self.first_schedules(segment, family)
        return self.emit(segment, (family, schedules[0])) if schedules else None

    def first_schedules(self, segment: Segment, family: str) -> tuple[str, ...]:
        """A family's own first schedules."""
        key = segment.key, family
        if key not in self._first:
            self._first[key] = self.families[family].space(segment.canonical.graph, self.device)
        return self._first[key]

    def emit(self, segment: Segment, variant: Variant) -> Kernel:
        """The kernel of a variant, emitted once. Raises EmitError."""
        key = segment.key, variant
        if key not in self._kernels:
            family, schedule = variant
            self._kernels[key] = self.families[family].emit(segment.canonical.graph, schedule, self.device)
        return self._kernels[key]
