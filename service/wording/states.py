"""States of plans as pages name them, and what they mean."""

from service.timing_noise import is_noisy

STATES = {
    "measured": "Checked against a reference and timed on this device.",
    "noisy": "Checked against a reference and timed on this device, but its runs differ by 10 % of their median or "
    "more: something else had the machine. Its time and what is compared with it may be far off; measure again while "
    "the machine is quiet.",
    "predicted": "Not run on this device: times are predictions, marked ~.",
    "emulated": "Its kernels ran in the emulator and agreed with the reference. The emulator times nothing.",
    "stale": "Timed under another driver or toolchain; waiting to be checked again.",
    "failed": "The last check of this plan failed, or a client refused it as wrong: it is given to nobody.",
    "superseded": "A newer plan answers its request now.",
}


NOTHING_TO_RUN = "Nothing runs: every output is an input as it is."


def state_help(shown: str, kernels: int) -> str:
    """The meaning of a state, named as on pages, for a plan of `kernels` kernels."""
    return STATES.get(shown, "") if kernels or shown == "superseded" else NOTHING_TO_RUN


def shown_state(state: str, target: str, time_us: float | None, spread: float | None) -> str:
    """A plan's state in the database as pages name it: `noisy` where it was measured and that says little, `emulated`
    where it ran without being timed."""
    if is_noisy(state, spread):
        return "noisy"
    if state == "predicted" and target == "emulator" and time_us is None:
        return "emulated"
    return state
