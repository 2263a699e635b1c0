"""Interleaved rounds: every call once per round in random order, so that what else the machine does meets all alike."""

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

# PyTorch's idle threads spin for some milliseconds; until they sleep they hold a core that whoever comes next needs.
PAUSE_SECONDS = 0.01
LEAST_ROUNDS = 5
_RESAMPLES = 5000

Calls = Mapping[str, Callable[[], object]]


@dataclass(frozen=True)
class Contestant:
    """One side: times of single calls in us, one per round, the rounds being common to all sides."""

    name: str
    samples_us: tuple[float, ...]

    @property
    def median_us(self) -> float:
        return float(np.median(self.samples_us))


@dataclass(frozen=True)
class Ratio:
    """Median over rounds of one side's time over the other's in the same round, with its 95 % bootstrap interval."""

    of: str
    over: str
    median: float
    low: float
    high: float


def race(calls: Calls, rounds: int, seed: int, *, warm_up: int = 2, seconds: float = 60.0) -> dict[str, Contestant]:
    """Times every call once per round, in an order that is random anew in each round. Stops before the last round when
    `seconds` are over, but not before `LEAST_ROUNDS`.

    Each turn is a pause, a call that wakes the side's threads and is not timed, and one that is.
    """
    order = random.Random(seed)
    names = list(calls)
    samples: dict[str, list[float]] = {name: [] for name in names}
    end = time.monotonic() + seconds
    for number in range(-warm_up, rounds):
        if number >= LEAST_ROUNDS and time.monotonic() > end:
            break
        order.shuffle(names)
        for name in names:
            time.sleep(PAUSE_SECONDS)
            calls[name]()
            started = time.perf_counter()
            calls[name]()
            took = time.perf_counter() - started
            if number >= 0:
                samples[name].append(round(took * 1e6, 1))
    return {name: Contestant(name, tuple(samples[name])) for name in calls}


def fastest(calls: Calls, seed: int = 0) -> str:
    """The name of the call that is fastest in a short race."""
    if len(calls) == 1:
        return next(iter(calls))
    trial = race(calls, LEAST_ROUNDS, seed, warm_up=1)
    return min(trial, key=lambda name: trial[name].median_us)


def paired_ratio(of: Contestant, over: Contestant, seed: int = 0) -> Ratio:
    """How many times longer `of` takes than `over`."""
    ratios = np.array(of.samples_us) / np.array(over.samples_us)
    resampled = np.random.default_rng(seed).choice(ratios, (_RESAMPLES, ratios.size))
    low, high = np.percentile(np.median(resampled, axis=1), (2.5, 97.5))
    return Ratio(of.name, over.name, float(np.median(ratios)), float(low), float(high))
