"""Random graphs through the real path, compared with the interpreter (bit for bit where every op is exact).

Cut at random places, emitted, compiled many to a file, run as whole plans in the timing child between guard pages.
"""

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from codegen.families import FAMILIES
from codegen.kernel import EmitError, Kernel
from codegen.toolchain.compiler import Binary
from codegen.workbench.workbench import Workbench
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.ops import OpKind, kind_of
from fusion_ir.ops.contract import products
from fusion_ir.records import Device, Plan, Search, Status
from scheduler.cost.traffic import traffic_of
from scheduler.plans.assemble import Choice, assemble
from scheduler.rewrites.prepare import Prepared, prepare
from scheduler.segments.atom_cuts import cut
from scheduler.segments.atoms import Atoms
from scheduler.segments.segment import Segment, extract
from testing.random_graphs import Seeded, any_graph, pointwise_graph
from testing.scatter_graphs import scatter_graph
from tests.support.partitions import execution_order
from tests.support.random_reductions import reduction_graph

MAX_TERMS = 1 << 27
NO_SEARCH = Search(seconds=0, candidates=0, measured=0, complete=False)


@dataclass
class Result:
    """Counts of one sweep. wrong: a line for each plan that did not match or did not run."""

    graphs: int = 0
    plans: int = 0
    kernels: int = 0
    wrong: list[str] = field(default_factory=list)
    ops: Counter[str] = field(default_factory=Counter)
    families: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        ops = ", ".join(f"{name} {n}" for name, n in sorted(self.ops.items()))
        families = ", ".join(f"{name} {n}" for name, n in sorted(self.families.items()))
        refused = "".join(f"\n{n} x {reason}" for reason, n in self.refused.most_common())
        return (
            f"{self.graphs} graphs, {self.plans} plans, {self.kernels} kernels ({families}); wrong: {len(self.wrong)}\n"
            f"{len(self.ops)} ops: {ops}\n"
            f"{self.refused.total()} refused after all:{refused or ' none'}"
        )


@dataclass(frozen=True)
class Attempt:
    """One graph cut in one way, with a kernel per segment."""

    seed: int
    how: str
    prepared: Prepared
    segments: tuple[Segment, ...]
    kernels: tuple[Kernel, ...]


Drawn = tuple[Callable[[int], Graph], tuple[str, ...]]

# Graphs of a seed, and how they are cut: of exact pointwise and view ops; of every kind of op; around reductions;
# around scatters.
EVERY_KIND: tuple[Drawn, ...] = (
    (lambda seed: pointwise_graph(Seeded(seed)), ("fused", "cut", "cut again")),
    (lambda seed: any_graph(Seeded(seed)), ("fused", "apart")),
    (lambda seed: reduction_graph(Seeded(seed)), ("fused", "cut", "apart")),
    (lambda seed: scatter_graph(Seeded(seed)), ("fused", "cut")),
)


def sweep(seeds: Iterable[int], bench: Workbench, device: Device, drawn: Sequence[Drawn] = EVERY_KIND) -> Result:
    """One graph of each kind per seed."""
    result = Result()
    for (seed, graph), made in plans_of(seeds, bench, device, drawn, result).items():
        for (attempt, _), timing in zip(
            made, bench.measure_plans(graph, [p for _, p in made], seed=seed, seconds=0.0), strict=True
        ):
            if timing.status is not Status.ok:
                which = [f"{k.family} {k.schedule}" for k in attempt.kernels]
                result.wrong.append(f"seed {seed} {attempt.how} {which}: {timing.status.value}: {timing.detail[:400]}")
    return result


def plans_of(
    seeds: Iterable[int], bench: Workbench, device: Device, drawn: Sequence[Drawn], result: Result
) -> dict[tuple[int, Graph], list[tuple[Attempt, Plan]]]:
    """Plans of the graphs of these seeds, compiled. Counts them, and notes those that do not compile."""
    attempts: list[Attempt] = []
    for seed in seeds:
        for draw, ways in drawn:
            graph = draw(seed)
            result.graphs += 1
            result.ops.update({n.op for n in graph.nodes} - {"input"})
            attempts += [a for how in ways if (a := _attempt(graph, seed, how, device, result)) is not None]
    kernels = [k for a in attempts for k in a.kernels]
    result.kernels, result.plans = len({k.entry for k in kernels}), len(attempts)
    result.families.update(k.family for k in kernels)
    binaries = iter(bench.compile(kernels))
    plans: dict[tuple[int, Graph], list[tuple[Attempt, Plan]]] = {}
    for attempt in attempts:
        built = [next(binaries) for _ in attempt.kernels]
        failed = [b.detail for b in built if not isinstance(b, Binary)]
        if failed:
            result.wrong.append(f"seed {attempt.seed} {attempt.how}: does not compile: {failed[0][:400]}")
            continue
        choices = [
            Choice(s, traffic_of(s.graph), k, b, None)
            for s, k, b in zip(attempt.segments, attempt.kernels, built, strict=True)
            if isinstance(b, Binary)
        ]
        plan = assemble(attempt.prepared, device, choices, NO_SEARCH)
        plans.setdefault((attempt.seed, attempt.prepared.given), []).append((attempt, plan))
    return plans


def _attempt(graph: Graph, seed: int, how: str, device: Device, result: Result) -> Attempt | None:
    rng = random.Random(f"{seed} {how}")
    prepared = prepare(graph)

    def kernel(segment: Segment) -> Kernel | None:
        families = [f for f in FAMILIES.values() if f.accepts(segment.canonical.graph, device) is None]
        if _terms(segment.canonical.graph) > MAX_TERMS:  # naive reduces again for each element that reads the result
            families = [f for f in families if f.name != "naive"]
        rng.shuffle(families)
        if rng.random() < 0.8:  # naive takes everything: mostly where nothing else does
            families.sort(key=lambda family: family.name == "naive")
        for family in families:
            try:
                return family.emit(
                    segment.canonical.graph, rng.choice(family.space(segment.canonical.graph, device)), device
                )
            except EmitError as error:
                result.refused[f"{family.name}: {re.sub(r'[0-9][0-9, i()]*', 'N ', str(error))}"] += 1
        return None

    def computable(atoms: Atoms, atom: int) -> bool:
        return kernel(extract(atoms, atoms.piece(1 << atom))) is not None

    atoms = cut(prepared.graph, computable)
    made: dict[int, tuple[Segment, Kernel | None]] = {}

    def kernel_of(mask: int) -> tuple[Segment, Kernel | None]:
        if mask not in made:
            made[mask] = (segment := extract(atoms, atoms.piece(mask)), kernel(segment))
        return made[mask]

    groups = _groups(
        atoms, {"fused": 0.95, "apart": 0.0}.get(how, 0.6), rng, lambda mask: kernel_of(mask)[1] is not None
    )
    segments = tuple(kernel_of(mask)[0] for mask in groups)
    kernels = tuple(k for mask in groups if (k := kernel_of(mask)[1]) is not None)
    assert len(kernels) == len(segments), f"seed {seed}: a segment without a kernel"
    return Attempt(seed, how, prepared, segments, kernels)


def _terms(graph: Graph) -> int:
    """Terms that a kernel goes through which computes all that an output's element needs for that element alone."""
    terms: dict[Node, int] = {}
    for node in graph.nodes:
        inside = max((terms[a] for a in node.args), default=1)
        kind = kind_of(node)
        if kind is OpKind.CONTRACT:
            inside *= products(node)
        elif kind in (OpKind.REDUCTION, OpKind.SCAN):
            inside *= max(node.args[0].elements // max(node.elements, 1), 1)
        elif kind is OpKind.SCATTER:
            inside *= max(node.args[1].elements, 1)
        terms[node] = inside
    return sum(terms[o.node] * o.node.elements for o in graph.outputs)


def _groups(atoms: Atoms, join: float, rng: random.Random, accepted: Callable[[int], bool]) -> tuple[int, ...]:
    """A random partition into convex accepted sets, in execution order: each atom joins a group with chance `join`."""
    groups: list[int] = []
    for a in range(len(atoms)):
        bit = 1 << a
        for i in rng.sample(range(len(groups)), len(groups)) if rng.random() < join else ():
            merged = [*groups[:i], groups[i] | bit, *groups[i + 1 :]]
            if execution_order(atoms.preds, merged) is not None and accepted(groups[i] | bit):
                groups = merged
                break
        else:
            groups.append(bit)
    order = execution_order(atoms.preds, groups)
    assert order is not None
    return order
