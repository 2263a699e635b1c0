"""How good the schedules are that a search finds, and after how many trials: on tables of all schedules.

    python -m benchmarks.tuner.schedule_tables     makes the tables, once, on the machine that they are for
    python -m benchmarks.tuner               replays searches on them; writes benchmarks/results/tuner.{md,json}

Regret: the true time of what a search would choose after that many trials (different kernels timed, the default among
them), over that of the best schedule of the segment. Searches see the training rounds; truth are held-out rounds. Only
segments count on which random search has a regret of COUNTS or more after 32 trials: elsewhere is nothing to find.
"""

import argparse
import json
import logging
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing import Pool
from pathlib import Path

import numpy as np

from benchmarks.machine import RESULTS
from benchmarks.tuner.replay import NotInTable, ReplayBench, Table, device, median_training, tables
from fusion_ir.core.graph import Graph
from fusion_ir.records import Device, Measurement, Status
from scheduler.cost.features import Tuned
from scheduler.segments.atom_cuts import cut
from scheduler.segments.enumeration import Candidate
from scheduler.tuning.proposals import proposals
from scheduler.tuning.schedule_space import ScheduleSpace
from scheduler.tuning.trials import Ledger

TRIALS = (1, 4, 8, 12, 16, 24, 32, 48, 64)
COUNTS = 1.05
SEEDS = 10
FEWER = {"Optuna's GP alone": 1}  # seeds of a sampler that takes an eighth of a second for each trial
BATCH = 4
LEARNED = 32  # trials on the other segments that a search with experience knows

Regrets = dict[int, float]  # by trials
Experience = Mapping[str, Sequence[tuple[str, Tuned]]]  # by family: where from, and what


@dataclass
class Known:
    """`scheduler.Costs` of a search that knows other segments, or none."""

    others_of: Mapping[str, Sequence[Tuned]]

    def known(self, segment_key: str) -> Sequence[Measurement]:
        return ()

    def others(self, family: str) -> Sequence[Tuned]:
        return self.others_of.get(family, ())

    def timed(self, family: str) -> Sequence[tuple[Graph, float]]:
        return ()

    def record(self, segment: Graph, measurements: Sequence[Measurement]) -> None:
        pass


def ours(table: Table, on: Device, seed: int, known: Known) -> tuple[Regrets, ReplayBench]:
    """Regrets of the search that `tune` does on one segment, and the bench that it ran on."""
    bench = ReplayBench(table, on)
    ledger = Ledger(on, table.families, known, bench, seed)
    candidate = _candidate(table, ledger)
    entry, found = ledger.logs.open(candidate), Regrets()
    for trials in TRIALS:
        while bench.trials < trials:
            before = bench.trials
            ledger.draw_on_others(candidate)
            if not (entry.pending or ledger.extend(candidate, BATCH)):
                break
            ledger.measure(candidate, min(ledger.hopeful(candidate) if not entry.winner else BATCH, trials - before))
        best = entry.best()
        found[trials] = table.regret(_spelling(table, on, best)) if best else float("inf")
    return found, bench


def chance(table: Table, on: Device, seed: int) -> Regrets:
    """Regrets of kernels drawn at random, the default first."""
    first = _first(table, on)
    others = [s for s in table.kernels() if table.rows[s].kernel != table.rows[first].kernel]
    drawn = [first, *random.Random(seed).sample(others, min(max(TRIALS), len(others)))]
    return {trials: _regret(table, drawn[:trials]) for trials in TRIALS}


def alone(sampler: str, table: Table, on: Device, seed: int) -> Regrets:
    """Regrets of a sampler alone, over the family with the most schedules, the family's default first."""
    name = max(table.families, key=lambda f: sum(r.family == f for r in table.rows.values()))
    family = table.families[name]
    space = ScheduleSpace(family, table.graph, family.space(table.graph, on)[0], on)
    tried: dict[str, float | None] = {}
    kernels: dict[int, str] = {}
    default = space.point(family.space(table.graph, on)[0])
    batch = [default] if default in table.rows else []
    while len(kernels) < max(TRIALS) and (batch := batch or proposals(space, tried, BATCH, seed, sampler=sampler)):
        for schedule in batch:
            row = table.rows.get(schedule)
            tried[schedule] = median_training(row) if row and row.training else None
            if row and row.training:
                kernels.setdefault(row.kernel, schedule)
        batch = []
    asked = list(kernels.values())
    return {trials: _regret(table, asked[:trials]) for trials in TRIALS}


def default(table: Table, on: Device, seed: int) -> Regrets:
    """Regrets of the schedule that the search tries first."""
    return dict.fromkeys(TRIALS, _regret(table, [_first(table, on)]))


def _first(table: Table, on: Device) -> str:
    ledger = Ledger(on, table.families, Known({}), None, 0)
    candidate = _candidate(table, ledger)
    return table.spelling(ledger.kernel(candidate, ledger.logs.open(candidate).pending[0]), on)


def _spelling(table: Table, on: Device, best: Measurement) -> str:
    kernel = table.families[best.family].emit(table.graph, best.schedule, on)
    return table.spelling(kernel, on)


def _regret(table: Table, asked: Sequence[str]) -> float:
    return table.regret(min(asked, key=lambda s: median_training(table.rows[s])))


def _candidate(table: Table, ledger: Ledger) -> Candidate:
    atoms = cut(table.graph, lambda _a, _b: True)
    answer = ledger.acceptor.ask(atoms, atoms.piece((1 << len(atoms)) - 1))
    assert isinstance(answer, Candidate), answer
    return answer


def _learn(job: tuple[Table, Device]) -> tuple[str, dict[str, Tuned]]:
    """A table's name, and by family the times that a search without experience would leave in the database."""
    table, on = job
    try:
        _, bench = ours(table, on, 0, Known({}))
    except NotInTable:
        return table.name, {}
    times: dict[str, dict[str, float]] = {}
    for schedule in list(bench.asked.values())[:LEARNED]:
        row = table.rows[schedule]
        if row.status is Status.ok:
            times.setdefault(row.family, {})[schedule] = median_training(row)
    return table.name, {family: Tuned(table.graph, found) for family, found in times.items()}


SIDES: dict[str, Callable[[Table, Device, int], Regrets]] = {
    "default": default,
    "random": chance,
    "random alone": partial(alone, "random"),
    "TPE alone": partial(alone, "tpe"),
    "CMA-ES alone": partial(alone, "cmaes"),
    "Optuna's GP alone": partial(alone, "gp"),
    "ours alone": partial(alone, "fuseplan"),
}


def _run(job: tuple[Table, Device, Experience]) -> tuple[str, dict[str, list[Regrets]] | str]:
    """The regrets of each side on one table, or why there are none."""
    table, on, experience = job
    try:
        return table.name, _sides(table, on, experience)
    except NotInTable as e:
        return table.name, str(e)


def _sides(table: Table, on: Device, experience: Experience) -> dict[str, list[Regrets]]:
    case = table.name.rpartition("_")[0]
    others = {f: [t for name, t in of if name.rpartition("_")[0] != case] for f, of in experience.items()}
    logging.getLogger("optuna").setLevel(logging.ERROR)
    found = {n: [side(table, on, seed) for seed in range(FEWER.get(n, SEEDS))] for n, side in SIDES.items()}
    found["ours, nothing known"] = [ours(table, on, seed, Known({}))[0] for seed in range(SEEDS)]
    found["ours"] = [ours(table, on, seed, Known(others))[0] for seed in range(SEEDS)]
    return found


def main() -> int:
    options = _options()
    on, found = device(), tables()
    with Pool(options.processes) as pool:
        experience: dict[str, list[tuple[str, Tuned]]] = {}
        for name, of in pool.imap(_learn, [(t, on) for t in found]):
            for family, tuned in of.items():
                experience.setdefault(family, []).append((name, tuned))
        results: dict[str, dict[str, list[Regrets]]] = {}
        left_out: list[str] = []
        for name, regrets in pool.imap(_run, [(t, on, experience) for t in found]):
            if isinstance(regrets, str):
                left_out.append(regrets)
                print(f"{name:32}left out: not in the table: {regrets}", file=sys.stderr, flush=True)
                continue
            results[name] = regrets
            at = {side: f"{np.mean([r[32] for r in of]):.3f}" for side, of in regrets.items()}
            print(f"{name:32}{at}", file=sys.stderr, flush=True)
    page = report([t for t in found if t.name in results], results)
    if left_out:
        page += f"\nLeft out, since this version makes a kernel that their tables lack: {'; '.join(left_out)}.\n"
    print(page)
    if not options.dry:
        (RESULTS / "tuner.md").write_text(page)
        (RESULTS / "tuner.json").write_text(json.dumps(results, indent=0) + "\n")
    return 0


def report(found: Sequence[Table], results: Mapping[str, Mapping[str, Sequence[Regrets]]]) -> str:
    """The page: regret against trials, means over segments and seeds with intervals by bootstrap over segments."""
    counting = [name for name, of in results.items() if np.mean([r[32] for r in of["random"]]) >= COUNTS]
    noise = [t.regret(min(t.kernels(), key=lambda s, t=t: median_training(t.rows[s]))) for t in found]
    lines = [
        "# Regret of the schedule search",
        "",
        f"{len(found)} segments of the corpus, {min(len(t.kernels()) for t in found)} to "
        f"{max(len(t.kernels()) for t in found)} different kernels each, all of them timed. Means over segments and "
        f"{SEEDS} seeds ({', '.join(f'{n}: {k}' for n, k in FEWER.items())}), with 95 % intervals by bootstrap over "
        "segments. A sampler alone chooses every schedule of the family with the most, the default first; `ours`: the "
        f"search, which begins with first schedules of its own: with what {LEARNED} trials on "
        "segments of other cases left in the database. Who tried every schedule once would have a regret of "
        f"{np.mean(noise):.3f}: training rounds are noisy.",
        "",
        f"## The {len(counting)} segments on which random search has a regret of {COUNTS} or more after 32 trials",
        "",
        *_against_trials(results, counting),
        "",
        "## All segments",
        "",
        *_against_trials(results, list(results)),
    ]
    lines += [
        "",
        "After 32 trials, ours also after 12, by segment (those that count first):",
        "",
        f"| segment | kernels | {' | '.join(SIDES)} | ours, nothing known: 12, 32 | ours: 12, 32 |",
        "|---|---|" + "---|" * (len(SIDES) + 2),
    ]
    for table in sorted(found, key=lambda t: t.name not in counting):
        of = results[table.name]
        mean = {(side, n): f"{np.mean([r[n] for r in of[side]]):.3f}" for side in of for n in (1, 12, 32)}
        cells = [
            table.name + ("" if table.name in counting else " (does not count)"),
            str(len(table.kernels())),
            *(mean[side, 32] for side in SIDES),
            *(f"{mean[side, 12]}, {mean[side, 32]}" for side in ("ours, nothing known", "ours")),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _against_trials(results: Mapping[str, Mapping[str, Sequence[Regrets]]], names: Sequence[str]) -> list[str]:
    """A table: a row for each number of trials, a column for each side."""
    sides = list(next(iter(results.values())))
    lines = ["| trials | " + " | ".join(sides) + " |", "|---|" + "---|" * len(sides)]
    for trials in TRIALS if names else ():
        means = ([float(np.mean([r[trials] for r in results[n][side]])) for n in names] for side in sides)
        lines.append(f"| {trials} | " + " | ".join(map(_cell, means)) + " |")
    return lines


def _cell(values: Sequence[float]) -> str:
    drawn = np.random.default_rng(0).choice(values, (2000, len(values))).mean(axis=1)
    low, high = np.percentile(drawn, (2.5, 97.5))
    return f"{np.mean(values):.3f} ({low:.3f} to {high:.3f})"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tuner", description="Regret of the schedule search.")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--dry", action="store_true", help="write nothing")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()
