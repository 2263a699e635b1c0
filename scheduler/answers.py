"""Which families accept a segment. Each is asked when that is first needed: some lower the segment to find out."""

from collections.abc import Collection, Iterator, Mapping
from functools import cache, cached_property

from codegen.kernel import Family, Lowering, Reject
from fusion_ir.graph import Graph
from fusion_ir.records import Device, Refusal
from scheduler.atoms import Atoms
from scheduler.piece import Piece
from scheduler.segment import Segment, extract


class Answers(Collection[str]):
    """The names of the families that accept a segment, in the order of `families`. To go through them asks one after
    another; `in` asks that one alone. sure: those that accept it for certain, which are not asked. told: what families
    said of equal segments, of other layers for example; added to."""

    def __init__(
        self,
        families: Mapping[str, Family],
        device: Device,
        atoms: Atoms,
        piece: Piece,
        sure: Collection[str],
        told: dict[tuple[str, Graph], Reject | None],
    ) -> None:
        self._families = families
        self._device = device
        self.atoms = atoms
        self.piece = piece
        self._answers: dict[str, Reject | None] = dict.fromkeys(sure)
        self._told = told

    @cached_property
    def segment(self) -> Segment:
        """What the families are asked about."""
        return extract(self.atoms, self.piece)

    def answer(self, name: str) -> Reject | None:
        """None where the family accepts the segment."""
        if name not in self._answers:
            asked = name, self.segment.graph
            if asked not in self._told:
                self._told[asked] = self._families[name].accepts(self.segment.graph, self._device)
            self._answers[name] = self._told[asked]
        return self._answers[name]

    def any(self, *first: str) -> str | None:
        """Some family that accepts the segment, if one does. first: those that are asked before the others."""
        return self.known or next((name for name in (*first, *self._families) if name in self), None)

    @property
    def known(self) -> str | None:
        """One that is known to accept it, without asking."""
        return next((name for name, answer in self._answers.items() if answer is None), None)

    def seems(self, *first: str, but: str) -> str | None:
        """Some family but one that accepts the segment, as far as that is known without lowering it. first: those that
        are asked before the others."""
        return next((name for name in (*first, *self._families) if name != but and self._seems(name)), None)

    def _seems(self, name: str) -> bool:
        lowering = _lowering(self._families[name]) if name in self._families else None
        if name in self._answers or lowering is None:
            return name in self
        return lowering.fits(self.segment.graph, self._device) is None

    def refusals(self) -> tuple[Refusal, ...]:
        """What the families that do not accept the segment say, those together that say the same."""
        told: dict[str, list[str]] = {}
        for name in self._families:
            if reject := self.answer(name):
                told.setdefault(reject.reason, []).append(name)
        return tuple(Refusal(families=tuple(names), text=text) for text, names in told.items())

    def refusal(self) -> Reject:
        """The same as one text."""
        return Reject("; ".join(f"{', '.join(r.families)}: {r.text}" for r in self.refusals()))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._families and self.answer(name) is None

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._families if self.answer(name) is None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


@cache
def _lowering(family: Family) -> Lowering | None:
    return family if isinstance(family, Lowering) else None
