"""Samplers of schedules: ours as Optuna's, in our studies and in anybody's; names, dotted paths and faults."""

import random
from collections.abc import Callable
from itertools import product
from math import log
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.trial import TrialState

from fusion_ir.records import Measurement, Status
from scheduler.budget import Budget, RequestError
from scheduler.cost.gaussian_process import GaussianProcess
from scheduler.sampler_names import SAMPLERS
from scheduler.tune import tune
from scheduler.tuning import samplers
from scheduler.tuning.gp_sampler import FuseplanSampler
from scheduler.tuning.proposals import proposals
from scheduler.tuning.samplers import MAKERS, Wanted, make_sampler
from scheduler.tuning.study import Encoding, make_study
from tests.support.whole import few_or_all
from tests.unit.scheduler.fakes import DEVICE, Memory, families
from tests.unit.scheduler.test_proposals import FEW, GRAPH, MANY, points, seconds, space

LARGE = {**MANY, "f": tuple(range(16))}  # more points than are listed
NAMES = "fuseplan, tpe, gp, cmaes, random"
WANTED = Wanted({"a": CategoricalDistribution((1, 2, 4))}, 0, 0, lambda points: None)


@pytest.fixture(autouse=True)
def quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)


@pytest.mark.parametrize("seed", range(8))
def test_a_study_asks_for_what_the_model_proposes(seed: int) -> None:
    """Optuna's ask and tell change nothing: not for batches, not where some failed, not with a prior."""
    draw = random.Random(seed)
    tried = {p: None if draw.random() < 0.2 else seconds(p) for p in draw.sample(points(MANY), draw.randrange(2, 40))}
    model = GaussianProcess(points(MANY), tried, seed)
    assert proposals(space(MANY), tried, 8, seed) == model.propose(8)


def test_trials_say_why_they_failed_or_were_stopped() -> None:
    tried = {points(FEW)[0]: 1.0, points(FEW)[1]: None, points(FEW)[2]: 3.0}
    rows = {
        p: Measurement(family="f", schedule=p, status=status, detail=detail, segment_key="", device_key="", race="r7")
        for p, status, detail in zip(
            tried,
            (Status.ok, Status.crashed, Status.ok),
            ("", "signal 11", "cold; stopped, 3.2x the best"),
            strict=True,
        )
    }
    done, failed, stopped = make_study(Encoding("f", FEW), tried, rows).trials
    assert (done.state, done.value) == (TrialState.COMPLETE, 1.0)
    assert (failed.state, failed.value) == (TrialState.FAIL, None)
    assert failed.user_attrs == {"status": "crashed", "detail": "signal 11", "race": "r7"}
    assert (stopped.state, stopped.intermediate_values) == (TrialState.PRUNED, {0: 3.0})
    assert "3.2x" in stopped.user_attrs["detail"]
    assert done.params == {"lanes": 16, "store": "stream", "ahead": 0}


@pytest.mark.parametrize("ordinal", [False, True])
def test_schedules_come_back_from_their_parameters(ordinal: bool) -> None:
    encoding = Encoding("f", MANY, ordinal)
    assert [encoding.schedule(encoding.params(p)) for p in points(MANY)] == points(MANY)
    kinds = {name: type(d) for name, d in encoding.distributions.items()}
    assert kinds["a"] is (IntDistribution if ordinal else CategoricalDistribution)
    assert kinds["c"] is kinds["e"] is CategoricalDistribution, "words, and two numbers"


def regret(sampler: BaseSampler, objective: Callable[[optuna.Trial], float], trials: int, best: float) -> float:
    study = optuna.create_study(sampler=sampler)
    study.optimize(objective, n_trials=trials)
    return study.best_value - best


def mixed(trial: optuna.Trial) -> float:
    """An objective of a place, a length, a word and a switch; 1 at its best."""
    x = trial.suggest_float("x", 0.0, 1.0)
    n = trial.suggest_int("n", 1, 64)
    word = trial.suggest_categorical("word", ["left", "right", "none"])
    on = trial.suggest_categorical("on", [False, True])
    return 1.0 + 4 * (x - 0.3) ** 2 + 0.2 * abs(log(n / 8)) + 0.3 * (word != "right") + 0.2 * (not on)


def test_it_serves_studies_of_others_better_than_chance() -> None:
    ours = [regret(FuseplanSampler(seed=s), mixed, 30, 1.0) for s in range(6)]
    chance = [regret(RandomSampler(seed=s), mixed, 30, 1.0) for s in range(6)]
    assert np.mean(ours) < 0.5 * np.mean(chance)


def test_what_is_to_grow_and_may_be_negative() -> None:
    study = optuna.create_study(direction="maximize", sampler=FuseplanSampler(seed=0))
    study.optimize(lambda t: -((t.suggest_int("n", -20, 20) - 7) ** 2), n_trials=25)
    assert study.best_value >= -1


def test_steps_logarithms_and_spaces_that_change() -> None:
    def objective(trial: optuna.Trial) -> float:
        rate = trial.suggest_float("rate", 1e-4, 1.0, log=True)
        part = trial.suggest_float("part", 0.0, 1.0, step=0.25)
        if trial.number % 3 == 0:
            trial.suggest_int("sometimes", 0, 3)
        if trial.number % 7 == 6:
            raise optuna.TrialPruned
        return abs(log(rate / 0.01)) + part

    study = optuna.create_study(sampler=FuseplanSampler(seed=0))
    study.optimize(objective, n_trials=30)
    assert study.best_value < 0.7


def test_every_point_once_then_what_else_there_is() -> None:
    space_of = {"a": CategoricalDistribution([1, 2, 4]), "b": CategoricalDistribution(["x", "y"])}
    study = optuna.create_study(sampler=FuseplanSampler(space_of, seed=0))
    asked = [study.ask(space_of) for _ in range(6)]
    assert len({tuple(t.params.items()) for t in asked}) == 6, "a batch, none told yet"
    for trial in asked:
        study.tell(trial, trial.params["a"])
    assert set(study.ask(space_of).params) == {"a", "b"}


def test_a_space_that_is_too_large_to_be_listed() -> None:
    tried = {s: float(i + 1) for i, s in enumerate(_some(LARGE, 20))}
    found = proposals(space(LARGE), tried, 6, 3)
    assert len(set(found) - tried.keys()) == 6
    assert found == proposals(space(LARGE), tried, 6, 3)


def _some(choices: dict[str, Any], count: int) -> list[str]:
    every = [
        f"f{{{','.join(f'{k}={v}' for k, v in zip(choices, vs, strict=True))}}}" for vs in product(*choices.values())
    ]
    return random.Random(0).sample(every, count)


def test_optuna_thinks_well_of_it() -> None:
    """Its own suite for samplers asks for values of every kind of distribution, told or not."""
    for distribution in (
        FloatDistribution(-1.0, 1.0), FloatDistribution(1e-7, 1.0, log=True), FloatDistribution(-10, 10, step=0.1),
        FloatDistribution(0.5, 0.5), IntDistribution(-10, 10), IntDistribution(1, 100, log=True),
        IntDistribution(-9, 9, step=3), IntDistribution(5, 5), CategoricalDistribution((1, 2.5, "a", None, True)),
    ):  # fmt: skip
        study = optuna.create_study(sampler=FuseplanSampler(seed=1))
        for i in range(12):
            trial = study.ask({"p": distribution})
            assert distribution._contains(distribution.to_internal_repr(trial.params["p"]))
            study.tell(trial, float(i % 5))


class NoSampler:
    pass


def no_argument() -> BaseSampler:
    return RandomSampler(0)


def test_names_and_dotted_paths() -> None:
    assert isinstance(make_sampler("fuseplan", WANTED), FuseplanSampler)
    assert isinstance(make_sampler("optuna.samplers.RandomSampler", WANTED), RandomSampler)
    assert isinstance(make_sampler("optuna.samplers:RandomSampler", WANTED), RandomSampler)
    assert isinstance(make_sampler(f"{__name__}.no_argument", WANTED), RandomSampler)
    assert MAKERS.keys() == SAMPLERS.keys()
    for name in SAMPLERS:
        Budget(1.0, sampler=name)


@pytest.mark.parametrize("name", ["", "no", "fuse plan", "a..b", "os.system; x", 3, None, "os:", ".x"])
def test_names_that_are_none(name: Any) -> None:
    with pytest.raises(RequestError, match=rf"^sampler: expected one of {NAMES}, or a dotted path"):
        Budget(1.0, sampler=name)


@pytest.mark.parametrize(
    "path", ["no.such.module", "optuna.samplers.No", f"{__name__}.NoSampler", f"{__name__}.WANTED"]
)
def test_paths_that_lead_to_none(path: str) -> None:
    with pytest.raises(RequestError, match=r"^sampler: expected "):
        make_sampler(path, WANTED)


@pytest.mark.parametrize("name", ["gp", "cmaes"])
def test_samplers_that_need_another_package_say_so(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samplers, "find_spec", lambda package: None)
    with pytest.raises(
        RequestError, match=rf"^sampler: {name} needs {' and '.join(samplers.NEEDED[name])}: pip install"
    ):
        make_sampler(name, WANTED)


@pytest.mark.soak
@pytest.mark.parametrize("name", few_or_all(["cmaes"], ["gp"]))
def test_they_choose_schedules_where_it_is_installed(name: str) -> None:
    for package in samplers.NEEDED[name]:
        pytest.importorskip(package)
    tried: dict[str, float | None] = {p: seconds(p) for p in points(MANY)[::40]}
    found = proposals(space(MANY), tried, 4, 1, sampler=name)
    assert len(set(found) - tried.keys()) == 4
    assert set(found) <= set(points(MANY))


def test_a_search_is_refused_before_it_begins() -> None:
    with pytest.raises(RequestError, match=r"^sampler: expected one of"):
        tune(GRAPH, DEVICE, Budget(1.0, sampler="no.such.sampler"), Memory(), None, families=families())
