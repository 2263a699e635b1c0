"""Noise of measured times: how far below its lower bound a time may be by noise alone, and when a time says little."""

from tuning_db.noise import NOISE as NOISE
from tuning_db.noise import NOISY as NOISY


def beats(time_us: float | None, bound_us: float) -> bool:
    """Whether something took less than its lower bound, by more than noise: then the bound is wrong, and the ceilings
    that it was made of were measured at a slower moment. False for what was not timed."""
    return time_us is not None and time_us < (1 - NOISE) * bound_us


def is_noisy(state: str, spread: float | None) -> bool:
    """Whether a plan was timed while something else had the machine. spread: half the interquartile range of its times
    over their median."""
    return state == "measured" and spread is not None and spread >= NOISY
