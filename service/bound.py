"""Whether a lower bound can be believed beside a time that was measured."""

NOISE = 0.03  # of a time: by so much may anything seem faster than it can be


def beats(time_us: float | None, bound_us: float) -> bool:
    """Whether something took less than its lower bound, by more than noise: then the bound is wrong, and the ceilings
    that it was made of were measured at a slower moment. False for what was not timed."""
    return time_us is not None and time_us < (1 - NOISE) * bound_us
