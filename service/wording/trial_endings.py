"""How tries of candidates ended, in words: against whom a race stopped one, and why what seems faster did not win."""

import re
from collections.abc import Collection, Sequence

from codegen.schedule import Variant
from codegen.timing.protocol import beats, ratio_interval
from fusion_ir.records import Measurement, Status
from scheduler.tuning.trial_log import variant_of
from service.wording.formatting import duration, percent, times, visible

_WARM = re.compile(r"warm [0-9.e+-]+ us")  # as rows have it that were written before times had their units there
_BEST = re.compile(r"([0-9.]+)x the best")


def ending(m: Measurement, race: Sequence[Measurement]) -> str:
    """ "stopped, 3.2× the best of its race, which took 12.3 µs". race: all rows of its race, itself among them."""
    detail = visible(" ".join(m.detail.split()))
    if m.status is Status.ok:
        if m.warm_us is not None:
            detail = _WARM.sub(f"warm {duration(m.warm_us)}", detail)
        best_us = min((r.time_us for r in race if r.status is Status.ok and r.time_us is not None), default=None)
        took = "" if best_us is None else f", which took {duration(best_us)}"
        detail = _BEST.sub(rf"\1× the best of its race{took}", detail)
    else:
        detail = f"{m.status.value}: {detail}"
    return f"{m.origin}; {detail}" if m.origin else detail


def candidate_order(m: Measurement, chosen: Collection[Variant]) -> tuple[bool, bool, float]:
    """The sort key of candidates by their last tries: the plan's own (`chosen`), then by time, failed ones last."""
    return variant_of(m) not in chosen or m.status is not Status.ok, m.time_us is None, m.time_us or 0.0


def beside_winner(tries: Sequence[Measurement], winner: Sequence[Measurement]) -> str:
    """Why a candidate did not win whose last time is less than the winner's: by the last race that both were in.
    tries, winner: all rows of the two, in order."""
    of_race = {m.race: m for m in winner if m.race and m.status is Status.ok and m.samples_us}
    both = [(m, of_race[m.race]) for m in tries if m.status is Status.ok and m.samples_us and m.race in of_race]
    if not both:
        return "never raced with the plan's: times of other races were taken in other moments of the machine"
    one, own = both[-1]
    ratio, _, _ = ratio_interval(one.samples_us, own.samples_us)
    if beats(one.samples_us, own.samples_us):
        return f"in its last race with the plan's faster by {percent(1 - ratio)}: another search may take it"
    if ratio < 1:
        return f"runner-up, within noise: in its last race with the plan's faster by {percent(1 - ratio)}"
    return f"in its last race with the plan's {times(ratio)} as long"
