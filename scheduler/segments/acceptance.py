"""Which families accept a segment. Each is asked when that is first needed: some lower the segment to find out."""

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

from codegen.kernel import Family, Reject
from fusion_ir.core.graph import Graph
from fusion_ir.records import Device, Refusal
from scheduler.segments.atoms import Atoms
from scheduler.segments.segment import Segment, extract
from scheduler.segments.segment_mask import SegmentMask


class Told(NamedTuple):
    """Answers about one segment, by family; None accepts it. seeming: answers that families gave before lowering it."""

    answers: dict[str, Reject | None]
    seeming: dict[str, Reject | None]


class Acceptance(Collection[str]):
    """The names of the families that accept a segment, in the order of `families`. Iteration asks one family
    after another; `in` asks the one named. sure: families that accept it for certain, which are not asked. told:
    answers by graph of a segment, so that families are asked once about equal segments, of different layers for
    example; added to."""

    def __init__(
        self,
        families: Mapping[str, Family],
        device: Device,
        atoms: Atoms,
        piece: SegmentMask,
        sure: Collection[str],
        told: dict[Graph, Told],
    ) -> None:
        self._families = families
        self._device = device
        self.atoms = atoms
        self.piece = piece
        self._sure = sure
        self._told = told

    @cached_property
    def segment(self) -> Segment:
        """The segment that the families are asked about."""
        return extract(self.atoms, self.piece)

    @cached_property
    def _of_equals(self) -> Told:
        return self._told.setdefault(self.segment.graph, Told({}, {}))

    def answer(self, name: str) -> Reject | None:
        """The family's refusal of the segment; None where it accepts."""
        if name in self._sure:
            return None
        told = self._of_equals.answers
        if name not in told:
            told[name] = self._families[name].accepts(self.segment.graph, self._device)
        return told[name]

    def seeming(self, name: str) -> Reject | None:
        """`answer`, as far as it is known without lowering the segment."""
        fits = _fits(self._families[name])
        if fits is None or name in self._sure or name in self._of_equals.answers:
            return self.answer(name)
        told = self._of_equals.seeming
        if name not in told:
            told[name] = fits(self.segment.graph, self._device)
            if told[name]:
                self._of_equals.answers[name] = told[name]
        return told[name]

    def any(self, *first: str) -> str | None:
        """Some family that accepts the segment, if one does. first: families that are asked before the others."""
        return self.known or next((name for name in (*first, *self._families) if name in self), None)

    @property
    def known(self) -> str | None:
        """A family that is known to accept the segment without being asked, if there is one."""
        return next(iter(self._sure), None)

    def seems(self, *first: str, but: str) -> str | None:
        """Some family other than `but` that seems to accept the segment. first: those that are asked before others."""
        return next((name for name in (*first, *self._families) if name != but and self.seems_to(name)), None)

    def seems_to(self, name: str) -> bool:
        """Whether the family accepts the segment, as far as that is known without lowering it."""
        return name in self._families and self.seeming(name) is None

    def refusals(self) -> tuple[Refusal, ...]:
        """Reasons why families refuse the segment, each with all families that give it. Families for other ops than
        the segment has give none."""
        told: dict[str, list[str]] = {}
        for name in self._families:
            if (reject := self.answer(name)) and reject.is_told:
                told.setdefault(reject.reason, []).append(name)
        return tuple(Refusal(families=tuple(names), text=text) for text, names in told.items())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._families and self.answer(name) is None

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._families if self.answer(name) is None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _fits(family: Family) -> Callable[[Graph, Device], Reject | None] | None:
    """The `fits` of a family that lowers segments (see `Lowering`), which answers before lowering; None of others."""
    return getattr(family, "fits", None)  # an `isinstance` of a protocol takes as long as some families' answers
