"""Fuseplan's sampler for Optuna: a Gaussian process over all points of a space that can be listed.

The model is `scheduler.cost.gaussian_process`; spaces of more than `LISTED` points are left to Optuna's tree-structured
Parzen estimator (Bergstra, Bardenet, Bengio and Kégl, "Algorithms for hyper-parameter optimization", NIPS 2011). The
sampler serves any study of one objective: `optuna.create_study(sampler=FuseplanSampler(seed=0))`.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from math import exp, prod
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler, TPESampler
from optuna.search_space import IntersectionSearchSpace
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from codegen.schedule import schedule_text
from scheduler.cost.gaussian_process import Floats, GaussianProcess

LISTED = 4096  # points of a space, at most, that are listed
EXPLORED = 8  # trials that are drawn at random before the estimator is asked
STEPS = 33  # of a continuous parameter
SPREAD = 0.3  # standard deviation of the logarithms that values stand for which are no times
FINISHED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)

Params = Mapping[str, Any]
Prior = Callable[[Sequence[Params]], Floats | None]


def estimator(seed: int) -> TPESampler:
    """Optuna's tree-structured Parzen estimator, which sees parameters together and the points of a batch."""
    return TPESampler(n_startup_trials=EXPLORED, multivariate=True, constant_liar=True, seed=seed)


class FuseplanSampler(BaseSampler):
    """Asks for the point with the largest expected improvement; points that are being tried count as if they had come
    out as expected, so that a batch of asks is spread.

    search_space: of every trial, in the order in which the model sees its parameters; by default what the finished
    trials of the study share, so that the first trial is drawn at random. prior: the logarithm of what each point is
    expected to give, up to a constant, before anything is tried; None where nothing is expected. seed: of the model's
    weights and of random draws; None: another one for each sampler.
    """

    def __init__(
        self,
        search_space: Mapping[str, BaseDistribution] | None = None,
        *,
        seed: int | None = None,
        prior: Prior = lambda points: None,
    ) -> None:
        self._given = dict(search_space or {})
        self._shared = IntersectionSearchSpace()
        self._seed = int(np.random.default_rng(seed).integers(2**31)) if seed is None else seed
        self._prior = prior
        self._estimator: TPESampler | None = None
        self._model: _Model | None = None

    def reseed_rng(self) -> None:
        """Takes another seed: for copies of the sampler in several processes."""
        self._seed = int(np.random.default_rng().integers(2**31))
        self._estimator = self._model = None

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """The space that was given, or the parameters that all finished trials have."""
        self._raise_error_if_multi_objective(study)
        return self._given or {k: d for k, d in self._shared.calculate(study).items() if not d.single()}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Values of all parameters together; {} where every point was tried."""
        if not search_space:
            return {}
        if prod(_size(d) for d in search_space.values()) > LISTED:
            return self._estimator_of(study).sample_relative(study, trial, search_space)
        finished = study.get_trials(deepcopy=False, states=FINISHED)
        key = tuple(search_space), tuple(t.number for t in finished)
        if self._model is None or self._model.key != key:
            self._model = _Model(key, search_space, finished, study.direction, self._seed, self._prior)
        running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        return self._model.ask([t for t in running if t.number != trial.number])

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """One value of a parameter that is no part of the space."""
        return self._estimator_of(study).sample_independent(study, trial, param_name, param_distribution)

    def _estimator_of(self, study: Study) -> TPESampler:
        if self._estimator is None:
            seed = self._seed + len(study.get_trials(deepcopy=False, states=FINISHED))
            self._estimator = estimator(seed)
        return self._estimator


class _Model:
    """The process fitted to the finished trials of a study, and the points that were asked for since.

    key: the names of the space and the numbers of those trials.
    """

    def __init__(
        self,
        key: object,
        space: Mapping[str, BaseDistribution],
        finished: Sequence[FrozenTrial],
        direction: StudyDirection,
        seed: int,
        prior: Prior,
    ) -> None:
        self.key = key
        self._values = {name: _values(d) for name, d in space.items()}
        self._linear = {name for name, d in space.items() if isinstance(d, FloatDistribution)}
        points = [dict(zip(space, values, strict=True)) for values in product(*self._values.values())]
        self._points = {self._text(point): point for point in points}
        tried = {self._text(t.params): t for t in finished if self._is_point(t.params)}
        times = _as_times({text: _value(t) for text, t in tried.items()}, direction)
        self._process = GaussianProcess(list(self._points), times, seed, prior(points), self._linear)
        self._assumed: set[int] = set()  # numbers of trials that were running at some ask

    def ask(self, running: Sequence[FrozenTrial]) -> dict[str, Any]:
        for trial in running:
            if trial.number not in self._assumed and self._is_point(trial.params):
                self._assumed.add(trial.number)
                self._process.assume(self._text(trial.params))
        found = self._process.propose(1)
        return dict(self._points[found[0]]) if found else {}

    def _is_point(self, params: Params) -> bool:
        """Whether a trial has values of this space: studies may change theirs. Of continuous ones the nearest step
        counts."""
        return all(name in params and (name in self._linear or params[name] in v) for name, v in self._values.items())

    def _text(self, params: Params) -> str:
        """The point as the process reads it."""
        return schedule_text("", {name: self._word(name, params[name]) for name in self._values})

    def _word(self, name: str, value: Any) -> int | str:
        """A value as the process reads it: whole numbers as they are, or from 0 on where there are negative ones; steps
        of a continuous parameter, and categories, by their places."""
        values = self._values[name]
        if name in self._linear:
            return min(range(len(values)), key=lambda i: abs(values[i] - value))
        if isinstance(values, range):
            return value - min(values.start, 0)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
        return f"w{next(i for i, v in enumerate(values) if type(v) is type(value) and v == value)}"


def _size(distribution: BaseDistribution) -> int:
    """Number of values; of a continuous parameter, those that are looked at."""
    if isinstance(distribution, CategoricalDistribution):
        return len(distribution.choices)
    if isinstance(distribution, IntDistribution):
        return (distribution.high - distribution.low) // distribution.step + 1
    return len(_values(distribution))


def _values(distribution: BaseDistribution) -> Sequence[Any]:
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices
    if isinstance(distribution, IntDistribution):
        return range(distribution.low, distribution.high + 1, distribution.step)
    assert isinstance(distribution, FloatDistribution)
    low, high, step = distribution.low, distribution.high, distribution.step
    if step is not None:
        count = round((high - low) / step) + 1
        return [low + step * i for i in range(count)] if count <= STEPS else _even(low, high, distribution.log)
    return _even(low, high, distribution.log) if high > low else [low]


def _even(low: float, high: float, log: bool) -> Sequence[float]:
    spaced = np.geomspace(low, high, STEPS) if log else np.linspace(low, high, STEPS)
    return [min(max(float(x), low), high) for x in spaced]


def _value(trial: FrozenTrial) -> float | None:
    """The objective of a trial, of a pruned one the last that it reported; None for a failed one."""
    if trial.state is TrialState.PRUNED and trial.value is None:
        return trial.intermediate_values[max(trial.intermediate_values)] if trial.intermediate_values else None
    return trial.value


def _as_times(values: Mapping[str, float | None], direction: StudyDirection) -> dict[str, float | None]:
    """Objectives as positive numbers of which less is better and ratios count: times are that as they are."""
    known = [v for v in values.values() if v is not None]
    if direction is StudyDirection.MINIMIZE and all(v > 0 for v in known):
        return dict(values)
    sign = -1.0 if direction is StudyDirection.MAXIMIZE else 1.0
    middle, scale = float(np.mean(known or [0.0])), float(np.std(known or [0.0])) or 1.0
    return {k: None if v is None else exp(sign * SPREAD * (v - middle) / scale) for k, v in values.items()}
