"""`make bench-gpu`: plans beside PyTorch eager and compiled, cuBLAS alone and a copy, on one device, within 9 minutes.

All sides of an entry are timed in the same rounds on the same tensors of random data. What did not fit into the time is
listed, and so is what was slower than PyTorch. `--dry` runs all of it on the CPU at tiny sizes, to try it out.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatch
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.corpus.balance import bytes_of
from benchmarks.corpus.pytorch import HAS_TORCH, torch
from benchmarks.gpu_entries import Entry, entries
from benchmarks.gpu_stage import Call, CudaStage, HostStage, Stage, free, no_gradients, values
from benchmarks.machine import RESULTS
from benchmarks.racing import Contestant, Ratio, paired_ratio
from codegen.devices import DeviceError, detect
from codegen.object_cache import ObjectCache
from codegen.workbench import Workbench
from fusion_ir.graph import Graph
from fusion_ir.numerics import OF_NUMPY, widen
from fusion_ir.records import Device, Plan
from scheduler.bench import Budget, Forgetful
from scheduler.tune import tune

PLAN, EAGER, COMPILED, TUNED, ALONE, COPY = "plan", "eager", "compile", "max-autotune", "product alone", "copy"
MINUTES = 9.0
CLOSING_SECONDS = 15.0  # kept for writing, and for an entry that takes longer than those before
LEAST_FOR_TUNED = 60.0  # seconds left, below which max-autotune, the slowest side to compile, is left out
RECENT = 5  # entries, the longest of which the next one is taken to be as long as
ULPS = 2.0


@dataclass(frozen=True)
class Row:
    """An entry's outcome. problem: why there is nothing more. ratios: PyTorch's sides over the plan, the plan over
    the others. operations: of its steps."""

    name: str
    topic: str
    sizes: Mapping[str, int]
    bytes: int = 0
    problem: str = ""
    times: dict[str, Contestant] = field(default_factory=dict[str, Contestant])
    ratios: dict[str, Ratio] = field(default_factory=dict[str, Ratio])
    kernels: tuple[str, ...] = ()
    operations: float = 0.0
    bound_us: float = 0.0
    seconds: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def better(self) -> Ratio | None:
        """The faster of PyTorch's sides over the plan."""
        known = [self.ratios[s] for s in (EAGER, COMPILED, TUNED) if s in self.ratios]
        return min(known, key=lambda r: r.median, default=None)


class Disagreement(Exception):
    """Plan and PyTorch do not compute the same; the message says where."""


@dataclass(frozen=True)
class Hall:
    """Where entries are held. left: seconds until the end."""

    stage: Stage
    device: Device
    cache: ObjectCache
    options: argparse.Namespace
    left: Callable[[], float]


def main() -> int:
    """Runs, prints, writes STEM.json after every entry. 1 where an entry failed, 3 without a device."""
    options = _options()
    started = time.monotonic()
    if not HAS_TORCH:
        print("bench-gpu compares with PyTorch, which is not installed", file=sys.stderr)
        return 3
    chosen = [e for e in entries() if fnmatch(e.name, options.case)]
    if options.list:
        print("\n".join(f"{e.name:44}{e.topic}" for e in chosen))
        return 0
    try:
        with _hall(options, lambda: 60 * options.minutes - CLOSING_SECONDS - (time.monotonic() - started)) as hall:
            return _hold_all(chosen, hall)
    except DeviceError as e:
        print(f"bench-gpu needs a CUDA device: {e}", file=sys.stderr)
        return 3


def _hold_all(chosen: Sequence[Entry], hall: Hall) -> int:
    rows: list[Row] = []
    left_out: list[str] = []
    for entry in chosen:
        if hall.left() < max((r.seconds for r in rows[-RECENT:]), default=0.0):
            left_out.append(entry.name)
            continue
        row = _row(entry, hall)
        free()
        rows.append(row)
        print(f"[{len(rows)}/{len(chosen)}] {line(row)}", flush=True)
        write(hall, rows, left_out)
    write(hall, rows, left_out)
    print(summary(rows, left_out))
    return int(any(r.problem for r in rows))


def _row(entry: Entry, hall: Hall) -> Row:
    """The entry's outcome, which says what went wrong if something did: the others are still worth measuring."""
    start = time.monotonic()
    sizes = entry.case.small[-1] if hall.options.dry else entry.case.sizes
    try:
        with no_gradients():
            row = hold(entry, sizes, hall)
    except Exception as e:
        row = Row(entry.name, entry.topic, sizes, problem=" ".join(f"{type(e).__name__}: {e}".split())[:400])
    return Row(**{**_fields(row), "seconds": round(time.monotonic() - start, 1)})


def hold(entry: Entry, sizes: Mapping[str, int], hall: Hall) -> Row:
    """Plans, checks and races one entry. Raises whatever that raises, and Disagreement."""
    case, stage = entry.case, hall.stage
    instance = case.instance(entry.dtype, sizes)
    arrays = instance.sample(hall.options.seed)
    inputs = tuple(stage.placed(a) for a in arrays)
    plan = _planned(instance.graph, hall)
    run, outputs = stage.plan(plan, hall.cache, inputs)
    run()
    peer = case.peer(sizes)
    agree(values(outputs()), case.peer(sizes, case.agreeing or case.torch), inputs)
    calls: dict[str, Call] = {PLAN: run, EAGER: lambda: peer(*inputs)}
    notes: list[str] = []
    for name, mode in _modes(hall, notes):
        try:
            compiled = torch.compile(peer, fullgraph=True, dynamic=False, **mode)
            compiled(*inputs)
            calls[name] = lambda compiled=compiled: compiled(*inputs)
        except Exception as e:  # whatever a compiler raises: the others can still be measured
            notes.append(f"{name}: {type(e).__name__}: {(str(e).strip().splitlines() or [''])[0][:200]}")
    if entry.alone is not None:
        alone = case.peer(sizes, entry.alone)
        calls[ALONE] = lambda: alone(*inputs)
    calls[COPY] = stage.copy(bytes_of(instance.graph))
    timed: dict[str, Call] = {}
    for name, call in calls.items():
        timed[name], note = stage.ready(call)
        notes += [f"{name}: {note}"] if note else []
    times = stage.race(timed, hall.options.race, hall.options.seed)
    ratios = {n: paired_ratio(times[n], times[PLAN]) for n in (EAGER, COMPILED, TUNED) if n in times}
    ratios |= {n: paired_ratio(times[PLAN], times[n]) for n in (ALONE, COPY) if n in times}
    return Row(
        entry.name, entry.topic, dict(sizes), bytes_of(instance.graph), "", times, ratios,
        tuple(step.schedule for step in plan.steps), sum(s.operations for s in plan.steps), plan.lower_bound_us,
        notes=tuple(notes),
    )  # fmt: skip


def _planned(graph: Graph, hall: Hall) -> Plan:
    """A plan, searched for with a workbench that is gone when the sides are timed."""
    with Workbench(hall.device, hall.cache) as bench:
        return tune(graph, hall.device, Budget(hall.options.budget, hall.options.seed), Forgetful(), bench)


def _modes(hall: Hall, notes: list[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """The modes of torch.compile that there is time for."""
    if hall.options.no_compile:
        return
    yield COMPILED, {}
    if hall.left() > LEAST_FOR_TUNED:
        yield TUNED, {"mode": "max-autotune-no-cudagraphs"}
    else:
        notes.append(f"{TUNED}: left out for time")


def agree(got: Sequence[np.ndarray], peer: Callable[..., Any], inputs: Sequence[Any]) -> None:
    """Raises Disagreement where an output is further from PyTorch's in f64 than twice what PyTorch's own is in the
    case's dtype, and two ulps of the largest value."""
    exact = values(peer(*(t.double() if t.is_floating_point() else t for t in inputs)))
    theirs = values(peer(*inputs))
    for i, (ours, other, truth) in enumerate(zip(got, theirs, exact, strict=True)):
        if ours.shape != truth.shape:
            raise Disagreement(f"out{i} is {list(ours.shape)}, PyTorch's is {list(truth.shape)}")
        wide = [widen(x).astype(np.float64, copy=False) for x in (ours, other, truth)]
        off, allowed = _distance(wide[0], wide[2]), 2 * _distance(wide[1], wide[2])
        largest = float(np.abs(wide[2], where=np.isfinite(wide[2]), out=np.zeros_like(wide[2])).max(initial=0.0))
        allowed += ULPS * _epsilon(ours) * largest
        if not off <= allowed:
            raise Disagreement(f"out{i} is up to {off:.3g} from PyTorch's in f64, {allowed:.3g} is allowed")


def _distance(a: np.ndarray, b: np.ndarray) -> float:
    """Infinite where one is finite and the other is not, or they are different infinities."""
    with np.errstate(invalid="ignore"):
        apart = np.abs(a - b)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    return float(np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart)).max(initial=0.0))


def _epsilon(array: np.ndarray) -> float:
    """From 1 to the next number."""
    bits = {"f64": 52, "f32": 23, "f16": 10, "bf16": 7}.get(OF_NUMPY[array.dtype].name)
    return 0.0 if bits is None else 2.0**-bits


def line(row: Row) -> str:
    """A row in one line."""
    if row.problem:
        return f"{row.name}: failed: {row.problem}"
    times = ", ".join(f"{name} {t.median_us:.1f}" for name, t in row.times.items())
    over = (
        f"; {row.better.of} {row.better.median:.2f}x [{row.better.low:.2f}, {row.better.high:.2f}]"
        if row.better
        else ""
    )
    rate = f"; {row.operations / row.times[PLAN].median_us / 1e6:.0f} TFLOP/s" if row.topic.startswith("prod") else ""
    copied = row.bytes / row.times[COPY].median_us / 1e3
    return f"{row.name}: {times} us{over}; {1 / row.ratios[COPY].median:.0%} of a copy's {copied:.0f} GB/s{rate}"


def summary(rows: Sequence[Row], left_out: Sequence[str]) -> str:
    """What came out, losses and what was left out included."""
    held = [(r, r.better) for r in rows if not r.problem]
    known = [(r, b) for r, b in held if b is not None]
    lines = [""]
    if known:
        mean = exp(sum(log(b.median) for _, b in known) / len(known))
        lines.append(f"better of PyTorch's sides over the plan: geometric mean {mean:.2f} of {len(known)}")
        losses = sorted(((b.median, r.name, b.of) for r, b in known if b.median < 1), key=lambda found: found[0])
        lines.append("slower than PyTorch: " + (", ".join(f"{n} {x:.2f} ({by})" for x, n, by in losses) or "none"))
    lines.append("failed: " + ("; ".join(f"{r.name}: {r.problem}" for r in rows if r.problem) or "none"))
    lines.append(f"left out for time: {len(left_out)}{': ' * bool(left_out)}{', '.join(left_out)}")
    return "\n".join(lines)


def write(hall: Hall, rows: Sequence[Row], left_out: Sequence[str]) -> None:
    """STEM.json, whole after every entry."""
    stem: Path | None = hall.options.out or (None if hall.options.dry else RESULTS / "gpu")
    if stem is None:
        return
    content = {
        "title": "Plans on a GPU beside PyTorch",
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "dry": hall.options.dry,
        "facts": hall.stage.facts(),
        "minutes": hall.options.minutes,
        "budget_s": hall.options.budget,
        "seed": hall.options.seed,
        "rows": [asdict(row) for row in rows],
        "left_out": list(left_out),
    }
    stem.parent.mkdir(parents=True, exist_ok=True)
    stem.with_suffix(".json").write_text(json.dumps(content, indent=1) + "\n")


def _fields(row: Row) -> dict[str, Any]:
    return {name: getattr(row, name) for name in row.__dataclass_fields__}


@contextmanager
def _hall(options: argparse.Namespace, left: Callable[[], float]) -> Iterator[Hall]:
    """Raises DeviceError without a device."""
    with tempfile.TemporaryDirectory(prefix="fuseplan-bench-") as folder:
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", f"{folder}/inductor")
        cache = ObjectCache(options.cache or Path(folder, "objects"))
        if options.dry:
            yield Hall(HostStage(cache), detect("cpu", cache, ceilings=False), cache, options, left)
            return
        device = detect("cuda", cache)
        if not torch.cuda.is_available():
            raise DeviceError("PyTorch sees no CUDA device")
        yield Hall(CudaStage(device), device, cache, options, left)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description="Plans on a GPU beside PyTorch.")
    parser.add_argument("--case", default="*", metavar="GLOB", help="names of entries, e.g. 'product_* bf16'")
    parser.add_argument("--list", action="store_true", help="print the entries and stop")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="of all of it, by its own clock")
    parser.add_argument("--budget", type=float, default=6.0, metavar="SECONDS", help="of search per graph")
    parser.add_argument("--race", type=float, default=1.0, metavar="SECONDS", help="of timing per entry")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--dry", action="store_true", help="try it out: on the CPU, at tiny sizes")
    parser.add_argument("--cache", type=Path, metavar="FOLDER", help="keep compiled kernels here")
    parser.add_argument("--out", type=Path, metavar="STEM", help="write STEM.json; results/gpu.json by default")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
