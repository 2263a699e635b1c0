"""Whole plans that were timed in one race, ranked."""

from collections.abc import Callable, Sequence

from codegen.timing.protocol import beats, median
from fusion_ir.records import Plan, Reason
from fusion_ir.units import duration
from scheduler.cover.oracle import Proposal
from scheduler.interfaces import TimedPlan

UNTIMED_GAIN = 0.9  # times what a plan of kernels that were never timed takes, for another to be chosen
# Share of a race's visits that others disturbed, from which on the unfused graph has to be clearly faster to be chosen.
LOUD = 0.5

Timed = tuple[Proposal, Plan, TimedPlan]


def ranked(passed: Sequence[Timed], is_unfused: Callable[[Proposal], bool]) -> tuple[list[Timed], Reason | None]:
    """The plans, the winner first, and a note where its time is not the least. The winner is the plan with the fewest
    steps unless another is clearly faster; or the unfused graph where that took less, by however little, with these
    kernels or with those it began with. Where others disturbed most of the race, medians tell small differences no
    more: the unfused graph, too, has to be clearly faster then."""
    if not passed:
        return [], None
    winner = min(passed, key=lambda entry: len(entry[1].steps))
    for challenger in passed:
        if not is_unfused(challenger[0]) and _is_better(challenger, winner):
            winner = challenger
    others = [entry for entry in passed if is_unfused(entry[0]) and entry is not winner]
    fastest = min(others, key=lambda entry: median(entry[2].samples_us), default=winner)
    if unfused_is_chosen(fastest[2], winner[2]):
        winner = fastest
    return sorted(passed, key=lambda entry: entry is not winner), unclear(fastest[2], winner[2])


def unfused_is_chosen(unfused: TimedPlan, fused: TimedPlan) -> bool:
    """Whether the unfused graph is the winner, of two plans that were timed in the same rounds."""
    if _is_loud(fused):
        return beats(unfused.samples_us, fused.samples_us)
    return median(unfused.samples_us) < median(fused.samples_us)


def unclear(unfused: TimedPlan, winner: TimedPlan) -> Reason | None:
    """A note where the unfused graph was faster than the winner, and not clearly so."""
    unfused_us, winner_us = median(unfused.samples_us), median(winner.samples_us)
    if unfused_us >= winner_us:
        return None
    times = f"{duration(unfused_us)} against {duration(winner_us)}"
    text = f"a kernel for each op took {times}, while others had the CPUs during {winner.disturbed or 0.0:.0%} of that"
    return Reason(kind="note", text=f"{text}: such a difference decides nothing")


def _is_loud(timed: TimedPlan) -> bool:
    return (timed.disturbed or 0.0) >= LOUD


def _is_better(challenger: Timed, winner: Timed) -> bool:
    """Whether one plan is to be chosen instead of another that was timed in the same rounds."""
    samples, others = challenger[2].samples_us, winner[2].samples_us
    if beats(samples, others):
        return True
    was_timed = all(step.time_us is not None for step in winner[1].steps)
    return not was_timed and median(samples) < UNTIMED_GAIN * median(others)
