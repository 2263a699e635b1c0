"""Outcome of a search for a graph that had a measured plan already, in words."""

from dataclasses import dataclass
from typing import Literal

from fusion_ir.records import Search
from service.wording.formatting import duration, kernels_tried, times


@dataclass(frozen=True)
class Continued:
    """A search that went on from a stored plan. search: the new search. outcome, speed_up: see
    `service.planning.rematch.Rematch`; for plans that were not timed in one race, speed_up is by recorded times."""

    search: Search
    outcome: Literal["faster", "as fast", "same", "kept"]
    speed_up: float | None = None

    @property
    def words(self) -> str:
        """ "searched 24.0 s more: 22 kernels timed; 1.13× faster than the stored plan"."""
        return f"searched {duration(1e6 * self.search.seconds)} more: {kernels_tried(self.search)}; {self._came_to}"

    @property
    def _came_to(self) -> str:
        if self.outcome == "faster" and self.speed_up is not None:
            return f"{times(self.speed_up)} faster than the stored plan"
        if self.outcome == "same" and not self.search.measured:
            why = "there was no time for others" if self.search.cut_short else "nothing was left to try"
            return f"{why}; the times of the stored plan's kernels are those of this search"
        if self.outcome == "same":
            return "nothing beat the stored plan's kernels; their times are those of this search"
        if self.outcome == "kept":
            return "nothing beat the stored plan"
        return "what it found is as fast as the stored plan, as far as noise lets one say, and takes its place"
