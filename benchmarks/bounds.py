"""How near measured times come to lower bounds, and whether any is below its own.

    python -m benchmarks.bounds [--case GLOB] [--dtype f32] [--passes N]

Corpus cases that one kernel computes, by the fastest of a few schedules: the one that the last run of `make bench-cpu`
chose, the best of the tables in benchmarks/data/schedules where there is one, and the first of its family. Nothing is
searched for or checked here. Each case is visited several times, far
apart. In a visit the device's ceilings and the kernel are timed in turns: memory of a shared machine is at one moment
twice as fast as at another, for seconds at a time, so that a time says something beside the ceilings of its own moment
only. Whole plans on the H200 are taken from benchmarks/results/gpu.json. Writes benchmarks/results/bounds.{md,json}.
"""

import argparse
import ctypes
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.corpus import TOPICS
from benchmarks.corpus.case import Case, Instance
from benchmarks.machine import RESULTS, machine
from benchmarks.replay import tables
from codegen.ceilings import DRAM_BYTES
from codegen.child.cpu_memory import Layout, layouts, rotating_sets
from codegen.devices import detect
from codegen.families import FAMILIES
from codegen.kernel import EmitError, Kernel
from codegen.launch_cpu import Launch, Memory, Pool, entry_address, load_entry, program
from codegen.machine import usable_cpus
from codegen.object_cache import ObjectCache
from codegen.toolchain.compiler import Binary
from codegen.toolchain.cpu import find_compiler
from codegen.toolchain.runtime import runtime_library
from codegen.workbench import Workbench
from fusion_ir.numerics import round_to
from fusion_ir.records import Ceilings, Device
from scheduler.bound import lower_bound_us
from scheduler.traffic import Traffic, traffic_of

CPU_RESULTS, GPU_RESULTS = RESULTS / "cpu_corpus.json", RESULTS / "gpu.json"
LEAST_SHARE = 0.6  # of the measured time, in the median over what memory bounds: issue 6
NOISE = 0.03  # of a time
STEADY = 0.1  # the most by which ceilings before and after a kernel differ within one moment
ROUNDS = 4  # of a visit
SAMPLES = 3
SCHEDULES = 3  # of a family, of which the fastest is taken
PATTERN = 1 << 20  # elements drawn of each input; the rest repeats them


@dataclass(frozen=True)
class Moment:
    """One round: what memory reached before or after the kernel, whichever was more, and the kernel's fastest run.
    steady: both were the same."""

    copy_gbps: float
    read_gbps: float
    time_us: float
    steady: bool


@dataclass(frozen=True)
class Outcome:
    """A case, its bound by the best ceilings of the whole run, and the times that go with it. share: of the bound in
    the fastest run; share_then: in the median over rounds, of the bound by the ceilings of that moment."""

    name: str
    kind: str
    kernel: str
    bytes: int
    bound_us: float
    time_us: float
    share: float
    share_then: float | None
    moments: tuple[Moment, ...] = field(default=())


@dataclass(frozen=True, eq=False)
class Entry:
    """A case that one kernel computes, and kernels that do."""

    case: Case
    dtype: str
    instance: Instance
    kernels: tuple[Kernel, ...]
    traffic: Traffic

    @property
    def name(self) -> str:
        return f"{self.case.name} {self.dtype}"


@dataclass(frozen=True)
class Built:
    """A kernel and its binary."""

    kernel: Kernel
    path: Path
    entry: str
    tensors: int


class Bay:
    """Memory that all cases are timed on, one after the other, and the device's own kernels beside it."""

    def __init__(self, cache: ObjectCache, bytes_: int, cache_bytes: int) -> None:
        compiler = find_compiler()
        with compiler.slot() as slot:
            pool, library = (runtime_library(name, compiler, slot, cache) for name in ("pool", "ceilings"))
        self.pool = Pool(pool, usable_cpus())
        self._memory, self._cache_bytes = Memory(bytes_), cache_bytes
        self._own = [Memory(DRAM_BYTES) for _ in range(2)]
        for memory in (self._memory, *self._own):
            memory.bytes[:] = 1  # pages that were never written are one page of zeros, which reads from the first cache
        self._sizes = np.array([DRAM_BYTES, 1], np.int64)
        table = np.array([[*(m.address for m in self._own), self._sizes.ctypes.data]], np.uint64)
        entries = {
            name: entry_address(ctypes.CDLL(str(library)), name) for name in ("ceiling_copy_streaming", "ceiling_read")
        }
        self._kernels = {n: program([Launch(e, (0, 1, 2), self.pool.threads)], table) for n, e in entries.items()}

    def reached(self) -> tuple[float, float]:
        """GB/s of copies and of reads, at this moment."""
        copy_us, read_us = (min(self.pool.time_us(runs, SAMPLES)) for runs in self._kernels.values())
        return 2 * DRAM_BYTES / copy_us / 1e3, DRAM_BYTES / read_us / 1e3

    def fill(self, entry: Entry) -> np.ndarray[Any, np.dtype[np.uint64]]:
        """Fresh tensors of the case, in sets that take turns: addresses by set."""
        rng = np.random.default_rng(0)
        inputs, outputs = layouts(entry.instance.graph)
        stride, sets = _room(entry, self._cache_bytes)
        offsets: list[int] = []
        at = 0
        for i, layout in enumerate((*inputs, *outputs)):
            if i < len(inputs):
                _fill(self._memory.bytes[at : at + layout.bytes], layout, entry.instance.domains[i], rng)
            offsets.append(at)
            at += _pages(layout.bytes)
        raw = self._memory.bytes[: sets * stride].reshape(sets, stride)
        raw[1:] = raw[0]
        starts = self._memory.address + stride * np.arange(sets, dtype=np.uint64)
        return starts[:, None] + np.array(offsets, np.uint64)[None, :]

    def fastest(self, entry: Entry, built: Sequence[Built]) -> Built:
        """Of the case's kernels."""
        addresses = self.fill(entry)
        programs = [(program([self._launch(b)], addresses), b) for b in built]
        times = [min(self.pool.time_us(runs, 1 + SAMPLES)[1:]) for runs, _ in programs]
        return programs[times.index(min(times))][1]

    def _launch(self, built: Built) -> Launch:
        call = load_entry(built.path, built.entry, built.kernel.libraries)
        return Launch(call, tuple(range(built.tensors)), built.kernel.launch.tasks)

    def visit(self, entry: Entry, built: Built) -> Iterator[Moment]:
        """Rounds of the device's kernels and the case's."""
        runs = program([self._launch(built)], self.fill(entry))
        self.pool.time_us(runs, 1)
        before = self.reached()
        for number in range(ROUNDS):
            time_us = min(self.pool.time_us(runs, SAMPLES, number * SAMPLES + 1))
            after = self.reached()
            steady = all(abs(a - b) <= STEADY * max(a, b) for a, b in zip(before, after, strict=True))
            copy_gbps, read_gbps = (max(pair) for pair in zip(before, after, strict=True))
            yield Moment(copy_gbps, read_gbps, time_us, steady)
            before = after


def _fill(
    raw: np.ndarray[Any, Any], layout: Layout, domain: tuple[float, float] | None, rng: np.random.Generator
) -> None:
    """Values that a kernel meets in earnest: no NaN, no denormal numbers, indices within their axes."""
    kind = layout.dtype.numpy
    if layout.dtype.kind == "bool":
        drawn = rng.integers(0, 2, PATTERN).astype(kind)
    elif layout.dtype.is_float:
        low, high = domain or (-2.0, 2.0)
        drawn = np.asarray(round_to(rng.random(PATTERN) * (high - low) + low, layout.dtype)).astype(kind)
    else:
        low, high = domain or (0, 8)
        drawn = rng.integers(int(low), max(int(high), int(low) + 1), PATTERN).astype(kind)
    pattern = np.ascontiguousarray(drawn).view(np.uint8)
    for start in range(0, len(raw), len(pattern)):
        part = raw[start : start + len(pattern)]
        part[:] = pattern[: len(part)]


def chosen(case: Case, dtype: str, known: Sequence[str], device: Device) -> Entry | None:
    """The case with kernels of these schedules and of the first one of their family; None where there is none."""
    if not known:
        return None
    instance = case.instance(dtype)
    emitted: dict[str, Kernel] = {}
    usual = FAMILIES[_family(known[0])]
    accepted = usual.accepts(instance.graph, device) is None
    for schedule in (*known, *(usual.space(instance.graph, device) if accepted else ())):
        family = FAMILIES[_family(schedule)]
        if len(emitted) < SCHEDULES and family.accepts(instance.graph, device) is None:
            with suppress(EmitError, ValueError, KeyError):  # of a generator before this one, it may be none any more
                kernel = family.emit(instance.graph, schedule, device)
                emitted.setdefault(kernel.entry, kernel)
    return Entry(case, dtype, instance, tuple(emitted.values()), traffic_of(instance.graph)) if emitted else None


def schedules() -> dict[tuple[str, str], list[str]]:
    """By case and dtype, schedules of one kernel that did well before: in the tables, and in the last benchmark."""
    found: dict[tuple[str, str], list[str]] = {}
    for table in tables():
        name, _, dtype = table.name.rpartition("_")
        best = min((row.truth, schedule) for schedule, row in table.rows.items() if row.training)
        found[name, dtype] = [best[1]]
    for o in json.loads(CPU_RESULTS.read_text())["outcomes"]:
        if not o["problem"] and len(o["kernels"]) == 1:
            found.setdefault((o["name"], o["dtype"]), []).append(o["kernels"][0])
    return found


def _family(schedule: str) -> str:
    return schedule.partition("{")[0]


def with_memory(device: Device, copy_gbps: float, read_gbps: float) -> Device:
    """The device as if its main memory reached these."""
    ceilings = device.ceilings
    assert ceilings is not None
    update = {
        "copy_gbps": (*ceilings.copy_gbps[:-1], (0, copy_gbps)),
        "read_gbps": (*ceilings.read_gbps[:-1], (0, read_gbps)),
    }
    return device.model_copy(update={"ceilings": Ceilings.model_validate({**ceilings.model_dump(), **update})})


def outcome(entry: Entry, schedule: str, moments: Sequence[Moment], best: Device, device: Device) -> Outcome:
    bound_us = lower_bound_us(entry.traffic, best)
    time_us = min(m.time_us for m in moments)
    then = [
        lower_bound_us(entry.traffic, with_memory(device, m.copy_gbps, m.read_gbps)) / m.time_us
        for m in moments
        if m.steady
    ]
    share_then = statistics.median(then) if then else None
    kind = entry.case.kind
    share, bytes_ = bound_us / time_us, entry.traffic.bytes
    return Outcome(entry.name, kind, schedule, bytes_, bound_us, time_us, share, share_then, tuple(moments))


def measured(options: argparse.Namespace) -> tuple[list[Outcome], Device]:
    """The corpus on this machine."""
    known = schedules()
    with tempfile.TemporaryDirectory(prefix="fuseplan-bounds-") as folder:
        cache = ObjectCache(Path(folder))
        device = detect("cpu", cache)
        asked = [
            (case, dtype)
            for cases in TOPICS.values()
            for case in cases
            for dtype in case.bench_dtypes
            if fnmatch(case.name, options.case) and options.dtype in ("", dtype)
        ]
        entries = [e for case, dtype in asked if (e := chosen(case, dtype, known.get((case.name, dtype), ()), device))]
        print(f"{len(entries)} of {len(asked)} cases are one kernel", file=sys.stderr, flush=True)
        with Workbench(device, cache) as bench:
            results = iter(bench.compile_for_plans([k for e in entries for k in e.kernels]))
        built = {e: [b for k in e.kernels if (b := _built(e, k, next(results), cache))] for e in entries}
        rooms = [_room(e, device.cache_bytes) for e in entries]
        bay = Bay(cache, max(bytes_ * sets for bytes_, sets in rooms), device.cache_bytes)
        taken = {e: bay.fastest(e, found) for e, found in built.items() if found}
        moments: dict[Entry, list[Moment]] = {e: [] for e in taken}
        for number in range(options.passes):
            for entry, fastest in taken.items():
                moments[entry] += bay.visit(entry, fastest)
            print(f"pass {number + 1} of {options.passes}", file=sys.stderr, flush=True)
        bay.pool.close()
    assert device.ceilings is not None
    every = [m for found in moments.values() for m in found]
    copy_gbps = max(device.ceilings.copy_gbps[-1][1], *(m.copy_gbps for m in every))
    read_gbps = max(device.ceilings.read_gbps[-1][1], *(m.read_gbps for m in every))
    best = with_memory(device, copy_gbps, read_gbps)
    return [outcome(e, taken[e].kernel.schedule, moments[e], best, device) for e in taken], best


def _built(entry: Entry, kernel: Kernel, result: object, cache: ObjectCache) -> Built | None:
    path = cache.path(result.sha256) if isinstance(result, Binary) else None
    return Built(kernel, path, kernel.entry, len(_tensor_bytes(entry))) if path else None


def _tensor_bytes(entry: Entry) -> list[int]:
    return [layout.bytes for part in layouts(entry.instance.graph) for layout in part]


def _room(entry: Entry, cache_bytes: int) -> tuple[int, int]:
    """Bytes of a set of tensors, and how many sets take turns."""
    bytes_, inputs = _tensor_bytes(entry), len(entry.instance.graph.inputs)
    return sum(map(_pages, bytes_)), rotating_sets(sum(bytes_[:inputs]), sum(bytes_), cache_bytes)


def _pages(bytes_: int) -> int:
    return -(-bytes_ // 4096) * 4096


def on_gpu() -> list[Outcome]:
    """Whole plans on the H200, from what `benchmarks.gpu` wrote."""
    found: list[Outcome] = []
    for row in json.loads(GPU_RESULTS.read_text())["rows"] if GPU_RESULTS.exists() else ():
        if row["problem"] or "plan" not in row["times"]:
            continue
        time_us = statistics.median(row["times"]["plan"]["samples_us"])
        kind = "memory" if row["moves"] else "matmul"
        kernels = ", ".join(row["kernels"])
        share = row["bound_us"] / time_us
        found.append(Outcome(row["name"], kind, kernels, row["bytes"], row["bound_us"], time_us, share, None))
    return found


@dataclass(frozen=True)
class Summary:
    """largest: share of all; median: over what memory bounds, by the best moment and by the same moment."""

    largest: float
    largest_of: str
    median: float
    median_then: float | None
    memory_bound: int


def summary(outcomes: Sequence[Outcome]) -> Summary:
    top = max(outcomes, key=lambda o: o.share)
    memory = [o for o in outcomes if o.kind == "memory"]
    then = [o.share_then for o in memory if o.share_then is not None]
    return Summary(
        top.share,
        top.name,
        statistics.median(o.share for o in memory),
        statistics.median(then) if then else None,
        len(memory),
    )


def page(
    on: Mapping[str, Sequence[Outcome]], device: Device, facts: Mapping[str, str], seconds: float, passes: int
) -> str:
    """The results for a person."""
    ceilings = device.ceilings
    assert ceilings is not None
    lines = ["# Lower bounds beside measured times", "", f"{datetime.now(UTC):%Y-%m-%d %H:%M UTC}, {seconds:.0f} s", ""]
    lines += [
        "| | largest share | of | median, memory-bound | the same by moment | cases |",
        "|---|---:|---|---:|---:|---:|",
    ]
    for name, outcomes in on.items():
        s = summary(outcomes)
        then = "" if s.median_then is None else f"**{s.median_then:.2f}**"
        lines.append(f"| {name} | {s.largest:.3f} | {s.largest_of} | **{s.median:.2f}** | {then} | {s.memory_bound} |")
    lines += [
        "",
        f"Asked for: no share above 1 beyond noise ({NOISE:.0%}), a median of {LEAST_SHARE} or more.",
        "",
        f"Share: the bound over the fastest run, on the CPU of {passes} visits, by the best ceilings of the whole run "
        f"({ceilings.copy_gbps[-1][1]:.0f} GB/s of copies, {ceilings.read_gbps[-1][1]:.0f} of reads). By moment: the "
        "median of rounds in each of which the ceilings were timed before and after the kernel, and were the same.",
    ]
    for name, outcomes in on.items():
        lines += ["", f"## {name}", "", "| case | bytes | bound us | fastest us | share | by moment | kernel |"]
        lines.append("|---|---:|---:|---:|---:|---:|---|")
        for o in sorted(outcomes, key=lambda o: (o.kind != "memory", o.share)):
            then = "" if o.share_then is None else f"{o.share_then:.2f}"
            cells = (o.name, f"{o.bytes:,}", f"{o.bound_us:.1f}", f"{o.time_us:.1f}", f"{o.share:.2f}", then, o.kernel)
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", *(f"- {k}: {v}" for k, v in facts.items())]) + "\n"


def main() -> int:
    """Measures, prints and writes. Returns 1 where a bound is above a time, or the median is too low."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bounds", description=__doc__)
    parser.add_argument("--case", default="*", metavar="GLOB")
    parser.add_argument("--dtype", default="", choices=("", "f32", "bf16", "f16"), help="this one alone")
    parser.add_argument("--passes", type=int, default=4)
    parser.add_argument("--out", type=Path, metavar="STEM", help="the whole corpus goes to results/")
    options = parser.parse_args()
    started, facts = time.monotonic(), machine()  # before threads are pinned
    outcomes, device = measured(options)
    on = {"CPU": outcomes, "H200": on_gpu()}
    on = {name: found for name, found in on.items() if any(o.kind == "memory" for o in found)}
    text = page(on, device, facts, time.monotonic() - started, options.passes)
    stem = options.out or (RESULTS / "bounds" if (options.case, options.dtype) == ("*", "") else None)
    if stem:
        data = {name: {"summary": asdict(summary(o)), "cases": [asdict(x) for x in o]} for name, o in on.items()}
        stem.with_suffix(".json").write_text(json.dumps({"facts": facts, **data}, indent=1) + "\n")
        stem.with_suffix(".md").write_text(text)
    print(text)
    found = [summary(o) for o in on.values()]
    low = any((s.median if s.median_then is None else s.median_then) < LEAST_SHARE for s in found)
    return int(low or any(s.largest > 1 + NOISE for s in found))


if __name__ == "__main__":
    sys.exit(main())
