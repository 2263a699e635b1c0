"""How near measured times come to lower bounds, and whether any is below its own.

    python -m benchmarks.bounds [--case GLOB] [--dtype f32] [--passes N]

Corpus cases that one kernel computes, by the fastest of a few schedules: the one that the last run of `make bench-cpu`
chose, the best of the tables in benchmarks/data/schedules where there is one, and the first of its family. Nothing is
searched for or checked here. Each case is visited several times, far apart. In a visit the device's ceilings and the
kernel are timed in turns: memory of a shared machine is at one moment twice as fast as at another, for seconds at a
time, so that a time says something beside the ceilings of its own moment only. Of slow moments no share says anything:
they hold up copies, reads, writes and the kernel by different factors. Whole plans on the H200 are taken from
benchmarks/results/gpu.json. Writes benchmarks/results/bounds.{md,json}.
"""

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict
from fnmatch import fnmatch
from functools import reduce
from pathlib import Path

from benchmarks.bounds.entry import BoundCase, chosen, schedules
from benchmarks.bounds.outcome import Outcome, on_gpu, outcome, summary, with_memory
from benchmarks.bounds.page import LEAST_PRODUCT_SHARE, LEAST_SHARE, NOISE, page
from benchmarks.bounds.timing import Bay, Built, Moment, Rates, room
from benchmarks.corpus import TOPICS
from benchmarks.machine import RESULTS, machine
from codegen.devices.detection import detect
from codegen.kernel import Kernel
from codegen.sandbox.object_cache import ObjectCache
from codegen.toolchain.compiler import Binary
from codegen.workbench.workbench import Workbench
from fusion_ir.records import Device


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
        rooms = [room(e, device.cache_bytes) for e in entries]
        bay = Bay(cache, max(bytes_ * sets for bytes_, sets in rooms), device.cache_bytes)
        taken = {e: bay.fastest(e, found) for e, found in built.items() if found}
        moments: dict[BoundCase, list[Moment]] = {e: [] for e in taken}
        for number in range(options.passes):
            for entry, fastest in taken.items():
                moments[entry] += bay.visit(entry, fastest)
            print(f"pass {number + 1} of {options.passes}", file=sys.stderr, flush=True)
        bay.pool.close()
    assert device.ceilings is not None and device.ceilings.write_gbps is not None
    memory = Rates(device.ceilings.copy_gbps[-1][1], device.ceilings.read_gbps[-1][1], device.ceilings.write_gbps)
    best = reduce(Rates.best, (m.rates for found in moments.values() for m in found), memory)
    outcomes = [outcome(e, taken[e].kernel.schedule, moments[e], best, device) for e in taken]
    return outcomes, with_memory(device, best)


def _built(entry: BoundCase, kernel: Kernel, result: object, cache: ObjectCache) -> Built | None:
    path = cache.path(result.sha256) if isinstance(result, Binary) else None
    return Built(kernel, path, kernel.entry, len(entry.tensor_bytes)) if path else None


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
    on = {name: found for name, found in on.items() if any(o.by_bytes and o.kind == "memory" for o in found)}
    text = page(on, device, facts, time.monotonic() - started, options.passes)
    stem = options.out or (RESULTS / "bounds" if (options.case, options.dtype) == ("*", "") else None)
    if stem:
        data = {name: {"summary": asdict(summary(o)), "cases": [asdict(x) for x in o]} for name, o in on.items()}
        stem.with_suffix(".json").write_text(json.dumps({"facts": facts, **data}, indent=1) + "\n")
        stem.with_suffix(".md").write_text(text)
    print(text)
    found = [summary(o) for o in on.values()]
    low = any((s.by_bytes.share_then or s.by_bytes.share) < LEAST_SHARE for s in found)
    products = summary(on["CPU"]).narrow_products if "CPU" in on else None
    low = low or (products is not None and products.share < LEAST_PRODUCT_SHARE)
    return int(low or any(s.largest > 1 + NOISE for s in found))
