"""Which schedules to try once a family's first ones are tried: Optuna's tree-structured Parzen estimator, in memory.

A study is made anew for every batch from what was measured, so that nothing but measurements has to be kept (Bergstra,
Bardenet, Bengio and Kégl, "Algorithms for hyper-parameter optimization", NIPS 2011).
"""

import logging
from collections.abc import Mapping
from math import log, prod
from typing import Any

from codegen.schedule import Choices, schedule_text, schedule_values

ASKS = 8  # per schedule wanted: the estimator repeats itself
EXPLORED = 8  # trials that are drawn at random before the estimator is asked


def proposals(family: str, choices: Choices, tried: Mapping[str, float | None], count: int, seed: int) -> list[str]:
    """At most `count` schedules that were not tried; fewer where there are no more.

    tried: times, in whatever unit, None for those that failed; what is no combination of the choices is left out. The
    same arguments give the same proposals.
    """
    import optuna  # noqa: PLC0415  takes a fifth of a second, for which most commands need not wait

    logging.getLogger("optuna").setLevel(logging.WARNING)
    spellings = {name: {str(value): value for value in values} for name, values in choices.items()}
    distributions: dict[str, Any] = {
        name: optuna.distributions.CategoricalDistribution(values) for name, values in choices.items()
    }
    sampler = optuna.samplers.TPESampler(
        n_startup_trials=EXPLORED, multivariate=True, constant_liar=True, seed=seed + len(tried)
    )
    study = optuna.create_study(sampler=sampler)
    for schedule, time in tried.items():
        given = schedule_values(schedule)
        if given.keys() != spellings.keys() or any(v not in spellings[k] for k, v in given.items()):
            continue
        params = {name: spellings[name][value] for name, value in given.items()}
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
    everything = prod(len(values) for values in choices.values())
    for _ in range(ASKS * count):
        if len(found) == count or len(found) + len(tried) >= everything:
            break
        trial = study.ask(distributions)
        schedule = schedule_text(family, trial.params)
        if schedule not in tried:
            found[schedule] = None  # asked again, it is told nothing of it, and keeps away
        elif (known := tried[schedule]) is not None and known > 0:
            study.tell(trial, log(known))
        else:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
    return list(found)
