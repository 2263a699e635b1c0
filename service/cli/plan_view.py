"""A plan as a person reads it at a terminal, and as `--json` prints it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fusion_ir.records import Plan, Step
from service.cli.fitted_tables import CLOSE, Cell, Column, Fitted, TableLayout
from service.timing_noise import beats, is_noisy
from service.wording.formatting import (
    NONE,
    ONCE,
    count,
    duration,
    error,
    expected,
    percent,
    prologue,
    ratio,
    significant,
    size,
    spread,
    times,
)
from service.wording.how_far import how_far
from service.wording.key_prefixes import KEY_DIGITS
from service.wording.limits import limit_words
from service.wording.naming import UNNAMED, Naming
from service.wording.search_spending import searched
from service.wording.shares import BEATEN_SHORT, share_of
from service.wording.states import shown_state
from service.wording.whole_plan_times import far_apart, kernels_predicted

_BAR, _LEAST_BAR = 36, 8  # cells of the longest bar
_COLOURS = {"measured": "green", "emulated": "green", "predicted": "yellow", "stale": "yellow", "noisy": "yellow"}


def as_json(plan: Plan, target: str, state: str, cache: str) -> dict[str, Any]:
    """The fields of `fuseplan tune --json`."""
    return {
        "plan_key": plan.plan_key,
        "graph_key": plan.graph_key,
        "device": plan.device.class_key,
        "target": target,
        "state": state,
        "cache": cache,
        "time_us": plan.time_us,
        "predicted_us": plan.predicted_us,
        "unfused_us": plan.unfused_us,
        "lower_bound_us": plan.lower_bound_us,
        "search_gap": plan.search_gap,
        "max_rel_error": plan.max_rel_error,
        "warm_us": plan.warm_us,
        "prologue_us": plan.prologue_us,
        "temporary_bytes": plan.temporary_bytes,
        "kept_bytes": plan.kept_bytes,
        "steps": [
            {
                "family": step.family,
                "schedule": step.schedule,
                "time_us": step.time_us,
                "predicted_us": step.predicted_us,
                "report": step.report and step.report.model_dump(mode="json"),
                "bytes": step.bytes,
                "nodes": list(step.nodes),
                "reads": [str(r) for r in step.reads],
                "writes": [str(w) for w in step.writes],
                "prologue": step.prologue,
            }
            for step in plan.steps
        ],
        "numerics": plan.numerics,
        "rewrites": list(plan.rewrites),
        "reasons": [reason.model_dump(mode="json") for reason in plan.reasons],
        "search": {
            "seconds": plan.search.seconds,
            "candidates": plan.search.candidates,
            "measured": plan.search.measured,
            "memory_bytes": plan.search.memory_bytes,
            "spent": plan.search.spent and plan.search.spent.model_dump(mode="json"),
        },
    }


MOST_ROWS, LAST_ROWS = 200, 20  # of a table of kernels; the last of them


def plan_view(plan: Plan, state: str, naming: Naming = UNNAMED) -> RenderableType:
    """Kernels, then the whole plan's time beside what it is to be compared with, then what the search saw."""
    parts: list[RenderableType] = [Padding(_heading(plan, state), (0, 0, 1, 1)), steps_table(plan.steps, naming)]
    if not plan.steps:
        parts.append(Padding(Text("no kernel: every output is an input as it is", style="dim"), (0, 0, 0, 1)))
    beaten = {share_of(step.bound_us, step.time_us).doubt for step in plan.steps} - {""}
    parts += [
        Padding(Text(f"{BEATEN_SHORT}: {help_[0].lower()}{help_[1:]}", style="yellow"), (1, 0, 0, 1))
        for help_ in beaten
    ]
    parts += [Text(), Padding(TimesTable(plan), (0, 0, 0, 1)), Text(), Padding(_footer(plan), (0, 0, 0, 1))]
    return Group(*parts)


def steps_table(steps: Sequence[Step], naming: Naming = UNNAMED) -> Fitted:
    """A table with a row per kernel: its bandwidth, and how near it comes to its lower bound; for kernels that were not
    timed the predicted time alone. Beyond MOST_ROWS kernels it has the first and the last ones. On a narrow terminal
    the tensors that a kernel reads and writes stand below its schedule."""
    predicted = any(step.time_us is None and step.predicted_us is not None for step in steps)
    numbers = (
        Column("ops", right=True, rank=2),
        Column("predicted" if predicted else "time", right=True),
        Column("bytes", right=True),
        Column("GB/s", right=True, rank=1),
        Column("of bound", right=True),
    )
    number, left_out = Column("#", right=True), _left_out(len(steps))
    wide: list[tuple[Cell, ...]] = []
    narrow: list[tuple[Cell, ...]] = []
    for i, (step, names) in enumerate(zip(steps, naming.at_steps(steps), strict=True)):
        if i in left_out:
            if i == left_out.start:
                row = ("⋮", f"{len(left_out):,} more kernels", *[""] * 5)
                wide.append((*row[:2], "", *row[2:]))
                narrow.append(row)
            continue
        kernel, tensors = _schedule(step), f"{names.list_of(step.reads)} → {names.list_of(step.writes)}"
        cells = (
            str(len(step.nodes)),
            expected(step.time_us, step.predicted_us),
            size(step.bytes),
            significant(step.bytes / step.time_us / 1e3) if step.time_us else NONE,
            share_of(step.bound_us, step.time_us, step.predicted_us).short,
        )
        wide.append((str(i), kernel, tensors, *cells))
        narrow.append((str(i), Text.assemble(kernel, "\n", tensors), *cells))
    return Fitted(
        TableLayout(
            (number, Column("kernel and schedule", least=32), Column("reads → writes", least=18), *numbers), wide
        ),
        TableLayout((number, Column("kernel, schedule, reads → writes", least=26), *numbers), narrow),
    )


def _left_out(steps: int) -> range:
    """Steps that a table of more than MOST_ROWS leaves out, between its first rows and its LAST_ROWS last ones."""
    return range(MOST_ROWS - LAST_ROWS, steps - LAST_ROWS) if steps > MOST_ROWS else range(0)


class TimesTable:
    """Times of this plan, of one kernel per op, of the copy floor and the lower bound, with bars to scale where there
    is room. For a device that is not here nothing is measured: each row says where its figure is from."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows = _times(self._plan)
        longest = max((row.time_us for row in rows if row.time_us), default=0.0)
        others = sum(max(len(text) for text in texts) + CLOSE for texts in zip(*(
            (row.name, row.shown, row.note) for row in rows
        ), strict=True))  # fmt: skip
        cells = min(_BAR, options.max_width - others)
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True)
        table.add_column(justify="right", no_wrap=True)
        if cells >= _LEAST_BAR:
            table.add_column(no_wrap=True)
        table.add_column(style="dim")
        for row in rows:
            long = max(round(cells * row.time_us / longest), 1) if row.time_us and longest else 0
            bar = (Text("━" * long, style=row.style or "blue"),) if cells >= _LEAST_BAR else ()
            table.add_row(Text(row.name, style=row.style), Text(row.shown, style=row.style), *bar, row.note)
        yield table


@dataclass(frozen=True)
class _Time:
    """A row of the times. shown: the time in words."""

    name: str
    time_us: float | None
    shown: str
    style: str
    note: str


def _times(plan: Plan) -> list[_Time]:
    absent, timed = plan.device.origin == "specified", plan.time_us is not None
    own_us = plan.time_us if timed else plan.predicted_us
    own = ("bold green", _spread(plan)) if timed else ("bold yellow", "predicted, not timed")
    rows = [
        _Time("this plan", own_us, expected(plan.time_us, plan.predicted_us), *own),
        _Time("  again and again", plan.warm_us, duration(plan.warm_us), "green", _warm(plan)),
        _Time(
            "one kernel per op",
            plan.unfused_us,
            duration(plan.unfused_us),
            "",
            f"{times(ratio(plan.unfused_us, plan.time_us))} as long" if plan.time_us else "",
        ),
        _Time(
            "copying its bytes",
            plan.copy_us,
            expected(None if absent else plan.copy_us, plan.copy_us),
            "",
            f"inputs and outputs at {'an assumed' if absent else 'copy'} bandwidth",
        ),
        _Time(
            "lower bound",
            plan.lower_bound_us or None,
            duration(plan.lower_bound_us or None),
            "",
            _least(plan),
        ),
    ]
    return [
        row if row.time_us is not None or row.name == "lower bound" else replace(row, note="not timed")
        for row in rows
        if row.time_us is not None or not row.name.startswith(" ")
    ]


def _warm(plan: Plan) -> str:
    """The note on the warm time: its runs use one set of tensors, in cache; where so, that they were slower than runs
    from memory."""
    is_slower = plan.warm_us is not None and beats(plan.time_us, plan.warm_us)
    return f"on the same tensors, in cache{'; slower than from memory' if is_slower else ''}"


def _least(plan: Plan) -> str:
    """The note on the lower bound: the limit that sets it, or that the device has none."""
    if not plan.lower_bound_us:
        return "the device has none"
    limit = limit_words(plan.bound_by)
    here = "" if plan.device.origin == "specified" else "here "
    return f"the least for {limit}" if limit else f"no kernel {here}can be faster"


def _heading(plan: Plan, state: str) -> Text:
    absent = plan.device.origin == "specified"
    state = shown_state(state, plan.device.target, plan.time_us, plan.spread)
    colour = _COLOURS.get(state, "red")
    verdict = how_far(plan) if state == "noisy" else ""
    untimed = kernels_predicted(plan)
    measured = "measured as a whole" if untimed else "measured"
    if state == "noisy":
        state = f"{measured}, noisy: ± {percent(plan.spread)}"
    elif state == "measured":
        state = measured
    state += f"; {untimed}" if untimed else ""
    return Text.assemble(
        ("Plan ", "bold"),
        (plan.plan_key[:KEY_DIGITS], "bold"),
        f"  {count(len(plan.steps), 'kernel')}  ",
        (state, colour),
        (f"  {'for' if absent else 'on'} {plan.device.name} ", "dim"),
        (f"({plan.device.target}, {plan.device.units} {_units(plan)})", "dim"),
        (
            "\nNothing ran: that device is known from its data sheet, every time is a prediction." if absent else "",
            "yellow",
        ),
        (f"\n{verdict}" if verdict else "", "bold yellow"),
    )


def _footer(plan: Plan) -> Text:
    search = plan.search
    words = searched(search)
    if search.cut_short:
        words.append(f"cut short: {search.cut_short}")
    if plan.max_rel_error is not None:
        words.append(f"largest relative error {error(plan.max_rel_error)}")
    if plan.judged_by_steps:
        words.append("steps of this graph amplify errors: each agrees by itself, the outputs as a whole say nothing")
    if plan.prologue:
        words.append(prologue(plan))
    if plan.temporary_bytes or plan.search.memory_bytes is not None:
        allowed = "" if plan.search.memory_bytes is None else f" of at most {size(plan.search.memory_bytes)}"
        words.append(f"temporaries {size(plan.temporary_bytes)}{allowed}")
    verdict = "" if is_noisy("measured", plan.spread) else f"{how_far(plan)}\n"  # else it stands below the heading
    apart = far_apart(plan)
    return Text.assemble((verdict, "bold"), (f"{apart}\n" if apart else "", "yellow"), ("; ".join(words), "dim"))


def _schedule(step: Step) -> Text:
    """The family, and below it whether the step is of the prologue, and the schedule's parameters, which a narrow
    terminal breaks between them."""
    parameters = step.schedule.removeprefix(step.family).strip("{}").replace(",", ", ")
    return Text.assemble(
        (step.family, "cyan"),
        (f"\n{ONCE}" if step.prologue else "", "magenta"),
        (f"\n{parameters}" if parameters else "", "dim"),
    )


def _units(plan: Plan) -> str:
    return "threads" if plan.device.target == "cpu" else "multiprocessors"


def _spread(plan: Plan) -> str:
    return spread(plan.spread)
