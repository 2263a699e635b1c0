"""The sum of the times of a plan's steps, beside the time of the plan as a whole."""

from fusion_ir.records import Plan

FAR = 1.25  # times as long, either way


def far_steps_us(plan: Plan) -> float | None:
    """`steps_us` of a plan that was timed as a whole too, where the two times are far apart; None for other plans."""
    sum_us = steps_us(plan)
    if plan.time_us is None or plan.spread is None or not sum_us or not is_far(plan.time_us / sum_us):
        return None
    return sum_us


def is_far(ratio: float) -> bool:
    """Whether a time is so many times another one that one of the two is not to be believed."""
    return not 1 / FAR <= ratio <= FAR


def steps_us(plan: Plan) -> float | None:
    """Sum of the times of a plan's steps, without the prologue's, in us; None where some were not timed."""
    times = [step.time_us for step in plan.steps if not step.prologue]
    known = [us for us in times if us is not None]
    return sum(known) if known and len(known) == len(times) else None
