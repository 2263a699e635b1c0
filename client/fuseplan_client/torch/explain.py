"""`explain(model, inputs)`: which parts of a model plans compute, which stay PyTorch's, why, and what each takes."""

import operator
import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node
from torch.utils._pytree import tree_leaves

from fuseplan_client.torch.backend import DEFAULT_SECONDS, Backend
from fuseplan_client.torch.devices import CPU
from fuseplan_client.torch.export import is_view
from fuseplan_client.torch.group import PlannedGroup
from fuseplan_client.torch.whole import CompiledGraph, WholeGraph

RUNS = 7
JUDGED_CALLS = 16  # after which a plan has been checked and timed
SMALL = "a plan of so few ops would not be faster"


@dataclass(frozen=True)
class Part:
    """A group of ops, or an op that stays PyTorch's. ops: of aten in a group. state: of the group's plan, "" of an op.
    us: median of its calls by itself, as it runs now; eager_us: as PyTorch's own ops; None where it was not timed."""

    name: str
    ops: int
    state: str = ""
    reason: str = ""
    us: float | None = None
    eager_us: float | None = None
    kernels: int | None = None


@dataclass(frozen=True)
class GraphParts:
    """The parts of one graph, in the order in which they run, views aside."""

    kind: str
    parts: Sequence[Part]


@dataclass(frozen=True)
class Verdict:
    """One graph of Dynamo's, forward with backward: how calls run it from now on. us: medians of the calls that it was
    judged by, with plans and as the model has it, None where no plan is used."""

    is_planned: bool
    planned_us: float | None
    own_us: float | None


@dataclass(frozen=True)
class Explanation:
    """The answer of `explain`. us, eager_us, inductor_us: medians of the whole call. verdicts: on each of Dynamo's
    graphs that has groups. graphs: those that AOTAutograd made of them. problems: what the back end met."""

    verdicts: Sequence[Verdict]
    graphs: Sequence[GraphParts]
    us: float
    eager_us: float
    inductor_us: float | None
    problems: Sequence[str]

    def __str__(self) -> str:
        lines = [f"The call takes {self.us:,.0f} us; eager mode {self.eager_us:,.0f} us" + self._inductor()]
        lines += [_verdict_line(v) for v in self.verdicts]
        for graph in self.graphs:
            planned = sum(p.ops for p in graph.parts if p.state == "planned")
            lines += ["", f"{graph.kind}: {planned} of {sum(p.ops for p in graph.parts)} ops in plans"]
            lines += [f"  {_line(part)}" for part in graph.parts]
        return "\n".join([*lines, *(f"note: {p}" for p in self.problems)])

    def _inductor(self) -> str:
        return "" if self.inductor_us is None else f", Inductor {self.inductor_us:,.0f} us"


def explain(
    model: Callable[..., Any],
    inputs: Sequence[Any],
    *,
    seconds: float = DEFAULT_SECONDS,
    server: str | None = None,
    inductor: bool = True,
    backend: Backend | None = None,
) -> Explanation:
    """Compiles the model, waits for its plans, and times the whole call and each part, those of the backward graph,
    too, where a result has a gradient. seconds: of search for each group. inductor: whether it is compiled by Inductor
    as well, for its time.

    It calls the model several times, as training would: parameters get gradients.
    """
    backend = backend or Backend(server=server, seconds=seconds)
    compiled = torch.compile(model, backend=backend, dynamic=False)
    step = _step(compiled, inputs)
    step()
    done = backend.wait(60 + (seconds + 30) * max(1, len(backend.groups)))
    while done and not backend.is_settled:
        for _ in range(JUDGED_CALLS):
            step()
        done = backend.wait(60 + (seconds + 30) * max(1, len(backend.groups)))
    clock = next((whole.device for whole in backend.wholes if whole.groups), CPU).clock
    with ExitStack() as stack:
        for whole in backend.wholes:
            stack.enter_context(whole.by_groups())
        graphs = [GraphParts(g.kind, _timed_graph(g, step, clock)) for g in backend.graphs]
    other = torch.compile(model, backend="inductor", dynamic=False) if inductor else None
    return Explanation(
        [_verdict(whole) for whole in backend.wholes if whole.races],
        graphs,
        _median_us(step, clock),
        _median_us(_step(model, inputs), clock),
        None if other is None else _median_us(_step(other, inputs), clock),
        tuple(backend.problems),
    )


def _step(call: Callable[..., Any], inputs: Sequence[Any]) -> Callable[[], None]:
    def step() -> None:
        found = call(*inputs)
        leaves = [t for t in tree_leaves(found) if isinstance(t, torch.Tensor) and t.requires_grad]
        if leaves:
            torch.autograd.backward(leaves, [torch.ones_like(t) for t in leaves])

    return step


def _median_us(call: Callable[[], None], clock: Callable[[], float]) -> float:
    call()
    samples: list[float] = []
    for _ in range(RUNS):
        start = clock()
        call()
        samples.append(clock() - start)
    return 1e6 * statistics.median(samples)


def _timed_graph(graph: CompiledGraph, step: Callable[[], None], clock: Callable[[], float]) -> list[Part]:
    """The graph's parts with their times, from one more step during which its inputs are kept."""
    given: list[Sequence[Any]] = []
    forward = graph.module.forward

    def noted(*args: Any) -> Any:
        given.append(args)
        return forward(*args)

    graph.module.forward = noted
    try:
        step()
    finally:
        del graph.module.forward
    times: dict[str, list[tuple[float, float | None]]] = {}
    if given:
        with torch.no_grad():
            for _ in range(RUNS):
                _Timed(graph.module, times, clock).run(*given[-1])
    return [p for n in graph.module.graph.nodes if (p := _part(graph, n, times.get(n.name, ()))) is not None]


class _Timed(Interpreter):
    """Runs a graph node by node; groups as they are, and as PyTorch's ops."""

    def __init__(
        self, module: GraphModule, times: dict[str, list[tuple[float, float | None]]], clock: Callable[[], float]
    ) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.times, self.clock = times, clock

    def run_node(self, n: Node) -> Any:
        if n.op not in ("call_function", "call_module"):
            return super().run_node(n)
        start = self.clock()
        found = super().run_node(n)
        took, eager = self.clock() - start, None
        if n.op == "call_module":
            group = self.fetch_attr(str(n.target))
            args, _ = self.fetch_args_kwargs_from_env(n)
            own = group.by_ops
            start = self.clock()
            own(args)
            eager = self.clock() - start
        self.times.setdefault(n.name, []).append((took, eager))
        return found


def _part(graph: CompiledGraph, node: Node, times: Sequence[tuple[float, float | None]]) -> Part | None:
    us = 1e6 * statistics.median(t for t, _ in times) if times else None
    eager = [e for _, e in times if e is not None]
    if node.op == "call_module":
        group = getattr(graph.module, str(node.target))
        assert isinstance(group, PlannedGroup)
        ops = sum(n.op == "call_function" and not _is_free(n) for n in group.module.graph.nodes)
        slot = next(iter(group.slots.values()), None)
        state, reason, kernels = (slot.state, slot.reason, slot.kernels) if slot else ("waiting", "never called", None)
        return Part(group.label, ops, state, reason, us, 1e6 * statistics.median(eager) if eager else None, kernels)
    if node.op != "call_function" or _is_free(node):
        return None
    reason = graph.left.get(node.name) or SMALL
    return Part(str(node.target), 1, "", reason, us, us)


def _verdict(whole: WholeGraph) -> Verdict:
    race = next(iter(whole.races.values()))
    return Verdict(race.is_planned, race.planned_us, race.own_us)


def _verdict_line(verdict: Verdict) -> str:
    if verdict.planned_us is None or verdict.own_us is None:
        return "It runs as the model has it: no plan is used"
    times = f"{verdict.planned_us:,.0f} us with plans, {verdict.own_us:,.0f} us as the model has it"
    return f"It runs {'with plans' if verdict.is_planned else 'as the model has it'}: {times}"


def _is_free(node: Node) -> bool:
    return node.target is operator.getitem or is_view(node)


def _line(part: Part) -> str:
    time_ = "" if part.us is None else f"{part.us:10,.0f} us"
    if not part.state:
        return f"{part.name:44}{time_}  PyTorch's: {part.reason}"
    eager = "" if part.eager_us is None else f", {part.eager_us:,.0f} us as PyTorch's ops"
    kernels = "" if part.kernels is None else f", {part.kernels} kernels"
    why = f": {part.reason}" if part.reason else ""
    return f"{part.name:44}{time_}  {part.ops} ops, {part.state}{kernels}{eager}{why}"
