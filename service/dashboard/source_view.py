"""Sources of a plan's steps, as the plan's page and the page of one source show them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fusion_ir.records import Plan
from service.dashboard import source
from service.dashboard.graph_svg import COLOURS
from service.wording.compile_reports import report_words

SOURCE_LINES = 600  # of all sources together that are part of the plan's page
MOST = 20  # sources that are


@dataclass(frozen=True)
class SourceView:
    """A step's source for reading, by the step's number."""

    index: int
    colour: int
    family: str
    schedule: str
    compiled: str  # the compiler's report
    lines: Sequence[str]  # of HTML
    cut: int  # lines left out
    missing: bool


def source_view(plan: Plan, index: int, text: str | None) -> SourceView:
    """The source of a step, `text` or None where it is not stored."""
    step = plan.steps[index]
    lines = source.lines(text) if text is not None else []
    return SourceView(
        index=index,
        colour=index % COLOURS,
        family=step.family,
        schedule=step.schedule,
        compiled="; ".join(report_words(step.report)) if step.report else "",
        lines=lines,
        cut=source.count(text) - len(lines) if text is not None else 0,
        missing=text is None,
    )


def sources(plan: Plan, source_of: Callable[[str], str | None]) -> list[SourceView]:
    """Sources of the first steps, each text once: at most MOST sources of together at most SOURCE_LINES lines."""
    shown: list[SourceView] = []
    seen = set[str]()
    left = SOURCE_LINES
    for index, step in enumerate(plan.steps):
        if step.source and step.source in seen:
            continue
        seen.add(step.source)
        text = source_of(step.source) if step.source else None
        left -= source.count(text) if text is not None else 0
        if left < 0 or len(shown) == MOST:
            break
        shown.append(source_view(plan, index, text))
    return shown
