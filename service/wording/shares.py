"""How near a time is to its lower bound, where that can be believed."""

from dataclasses import dataclass

from service.timing_noise import NOISE, beats
from service.wording import formatting

BEATEN = "bound not credible: measure again"
BEATEN_SHORT = "doubtful"  # in a column of shares; what it means is said below
BEATEN_HELP = (
    f"It took less than its lower bound by more than noise ({formatting.percent(NOISE)}): the ceilings that the bound "
    "is made of were measured at a slower moment."
)


@dataclass(frozen=True)
class Share:
    """A lower bound over a time. width: percent of a whole bar. doubt: why the bound cannot be believed, "" where it
    can."""

    text: str
    width: float
    doubt: str = ""

    @property
    def short(self) -> str:
        """The text in no more than eight characters."""
        return BEATEN_SHORT if self.doubt else self.text


def share_of(bound_us: float, time_us: float | None, predicted_us: float | None = None) -> Share:
    """A bound's share of a time, or of a predicted one: "78 %", "~78 %". None is above 100 %: within noise it is
    that, and beyond it the bound is not credible. A bound of 0 is none."""
    known_us = predicted_us if time_us is None else time_us
    share = formatting.ratio(bound_us, known_us) if bound_us > 0 else None
    if share is None:
        return Share(formatting.NONE, 0.0)
    if beats(time_us, bound_us):
        return Share(BEATEN, 0.0, BEATEN_HELP)
    share = min(share, 1.0)
    return Share(f"{'~' if time_us is None else ''}{formatting.percent(share)}", round(100 * share, 1))


def beside_copy(copy_us: float | None, time_us: float | None) -> str:
    """How a time compares with that of a copy of as many bytes: "72 % as fast as a copy of its bytes"; "" where one of
    the two is not known. Memory binds small graphs to this, however low the bound is that caches allow."""
    share = formatting.ratio(copy_us, time_us)
    if not share:
        return ""
    about = "" if share >= 1 - NOISE else f"{formatting.percent(share)} "
    return f"{about}as fast as a copy of its bytes" if share <= 1 + NOISE else "faster than a copy of its bytes"
