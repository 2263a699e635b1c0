"""Studies: the search for schedules of one segment in one family, as Optuna's ask and tell.

A study is made from the trial log whenever schedules are asked for, so that nothing but measurements has to be kept.
Trials that failed are there with their reasons, those that a race stopped as pruned ones: their user attributes are
`status`, `detail` and `race`.
"""

import logging
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from codegen.schedule import Choices, schedule_text, schedule_values
from codegen.timing.protocol import was_stopped
from fusion_ir.core.graph import Graph
from fusion_ir.records import Measurement
from scheduler.cost.features import Tuned, expected_logs
from scheduler.cost.gaussian_process import Floats
from scheduler.tuning.gp_sampler import LISTED, Params
from scheduler.tuning.samplers import ORDINAL, Wanted, make_sampler
from scheduler.tuning.schedule_space import ScheduleSpace, Value

ASKS = 8  # for each schedule wanted: samplers repeat themselves
STOPPED = 0  # the step at which a trial reports what it took before its race stopped it


@dataclass(frozen=True)
class Encoding:
    """Schedules of one family as parameters of a study, and back. choices: the values of each field.

    ordinal: fields of more than two numbers are their places in order, as whole numbers, instead of categories.
    """

    family: str
    choices: Choices
    ordinal: bool = False

    @property
    def distributions(self) -> dict[str, BaseDistribution]:
        return {
            name: IntDistribution(0, len(values) - 1) if self._by_place(values) else CategoricalDistribution(values)
            for name, values in self.choices.items()
        }

    def params(self, schedule: str) -> dict[str, Any]:
        """The parameters of a schedule."""
        found: dict[str, Any] = {}
        for name, text in schedule_values(schedule).items():
            values = self.choices[name]
            place = next(i for i, value in enumerate(_in_order(values)) if str(value) == text)
            found[name] = place if self._by_place(values) else _in_order(values)[place]
        return found

    def schedule(self, params: Params) -> str:
        """The schedule of a trial's parameters."""
        values: dict[str, Value] = {}
        for name, choices in self.choices.items():
            value: Any = params[name]
            values[name] = _in_order(choices)[value] if self._by_place(choices) else value
        return schedule_text(self.family, values)

    def _by_place(self, values: Sequence[Value]) -> bool:
        return self.ordinal and len(values) > 2 and all(isinstance(v, int) for v in values)


def _in_order(values: Sequence[Value]) -> Sequence[Value]:
    numbers = [v for v in values if isinstance(v, int)]
    return sorted(numbers) if len(numbers) == len(values) else values


def propose(
    space: ScheduleSpace,
    tried: Mapping[str, float | None],
    count: int,
    seed: int,
    known: Sequence[Tuned] = (),
    sampler: str = "fuseplan",
    rows: Mapping[str, Measurement] | None = None,
) -> list[str]:
    """See `scheduler.tuning.proposals.proposals`."""
    encoding = Encoding(space.family, space.choices, sampler in ORDINAL)
    distributions = encoding.distributions
    prior = partial(_expected, encoding, space.segment, known, seed)
    study = make_study(encoding, tried, rows or {})
    study.sampler = make_sampler(sampler, Wanted(distributions, seed, len(tried), prior))
    found: dict[str, None] = {}
    for _ in range(ASKS * count):
        if len(found) == count or len(found) + len(tried) >= space.size:
            break
        trial = study.ask(distributions)
        schedule = encoding.schedule(trial.params)
        if schedule not in tried:
            found[schedule] = None  # asked again, it is told nothing of it, and keeps away
            continue
        value = tried[schedule]
        state = TrialState.FAIL if not value else TrialState.COMPLETE
        study.tell(trial, value or None, state)
    if len(found) < count and space.size <= LISTED:  # it repeats itself
        left = [point for point in space if point not in tried and point not in found]
        random.Random(seed + len(tried)).shuffle(left)
        found.update(dict.fromkeys(left[: count - len(found)]))
    return list(found)


def make_study(
    encoding: Encoding,
    tried: Mapping[str, float | None],
    rows: Mapping[str, Measurement],
    name: str | None = None,
    storage: BaseStorage | None = None,
) -> optuna.Study:
    """A study, to be minimised, with a finished trial for each point that was tried. Its values are times.

    rows: the last measurement of points, as far as there is one. name, storage: of the study, where it is to be kept.
    """
    logging.getLogger("optuna").setLevel(logging.ERROR)
    study = optuna.create_study(study_name=name, storage=storage, direction="minimize")
    distributions = encoding.distributions
    study.add_trials([_finished(encoding, distributions, point, tried[point], rows.get(point)) for point in tried])
    return study


def _finished(
    encoding: Encoding,
    distributions: dict[str, BaseDistribution],
    point: str,
    time: float | None,
    row: Measurement | None,
) -> FrozenTrial:
    failed, stopped = not time, row is not None and was_stopped(row.detail)
    attributes = {} if row is None else {"status": row.status.value, "detail": row.detail, "race": row.race}
    return create_trial(
        state=TrialState.FAIL if failed else TrialState.PRUNED if stopped else TrialState.COMPLETE,
        params=encoding.params(point),
        distributions=distributions,
        value=None if failed or stopped else time,
        intermediate_values={STOPPED: time} if stopped and time else {},
        user_attrs=attributes,
    )


def _expected(
    encoding: Encoding, segment: Graph, known: Sequence[Tuned], seed: int, points: Sequence[Params]
) -> Floats | None:
    return expected_logs(segment, [encoding.schedule(p) for p in points], known, seed)
