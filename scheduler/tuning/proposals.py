"""Which schedules to try once a family's first ones are tried.

Spaces that can be listed are searched by a model of all their points (`scheduler.cost.gaussian_process`); larger ones
by Optuna's tree-structured Parzen estimator (Bergstra, Bardenet, Bengio and Kégl, "Algorithms for hyper-parameter
optimization", NIPS 2011). Both are made anew for every batch from what was measured, so that nothing but measurements
has to be kept.
"""

import logging
import random
from collections.abc import Mapping, Sequence
from math import log
from typing import Any

from codegen.schedule import schedule_text, schedule_values
from scheduler.cost.features import Tuned, expected_logs
from scheduler.cost.gaussian_process import GaussianProcess
from scheduler.tuning.schedule_space import ScheduleSpace

LISTED = 4096  # points of a space, at most, that are listed
ASKS = 8  # per schedule wanted: the estimator repeats itself
EXPLORED = 8  # trials that are drawn at random before the estimator is asked


def proposals(
    space: ScheduleSpace, tried: Mapping[str, float | None], count: int, seed: int, known: Sequence[Tuned] = ()
) -> list[str]:
    """At most `count` schedules that were not tried; fewer where there are no more.

    tried: times of points of the space, in whatever unit, None for those that failed. known: other segments that
    schedules of the family were timed on. The same arguments give the same proposals.
    """
    if not space.size:
        return []
    if space.size <= LISTED:
        points = list(space)
        return GaussianProcess(points, tried, seed, expected_logs(space.segment, points, known, seed)).propose(count)
    return by_estimator(space, tried, count, seed)


def by_estimator(space: ScheduleSpace, tried: Mapping[str, float | None], count: int, seed: int) -> list[str]:
    """The same, by Optuna alone; where it is not installed, at random."""
    try:
        import optuna  # noqa: PLC0415  takes a fifth of a second, for which most commands need not wait
    except ImportError:
        return _at_random(space, tried, count, seed)
    logging.getLogger("optuna").setLevel(logging.WARNING)
    choices = space.choices
    spellings = {name: {str(value): value for value in values} for name, values in choices.items()}
    distributions: dict[str, Any] = {
        name: optuna.distributions.CategoricalDistribution(values) for name, values in choices.items()
    }
    sampler = optuna.samplers.TPESampler(
        n_startup_trials=EXPLORED, multivariate=True, constant_liar=True, seed=seed + len(tried)
    )
    study = optuna.create_study(sampler=sampler)
    for schedule, time in tried.items():
        params = {name: spellings[name][value] for name, value in schedule_values(schedule).items()}
        failed = time is None or time <= 0
        study.add_trial(
            optuna.trial.create_trial(
                state=optuna.trial.TrialState.FAIL if failed else optuna.trial.TrialState.COMPLETE,
                params=params,
                distributions=distributions,
                value=None if time is None or failed else log(time),
            )
        )
    found: dict[str, None] = {}
    for _ in range(ASKS * count):
        if len(found) == count or len(found) + len(tried) >= space.size:
            break
        trial = study.ask(distributions)
        schedule = schedule_text(space.family, trial.params)
        if schedule not in tried:
            found[schedule] = None  # asked again, it is told nothing of it, and keeps away
        elif (known := tried[schedule]) is not None and known > 0:
            study.tell(trial, log(known))
        else:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
    return list(found)


def _at_random(space: ScheduleSpace, tried: Mapping[str, float | None], count: int, seed: int) -> list[str]:
    """Schedules that were not tried, any as likely as any other."""
    drawn, found = random.Random(seed + len(tried)), dict[str, None]()
    for _ in range(ASKS * count):
        values = {name: drawn.choice(options) for name, options in space.choices.items()}
        schedule = schedule_text(space.family, values)
        if schedule not in tried:
            found[schedule] = None
        if len(found) == count:
            break
    return list(found)
