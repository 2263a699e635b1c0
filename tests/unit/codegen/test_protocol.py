"""The timing protocol on invented clocks: who stops where, and when a difference counts."""

import random
from collections.abc import Callable

import pytest

from codegen.timing.protocol import (
    LEAST_SAMPLES,
    MOST_SAMPLES,
    SCREEN_SAMPLES,
    beats,
    median,
    median_interval,
    race,
    ratio_interval,
    spread,
)


class Machine:
    """Candidates with known times and noise; a clock that moves with them."""

    def __init__(self, times_us: list[float], noise: float = 0.01, seed: int = 1) -> None:
        self.times_us, self.noise, self.rng = times_us, noise, random.Random(seed)
        self.now = 0.0
        self.calls: list[tuple[int, int]] = []

    def sample(self, i: int, samples: int) -> list[float]:
        self.calls.append((i, samples))
        taken = [self.times_us[i] * (1 + self.noise * self.rng.random()) for _ in range(samples)]
        self.now += sum(taken) * 1e-6
        return taken

    def clock(self) -> float:
        return self.now


def test_slow_candidates_stop_early() -> None:
    machine = Machine([1000.0, 5000.0, 1500.0, 1005.0])
    timings = race(4, machine.sample, seconds=10.0, clock=machine.clock)
    assert "stopped" in timings[1].note
    assert len(timings[1].samples_us) == 1
    assert "screened out" in timings[2].note
    assert timings[0].note == timings[3].note == ""
    assert min(len(timings[i].samples_us) for i in (0, 3)) >= LEAST_SAMPLES


def test_a_first_run_that_finds_cold_code_is_forgiven() -> None:
    machine = Machine([1000.0, 900.0])
    cold = {1}

    def sample(i: int, samples: int) -> list[float]:
        taken = machine.sample(i, samples)
        if i in cold:
            cold.discard(i)
            return [50_000.0, *taken[1:]]
        return taken

    timings = race(2, sample, seconds=1.0, clock=machine.clock)
    assert median(timings[1].samples_us) < median(timings[0].samples_us)
    assert timings[1].note == ""


def test_finalists_are_sampled_in_rounds_of_random_order() -> None:
    machine = Machine([1000.0, 1001.0, 1002.0])
    timings = race(3, machine.sample, seconds=10.0, clock=machine.clock)
    assert len({len(t.samples_us) for t in timings}) == 1
    rounds = [i for i, n in machine.calls if n == 1][3:]
    orders = {tuple(rounds[k : k + 3]) for k in range(0, len(rounds) - 2, 3)}
    assert len(orders) > 2
    assert all(sorted(order) == [0, 1, 2] for order in orders)


def test_the_seed_fixes_the_order() -> None:
    runs = []
    for seed in (3, 3, 4):
        machine = Machine([1000.0, 1001.0, 1002.0])
        race(3, machine.sample, seconds=10.0, seed=seed, clock=machine.clock)
        runs.append(machine.calls)
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_noise_is_sampled_until_time_is_up_and_at_least_three_rounds() -> None:
    machine = Machine([1000.0, 1000.0], noise=1.0)
    timings = race(2, machine.sample, seconds=0.2, clock=machine.clock)
    assert 3 <= len(timings[0].samples_us) < MOST_SAMPLES
    slow = Machine([5e6])
    assert len(race(1, slow.sample, seconds=0.1, clock=slow.clock)[0].samples_us) == 3


def test_clearly_slower_finalists_leave() -> None:
    machine = Machine([1001.0, 1000.0, 1200.0], noise=0.4)
    timings = race(3, machine.sample, seconds=10.0, clock=machine.clock)
    assert "left the finals" in timings[2].note
    assert len(timings[2].samples_us) < len(timings[0].samples_us)


def test_the_slower_half_leaves_and_ties_stay() -> None:
    machine = Machine([1030.0, 1000.0, 1001.0, 1002.0, 1025.0, 1028.0, 1030.0, 1032.0], noise=0.05)
    timings = race(8, machine.sample, seconds=10.0, clock=machine.clock)
    lengths = [len(t.samples_us) for t in timings]
    assert all("slower half" in t.note for t in timings[5:])
    assert max(lengths[5:]) < min(lengths[1:4]) == lengths[0], (
        "the first one stays: others are compared with it in pairs"
    )
    assert timings[0].note == ""


def test_nothing_to_race() -> None:
    assert race(0, Machine([]).sample, seconds=1.0) == []


def test_median_and_spread() -> None:
    assert median([3.0, 1.0, 2.0]) == 2.0
    assert median([4.0, 1.0, 2.0, 3.0]) == 2.5
    assert spread([1.0]) == 0.0
    assert spread([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx((4 - 2) / 2 / 3)


def test_the_interval_of_the_median_covers_it() -> None:
    rng = random.Random(5)
    draw: Callable[[], float] = lambda: rng.lognormvariate(0.0, 0.5)  # noqa: E731
    hits = 0
    for _ in range(400):
        low, high = median_interval([draw() for _ in range(31)])
        hits += low <= 1.0 <= high
    assert hits >= 370


@pytest.mark.parametrize(("gain", "wins"), [(0.9, True), (0.97, True), (0.995, False), (1.0, False), (1.1, False)])
def test_only_a_clear_gain_beats_the_incumbent(gain: float, wins: bool) -> None:
    rng = random.Random(7)
    drift = [1 + 0.3 * rng.random() for _ in range(40)]
    incumbent = [100 * d * (1 + 0.01 * rng.random()) for d in drift]
    challenger = [100 * gain * d * (1 + 0.01 * rng.random()) for d in drift]
    assert beats(challenger, incumbent) is wins


def test_ratios_are_of_samples_taken_together() -> None:
    """Who left earlier is compared over the rounds that both ran in, whatever the machine did afterwards."""
    assert ratio_interval([1.0, 1.0, 1.0], [2.0, 2.0, 2.0, 9.0, 9.0, 9.0]) == (0.5, 0.5, 0.5)
    drift = [1.0] * 10 + [2.0] * 90
    assert not beats([100.0 * d for d in drift[:10]], [100.0 * d for d in drift])


def test_a_machine_that_changes_its_mind_declares_no_difference() -> None:
    """One kernel raced against itself, in visits of five similar samples, a tenth of the visits slowed by 1.4: `beats`
    declares a difference in 1 race of 100 at the most."""
    rng, declared = random.Random(11), 0
    for _ in range(600):
        times: list[list[float]] = [[], []]
        for _ in range(20):
            for side in times:
                visit = 100 * rng.lognormvariate(0.0, 0.1) * (1.4 if rng.random() < 0.1 else 1.0)
                side += [visit * rng.lognormvariate(0.0, 0.01) for _ in range(5)]
        declared += beats(times[0], times[1])
    assert declared <= 6


@pytest.mark.parametrize("rounds", [8, 9, 16, 37, 100])
def test_few_rounds_of_equal_kernels_declare_no_difference_either(rounds: int) -> None:
    """In at most 1 of 100 races, whichever of the two is the incumbent."""
    rng, declared = random.Random(5), 0
    for _ in range(1000):
        one, other = ([100 * rng.lognormvariate(0.0, 0.1) for _ in range(rounds)] for _ in range(2))
        declared += beats(one, other) or beats(other, one)
    assert declared <= 10


def test_a_few_samples_decide_only_where_they_lie_apart() -> None:
    assert beats([10.0, 11.0, 12.0, 12.0, 12.0], [13.0, 14.0, 15.0, 15.0, 15.0])
    assert not beats([10.0, 11.0, 13.1, 12.0, 12.0], [13.0, 14.0, 15.0, 15.0, 15.0])
    assert not beats([10.0, 11.0, 12.0], [13.0, 14.0, 15.0]), "which happens to equal kernels in 1 of 20 races"
    assert beats([10.0, 11.0, 11.5], [13.0, 14.0, 15.0]), "but hardly so far apart"
    assert not beats([100.0, 100.0, 100.0], [100.5, 100.5, 100.5])
    assert beats([10.0] * 19 + [90.0], [14.0, 15.0, 14.0, 16.0]), "stopped beside a finalist that once had to wait"
    assert not beats([10.0] * 8 + [20.0] * 12, [14.0, 15.0, 14.0, 16.0])


def test_what_the_clock_can_hardly_tell_apart_is_no_gain() -> None:
    """Kernels of a fifth of a microsecond: steps of the clock, and which cache line holds their arguments."""
    assert not beats([0.17] * 40, [0.20] * 40)
    assert not beats([0.17] * 4, [0.20] * 4)
    assert beats([1.7] * 40, [2.0] * 40)


def test_the_first_candidate_is_compared_in_pairs_however_it_was_screened() -> None:
    machine = Machine([1500.0, 1000.0, 1500.0])
    timings = race(3, machine.sample, seconds=10.0, clock=machine.clock)
    assert "screened out" in timings[2].note
    assert timings[0].was_finalist
    assert len(timings[0].samples_us) == len(timings[1].samples_us) >= LEAST_SAMPLES


def test_short_runs_are_screened_by_more_samples() -> None:
    """The least of four runs of a fifth of a microsecond is often half as much again."""
    machine = Machine([0.2, 0.2, 500.0])
    race(3, machine.sample, seconds=0.0, clock=machine.clock)
    assert [n for i, n in machine.calls if i == 0][1] == SCREEN_SAMPLES[1]
    slow = Machine([500.0, 500.0])
    race(2, slow.sample, seconds=0.0, clock=slow.clock)
    assert [n for i, n in slow.calls if i == 0][1] == SCREEN_SAMPLES[0]


def test_checks_count_as_first_runs() -> None:
    """The slowest comes last, and what was hopeless in both checks is not run again."""
    machine = Machine([50_000.0, 1000.0, 6000.0, 1005.0])
    before = [[52_000.0, 51_000.0], [3000.0, 2000.0], [9000.0, 7000.0], [3000.0, 2500.0]]
    timings = race(4, machine.sample, seconds=10.0, clock=machine.clock, before_us=before)
    assert timings[0].samples_us == (52_000.0, 51_000.0)
    assert "stopped after its checks, 5" in timings[0].note
    assert "stopped" in timings[2].note
    assert [machine.calls.count((i, 1)) for i in (0, 2)] == [0, 1]
    assert timings[1].note == timings[3].note == ""


def test_short_runs_before_the_race_say_nothing() -> None:
    machine = Machine([10.0, 10.01])
    timings = race(2, machine.sample, seconds=1.0, clock=machine.clock, before_us=[[20.0], [400.0]])
    assert [t.note for t in timings] == ["", ""]


def test_one_alone_is_known_well_enough_sooner() -> None:
    def samples(count: int) -> int:
        machine = Machine([1000.0] * count, noise=0.05)
        return len(race(count, machine.sample, seconds=10.0, clock=machine.clock)[0].samples_us)

    assert samples(1) < samples(2)
