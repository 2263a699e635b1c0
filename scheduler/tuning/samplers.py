"""The samplers that a schedule search can be steered by: ours, Optuna's, or anybody's."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler, CmaEsSampler, GPSampler, RandomSampler

from scheduler.budget import RequestError
from scheduler.sampler_names import SAMPLERS
from scheduler.tuning.gp_sampler import EXPLORED, FuseplanSampler, Prior, estimator


@dataclass(frozen=True)
class Wanted:
    """The search that a sampler is made for. space: parameters of every trial. seed: of all that it draws. tried:
    points that were tried before. prior: see `FuseplanSampler`."""

    space: dict[str, BaseDistribution]
    seed: int
    tried: int
    prior: Prior


def _fuseplan(wanted: Wanted) -> BaseSampler:
    return FuseplanSampler(wanted.space, seed=wanted.seed, prior=wanted.prior)


def _tpe(wanted: Wanted) -> BaseSampler:
    return estimator(wanted.seed + wanted.tried)


def _gp(wanted: Wanted) -> BaseSampler:
    return GPSampler(seed=wanted.seed + wanted.tried, n_startup_trials=EXPLORED)


def _cmaes(wanted: Wanted) -> BaseSampler:
    return CmaEsSampler(seed=wanted.seed + wanted.tried, n_startup_trials=EXPLORED)


def _random(wanted: Wanted) -> BaseSampler:
    return RandomSampler(seed=wanted.seed + wanted.tried)


MAKERS: dict[str, Callable[[Wanted], BaseSampler]] = {
    "fuseplan": _fuseplan,
    "tpe": _tpe,
    "gp": _gp,
    "cmaes": _cmaes,
    "random": _random,
}
NEEDED = {"gp": ("scipy", "torch"), "cmaes": ("cmaes",)}  # packages of the extra `samplers`
ORDINAL: Sequence[str] = ("gp", "cmaes")  # are given numbers by their places, since they know numbers better than words
assert MAKERS.keys() == SAMPLERS.keys()


def make_sampler(name: str, wanted: Wanted) -> BaseSampler:
    """The sampler of a name in `SAMPLERS`, or of a dotted path: a class or a function, called with `seed=` where it
    takes one. Raises RequestError."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        if name in MAKERS:
            if missing := [package for package in NEEDED.get(name, ()) if find_spec(package) is None]:
                needs = " and ".join(missing)
                raise RequestError(f"sampler: {name} needs {needs}: pip install 'fuseplan[samplers]'")
            return MAKERS[name](wanted)
        make = _at(name)
        takes_seed = "seed" in signature(make).parameters
        made = make(seed=wanted.seed + wanted.tried) if takes_seed else make()
    if not isinstance(made, BaseSampler):
        raise RequestError(
            f"sampler: expected {name} to make an optuna.samplers.BaseSampler, got {type(made).__name__}"
        )
    return made


def check(name: str) -> None:
    """Raises RequestError where a search could not have this sampler."""
    make_sampler(name, Wanted({"x": CategoricalDistribution((0, 1))}, 0, 0, lambda points: None))


def _at(path: str) -> Callable[..., Any]:
    """The class or function at a dotted path. Raises RequestError."""
    module, _, name = path.replace(":", ".").rpartition(".")
    try:
        found: object = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as e:
        raise RequestError(f"sampler: expected one of {', '.join(MAKERS)}, or a dotted path, got {path!r} ({e})") from e
    if not callable(found):
        raise RequestError(f"sampler: expected a class or a function at {path!r}, got {type(found).__name__}")
    return found
