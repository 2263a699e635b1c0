"""`make bench-gpu`: plans beside PyTorch eager and compiled, our own unfused plans, cuBLAS alone and a copy, on one
device, within 9 minutes.

All sides of an entry are timed in the same rounds on the same tensors of random data, while other processes prepare the
entries after it. What did not fit into the time is listed, and so is what was slower than PyTorch. `--dry` runs all of
it on the CPU at tiny sizes, to try it out.

This module must not have `torch` for a name. It is `__mp_main__` in the workers, where Python's pickler would find
PyTorch's constants by it, and the keys of Inductor's cache would be others than here.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from benchmarks.corpus.balance import bytes_of
from benchmarks.corpus.pytorch import HAS_TORCH
from benchmarks.gpu.agreement import agree
from benchmarks.gpu.ahead import Outcomes, prepared
from benchmarks.gpu.copies import with_copies
from benchmarks.gpu.device_turn import Turn, cache_misses
from benchmarks.gpu.entries import Entry, entries
from benchmarks.gpu.prepare import (
    INPUTS_FILE,
    PLAN_FOLDER,
    UNFUSED_FOLDER,
    Preparer,
    Settings,
    Told,
    compiled,
    entry_folder,
    forget,
    sizes_of,
)
from benchmarks.gpu.row import ALONE, COMPILED, COPY, EAGER, PLAN, TUNED, UNFUSED, Row, line, read_row
from benchmarks.gpu.stage import Call, CudaStage, HostStage, Stage, free, no_gradients, read_inputs, read_plan
from benchmarks.gpu.summary import figures, page, summary
from benchmarks.gpu.workers import Crew, told
from benchmarks.machine import RESULTS
from benchmarks.racing import paired_ratio
from codegen.devices.detection import DeviceError, detect
from codegen.hardware.machine import usable_cpus
from codegen.sandbox.object_cache import ObjectCache

TITLE = "Plans on a GPU beside PyTorch"
MINUTES = 9.0
CLOSING_SECONDS = 15.0  # kept for writing, and for an entry that takes longer than those before
RECENT = 5  # entries, the longest of which the next one is taken to be as long as
CORES_PER_JOB = 4  # of a job: a search, a compiler of PyTorch's, and children of both
AHEAD_PER_JOB = 3  # entries under way: beyond those at work, so that one that takes long keeps nobody waiting


@dataclass(frozen=True)
class Hall:
    """Where entries are held. left: seconds until the end."""

    stage: Stage
    turn: Turn
    settings: Settings
    options: argparse.Namespace
    left: Callable[[], float]


def main() -> int:
    """Runs, prints, writes STEM.json and STEM.md after every entry. 1 where an entry failed, 3 without a device."""
    options = _options()
    end = time.monotonic() + 60 * options.minutes - CLOSING_SECONDS
    if options.again:
        print_again(options.again)
        return 0
    if not HAS_TORCH:
        print("bench-gpu compares with PyTorch, which is not installed", file=sys.stderr)
        return 3
    chosen = [e for e in entries() if fnmatch(e.name, options.case) and fnmatch(e.topic, options.topic)]
    if options.list:
        print("\n".join(f"{e.name:44}{e.topic}" for e in chosen))
        return 0
    try:
        with _hall(options, end) as hall, Crew(2 * options.jobs, Preparer, hall.settings) as crew:
            return _hold_all(chosen, hall, crew)
    except DeviceError as e:
        print(f"bench-gpu needs a CUDA device: {e}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        print("interrupted; what was raced is written", file=sys.stderr)
        return 130


def _hold_all(chosen: Sequence[Entry], hall: Hall, crew: Crew) -> int:
    rows: list[Row] = []
    by_name = {entry.name: entry for entry in chosen}

    def goes_on() -> bool:
        return hall.left() >= max((r.seconds for r in rows[-RECENT:]), default=0.0)

    for name, parts in prepared(list(by_name), crew, AHEAD_PER_JOB * hall.options.jobs, goes_on):
        row = _row(by_name[name], parts, hall)
        rows.append(row)
        print(f"[{len(rows)}/{len(chosen)}] {line(with_copies(rows)[-1])}", flush=True)
        write(hall, rows, _without(chosen, rows))
    left_out = _without(chosen, rows)
    write(hall, rows, left_out)
    print(f"\n{summary(figures(with_copies(rows), left_out))}")
    return int(any(r.problem for r in rows))


def _without(chosen: Sequence[Entry], rows: Sequence[Row]) -> list[str]:
    held = {r.name for r in rows}
    return [e.name for e in chosen if e.name not in held]


def _row(entry: Entry, parts: Outcomes, hall: Hall) -> Row:
    """The entry's outcome, which says what went wrong if something did: the others are still worth measuring."""
    start, waited = time.monotonic(), hall.turn.waited_seconds
    answers = {part: done.answer or Told() for part, done in parts.items()}
    failed = Row(entry.name, entry.topic, dict(sizes_of(entry, hall.options.dry)))
    problems = [f"{part}: {done.problem}" for part, done in parts.items() if done.problem]
    try:
        with no_gradients():
            row = (
                replace(failed, problem="; ".join(problems)) if problems else hold(entry, answers["peers"].modes, hall)
            )
    except Exception as e:
        row = replace(failed, problem=told(e))
    free()
    forget(hall.settings.folder, entry)
    return replace(
        row,
        notes=(*answers["plans"].notes, *answers["peers"].notes, *row.notes),
        seconds=round(time.monotonic() - start, 1),
        plans_s=round(parts["plans"].seconds, 1),
        peers_s=round(parts["peers"].seconds, 1),
        waited_s={
            **{part: a.waited_s for part, a in answers.items()},
            "race": round(hall.turn.waited_seconds - waited, 1),
        },
    )


def hold(entry: Entry, modes: Sequence[str], hall: Hall) -> Row:
    """Checks and races one entry. Raises whatever that raises, and Disagreement."""
    case, stage, folder = entry.case, hall.stage, entry_folder(hall.settings.folder, entry)
    sizes = sizes_of(entry, hall.options.dry)
    graph = case.instance(entry.dtype, sizes).graph
    inputs = read_inputs(folder / INPUTS_FILE, stage.place)
    plan = read_plan(folder / PLAN_FOLDER)
    if hall.options.plans is not None:
        with hall.options.plans.open("a") as kept:
            kept.write(json.dumps({"entry": entry.name, "plan": plan.model_dump(mode="json")}) + "\n")
    run, outputs = stage.plan(folder / PLAN_FOLDER, inputs)
    peer = case.peer(sizes)
    calls: dict[str, Call] = {PLAN: run, EAGER: lambda: peer(*inputs)}
    notes: list[str] = []
    for name in modes:
        function, before = compiled(peer, name), cache_misses()
        function(*inputs)
        notes += [f"{name}: compiled anew"] if cache_misses() > before else []
        calls[name] = lambda function=function: function(*inputs)
    if (folder / UNFUSED_FOLDER).exists():
        try:
            calls[UNFUSED] = stage.plan(folder / UNFUSED_FOLDER, inputs)[0]
        except Exception as e:  # the other sides are still worth racing
            notes.append(f"{UNFUSED}: {told(e)}")
    if entry.alone is not None:
        alone = case.peer(sizes, entry.alone)
        calls[ALONE] = lambda: alone(*inputs)
    calls[COPY] = stage.copy(bytes_of(graph))
    with hall.turn.held():
        run()
        agree(outputs(), case.peer(sizes, case.agreeing or case.torch), inputs)
        timed: dict[str, Call] = {}
        for name, call in calls.items():
            timed[name], note = stage.ready(call)
            notes += [f"{name}: {note}"] if note else []
        times = stage.race(timed, hall.options.race, hall.options.seed)
    ratios = {n: paired_ratio(times[n], times[PLAN]) for n in (EAGER, COMPILED, TUNED) if n in times}
    ratios |= {n: paired_ratio(times[PLAN], times[n]) for n in (UNFUSED, ALONE, COPY) if n in times}
    return Row(
        entry.name, entry.topic, dict(sizes), bytes_of(graph), not any(n.op == "contract" for n in graph.nodes),
        times=times, ratios=ratios, kernels=tuple(step.schedule for step in plan.steps),
        operations=sum(s.operations for s in plan.steps), bound_us=plan.lower_bound_us, notes=tuple(notes),
    )  # fmt: skip


def write(hall: Hall, rows: Sequence[Row], left_out: Sequence[str]) -> None:
    """STEM.json and STEM.md, whole after every entry."""
    stem: Path | None = hall.options.out or (None if hall.options.dry else RESULTS / "gpu")
    if stem is None:
        return
    head = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        **hall.stage.facts(),
        "run": f"{hall.options.minutes:g} minutes, {hall.options.budget:g} s of search a graph, "
        f"{hall.options.race:g} s of timing an entry, {hall.options.jobs} entries prepared at a time",
    }
    run = {"title": TITLE, "dry": hall.options.dry, "facts": head, "seed": hall.options.seed}
    write_results(stem, run, rows, left_out)


def write_results(stem: Path, run: Mapping[str, Any], rows: Sequence[Row], left_out: Sequence[str]) -> None:
    """STEM.json and STEM.md. run: title, facts and what else the file says of the whole."""
    copied = with_copies(rows)
    found = figures(copied, left_out)
    content = {**run, "summary": asdict(found), "rows": [asdict(row) for row in copied]}
    stem.parent.mkdir(parents=True, exist_ok=True)
    stem.with_suffix(".json").write_text(json.dumps(content, indent=1) + "\n")
    stem.with_suffix(".md").write_text(page(run["title"], run["facts"], copied, found))


def print_again(stem: Path) -> None:
    """Works out figures and tables of a run anew from the data in STEM.json, and writes both files."""
    content = json.loads(stem.with_suffix(".json").read_text())
    rows = [read_row(row) for row in content.pop("rows")]
    write_results(stem, content, rows, content.pop("summary")["left_out"])


@contextmanager
def _hall(options: argparse.Namespace, end: float) -> Iterator[Hall]:
    """Raises DeviceError without a device."""
    with tempfile.TemporaryDirectory(prefix="fuseplan-bench-", ignore_cleanup_errors=True) as folder:
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", f"{folder}/inductor")  # workers have it from here
        cache = ObjectCache(options.cache or Path(folder, "objects"))
        stage: Stage
        if options.dry:
            device = detect("cpu", cache, ceilings=False)
            stage = HostStage(cache)
        else:
            device = detect("cuda", cache)
            stage = CudaStage(device)
        settings = Settings(
            device, cache.folder, Path(folder, "entries"), end, options.budget, options.seed, options.dry,
            not options.no_compile, stage.place, max(len(usable_cpus()) // options.jobs, 1),
        )  # fmt: skip
        turn = Turn(cache, device)
        if settings.compiles:
            turn.over_inductor(1)  # what workers compiled is only read
        yield Hall(stage, turn, settings, options, lambda: end - time.monotonic())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description="Plans on a GPU beside PyTorch.")
    parser.add_argument("--case", default="*", metavar="GLOB", help="names of entries, e.g. 'product_* bf16'")
    parser.add_argument(
        "--topic", default="*", metavar="GLOB", help="topics of entries, e.g. '[!o]*': all but odd ones"
    )
    parser.add_argument("--list", action="store_true", help="print the entries and stop")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="of all of it, by its own clock")
    parser.add_argument("--budget", type=float, default=6.0, metavar="SECONDS", help="of search per graph")
    parser.add_argument("--race", type=float, default=1.0, metavar="SECONDS", help="of timing per entry")
    parser.add_argument("--seed", type=int, default=0)
    jobs = max(len(usable_cpus()) // CORES_PER_JOB, 1)
    parser.add_argument("--jobs", type=int, default=jobs, help="entries prepared at a time, 1 for every 4 cores")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--dry", action="store_true", help="try it out: on the CPU, at tiny sizes")
    parser.add_argument("--cache", type=Path, metavar="FOLDER", help="keep compiled kernels here")
    parser.add_argument("--out", type=Path, metavar="STEM", help="write STEM.json and .md; results/gpu by default")
    parser.add_argument("--plans", type=Path, metavar="FILE", help="add every plan that is raced, a line of JSON each")
    parser.add_argument("--again", type=Path, metavar="STEM", help="only print the tables of a run anew, from its data")
    return parser.parse_args()
