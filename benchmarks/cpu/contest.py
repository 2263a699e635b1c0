"""One case of the corpus in one dtype: planned, compared with PyTorch's results, and timed beside PyTorch."""

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch  # pyright: ignore[reportMissingImports]  # only make bench-cpu and make test install it

from benchmarks.corpus.agreement import Truth, converted, disagreement, largest_difference, run_torch
from benchmarks.corpus.balance import bytes_of, bytes_read, bytes_written
from benchmarks.corpus.case import Case
from benchmarks.corpus.pytorch import to_numpy, to_torch
from benchmarks.cpu import peers
from benchmarks.cpu.copying import copies, moves
from benchmarks.plan_runner import PlanRunner
from benchmarks.racing import Contestant, Ratio, fastest, paired_ratio, race
from codegen.launch.cpu import Pool
from codegen.sandbox.object_cache import ObjectCache
from fusion_ir.accuracy.tolerance import reference
from fusion_ir.core.graph import Graph
from fusion_ir.core.named import NamedGraph
from fusion_ir.dtype import f64
from fusion_ir.records import Plan
from scheduler.budget import Budget
from service.planning.planner import plan_graph
from tuning_db.store import Store

PLAN, EAGER, COMPILED, COPY, MOVE = "plan", "eager", "compile", "copy", "move"


class Disagreement(Exception):
    """Plan and PyTorch do not compute the same; the message says where."""


@dataclass(frozen=True)
class Place:
    """Where contests are held: one process, one pool, one database. budget_s: of a search. compiled: whether PyTorch
    takes part with torch.compile, too."""

    store: Store
    cache: ObjectCache
    pool: Pool
    copying: Path
    budget_s: float
    rounds: int
    seed: int
    compiled: bool = True


@dataclass(frozen=True)
class Outcome:
    """One row of the result. `problem`: why there is nothing more, else "". kernels: family and schedule of each.
    spellings: which of a case's functions PyTorch's sides were fastest with, "" being the first. bytes: of inputs and
    outputs. gap: the plan's `search_gap`."""

    name: str
    topic: str
    kind: str
    dtype: str
    sizes: dict[str, int]
    bytes: int
    problem: str = ""
    times: dict[str, Contestant] = field(default_factory=dict[str, Contestant])
    ratios: dict[str, Ratio] = field(default_factory=dict[str, Ratio])
    bound_us: float = 0.0
    gap: float | None = None
    kernels: tuple[str, ...] = ()
    plan_key: str = ""
    cached: bool = False
    plan_seconds: float = 0.0
    compile_seconds: float = 0.0
    spellings: dict[str, str] = field(default_factory=dict[str, str])
    notes: tuple[str, ...] = ()

    @property
    def families(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(kernel.partition("{")[0] for kernel in self.kernels))

    @property
    def better(self) -> str:
        """PyTorch's faster side. Raises ValueError where there is none."""
        return min((s for s in (EAGER, COMPILED) if s in self.times), key=lambda s: self.times[s].median_us)

    @property
    def speedup(self) -> Ratio:
        """The better of PyTorch's sides over the plan."""
        return self.ratios[self.better]

    @property
    def over_floor(self) -> Ratio:
        """The plan over moving its bytes: reading as many as the graph reads, and writing as many as it writes."""
        return self.ratios[MOVE]

    @property
    def over_copy(self) -> Ratio:
        """The plan over copying as many bytes, half of them read and half written."""
        return self.ratios[COPY]

    @property
    def over_bound(self) -> float:
        """The plan over its lower bound; infinite without one."""
        return self.times[PLAN].median_us / self.bound_us if self.bound_us else float("inf")


def hold(case: Case, topic: str, dtype: str, place: Place) -> Outcome:
    """The outcome of one contest. Raises whatever planning or measuring raises, and Disagreement."""
    instance = case.instance(dtype)
    graph = instance.graph
    started = time.perf_counter()
    named = NamedGraph.unnamed(graph)
    answer = plan_graph(named, "cpu", Budget(place.budget_s, place.seed), place.store, place.cache)
    plan_seconds = time.perf_counter() - started
    arrays = instance.sample(place.seed)
    tensors = tuple(to_torch(a) for a in arrays)
    sides = {EAGER: peers.eager(case, tensors), COMPILED: peers.compiled(case, tensors) if place.compiled else []}
    runner = PlanRunner(answer.plan, place.cache, place.pool)
    check(case, graph, arrays, [to_numpy(t) for t in runner(*tensors)])
    calls: dict[str, Callable[[], object]] = {PLAN: lambda: runner(*tensors)}
    spellings: dict[str, str] = {}
    for name, ways in sides.items():
        working = {side.spelling: side.call for side in ways if side.call is not None}
        if working:
            spellings[name] = fastest(working)
            calls[name] = working[spellings[name]]
    copying = copies(place.copying, place.pool, bytes_of(graph))
    moving = moves(place.copying, place.pool, bytes_read(graph), bytes_written(graph))
    if bytes_read(graph) == bytes_written(graph):
        moving |= copying
    for name, ways in ((COPY, copying), (MOVE, moving)):
        spellings[name] = fastest(ways)
        calls[name] = ways[spellings[name]]
    times = race(calls, place.rounds, place.seed)
    ratios = {name: paired_ratio(times[name], times[PLAN]) for name in (EAGER, COMPILED) if name in times}
    ratios |= {name: paired_ratio(times[PLAN], times[name]) for name in (COPY, MOVE)}
    if not spellings.keys() & {EAGER, COMPILED}:
        raise RuntimeError("; ".join(side.problem for ways in sides.values() for side in ways))
    return Outcome(
        **identity(case, topic, dtype, bytes_of(graph)),
        times=times,
        ratios=ratios,
        bound_us=answer.plan.lower_bound_us,
        gap=answer.plan.search_gap,
        kernels=_kernels(answer.plan),
        plan_key=answer.plan_key,
        cached=answer.cache == "hit",
        plan_seconds=plan_seconds,
        compile_seconds=sum(side.prepare_seconds for side in sides[COMPILED]),
        spellings=spellings,
        notes=tuple(f"{n}: {side.problem}" for n, ways in sides.items() for side in ways if side.problem),
    )


def identity(case: Case, topic: str, dtype: str, bytes_: int = 0) -> dict[str, Any]:
    """Fields of an outcome that describe its case."""
    return {
        "name": case.name,
        "topic": topic,
        "kind": case.kind,
        "dtype": dtype,
        "sizes": dict(case.sizes),
        "bytes": bytes_,
    }


def check(case: Case, graph: Graph, arrays: list[np.ndarray], got: list[np.ndarray]) -> None:
    """Raises Disagreement where the plan's outputs are further from PyTorch's f64 results than PyTorch's own in the
    case's dtype, and further than `benchmarks.corpus.agreement` allows (tried second: it takes longer)."""
    theirs = run_torch(case, case.sizes, arrays)
    exact = run_torch(case, case.sizes, [converted(a, f64) for a in arrays])
    deviation = [largest_difference(a, b) for a, b in zip(theirs, exact, strict=True)]
    if all(largest_difference(a, b) <= d for a, b, d in zip(got, exact, deviation, strict=True)):
        return
    problem = disagreement(got, Truth(exact, deviation), reference(graph, arrays, runs=2), times=2)
    if problem:
        raise Disagreement(problem)


def _kernels(plan: Plan) -> tuple[str, ...]:
    return tuple(step.schedule if "{" in step.schedule else f"{step.family}{{{step.schedule}}}" for step in plan.steps)


def free() -> None:
    """Frees the last case's tensors, and the code that PyTorch compiled for it."""
    torch.compiler.reset()
    gc.collect()
