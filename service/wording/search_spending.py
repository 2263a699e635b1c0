"""Seconds, segments and kernels of a search in words, which are the terminal's and the pages' alike."""

from fusion_ir.records import Search, Spent
from service.wording.formatting import count, duration, kernels_tried, percent


def searched(search: Search) -> list[str]:
    """ "searched 17.1 s (finding segments 0.4 s, ...): 3,792 segments, 12 kernels timed"; then, where that was so, what
    others did to its races."""
    seen = f"{count(search.candidates, 'segment')}, {kernels_tried(search)}"
    words = [f"searched {duration(1e6 * search.seconds)}{_spent(search.spent)}: {seen}"]
    return [*words, *_disturbed(search.spent), *_starved(search)]


def _starved(search: Search) -> list[str]:
    """A sentence on a search that others left little of the CPUs; none where they did not."""
    if not search.was_starved:
        return []
    return [f"its own thread had a CPU for {percent(search.cpu_share)} of the time that it wanted one"]


def _spent(spent: Spent | None) -> str:
    """The seconds of a search by what they went into; "" where that is not known."""
    if spent is None:
        return ""
    kernels = f"kernels {spent.kernels_s:.1f} s, of which races {spent.racing_s:.1f} s"
    return f" (finding segments {spent.finding_s:.1f} s, {kernels}; whole plans {spent.plans_s:.1f} s)"


def _disturbed(spent: Spent | None) -> list[str]:
    """A sentence on how others on the machine disturbed the races; none where nobody did, or it is not known."""
    if spent is None:
        return []
    again = f"{count(spent.repeated, 'visit')} to kernels made again" if spent.repeated else ""
    stayed = f"{percent(spent.disturbed)} of visits to kernels stayed disturbed" if spent.disturbed else ""
    what = ", ".join(part for part in (again, stayed) if part)
    return [f"others had the CPUs meanwhile: {what}"] if what else []
