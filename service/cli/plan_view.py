"""A plan as a person reads it at a terminal, and as `--json` prints it."""

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fusion_ir.records import Plan, Step
from service.beginnings import KEY_DIGITS
from service.formatting import NONE, ONCE, count, expected, percent, prologue, ratio, significant, size, times
from service.how_far import how_far
from service.naming import UNNAMED, Naming
from service.noise import is_noisy

_BAR = 36


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
        },
    }


MOST_ROWS, LAST_ROWS = 200, 20  # of a table of kernels; the last of them


def plan_view(plan: Plan, state: str, naming: Naming = UNNAMED) -> RenderableType:
    """Kernels, then the whole plan's time beside what it is to be compared with, then what the search saw."""
    parts: list[RenderableType] = [Padding(_heading(plan, state), (0, 0, 1, 1)), steps_table(plan.steps, naming)]
    if not plan.steps:
        parts.append(Padding(Text("no kernel: every output is an input as it is", style="dim"), (0, 0, 0, 1)))
    parts += [Text(), Padding(times_table(plan), (0, 0, 0, 1)), Text(), Padding(_footer(plan), (0, 0, 0, 1))]
    return Group(*parts)


def steps_table(steps: Sequence[Step], naming: Naming = UNNAMED) -> Table:
    """One row per kernel, with its bandwidth and how near it comes to its lower bound; of kernels that were not timed
    the predicted time alone. Of very many the first and the last ones."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=True, show_edge=False, header_style="bold", expand=False)
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column("kernel and schedule", overflow="fold")
    table.add_column("reads → writes", overflow="fold")
    predicted = any(step.time_us is None and step.predicted_us is not None for step in steps)
    for name in ("ops", "predicted" if predicted else "time", "bytes", "GB/s", "of bound"):
        table.add_column(name, justify="right", no_wrap=True)
    left_out = range(MOST_ROWS - LAST_ROWS, len(steps) - LAST_ROWS) if len(steps) > MOST_ROWS else range(0)
    for number, step in enumerate(steps):
        if number in left_out:
            if number == left_out.start:
                table.add_row("⋮", f"{len(left_out):,} more kernels", *[""] * 6)
            continue
        table.add_row(
            str(number),
            _schedule(step),
            f"{naming.list_of(step.reads)} → {naming.list_of(step.writes)}",
            str(len(step.nodes)),
            expected(step.time_us, step.predicted_us),
            size(step.bytes),
            significant(step.bytes / step.time_us / 1e3) if step.time_us else NONE,
            _share(step),
        )
    return table


def times_table(plan: Plan) -> Table:
    """This plan, one kernel per op, the copy floor and the lower bound, with bars to scale. Of a device that is not
    here nothing is measured: each row says where its figure is from."""
    absent = plan.device.origin == "specified"
    timed = plan.time_us is not None
    own = ("this plan", plan.time_us, "bold green", _spread(plan))
    rows = [
        own if timed else ("this plan", plan.predicted_us, "bold yellow", "predicted, not timed"),
        *([("  again and again", plan.warm_us, "green", "on the same tensors, in cache")] if plan.warm_us else []),
        (
            "one kernel per op",
            plan.unfused_us,
            "",
            f"{times(ratio(plan.unfused_us, plan.time_us))} as long" if plan.time_us else "",
        ),
        (
            "copying its bytes",
            plan.copy_us,
            "",
            f"inputs and outputs at {'an assumed' if absent else 'copy'} bandwidth",
        ),
        ("lower bound", plan.lower_bound_us, "", f"no kernel {'can' if absent else 'here can'} be faster"),
    ]
    assumed = ({"this plan"} if not timed else set()) | ({"copying its bytes"} if absent else set())
    longest = max((time for _, time, _, _ in rows if time), default=0.0)
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(style="dim")
    for name, time, style, note in rows:
        cells = max(round(_BAR * time / longest), 1) if time and longest else 0
        bar = Text("━" * cells, style=style or "blue")
        shown = Text(expected(None if name in assumed else time, time), style=style)
        table.add_row(Text(name, style=style), shown, bar, note if time is not None else "not timed")
    return table


def _heading(plan: Plan, state: str) -> Text:
    absent = plan.device.origin == "specified"
    colour = {"measured": "green", "predicted": "yellow", "stale": "yellow"}.get(state, "red")
    state, colour = (
        (f"measured, noisy: ± {percent(plan.spread)}", "yellow") if is_noisy(state, plan.spread) else (state, colour)
    )
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
    )


def _footer(plan: Plan) -> Text:
    search = plan.search
    seen = f"{count(search.candidates, 'segment')}, {count(search.measured, 'kernel')} timed"
    words = [f"searched {search.seconds:.1f} s: {seen}"]
    if search.failed:
        words[0] += f", {search.failed} failed"
    if search.cut_short:
        words.append(f"cut short: {search.cut_short}")
    if plan.max_rel_error is not None:
        words.append(f"largest relative error {plan.max_rel_error:.2g}")
    if plan.judged_by_steps:
        words.append("steps of this graph amplify errors: each agrees by itself, the outputs as a whole say nothing")
    if plan.prologue:
        words.append(prologue(plan))
    if plan.temporary_bytes or plan.search.memory_bytes is not None:
        allowed = "" if plan.search.memory_bytes is None else f" of at most {size(plan.search.memory_bytes)}"
        words.append(f"temporaries {size(plan.temporary_bytes)}{allowed}")
    return Text.assemble((f"{how_far(plan)}\n", "bold"), ("; ".join(words), "dim"))


def _schedule(step: Step) -> Text:
    """The family, and below it whether the step is of the prologue, and the schedule's parameters, which a narrow
    terminal breaks between them."""
    parameters = step.schedule.removeprefix(step.family).strip("{}").replace(",", ", ")
    return Text.assemble(
        (step.family, "cyan"),
        (f"\n{ONCE}" if step.prologue else "", "magenta"),
        (f"\n{parameters}" if parameters else "", "dim"),
    )


def _share(step: Step) -> str:
    """Of its bound: "75 %", "~75 %" where its time is predicted."""
    if step.time_us is None and step.predicted_us is not None:
        return f"~{percent(ratio(step.bound_us, step.predicted_us))}"
    return percent(ratio(step.bound_us, step.time_us))


def _units(plan: Plan) -> str:
    return "threads" if plan.device.target == "cpu" else "multiprocessors"


def _spread(plan: Plan) -> str:
    return "" if plan.spread is None else f"± {plan.spread:.1%}"
