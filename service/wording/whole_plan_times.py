"""Plans that were timed as a whole: which kernels were not timed, and where their times are far from the plan's."""

from collections.abc import Sequence

from fusion_ir.records import Plan, Reason
from scheduler.plans.step_sum import far_steps_us
from service.timing_noise import is_noisy
from service.wording import formatting

FAR = 1.5  # times what is predicted, either way, from which on a line says so


def is_mixed(plan: Plan) -> bool:
    """Whether the plan was timed as a whole, and some kernel of it was not timed by itself."""
    return plan.time_us is not None and any(s.time_us is None and s.predicted_us for s in plan.steps)


def kernels_predicted(plan: Plan) -> str:
    """ "kernels predicted", "2 of 3 kernels predicted"; "" where all were timed, or the plan was not."""
    if not is_mixed(plan):
        return ""
    untimed = sum(s.time_us is None for s in plan.steps)
    if untimed == len(plan.steps):
        return "kernels predicted" if untimed > 1 else "kernel predicted"
    return f"{untimed:,} of {formatting.count(len(plan.steps), 'kernel')} predicted"


def predictions_off(plan: Plan) -> float | None:
    """A plan's time over the sum of its kernels' times, of which some are predicted; None where no kernel's is, and
    where a kernel has neither a time nor a prediction."""
    times_us = [s.time_us or s.predicted_us for s in plan.steps if not s.prologue]
    if plan.time_us is None or not is_mixed(plan) or not times_us or None in times_us:
        return None
    return plan.time_us / sum(us for us in times_us if us)


def off_by(plan: Plan) -> str:
    """A phrase on how far the predictions of the plan's kernels are from the time of the whole plan; "" where that is
    not known, within a factor of FAR, or of a noisy time."""
    times = predictions_off(plan)
    if times is None or 1 / FAR <= times <= FAR or is_noisy("measured", plan.spread):
        return ""
    return f"this plan took {formatting.times(times)} as long as its own kernels are predicted to take"


def is_untried(reason: Reason) -> bool:
    """Whether a reason compares costs of which some were not timed."""
    costs = [cost for cost in (reason.together, reason.apart) if cost is not None]
    return reason.kind in ("predicted_worse", "cap") and any(not cost.measured for cost in costs)


def untried(plan: Plan, reasons: Sequence[Reason], on: str) -> str:
    """A warning about the reasons that rest on predictions, for a timed plan whose search was cut short; "" where there
    are none, and for other plans. on: how the reader goes on with the search."""
    if not plan.search.cut_short or plan.time_us is None or not any(map(is_untried, reasons)):
        return ""
    off = off_by(plan)
    return (
        "not tried: the search was cut short; predictions may be off by a factor of two"
        f"{f' ({off})' if off else ''}; {on}"
    )


def far_apart(plan: Plan) -> str:
    """Sentences on a plan whose time is far from the sum of its kernels' times, and why that may be; "" where it is
    not."""
    return _far_from_timed(plan) or _far_from_predicted(plan)


def _far_from_timed(plan: Plan) -> str:
    steps_us = far_steps_us(plan)
    if steps_us is None or plan.time_us is None:
        return ""
    whole, steps = formatting.duration(plan.time_us), formatting.duration(steps_us)
    why = (
        "kernels take longer among others, whose code and tensors come in between, than each timed by itself again and "
        "again"
        if plan.time_us > steps_us
        else "in the whole plan a kernel finds in the caches what the one before it left"
    )
    return (
        f"As a whole it takes {whole}, {formatting.times(plan.time_us / steps_us)} as long as its kernels, which "
        f"come to {steps} timed one by one. Either {why}; or something else had the machine during one of the two."
    )


def _far_from_predicted(plan: Plan) -> str:
    times = predictions_off(plan)
    if times is None or plan.time_us is None or 1 / FAR <= times <= FAR:
        return ""
    whole, steps = formatting.duration(plan.time_us), formatting.duration(plan.time_us / times)
    return (
        f"As a whole it takes {whole}, {formatting.times(times)} as long as its kernels, which come to ~{steps} by "
        "predictions. Either these are off here, or something else had the machine while the plan was timed; a search "
        "that times its kernels tells."
    )
