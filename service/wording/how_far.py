"""How far a plan is from the best that there can be, in one sentence that holds."""

from fusion_ir.records import Plan
from service.timing_noise import beats, is_noisy
from service.wording.formatting import percent, ratio, times
from service.wording.shares import beside_copy

WORTH = 1.005  # less than this many times faster is nothing that anybody looks for


def how_far(plan: Plan) -> str:
    """ "64 % of what no kernel here can beat, 80 % as fast as a copy of its bytes; by the times of the kernels tried,
    no other cut is more than 1.4x faster". Says what was proved and no more: nothing of other cuts where the search did
    not get that far, and nothing at all where the plan's time is too noisy."""
    time_us = plan.time_us if plan.time_us is not None else plan.predicted_us
    share = ratio(plan.lower_bound_us, time_us)
    if not plan.steps:
        return "nothing to run: no plan is faster"
    if share is None or not plan.lower_bound_us:
        return "nothing was timed, and the device has no ceilings: how far from the best is not known"
    if is_noisy("measured", plan.spread if plan.time_us is not None else None):
        return (
            f"too noisy to say how far it is from the best: its runs differ by ± {percent(plan.spread)}, so something "
            "else had the machine; time it again while it is quiet (fuseplan tune --continue)"
        )
    if beats(plan.time_us, plan.lower_bound_us):
        return (
            f"not credible: {times(share)} as fast as its bound, since the device's ceilings were measured at a slower "
            "moment; searches measure them again"
        )
    absent = plan.device.origin == "specified"
    first = f"{percent(min(share, 1.0))} of what no kernel {'there' if absent else 'here'} can beat"
    copy = beside_copy(plan.copy_us, time_us)
    first += f", {copy}" if copy else ""
    if plan.time_us is None:
        return f"predicted to reach {first}"
    return f"{first}; {_other_cuts(plan, share)}"


def _other_cuts(plan: Plan, share: float) -> str:
    gap = plan.search_gap
    if plan.search.complete or (gap is not None and gap <= WORTH):
        return "by the times of the kernels tried, no other cut is faster"
    if gap is None:
        return "what another cut could gain was not proved"
    if gap * share >= 1 / WORTH:  # says no more than the bound does
        return "that another cut comes nearer was not excluded"
    return f"by the times of the kernels tried, no other cut is more than {times(gap)} faster"
