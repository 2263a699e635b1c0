"""`make bench-cpu`: Mistral RoPE, our plan beside PyTorch eager and torch.compile, in one process.

Both sides allocate fresh outputs in every call from PyTorch's allocator, under one policy that keeps pages: without it,
page faults on fresh outputs cost several times what the kernels take. The process starts itself again with that policy
set. Rounds are interleaved in random order; ratios are taken within rounds.
"""

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch  # pyright: ignore[reportMissingImports]  # only make bench-cpu installs it

from benchmarks.peers import SPELLINGS, Tensors
from benchmarks.plan_runner import PlanRunner, versions
from benchmarks.report import Contestant, Report, machine, paired_ratio
from codegen.object_cache import ObjectCache
from fusion_ir.formats import read
from fusion_ir.records import Plan
from scheduler.bench import Budget
from service.planner import plan_graph
from tuning_db import Store

ALLOCATION = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "17179869184", "MALLOC_TOP_PAD_": "1073741824"}
EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "mistral_rope_forward.nvfuser.py"
SEQUENCE, HEAD, KV_GROUP = 4096, 128, 4
# PyTorch's idle threads spin for some milliseconds; until they sleep they hold a core that whoever comes next needs.
PAUSE_SECONDS = 0.01
OURS, COMPILED, EAGER, REUSED = "Fuseplan", "torch.compile", "PyTorch eager", "Fuseplan, outputs reused"


@dataclass(frozen=True)
class Sides:
    """The calls to time, by name; and the spelling that each of PyTorch's sides was fastest with."""

    calls: dict[str, Callable[[], object]]
    spellings: dict[str, str]


def main() -> int:
    """Runs, prints and writes benchmarks/results/cpu_mistral_rope.{json,md}. Returns 1 if the results disagree."""
    options = _options()
    _restart_with_allocation_policy()
    torch.set_num_threads(options.threads)
    torch.set_grad_enabled(False)
    inputs = rope_inputs(options.seed)
    peers = _peers(inputs)  # before our pool: PyTorch's threads start without its company
    with tempfile.TemporaryDirectory(prefix="fuseplan-bench-") as folder:
        cache = ObjectCache(Path(folder) / "cache")
        plan = _plan(Path(folder), cache, options.seconds)
        runner = PlanRunner(plan, cache, options.threads)
        try:
            problem = disagreement(runner(*inputs), SPELLINGS["f32"](*inputs), inputs)
            if problem:
                print(f"results disagree: {problem}", file=sys.stderr)
                return 1
            sides = _sides(runner, peers, inputs)
            contestants = race(sides.calls, options.rounds, options.seed)
        finally:
            runner.close()
    report = _report(plan, sides, contestants, options)
    page, paths = report.markdown(), report.write()
    print(page)
    print(f"written to {', '.join(os.path.relpath(p) for p in paths)}")
    return 0


def rope_inputs(seed: int) -> Tensors:
    """Random q, k, v; the module's own frequencies and positions."""
    random_ = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(1, SEQUENCE, width, generator=random_).to(torch.bfloat16) for width in (4096, 1024, 1024))
    inv_freq = (1.0 / 10000.0 ** (torch.arange(0, HEAD, 2) / HEAD)).to(torch.bfloat16)
    return q, k, v, inv_freq, torch.arange(SEQUENCE)[None]


def race(calls: dict[str, Callable[[], object]], rounds: int, seed: int, warm_up: int = 3) -> tuple[Contestant, ...]:
    """Times every call once per round, in an order that is random anew in each round.

    Each turn is a pause, a call that wakes the side's threads and is not timed, and one that is.
    """
    order = random.Random(seed)
    names = list(calls)
    samples: dict[str, list[float]] = {name: [] for name in names}
    for number in range(-warm_up, rounds):
        order.shuffle(names)
        for name in names:
            time.sleep(PAUSE_SECONDS)
            calls[name]()
            started = time.perf_counter()
            calls[name]()
            took = time.perf_counter() - started
            if number >= 0:
                samples[name].append(took * 1e3)
    return tuple(Contestant(name, tuple(samples[name])) for name in calls)


def disagreement(ours: Tensors, theirs: Tensors, inputs: Tensors) -> str:
    """What is wrong, or "".

    Elements may differ by what an ulp of cos and sin before rounding makes of them: two bf16 steps of the operands.
    """
    step = 2.0**-7
    heads, keys = (x.view(1, SEQUENCE, -1, HEAD).transpose(1, 2).float().abs() for x in inputs[:2])
    reach_q, reach_k = (x + x.roll(HEAD // 2, -1) for x in (heads, keys))
    one, exact = torch.ones(()), torch.zeros(())
    scales = (one, one, reach_q, reach_k.repeat_interleave(KV_GROUP, 1), exact)
    for number, (a, b, scale) in enumerate(zip(ours, theirs, scales, strict=True)):
        off = (a.float() - b.float()).abs()
        if not bool((off <= step * scale).all()):
            return f"out{number} is off by up to {float(off.max()):.3g}"
    return ""


def _peers(inputs: Tensors) -> dict[str, Callable[..., Tensors]]:
    """PyTorch's contestants, compiled and run once."""
    peers: dict[str, Callable[..., Tensors]] = {}
    for spelling, function in SPELLINGS.items():
        peers[f"{EAGER}/{spelling}"] = function
        peers[f"{COMPILED}/{spelling}"] = torch.compile(function, fullgraph=True, dynamic=False)
    for function in peers.values():
        function(*inputs)
    return peers


def _sides(runner: PlanRunner, peers: dict[str, Callable[..., Tensors]], inputs: Tensors) -> Sides:
    """Each of PyTorch's sides in the spelling in which it is faster."""
    calls: dict[str, Callable[[], object]] = {name: _call(function, inputs) for name, function in peers.items()}
    trial = {c.name: c.best_ms for c in race(calls, 5, 0)}
    chosen = {
        side: min((n for n in trial if n.startswith(side + "/")), key=lambda n: trial[n]) for side in (COMPILED, EAGER)
    }
    reused = runner.empty_outputs()
    sides: dict[str, Callable[[], object]] = {
        OURS: _call(runner, inputs),
        **{side: calls[name] for side, name in chosen.items()},
    }
    sides[REUSED] = lambda: runner.into(inputs, reused)
    return Sides(sides, {side: name.partition("/")[2] for side, name in chosen.items()})


def _call(function: Callable[..., Tensors], inputs: Tensors) -> Callable[[], object]:
    return lambda: function(*inputs)


def _plan(folder: Path, cache: ObjectCache, seconds: float) -> Plan:
    """The plan, from a database of its own: searched on this machine, now."""
    named = read(EXAMPLE.read_text(), filename=EXAMPLE.name)
    with Store(f"sqlite:///{folder / 'bench.db'}") as store:
        return plan_graph(named, "cpu", Budget(seconds), store, cache).plan


def _report(plan: Plan, sides: Sides, contestants: tuple[Contestant, ...], options: argparse.Namespace) -> Report:
    by_name = {c.name: c for c in contestants}
    limits = {"lower bound": plan.lower_bound_us / 1e3}
    if plan.copy_us is not None:
        limits = {"copying its bytes": plan.copy_us / 1e3, **limits}
    spellings = ", ".join(f"{side} with {spelling} arithmetic" for side, spelling in sides.spellings.items())
    schedules = ", ".join(step.schedule for step in plan.steps)
    return Report(
        name="cpu_mistral_rope",
        title="Mistral RoPE forward, bf16, sequence 4096, on the CPU",
        contestants=contestants,
        ratios=(paired_ratio(by_name[COMPILED], by_name[OURS]), paired_ratio(by_name[EAGER], by_name[OURS])),
        limits_ms=limits,
        facts={**machine(), **versions(), "plan": schedules, "plan key": plan.plan_key},
        notes=(
            f"One process, {options.threads} threads each, {options.rounds} interleaved rounds in random order. "
            f"In each turn a pause of {PAUSE_SECONDS * 1e3:.0f} ms, one call to wake the threads, one that is timed.",
            "All sides allocate fresh outputs from PyTorch's allocator in every call, under "
            + " ".join(f"{k}={v}" for k, v in ALLOCATION.items())
            + "; "
            f"'{REUSED}' writes into the same outputs each time.",
            f"PyTorch in its faster spelling (benchmarks/peers.py): {spellings}.",
            "Results agree within two bf16 steps of the operands.",
        ),
    )


def _restart_with_allocation_policy() -> None:
    """The policy is read when a process starts."""
    if any(os.environ.get(name) != value for name, value in ALLOCATION.items()):
        os.execve(sys.executable, [sys.executable, "-m", "benchmarks.cpu", *sys.argv[1:]], {**os.environ, **ALLOCATION})


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cpu", description="Mistral RoPE on the CPU: Fuseplan beside PyTorch."
    )
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seconds", type=float, default=30.0, help="seconds of search")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
