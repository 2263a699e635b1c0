"""`make bench-cpu`: plans of the corpus beside PyTorch eager and torch.compile, in one process.

All sides allocate fresh outputs in every call from PyTorch's allocator, under one policy that keeps pages: without it,
page faults on fresh outputs cost several times what the kernels take. The process starts itself again with that policy
set. Rounds are interleaved in random order; ratios are taken within rounds.
"""

import argparse
import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path

import torch  # pyright: ignore[reportMissingImports]  # only make bench-cpu and make test install it

from benchmarks.corpus import TOPICS
from benchmarks.corpus.balance import BALANCE
from benchmarks.corpus.case import Case
from benchmarks.cpu.contest import Outcome, Place, free, hold, identity
from benchmarks.cpu.copying import copy_library
from benchmarks.cpu.report import Report, line
from benchmarks.machine import RESULTS, machine
from benchmarks.plan_runner import unpinned_pool, versions
from benchmarks.racing import PAUSE_SECONDS
from codegen.sandbox.object_cache import ObjectCache
from tuning_db.store import Store

ALLOCATION = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "17179869184", "MALLOC_TOP_PAD_": "1073741824"}

Entry = tuple[str, Case, str]  # topic, case, dtype


def main() -> int:
    """Runs, prints the page, and writes STEM.json and STEM.md after every case. Returns 1 where a case failed."""
    options = _options()
    chosen = entries(options.case, options.dtype, options.topic)
    if not chosen:
        print("no case of the corpus is called that: see --list", file=sys.stderr)
        return 2
    if options.list:
        print("\n".join(f"{case.name:28}{dtype:6}{case.kind:8}{topic}" for topic, case, dtype in chosen))
        return 0
    _restart_with_allocation_policy()
    torch.set_num_threads(options.threads)
    torch.set_grad_enabled(False)
    stem = destination(options.out, chosen)
    report = Report({**machine(), **versions()}, _notes(options))
    for outcome in _run(chosen, options):
        report = replace(report, outcomes=(*report.outcomes, outcome))
        if stem:
            report.write(stem)
    print(report.markdown())
    print(f"written to {os.path.relpath(stem)}.json and .md" if stem else "not written: a part of the corpus, no --out")
    return int(any(o.problem for o in report.outcomes))


def entries(pattern: str = "*", dtype: str = "", topics: str = "*") -> list[Entry]:
    """Entries of a run: cases whose name and topic match, in all dtypes that they are timed in, or in one."""
    return [
        (topic, case, name)
        for topic, cases in TOPICS.items()
        for case in cases
        for name in case.bench_dtypes
        if fnmatch(case.name, pattern) and fnmatch(topic, topics) and dtype in ("", name)
    ]


def destination(out: Path | None, chosen: list[Entry]) -> Path | None:
    """Where the report goes: without --out, a part of the corpus leaves the results of the whole alone."""
    return out or (RESULTS / "cpu_corpus" if chosen == entries() else None)


def _run(chosen: list[Entry], options: argparse.Namespace) -> Iterator[Outcome]:
    """One case after the other, with a line on stderr for each."""
    torch.ones(1 << 22).add_(1)  # PyTorch's threads start before ours
    with _place(options) as place:
        for number, (topic, case, dtype) in enumerate(chosen, 1):
            outcome = _hold(case, topic, dtype, place)
            free()
            print(f"[{number}/{len(chosen)}] {line(outcome)}", file=sys.stderr, flush=True)
            yield outcome


def _hold(case: Case, topic: str, dtype: str, place: Place) -> Outcome:
    """The outcome, which says what went wrong if something did: the other cases are still worth measuring."""
    try:
        return hold(case, topic, dtype, place)
    except Exception as error:
        text = " ".join(str(error).split())[:400]
        return Outcome(**identity(case, topic, dtype), problem=f"{type(error).__name__}: {text}")


@contextlib.contextmanager
def _place(options: argparse.Namespace) -> Iterator[Place]:
    """A pool, a database and a cache, which are new and go at the end unless --db names where they are kept."""
    with tempfile.TemporaryDirectory(prefix="fuseplan-bench-") as folder:
        kept = options.db.resolve() if options.db else Path(folder) / "bench.db"
        kept.parent.mkdir(parents=True, exist_ok=True)
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(options.inductor_cache or Path(folder) / "inductor")
        cache = ObjectCache(kept.with_suffix(".cache"))
        pool = unpinned_pool(options.threads, cache)
        try:
            with Store(f"sqlite:///{kept}") as store:
                yield Place(
                    store,
                    cache,
                    pool,
                    copy_library(cache),
                    options.budget,
                    options.rounds,
                    options.seed,
                    options.compiled,
                )
        finally:
            pool.close()


def _notes(options: argparse.Namespace) -> tuple[str, ...]:
    policy = " ".join(f"{k}={v}" for k, v in ALLOCATION.items())
    return (
        f"One process, {options.threads} threads each, at most {options.rounds} interleaved rounds in random order. "
        f"In each turn a pause of {PAUSE_SECONDS * 1e3:.0f} ms, one call to wake the threads, one that is timed.",
        f"All sides allocate fresh outputs from PyTorch's allocator in every call, under {policy}.",
        f"Plans were searched for at most {options.budget:g} s each. "
        f"{'torch.compile in its default mode, shapes static' if options.compiled else 'Without torch.compile'}. "
        "Where a case has several spellings, each of PyTorch's sides runs its fastest.",
        "Times are medians; ratios are medians of the rounds' own ratios, with 95 % bootstrap intervals. Better: the "
        "faster of eager and compiled.",
        "Floor: reading as many bytes as inputs have and writing as many as outputs have, by our kernel in the same "
        "rounds. Copy: as many bytes, half read and half written. Bound: no kernel on this machine can be faster.",
        f"Memory-bound: fewer than {BALANCE} operations of contractions per byte (benchmarks/corpus/balance.py), "
        "decided before anything is timed.",
        "Outputs of every plan were compared with PyTorch's in f64 (benchmarks/corpus/agreement.py says how closely). "
        "Dropout is timed with PyTorch's generator and compared with ours.",
    )


def _restart_with_allocation_policy() -> None:
    """The policy is read when a process starts. Variables that slow a BLAS down are left behind."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OPENBLAS_")} | ALLOCATION
    if environment != dict(os.environ):
        os.execve(sys.executable, [sys.executable, "-m", "benchmarks.cpu", *sys.argv[1:]], environment)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cpu", description="The corpus on the CPU: Fuseplan beside PyTorch."
    )
    parser.add_argument("--topic", default="*", metavar="GLOB", help="topics of the corpus, e.g. 'odd'")
    parser.add_argument("--case", default="*", metavar="GLOB", help="names of cases, e.g. 'rope_*'")
    parser.add_argument("--dtype", default="", choices=("", "f32", "bf16", "f16"), help="this one alone")
    parser.add_argument("--budget", type=float, default=30.0, metavar="SECONDS", help="of search per graph")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--db", type=Path, metavar="FILE", help="keep plans here, and take those that are there")
    parser.add_argument("--inductor-cache", type=Path, metavar="DIR", help="keep what torch.compile compiled here")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--no-compile", dest="compiled", action="store_false", help="without torch.compile")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--out", type=Path, metavar="STEM", help="write STEM.json and STEM.md; the whole corpus goes to results/"
    )
    parser.add_argument("--list", action="store_true", help="what would be measured, and nothing else")
    return parser.parse_args()
