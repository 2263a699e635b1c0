"""Which families accept a segment. Each is asked when that is first needed: some lower the segment to find out."""

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property

from codegen.kernel import Family, Reject
from fusion_ir.graph import Graph
from fusion_ir.records import Device, Refusal
from scheduler.atoms import Atoms
from scheduler.piece import Piece
from scheduler.segment import Segment, extract

Ask = Callable[[Graph, Device], Reject | None]


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
        self._seeming: dict[str, Reject | None] = {}
        self._told = told

    @cached_property
    def segment(self) -> Segment:
        """What the families are asked about."""
        return extract(self.atoms, self.piece)

    def answer(self, name: str) -> Reject | None:
        """None where the family accepts the segment."""
        if name not in self._answers:
            self._answers[name] = self._ask(name, self._families[name].accepts)
        return self._answers[name]

    def seeming(self, name: str) -> Reject | None:
        """The same as far as it is known without lowering the segment."""
        fits = _fits(self._families[name])
        if name in self._answers or fits is None:
            return self.answer(name)
        if name not in self._seeming:
            self._seeming[name] = self._ask(f"{name} fits", fits)
            if self._seeming[name]:
                self._answers[name] = self._seeming[name]
        return self._seeming[name]

    def _ask(self, what: str, ask: Ask) -> Reject | None:
        asked = what, self.segment.graph
        if asked not in self._told:
            self._told[asked] = ask(self.segment.graph, self._device)
        return self._told[asked]

    def any(self, *first: str) -> str | None:
        """Some family that accepts the segment, if one does. first: those that are asked before the others."""
        return self.known or next((name for name in (*first, *self._families) if name in self), None)

    @property
    def known(self) -> str | None:
        """One that is known to accept it, without asking."""
        return next((name for name, answer in self._answers.items() if answer is None), None)

    def seems(self, *first: str, but: str) -> str | None:
        """Some family but one that seems to accept the segment. first: those that are asked before the others."""
        return next((name for name in (*first, *self._families) if name != but and self.seems_to(name)), None)

    def seems_to(self, name: str) -> bool:
        """Whether the family accepts the segment, as far as that is known without lowering it."""
        return name in self._families and self.seeming(name) is None

    def refusals(self) -> tuple[Refusal, ...]:
        """What the families that do not accept the segment say, those together that say the same."""
        told: dict[str, list[str]] = {}
        for name in self._families:
            if reject := self.answer(name):
                told.setdefault(reject.reason, []).append(name)
        return tuple(Refusal(families=tuple(names), text=text) for text, names in told.items())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._families and self.answer(name) is None

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._families if self.answer(name) is None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _fits(family: Family) -> Ask | None:
    """What a family that lowers segments says before it does, see `Lowering`."""
    return getattr(family, "fits", None)  # an `isinstance` of a protocol takes as long as some families' answers
