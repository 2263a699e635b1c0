"""Where the seconds of a search went, and how much of its timing other load disturbed."""

from pydantic import Field

from fusion_ir.records.base import Record


class Spent(Record):
    """finding_s: rewriting the graph and finding segments. kernels_s: compiling, checking and timing single kernels,
    and the first plans. racing_s: of those, races of kernels alone. plans_s: compiling and timing the last whole plans.
    All by wall clock.

    disturbed: share of the visits to kernels in races during which others had the CPUs however often they were made
    again, None where the machine does not say. repeated: visits that were made again for that.
    """

    finding_s: float
    kernels_s: float
    racing_s: float
    plans_s: float
    disturbed: float | None = Field(default=None, exclude_if=lambda share: share is None)
    repeated: int = 0
