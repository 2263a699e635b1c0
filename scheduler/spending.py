"""Where the seconds of a search went: by the phases that its clock was told of, and the races that its ledger noted."""

from collections.abc import Sequence
from math import fsum

from fusion_ir.records import Spent, Surroundings
from scheduler.deadline import Deadline


def spending(deadline: Deadline, races: Sequence[Surroundings]) -> Spent:
    """Seconds that the search has spent so far, by phase, and how its races were disturbed."""
    seen = [(race.seconds, race.disturbed) for race in races]
    weighed = [(seconds, share) for seconds, share in seen if share is not None]
    total_s = fsum(seconds for seconds, _ in weighed)
    return Spent(
        finding_s=deadline.spent("candidates"),
        kernels_s=deadline.spent("segments"),
        racing_s=fsum(seconds for seconds, _ in seen),
        plans_s=deadline.spent("plans"),
        disturbed=fsum(seconds * share for seconds, share in weighed) / total_s if total_s else None,
        repeated=sum(race.repeated or 0 for race in races),
    )
