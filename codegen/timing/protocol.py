"""The protocol of timing candidates against each other, and its statistics. Knows no device: it gets a function that
takes samples.

Screening: each candidate runs once, and up to three times where it is beyond 3x the best; if it stays beyond, it is
stopped. The others take a few samples, more of short runs. Candidates beyond 1.3x the best go no further, except the
first candidate. Candidates come in the order of the runs that they had before (their checks); one that was beyond 3x
the best in all of these has a single run, one beyond 10x none: the runs before are its samples then.
Finalists: rounds in random order, one visit each, until all medians are known to 0.5% (2% for a single candidate) or
time is up. Clearly slower candidates leave on the way; after 8, 16, 32 ... rounds the slower half leaves, too
(successive halving: Karnin, Koren and Somekh, "Almost optimal exploration in multi-armed bandits", ICML 2013), except
ties with the best: most of the time goes to candidates that may be the best. The first candidate stays in any case, for
comparisons in pairs.
"""

import random
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from math import comb, sqrt

import numpy as np

STOP_RATIO = 3.0
HOPELESS_RATIO = 10.0
SCREEN_RATIO = 1.3
LEAVE_RATIO = 1.05
SCREEN_SAMPLES = (4, 20)  # at least, at most
SCREEN_US = 200.0  # of samples, as long as they are no more than that
LEAST_SAMPLES = 20
MOST_SAMPLES = 100
LEAST_ROUNDS = 3
FIRST_HALVING = 8  # rounds
PRECISION = 0.005
PRECISION_ALONE = 0.02
# A run before the race that was longer than this says something; a shorter one may have waited for a CPU all the while.
LEAST_HOPELESS_US = 5_000.0
CLEAR_GAIN = 0.01
LEAST_US = 1e-4  # a sample: what is shorter than the step of a clock still took some time, and is divided by
LEAST_GAIN_US = 0.1  # less than it takes to call a kernel, and not far above the steps of the clock
LEAST_PAIRS = 8
RUN = 5  # samples, as many as the longest visit takes
CONFIDENCE = 0.99
GAIN_OF_FEW = 0.1
LEFT = "left the finals"
STOPPED = "stopped"

NOBODY: AbstractContextManager[object] = nullcontext()
Sampler = Callable[[int, int], Sequence[float]]  # (candidate, samples) -> microseconds, one per run


@dataclass(frozen=True, slots=True)
class Timing:
    """Samples of one candidate in microseconds, in the order taken, and how far it came: "" for a finalist. Finalists'
    samples were taken in rounds: sample i of one belongs with sample i of another."""

    samples_us: tuple[float, ...]
    note: str = ""

    @property
    def was_finalist(self) -> bool:
        """Whether the candidate got as far as the rounds, even if it left them."""
        return not self.note or self.note.startswith(LEFT)


def race(
    count: int,
    sample: Sampler,
    *,
    seconds: float,
    seed: int = 0,
    clock: Callable[[], float] = time.monotonic,
    before_us: Sequence[Sequence[float]] = (),
    watch: AbstractContextManager[object] = NOBODY,
) -> list[Timing]:
    """Times candidates 0 ... count-1. `seconds`: for the finalists' rounds; at least `LEAST_ROUNDS` are run. before_us:
    runs of each candidate under conditions that may only be worse. watch: entered before the rounds, left after."""
    order = random.Random(seed)

    def taken(candidate: int, samples: int) -> list[float]:
        return [max(us, LEAST_US) for us in sample(candidate, samples)]

    screened, finalists = _screen(count, taken, before_us or [()] * count)
    if not finalists:
        return screened
    best = min(median(screened[i].samples_us) for i in finalists)
    visit = max(
        1, min(5, int(300.0 / max(best, 1e-3)))
    )  # short runs: several per visit, since the first ones find cold code
    running = list(finalists)
    left: dict[int, str] = {}
    samples: dict[int, list[float]] = {i: [] for i in finalists}
    rounds = 0
    with watch:
        end = clock() + seconds
        while running and (rounds < LEAST_ROUNDS or (clock() < end and not _settled(running, samples))):
            order.shuffle(running)
            for i in running:
                samples[i] += taken(i, visit)
            rounds += 1
            if rounds % 4 == 0:
                close = _still_close(running, samples)
                left.update((i, f"{LEFT}, more than {LEAVE_RATIO}x the best") for i in running if i not in close)
                running = close
            if rounds >= FIRST_HALVING and rounds & (rounds - 1) == 0:
                half = _better_half(running, samples)
                slower = (i for i in running if i not in half)
                left.update((i, f"{LEFT} after {rounds} rounds, in the slower half") for i in slower)
                running = half
    notes = {i: left.get(i, "") for i in finalists}
    return [Timing(tuple(samples[i]), notes[i]) if i in samples else screened[i] for i in range(count)]


def was_stopped(note: str) -> bool:
    """Whether a race ended a candidate before its end, by what its row says of it."""
    return LEFT in note or STOPPED in note


def median(samples: Sequence[float]) -> float:
    """The median."""
    ordered = sorted(samples)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def median_interval(samples: Sequence[float]) -> tuple[float, float]:
    """95% confidence interval of the median, by order statistics: no assumption about the distribution."""
    ordered = sorted(samples)
    n = len(ordered)
    reach = 1.96 * sqrt(n) / 2
    low, high = int(n / 2 - reach), int(n / 2 + reach + 0.999999)
    return ordered[max(0, low)], ordered[min(n - 1, high)]


def spread(samples: Sequence[float]) -> float:
    """Half the interquartile range over the median."""
    ordered = sorted(samples)
    n = len(ordered)
    return (ordered[(3 * n) // 4 if n > 1 else 0] - ordered[n // 4]) / 2 / median(ordered)


def ratio_interval(challenger: Sequence[float], incumbent: Sequence[float]) -> tuple[float, float, float]:
    """Median of challenger / incumbent with a 99% confidence interval, or with the least and largest ratio where fewer
    than 8 ratios cannot give one: (ratio, low, high).

    Samples of one race, in pairs: sample i of one belongs with sample i of the other, as long as both ran. Later
    samples of the one that stayed longer do not count: they were taken at other moments of the machine. Up to `RUN`
    samples in a row count as one, by their median: samples of one visit are alike. The interval is of order statistics,
    which assumes nothing else: by a bootstrap of so few, 20 of 500 races of a kernel with itself showed a difference.
    """
    pairs = min(len(challenger), len(incumbent))
    ratios = np.maximum(challenger[:pairs], LEAST_US) / np.maximum(incumbent[:pairs], LEAST_US)
    run = max(1, min(RUN, pairs // LEAST_PAIRS))
    runs = np.sort(np.median(ratios[: pairs // run * run].reshape(-1, run), axis=1))
    beyond = _beyond(len(runs))
    return float(np.median(ratios)), float(runs[beyond]), float(runs[-1 - beyond])


def _beyond(count: int) -> int:
    """How many of the least of `count` samples lie below a 99% interval of their median, and as many above."""
    beyond, chance = 0, 1.0  # of no more than `beyond` samples below the median
    while 2 * (chance := chance + comb(count, beyond + 1)) <= (1 - CONFIDENCE) * 2**count:
        beyond += 1
    return beyond


def beats(challenger: Sequence[float], incumbent: Sequence[float]) -> bool:
    """Whether the challenger is faster by more than 1% and a tenth of a microsecond, and clearly so: else the incumbent
    stays, so that plans do not flip on noise. With fewer than `LEAST_PAIRS` pairs, each sample of the incumbent has to
    be slower: than each of the challenger's, or than the median where there are many of those (the incumbent was
    stopped). Where even that may be chance, the challenger has to be faster by a tenth.
    """
    if min(len(challenger), len(incumbent)) < LEAST_PAIRS:
        typical = median(challenger) if len(challenger) >= LEAST_PAIRS else max(challenger)
        orders = comb(len(challenger) + len(incumbent), len(incumbent))
        return typical < _to_beat(min(incumbent), CLEAR_GAIN if orders * (1 - CONFIDENCE) >= 1 else GAIN_OF_FEW)
    ratio, _, high = ratio_interval(challenger, incumbent)
    typical = median(incumbent)
    return ratio * typical < _to_beat(typical, CLEAR_GAIN) and high < 1.0


def _to_beat(incumbent_us: float, gain: float) -> float:
    return min((1 - gain) * incumbent_us, incumbent_us - LEAST_GAIN_US)


def _screen(count: int, sample: Sampler, before_us: Sequence[Sequence[float]]) -> tuple[list[Timing], list[int]]:
    timings: dict[int, Timing] = {}
    best = float("inf")
    for i in sorted(range(count), key=lambda i: min(before_us[i], default=0.0)):
        seen = min(before_us[i], default=0.0)
        if seen > max(HOPELESS_RATIO * best, LEAST_HOPELESS_US):
            timings[i] = Timing(tuple(before_us[i]), f"{STOPPED} after its checks, {seen / best:.1f}x the best")
            continue
        first = min(sample(i, 1))  # finds cold code and pages: a second and third chance, unless it is hopeless
        chances = 0 if seen > max(STOP_RATIO * best, LEAST_HOPELESS_US) else 2 if first <= HOPELESS_RATIO * best else 1
        while first > STOP_RATIO * best and chances:
            first, chances = min(first, *sample(i, 1)), chances - 1
        if first > STOP_RATIO * best:
            timings[i] = Timing((first,), f"{STOPPED}, {first / best:.1f}x the best")
            continue
        least, most = SCREEN_SAMPLES
        timings[i] = Timing(tuple(sample(i, max(least, min(most, int(SCREEN_US / max(first, 1e-3)))))))
        best = min(best, *timings[i].samples_us)
    ratios = [min(timings[i].samples_us) / best for i in range(count)]  # the least of few: what disturbs only ever adds
    finalists = [i for i, r in enumerate(ratios) if r <= SCREEN_RATIO or (i == 0 and not timings[i].note)]
    notes = [timings[i].note or f"screened out, {r:.2f}x the best" for i, r in enumerate(ratios)]
    return [timings[i] if i in finalists else Timing(timings[i].samples_us, notes[i]) for i in range(count)], finalists


def _settled(running: list[int], samples: dict[int, list[float]]) -> bool:
    """Whether the medians of all that run are known well enough."""
    precision = PRECISION if len(running) > 1 else PRECISION_ALONE
    return all(len(samples[i]) >= MOST_SAMPLES or _precise(samples[i], precision) for i in running)


def _precise(samples: Sequence[float], precision: float) -> bool:
    low, high = median_interval(samples)
    return len(samples) >= LEAST_SAMPLES and (high - low) / 2 <= precision * median(samples)


def _better_half(running: list[int], samples: dict[int, list[float]]) -> list[int]:
    """The faster half, compared in pairs with the fastest; besides, all ties with the fastest and the first
    candidate."""
    best = min(running, key=lambda i: median(samples[i]))
    behind = {i: median([a / b for a, b in zip(samples[i], samples[best], strict=True)]) for i in running}
    half = sorted(running, key=lambda i: behind[i])[: (len(running) + 1) // 2]
    return [i for i in running if i in half or i == 0 or behind[i] <= 1 + CLEAR_GAIN]


def _still_close(running: list[int], samples: dict[int, list[float]]) -> list[int]:
    best = min(running, key=lambda i: median(samples[i]))
    limit = LEAVE_RATIO * median_interval(samples[best])[1]
    return [i for i in running if i in (0, best) or median_interval(samples[i])[0] <= limit]
