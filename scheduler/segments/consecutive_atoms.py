"""Stretches: runs of atoms of a large graph, in topological order, that one launch computes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from codegen.kernel import Kernel
from scheduler.segments.atoms import Atoms
from scheduler.segments.enumeration import Candidate
from scheduler.segments.sections import Section


@dataclass(frozen=True)
class SectionCandidate:
    """A segment of the large graph, by the candidate of its section."""

    section: Section
    candidate: Candidate

    @cached_property
    def key(self) -> str:
        return self.candidate.segment.key


@dataclass(frozen=True)
class Stretch:
    """whole: the stretch in one launch, None for a single atom, or where none takes it. singles: its atoms one by one,
    of the atoms of their section."""

    atoms: Atoms
    whole: SectionCandidate | None
    singles: tuple[SectionCandidate, ...]

    @property
    def fewest(self) -> tuple[SectionCandidate, ...]:
        """The whole where there is one, else the atoms."""
        return (self.whole,) if self.whole else self.singles

    def parts(self, usable: Mapping[str, Kernel]) -> tuple[SectionCandidate, ...]:
        """The whole where its kernel is usable, else the atoms."""
        return (self.whole,) if self.whole and self.whole.key in usable else self.singles


def distinct(parts: Iterable[SectionCandidate]) -> dict[str, SectionCandidate]:
    """The first of each key."""
    found: dict[str, SectionCandidate] = {}
    for part in parts:
        found.setdefault(part.key, part)
    return found
