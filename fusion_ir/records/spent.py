"""The seconds that each part of a search took, and how much of its timing other load disturbed."""

from pydantic import Field

from fusion_ir.records.base import Record


class Spent(Record):
    """Seconds of a search, by wall clock. finding_s: rewriting the graph and finding segments. kernels_s: compiling,
    checking and timing single kernels, and the first plans. racing_s: the part of kernels_s that races of single
    kernels took. plans_s: compiling and timing the last whole plans.

    disturbed: share of the visits to kernels in races during which other processes had the CPUs in every repetition,
    None where the machine does not say. repeated: number of visits that were repeated for that.
    """

    finding_s: float
    kernels_s: float
    racing_s: float
    plans_s: float
    disturbed: float | None = Field(default=None, exclude_if=lambda share: share is None)
    repeated: int = 0
