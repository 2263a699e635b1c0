"""`fuseplan trials`: every candidate that was ever tried for a graph or a plan, and how each ended."""

import csv
import json as json_module
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from codegen.schedule import Variant
from codegen.timing.protocol import spread
from fusion_ir.errors import FormatError
from fusion_ir.keys.graph_key import graph_key
from fusion_ir.records import CompileReport, Measurement, Status
from fusion_ir.text.printing import parse_graph
from scheduler.tuning.trial_log import variant_of
from service.cli.device_targets import is_of_target
from service.cli.errors import bad_input
from service.cli.fitted_tables import Cell, Column, Fitted, TableLayout
from service.cli.graph_argument import read_graph
from service.cli.graph_or_plan import load_subject
from service.cli.options import Db, Format, Json, Shapes, Target
from service.cli.plan_view import KEY_DIGITS
from service.cli.stored_plan import Subject
from service.cli.terminal import print_json, say, show
from service.cli.trial_details import details_of
from service.settings import load
from service.wording.formatting import NONE, age, count, duration, percent
from service.wording.trial_endings import candidate_order, ending
from tuning_db.measurements import Trial
from tuning_db.store import Store

REPORT: tuple[str, ...] = tuple(CompileReport.model_fields)
FIELDS: tuple[str, ...] = (
    "segment", "device", "family", "schedule", "status", "time_us", "spread", "samples_us", "warm_us", "input_sets",
    "max_rel_error", "detail", "compile_seconds", *REPORT, "binary", "race", "surroundings", "toolchain", "driver",
    "version", "created", "origin",
)  # fmt: skip

Csv = Annotated[bool, typer.Option("--csv", help="Print CSV, a row for every try, in order.")]
All = Annotated[bool, typer.Option("--all", help="Every try of every candidate, not just the last of the best.")]
Details = Annotated[
    bool, typer.Option("--details", help="Below each candidate its compile report and the machine during its race.")
]
MOST_CHARACTERS = 120  # of how a candidate ended
FEW = 12  # candidates of a segment that are shown without --all


@dataclass(frozen=True)
class Tried:
    """A segment and its trials, in order. text: canonical, None where it is not stored. chosen: the variants that the
    plan asked about has for it."""

    key: str
    text: str | None
    trials: Sequence[Trial]
    chosen: Collection[Variant] = frozenset()


def trials(
    subject: Subject,
    target: Target = None,
    db: Db = None,
    format_: Format = None,
    shapes: Shapes = None,
    all_: All = False,
    details: Details = False,
    csv_: Csv = False,
    json: Json = False,
) -> None:
    """Show every candidate ever tried for a graph, or for the kernels of a plan: schedule, times, and what failed.

    Of a graph on all devices that it was tried on, of a plan on its own; with --target on those instead, here or not.
    The fastest come first, those of the plan before them. For optuna-dashboard: fuseplan trials export.
    """
    if target is not None and ":" in target:
        raise bad_input(f"--target: expected one without a number, which trials are not kept by, got {target}")
    if csv_ and json:
        raise bad_input("--csv and --json: expected one of them")
    with Store(load({"db": db}).db) as store:
        found = _tried(store, subject, format_, shapes, target)
        place = store.place
    rows = [_row(trial) for tried in found for trial in tried.trials]
    if csv_:
        writer = csv.DictWriter(sys.stdout, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(map(_flat, rows))
    elif json:
        print_json({"trials": rows})
    elif not rows:
        on = "" if target is None else f" for {target}"
        say(f"Nothing was tried on it{on}, as far as {place} knows.")
    else:
        show(*_views(found, all_, details))


def _tried(
    store: Store, subject: str, format_: str | None, shapes: str | None, target: str | None = None
) -> list[Tried]:
    """Segments and their trials: for a plan the segments of its steps, tried on its device; for a graph all segments
    that searches tried, on every device. target: trials on devices of this target instead."""
    device: str | None = None
    chosen: dict[str, set[Variant]] = {}
    found_plan = load_subject(store, subject)
    if found_plan is not None:
        _, plan = found_plan
        for step in plan.steps:
            chosen.setdefault(step.segment_key, set()).add((step.family, step.schedule))
        keys, device = list(chosen), plan.device.class_key
    else:
        keys = store.segments.of(graph_key(read_graph(subject, format_, shapes).graph))
    if target is not None:
        names = {d.class_key: d.device.name for d in store.devices.devices()}
        tried = {key: store.trials.trials(key) for key in keys}
        meant = {d: is_of_target(target, d.partition("-")[0], names.get(d, "")) for d in _devices(tried)}
        tried = {key: [t for t in some if meant[t.measurement.device_key]] for key, some in tried.items()}
    else:
        tried = {key: store.trials.trials(key, device) for key in keys}
    found = [Tried(key, store.segments.segment(key), some, chosen.get(key, ())) for key, some in tried.items()]
    return sorted((t for t in found if t.trials), key=lambda t: t.trials[0].created)


def _devices(tried: Mapping[str, Sequence[Trial]]) -> set[str]:
    """Class keys of the devices that the trials ran on."""
    return {trial.measurement.device_key for trials_ in tried.values() for trial in trials_}


def _row(trial: Trial) -> dict[str, Any]:
    m = trial.measurement
    values = m.model_dump(mode="json", exclude={"segment_key", "device_key", "report"})
    values |= (m.report or CompileReport()).model_dump()
    values |= {"segment": m.segment_key, "device": m.device_key, "time_us": m.time_us, "version": trial.version}
    values["spread"] = spread(m.samples_us) if len(m.samples_us) > 1 else None
    values["created"] = datetime.fromtimestamp(trial.created, UTC).isoformat(timespec="milliseconds")
    return {name: values[name] for name in FIELDS}


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """A row with one cell per field."""
    surroundings = row["surroundings"]
    return row | {
        "samples_us": " ".join(map(repr, row["samples_us"])),
        "warnings": " ".join(row["warnings"]),
        "surroundings": json_module.dumps(surroundings, separators=(",", ":")) if surroundings else "",
    }


def _views(found: Sequence[Tried], everything: bool, details: bool) -> Iterator[RenderableType]:
    for tried in found:
        yield Padding(_heading(tried), (1, 0, 0, 1))
        yield _table(tried, everything, details)
        left = 0 if everything else len({_candidate(t) for t in tried.trials}) - FEW
        if left > 0:
            yield Padding(Text(f"and {count(left, 'slower or failed candidate')} (--all)", style="dim"), (0, 0, 0, 1))


def _heading(tried: Tried) -> Text:
    ended = Counter(t.measurement.status for t in {_candidate(t): t for t in tried.trials}.values())
    words = [count(sum(ended.values()), "candidate")]
    words += [f"{n} {status.value}" for status, n in ended.items() if status is not Status.ok]
    computes = ", ".join(f"{n} {op}" for op, n in _ops(tried).most_common(8))
    return Text.assemble(
        ("segment ", "bold"), (tried.key[:KEY_DIGITS], "bold"), f"  {', '.join(words)}  ", (computes, "dim")
    )


def _ops(tried: Tried) -> Counter[str]:
    """Numbers of the segment's nodes by op; none where it is not stored, or in a text that this version cannot read."""
    try:
        nodes = parse_graph(tried.text or "").graph.nodes
    except FormatError:
        return Counter()
    return Counter(n.op for n in nodes if n.op != "input")


def _candidate(trial: Trial) -> tuple[str, str, str, str]:
    m = trial.measurement
    return m.device_key, m.family, m.schedule, m.origin


def _best(tried: Tried) -> list[Trial]:
    """The last try of each candidate: those of the plan, then the fastest, those that failed last."""
    last = {_candidate(t): t for t in tried.trials}.values()
    return sorted(last, key=lambda t: candidate_order(t.measurement, tried.chosen))[:FEW]


def _table(tried: Tried, everything: bool, details: bool) -> Fitted:
    trials, races = tried.trials if everything else _best(tried), _races(tried.trials)
    devices = len({t.measurement.device_key for t in trials}) > 1
    columns = (
        Column("candidate", least=24),
        Column("time", right=True),
        Column("±", right=True, rank=1),
        Column("warm", right=True, rank=3),
        Column("runs", right=True, rank=4),
        Column("when", right=True, rank=2),
        Column("how it ended", least=18),
    )
    rows: list[Sequence[Cell]] = []
    for trial in trials:
        m = trial.measurement
        text = Text(m.schedule.replace(",", ", "), style="" if m.status is Status.ok else "dim")
        if devices:
            text.append(f"\non {m.device_key[:KEY_DIGITS]}", "dim")
        spread_ = percent(spread(m.samples_us) if len(m.samples_us) > 1 else None)
        runs = str(len(m.samples_us)) if m.samples_us else NONE
        when = age(trial.created, time.time())
        how = Text(_ending(m, races[m.race] if m.race else [m]))
        if variant_of(m) in tried.chosen:
            how = Text.assemble(("in the plan", "bold"), f"; {how.plain}")
        if details and (words := details_of(trial)):
            how.append(f"\n{words}", "dim")
        rows.append((text, duration(m.time_us), spread_, duration(m.warm_us), runs, when, how))
    return Fitted(TableLayout(columns, rows))


def _races(trials: Sequence[Trial]) -> dict[str, list[Measurement]]:
    """Measurements by the race that they are from."""
    races: dict[str, list[Measurement]] = {}
    for m in (trial.measurement for trial in trials):
        races.setdefault(m.race, []).append(m)
    return races


def _ending(m: Measurement, race: Sequence[Measurement]) -> str:
    shown = ending(m, race)
    return shown if len(shown) <= MOST_CHARACTERS else f"{shown[: MOST_CHARACTERS - 3]}..."
