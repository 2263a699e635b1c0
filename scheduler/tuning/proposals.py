"""Schedules to try once a family's first ones are tried: a study of Optuna's, asked for a batch."""

from collections.abc import Mapping, Sequence

from fusion_ir.records import Measurement
from scheduler.cost.features import Tuned
from scheduler.tuning.schedule_space import ScheduleSpace


def check_installed(sampler: str) -> None:
    """Raises RequestError where schedules cannot be chosen by this sampler here."""
    if sampler != "fuseplan":
        from scheduler.tuning.samplers import check  # noqa: PLC0415  with Optuna, as in `proposals`

        check(sampler)


def proposals(
    space: ScheduleSpace,
    tried: Mapping[str, float | None],
    count: int,
    seed: int,
    known: Sequence[Tuned] = (),
    sampler: str = "fuseplan",
    rows: Mapping[str, Measurement] | None = None,
) -> list[str]:
    """At most `count` schedules that were not tried; fewer where there are no more.

    tried: times of points of the space, in whatever unit, None for those that failed. known: other segments that
    schedules of the family were timed on. sampler: see `scheduler.tuning.samplers`. rows: measurements of the points
    tried, for samplers that look at more than times. The same arguments give the same proposals. Raises RequestError.
    """
    if not space.size:
        return []
    from scheduler.tuning.study import propose  # noqa: PLC0415  Optuna takes a fifth of a second to import

    return propose(space, tried, count, seed, known, sampler, rows)
