"""Mistral's rotary embedding, whose angles are a product with K = 1: one kernel, against a library's product.

Two graphs as nvFuser printed them (examples/): the part that it cuts off first, up to the cosine, and the whole. The
sides: the plan as searched; the whole graph in one kernel, the contraction inlined by the pointwise family; the cut
with a library product, our kernels before and behind PyTorch's mm, which is what nvFuser's ExprEval segment calls; the
plan of the unfused graph; PyTorch eager and compiled.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.corpus.pytorch import Tensor, Tensors, torch
from benchmarks.corpus.rope import torch_mistral
from benchmarks.corpus.rope_parts import torch_rotate, torch_rotate_wide
from benchmarks.racing import fastest, paired_ratio
from benchmarks.seeds.place import Function, Place
from codegen.families import FAMILIES
from codegen.kernel import EmitError, Kernel
from codegen.toolchain.compiler import Binary
from fusion_ir.core.extent import dense_strides
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.formats import read
from fusion_ir.ops import make_input
from fusion_ir.records import Plan, Search, Status
from fusion_ir.reference.sample_inputs import sample_inputs
from scheduler.budget import Budget
from scheduler.cost.traffic import traffic_of
from scheduler.interfaces import Forgetful
from scheduler.plans.assemble import Choice, assemble
from scheduler.rewrites.prepare import prepare
from scheduler.rewrites.rules.split_reduction import split_tasks
from scheduler.segments.atoms import atoms_of
from scheduler.segments.segment import extract
from scheduler.tune import tune

EXAMPLES = Path(__file__).parents[2] / "examples"
ONE, SEARCHED, CUT, UNFUSED, EAGER, COMPILED = (
    "one kernel", "plan", "library product", "unfused plan", "eager", "compile",
)  # fmt: skip
FIRST = 8  # schedules of the one kernel
HEADS, GROUPS, SIZE = 32, 8, 128

Row = dict[str, Any]


def torch_first_part(q: Tensor, k: Tensor, v: Tensor, frequencies: Tensor, positions: Tensor) -> Tensors:
    """The part of `torch_mistral` before the product of the queries with the cosine: (q f32, cosine)."""
    turned = (frequencies[None, :, None].float() @ positions[:, None, :].float()).transpose(1, 2)
    wide = q.view(*q.shape[:2], HEADS, SIZE).transpose(1, 2).to(torch.float32, memory_format=torch.contiguous_format)
    return wide, torch.cat((turned, turned), -1).cos().to(q.dtype)


@dataclass(frozen=True)
class Part:
    """A file of examples/, and its spellings in PyTorch, the fastest of which counts."""

    file: str
    peers: tuple[Callable[..., Tensors], ...]

    def graph(self) -> Graph:
        """The graph, read from the file as any user's would be."""
        return read((EXAMPLES / self.file).read_text(), filename=self.file).graph


PARTS: Mapping[str, Part] = {
    "first part": Part("mistral_rope_first_part.kernel_math.txt", (torch_first_part,)),
    "whole": Part(
        "mistral_rope_forward.nvfuser.py",
        tuple(partial(torch_mistral, turn, heads=HEADS, groups=GROUPS) for turn in (torch_rotate, torch_rotate_wide)),
    ),
}


def rows(place: Place, before: Sequence[Row]) -> Iterator[Row]:
    """A row for each part that is not among `before`."""
    known = {row["key"] for row in before}
    for key, part in PARTS.items():
        if key not in known:
            yield {"key": key, **(_raced(part, place) if place.sides else _planned(part, place))}


def _planned(part: Part, place: Place) -> Row:
    """A row without a race: the plan, and the time of plans for both sides of the cut at the product."""
    plan = place.plan(part.graph())
    halves = [place.plan(half) for half in cut_at_product(part.graph()) if half]
    return {
        "plan": describe(plan),
        "us": {SEARCHED: plan.time_us or plan.predicted_us},
        "halves_us": sum(half.time_us or half.predicted_us or 0.0 for half in halves),
        "bound_us": plan.lower_bound_us,
    }


def _raced(part: Part, place: Place) -> Row:
    graph = part.graph()
    assert place.sides is not None
    torch.compiler.reset()  # what was compiled before would count against the limit of recompilations
    tensors = place.sides.tensors(sample_inputs(graph, place.seed))
    unfused: list[Plan] = []
    with place.bench() as bench:
        budget = Budget(place.budget_s, place.seed)
        plan = tune(graph, place.device, budget, Forgetful(), bench, on_unfused=unfused.append)
    functions: dict[str, Function] = {SEARCHED: place.sides.function(plan), CUT: _library(graph, place)}
    one = one_kernel(graph, place)
    if one is not None:
        functions[ONE] = place.sides.function(one)
    if unfused:
        functions[UNFUSED] = place.sides.function(unfused[0])
    for name, wrap in ((EAGER, lambda f: f), (COMPILED, partial(torch.compile, fullgraph=True, dynamic=False))):
        spellings = {str(i): wrap(peer) for i, peer in enumerate(part.peers)}
        for function in spellings.values():
            function(*tensors)
        chosen = fastest({i: partial(f, *tensors) for i, f in spellings.items()}, place.seed)
        functions[name] = spellings[chosen]
    expected = part.peers[-1](*tensors)
    for name, function in functions.items():
        _agree(name, function(*tensors), expected)
    calls = {name: partial(function, *tensors) for name, function in functions.items()}
    times = place.sides.race(calls, place.rounds, place.seed)
    base = ONE if ONE in times else SEARCHED
    ratios = {name: paired_ratio(times[name], times[base]) for name in times if name != base}
    return {
        "plan": describe(plan),
        ONE: describe(one) if one else "not lowered",
        "us": {name: times[name].median_us for name in times},
        "over": {name: [r.median, r.low, r.high] for name, r in ratios.items()},
        "bound_us": plan.lower_bound_us,
        "copy_us": plan.copy_us,
    }


def describe(plan: Plan) -> str:
    """Schedules of the plan's kernels, in order."""
    return "; ".join(s.schedule for s in plan.steps)


def one_kernel(graph: Graph, place: Place) -> Plan | None:
    """A plan of the whole graph by one kernel of the pointwise family, the fastest of its first schedules; None where
    the family rejects the graph, or no kernel passes its check."""
    prepared = prepare(graph, split_tasks(place.device))
    atoms = atoms_of(prepared.graph)
    segment, family = extract(atoms, atoms.piece(atoms.all)), FAMILIES["pointwise"]
    own = segment.canonical.graph
    if family.accepts(own, place.device) is not None:
        return None
    kernels: list[Kernel] = []
    for schedule in family.space(own, place.device)[:FIRST]:
        try:
            kernels.append(family.emit(own, schedule, place.device))
        except EmitError:
            continue
    with place.bench() as bench:
        measured = bench.measure(own, segment.key, kernels, seed=place.seed)
        passed = [(m.time_us, k) for m, k in zip(measured, kernels, strict=True) if m.status is Status.ok and m.time_us]
        if not passed:
            return None
        time_us, kernel = min(passed, key=lambda pair: pair[0])
        (binary,) = bench.compile_for_plans([kernel])
    assert isinstance(binary, Binary)
    choice = Choice(segment, traffic_of(segment.graph), kernel, binary, time_us)
    search = Search(seconds=0.0, candidates=1, measured=len(kernels), complete=False, seed=place.seed)
    return assemble(prepared, place.device, [choice], search)


def cut_at_product(graph: Graph) -> tuple[Graph | None, Graph]:
    """The graph of the operands of the graph's one contraction, None where they are inputs; and the graph of the rest,
    whose last input is the product."""
    (product,) = (n for n in graph.nodes if n.op == "contract")
    made = [a for a in product.args if a.op != "input"]
    outputs = tuple(OutputSpec(a, dense_strides(a.sizes)) for a in made)
    spec = InputSpec(product.shape, product.dtype, dense_strides(product.sizes))
    image: dict[Node, Node] = {product: make_input(len(graph.inputs), spec)}
    for node in graph.nodes:
        if node not in image:
            image[node] = node if node.op == "input" else node.over(tuple(image[a] for a in node.args))
    rest = Graph((*graph.inputs, spec), tuple(OutputSpec(image[o.node], o.strides) for o in graph.outputs))
    return Graph(graph.inputs, outputs) if made else None, rest


def _library(graph: Graph, place: Place) -> Function:
    """A function that runs a plan of the operands, PyTorch's mm, and a plan of the rest."""
    assert place.sides is not None
    operands, rest = cut_at_product(graph)
    (product,) = (n for n in graph.nodes if n.op == "contract")
    rows, columns = product.sizes  # of one row and one column: its operands have lost their axis of extent 1
    if operands is None or product.attr("reduced", int) or [o.node for o in operands.outputs] != list(product.args):
        raise ValueError(f"{product} is no product with K = 1 of tensors that are computed")
    before, behind = (place.sides.function(place.plan(half)) for half in (operands, rest))

    def function(*tensors: Any) -> Tensors:
        a, b = before(*tensors)
        return behind(*tensors, torch.mm(a.view(rows, 1), b.view(1, columns)))

    return function


def _agree(name: str, got: Tensors, expected: Tensors) -> None:
    """Raises ValueError where a side is further from PyTorch's results than roundings to 16 bits take it."""
    for i, (a, b) in enumerate(zip(got, expected, strict=True)):
        difference, largest = float((a.double() - b.double()).abs().max()), float(b.double().abs().max())
        if tuple(a.shape) != tuple(b.shape) or difference > 2**-6 * max(largest, 1.0):
            raise ValueError(
                f"{name}: out{i} differs by {difference:.3g} from PyTorch's, whose largest is {largest:.3g}"
            )


def page(found: Sequence[Row], is_measured: bool) -> list[str]:
    """A row for each part; ratios are over the one kernel, with 95 % intervals."""
    if not is_measured:
        lines = ["| graph | kernels | **predicted** us | cut at the product, without the product | lower bound |"]
        lines += ["|---|---|---:|---:|---:|"]
        return lines + [
            f"| {r['key']} | {len(r['plan'].split('; '))} | {r['us'][SEARCHED]:.1f} | {r['halves_us']:.1f} us in two "
            f"kernels | {r['bound_us']:.1f} |"
            for r in found
        ]
    lines = ["| graph | side | us | over the one kernel | |", "|---|---|---:|---|---|"]
    for row in found:
        base = ONE if ONE in row["us"] else SEARCHED
        for name, us in sorted(row["us"].items(), key=lambda item: item[1]):
            over = row["over"].get(name)
            ratio = f"{over[0]:.2f}x [{over[1]:.2f}, {over[2]:.2f}]" if over else "1" if name == base else ""
            what = row["plan"] if name == SEARCHED else row.get(ONE, "") if name == ONE else ""
            lines.append(f"| {row['key']} | {name} | {us:.0f} | {ratio} | {what} |")
        lines.append(
            f"| {row['key']} | lower bound | {row['bound_us']:.0f} | {row['bound_us'] / row['us'][base]:.2f}x | |"
        )
    return lines
