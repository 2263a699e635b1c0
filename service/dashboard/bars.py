"""Times of a plan beside what they are to be compared with: the bars of its page."""

from collections.abc import Sequence
from dataclasses import dataclass

from fusion_ir.records import Plan
from scheduler.plans.step_sum import far_steps_us
from service.timing_noise import beats
from service.wording import formatting
from service.wording.limits import limit_words
from service.wording.shares import BEATEN_HELP, Share


@dataclass(frozen=True)
class Bar:
    """One bar of the comparison; `width` in percent of the longest."""

    label: str
    kind: str
    value: str
    width: float
    help: str


def bars(plan: Plan, share: Share) -> Sequence[Bar]:
    """Bars for known times, labelled as at a terminal. share: the lower bound over the time of the whole plan."""
    limit = limit_words(plan.bound_by)
    least = f"The least for {limit}" if limit else "No kernels on this device can be faster"
    if share.doubt:
        least = f"Not credible: this plan is faster. {BEATEN_HELP}"
    copy = f"Its inputs and outputs at the {known_by(plan)} copy bandwidth"
    if plan.copy_us is not None and beats(plan.time_us, plan.copy_us):
        copy += "; this plan is faster: it reads more than it writes, or that was measured at a slower moment"
    slower = "; slower than from memory" if plan.warm_us and beats(plan.time_us, plan.warm_us) else ""
    rows = (
        ("This plan", "plan", plan.time_us, "All kernels, timed end to end, inputs in memory"),
        ("Its kernels, one by one", "steps", far_steps_us(plan), "The sum of what each took by itself"),
        ("Again and again", "plan", plan.warm_us, f"This plan on the same tensors, which the cache holds{slower}"),
        ("This plan, predicted", "predicted", plan.predicted_us, "The sum of what its kernels are predicted to take"),
        ("One kernel per op", "unfused", plan.unfused_us, _unfused_help(plan)),
        ("Copying its bytes", "copy", plan.copy_us, copy),
        ("Lower bound", "bound", plan.lower_bound_us if plan.lower_bound_us > 0 else None, least),
    )
    known = [(label, kind, us, help_) for label, kind, us, help_ in rows if us is not None]
    assumed = {"predicted"} | ({"copy"} if plan.device.origin == "specified" else set())
    longest = max((us for _, _, us, _ in known), default=0.0) or 1.0
    return [
        Bar(label, kind, formatting.expected(None if kind in assumed else us, us), max(0.4, 100 * us / longest), help_)
        for label, kind, us, help_ in known
    ]


def _unfused_help(plan: Plan) -> str:
    """ "1.56× as long; each the best that is known"."""
    longer = formatting.ratio(plan.unfused_us, plan.time_us)
    return (
        f"{formatting.times(longer)} as long; each the best that is known" if longer else "Each the best that is known"
    )


def known_by(plan: Plan) -> str:
    """How what the device reaches is known."""
    return "assumed" if plan.device.origin == "specified" else "measured"
