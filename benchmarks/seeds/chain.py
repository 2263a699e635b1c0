"""The tail of DistilGPT-2's attention, P (Y A + b) C with a split of heads between the products, in every form.

A C and b C can be computed once, if A, b and C are constants: of one head that saves a product; of twelve it takes
seven times the work in every run. The forms are graphs of their own, each tuned and all timed in one race; operations
are those that our traffic analysis counts of the graph as the search prepares it. Each form is planned as it is,
without alternatives; then what the planner chooses, given the first one as MIGraphX printed it (examples/).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.corpus.pytorch import Tensor, Tensors, torch
from benchmarks.racing import paired_ratio
from benchmarks.seeds.place import Function, Place
from fusion_ir import building as build
from fusion_ir.arithmetic.conversions import round_to
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import DTYPES, DType, f32
from fusion_ir.formats import read
from fusion_ir.ops import make_input
from fusion_ir.records import Plan
from scheduler.cost.traffic import traffic_of
from scheduler.rewrites.prepare import prepare

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = {12: "distilgpt2_attention_tail.migraphx.txt", 1: "distilgpt2_attention_tail_one_head.migraphx.txt"}
TOKENS, WIDTH = 348, 768
HEADS, DTYPE_NAMES = (12, 1), ("f16", "f32")
GIVEN, FOLDED, HEADS_FIRST = "as given", "A_h C_h folded", "V_h C_h first"
CHOSEN, EAGER, COMPILED = "planner's choice", "eager", "compile"
# Of reference/algebra.md, in GFLOP, by heads.
KNOWN_GFLOP = {12: {GIVEN: 1.01, FOLDED: 7.16, HEADS_FIRST: 3.05}, 1: {GIVEN: 1.01, FOLDED: 0.60}}

Row = dict[str, Any]
Arrays = Mapping[str, np.ndarray]


def _values(heads: int, y: Node, a: Node, b: Node) -> Node:
    """V[heads, tokens, width / heads]: the last third of Y A + b, head by head."""
    wide = build.add(build.matmul(y, a, f32), build.cast(b, f32))
    tokens, width = y.sizes
    split = build.permute(
        build.reshape(build.cast(wide, y.dtype), [1, tokens, 3 * heads, width // heads]), (0, 2, 1, 3)
    )
    size = width // heads
    return build.squeeze(build.slice_(split, (0, 2 * heads, 0, 0), (1, 3 * heads, tokens, size)), 0)


def given(heads: int, b: Node, a: Node, y: Node, p: Node, c: Node) -> Node:
    """(P_h V_h, heads side by side) C."""
    tokens, width = y.sizes
    per_head = build.matmul(p, build.unsqueeze(_values(heads, y, a, b), 0))
    return build.matmul(build.reshape(build.permute(per_head, (0, 2, 1, 3)), [tokens, width]), c)


def folded(heads: int, bc: Node, ac: Node, y: Node, p: Node) -> Node:
    """sum over h of P_h (Y (A C)_h + (b C)_h), with ac[heads, width, width] and bc[heads, tokens, width]."""
    product = build.einsum(y, ac, (0, 1), (2, 1, 3), (2, 0, 3), f32)
    values = build.cast(build.add(product, build.cast(bc, f32)), y.dtype)
    return build.einsum(build.squeeze(p, 0) if heads > 1 else build.reshape(p, [1, *p.sizes[2:]]), values,
                        (0, 1, 2), (0, 2, 3), (1, 3))  # fmt: skip


def heads_first(heads: int, b: Node, a: Node, y: Node, p: Node, c: Node) -> Node:
    """sum over h of P_h (V_h C_h)."""
    width = y.sizes[1]
    rows = build.reshape(c, [heads, width // heads, width])
    values = build.einsum(_values(heads, y, a, b), rows, (0, 1, 2), (0, 2, 3), (0, 1, 3))
    return build.einsum(build.squeeze(p, 0), values, (0, 1, 2), (0, 2, 3), (1, 3))


FORMS: Mapping[str, tuple[Callable[..., Node], tuple[str, ...]]] = {
    GIVEN: (given, ("b", "a", "y", "p", "c")),
    FOLDED: (folded, ("bc", "ac", "y", "p")),
    HEADS_FIRST: (heads_first, ("b", "a", "y", "p", "c")),
}
CONSTANT = ("a", "b", "c", "ac", "bc")


def forms_of(heads: int) -> list[str]:
    """Names of the forms. With one head, V_h C_h first is only the chain in another order, and is left out."""
    return [name for name in FORMS if heads > 1 or name != HEADS_FIRST]


def sizes_of(heads: int, tokens: int = TOKENS, width: int = WIDTH) -> dict[str, tuple[int, ...]]:
    """Sizes of every tensor that a form reads, by name."""
    return {
        "b": (tokens, 3 * width), "a": (width, 3 * width), "y": (tokens, width), "p": (1, heads, tokens, tokens),
        "c": (width, width), "ac": (heads, width, width), "bc": (heads, tokens, width),
    }  # fmt: skip


def form(name: str, heads: int, dtype: DType, tokens: int = TOKENS, width: int = WIDTH) -> Graph:
    """A form as a graph; what could be folded ahead of time is constant."""
    build_, names = FORMS[name]
    sizes = sizes_of(heads, tokens, width)
    specs = tuple(
        InputSpec(shape_of(sizes[n]), dtype, dense_strides(sizes[n]), constant=n if n in CONSTANT else None)
        for n in names
    )
    node = build_(heads, *(make_input(i, s) for i, s in enumerate(specs)))
    return Graph(specs, (OutputSpec(node, dense_strides(node.sizes)),))


def gflop(graph: Graph) -> float:
    """Arithmetic of every run, of the graph as the search prepares it: what a slice leaves out is not computed."""
    return traffic_of(prepare(graph).graph).operations / 1e9


def arrays_of(heads: int, dtype: DType, seed: int, tokens: int = TOKENS, width: int = WIDTH) -> dict[str, np.ndarray]:
    """Tensors for all forms; rows of P sum to 1, as behind a softmax."""
    rng = np.random.default_rng(seed)
    sizes = sizes_of(heads, tokens, width)
    found = {n: rng.standard_normal(sizes[n]).astype(np.float32) for n in ("b", "a", "y", "c")}
    found["a"], found["c"] = found["a"] * width**-0.5, found["c"] * width**-0.5
    weights = rng.random(sizes["p"]).astype(np.float32)
    found["p"] = weights / weights.sum(-1, keepdims=True)
    found = {n: round_to(x, dtype).astype(np.float64) for n, x in found.items()}
    size = width // heads
    for name, of in (("ac", "a"), ("bc", "b")):
        columns = found[of][:, 2 * width :].reshape(-1, heads, size).transpose(1, 0, 2)
        found[name] = columns @ found["c"].reshape(heads, size, width)
    return {n: np.ascontiguousarray(round_to(x, dtype)) for n, x in found.items()}


def torch_given(heads: int, b: Tensor, a: Tensor, y: Tensor, p: Tensor, c: Tensor) -> Tensors:
    """The chain as a user of PyTorch writes it."""
    tokens, width = y.shape
    v = torch.addmm(b, y, a)[:, 2 * width :].view(tokens, heads, -1).transpose(0, 1)
    return ((p[0] @ v).transpose(0, 1).reshape(tokens, width) @ c,)


def rows(place: Place, before: Sequence[Row]) -> Iterator[Row]:
    """A row for each dtype and number of heads that is not among `before`."""
    known = {row["key"] for row in before}
    for dtype in DTYPE_NAMES:
        for heads in HEADS:
            if (key := f"{dtype}, {heads} head{'s' if heads > 1 else ''}") not in known:
                yield {"key": key, "dtype": dtype, "heads": heads, **_row(place, DTYPES[dtype], heads)}


def _row(place: Place, dtype: DType, heads: int) -> Row:
    graphs = {name: form(name, heads, dtype) for name in forms_of(heads)}
    plans = {name: place.plan(graph, offers=()) for name, graph in graphs.items()}
    plans[CHOSEN] = place.plan(as_printed(heads, dtype))
    found: Row = {
        "forms": {
            name: {
                "gflop": gflop(form(name, heads, dtype)),
                "constant_bytes": _constant_bytes(form(name, heads, dtype)),
            }
            for name in forms_of(heads)
        },
        "plans": {name: _described(plan) for name, plan in plans.items()},
    }
    if place.sides is None:
        us = {name: plan.time_us or plan.predicted_us for name, plan in plans.items()}
        return {**found, "us": us, "over": {}}
    torch.compiler.reset()  # what was compiled before would count against the limit of recompilations
    arrays = arrays_of(heads, dtype, place.seed)
    operands = {name: place.sides.tensors([arrays[n] for n in FORMS[name][1]]) for name in forms_of(heads)}
    operands |= dict.fromkeys((CHOSEN, EAGER, COMPILED), operands[GIVEN])
    functions: dict[str, Function] = {name: place.sides.function(plan) for name, plan in plans.items()}
    functions[EAGER] = partial(torch_given, heads)
    if dtype == f32 or place.device.target != "cpu":  # in f16 a call takes PyTorch a second on a CPU, compiled or not
        functions[COMPILED] = torch.compile(functions[EAGER], fullgraph=True, dynamic=False)
    calls = {name: partial(function, *operands[name]) for name, function in functions.items()}
    check({name: call()[0] for name, call in calls.items()}, dtype)
    times = place.sides.race(calls, place.rounds, place.seed)
    over = {name: paired_ratio(times[name], times[GIVEN]) for name in times if name != GIVEN}
    return {
        **found,
        "us": {name: side.median_us for name, side in times.items()},
        "over": {name: [r.median, r.low, r.high] for name, r in over.items()},
    }


def as_printed(heads: int, dtype: DType) -> Graph:
    """The graph of examples/; in another dtype than f16, the form as given."""
    graph = read((EXAMPLES / FILES[heads]).read_text(), filename=FILES[heads]).graph
    return graph if dtype.name == "f16" else form(GIVEN, heads, dtype)


def _constant_bytes(graph: Graph) -> int:
    """Bytes of constants that every run reads at the least: a third of A and b, or the tensors folded from them."""
    return sum(
        spec.bytes // (3 if spec.sizes[-1] == 3 * WIDTH else 1) for spec in graph.inputs if spec.constant is not None
    )


def _described(plan: Plan) -> Row:
    steps = [s for s in plan.steps if not s.prologue]
    return {
        "kernels": [s.schedule for s in steps],
        "gflop": sum(s.operations for s in steps) / 1e9,
        "prologue_us": plan.prologue_us,
        "kept_bytes": plan.kept_bytes,
        "rewrites": list(plan.rewrites),
        "why": [r.text for r in plan.reasons if r.kind == "alternative"],
    }


def check(results: Mapping[str, Tensor], dtype: DType) -> None:
    """Raises ValueError where a form is further from the first than roundings between its products take it."""
    most = 2.0**-6 if dtype.bytes == 2 else 2.0**-14
    first = next(iter(results.values())).double()
    for name, result in results.items():
        difference = float((result.double() - first).abs().max())
        if difference > most * max(float(first.abs().max()), 1.0):
            raise ValueError(f"{name} differs by {difference:.3g} from {next(iter(results))}")


def page(found: Sequence[Row], is_measured: bool) -> list[str]:
    """A row for each form and side; ratios are over the form as given, with 95 % intervals."""
    word = "us" if is_measured else "**predicted** us"
    lines = [f"| | form | GFLOP | constants | {word} | over as given | kernels |", "|---|---|---:|---:|---:|---|---|"]
    for row in found:
        for name, us in sorted(row["us"].items(), key=lambda item: item[1]):
            own, plan, over = row["forms"].get(name), row["plans"].get(name), row["over"].get(name)
            cost = f"{own['gflop']:.2f}" if own else ""
            constants = f"{own['constant_bytes'] / 2**20:.1f} MiB" if own else ""
            if name == CHOSEN and plan["prologue_us"]:
                constants = f"{plan['kept_bytes'] / 2**20:.1f} MiB, folded once in {plan['prologue_us']:.0f} us"
            ratio = f"{over[0]:.2f}x [{over[1]:.2f}, {over[2]:.2f}]" if over else ""
            kernels = ", ".join(k.partition("{")[0] for k in plan["kernels"]) if plan else ""
            if name == CHOSEN and plan["rewrites"]:
                kernels += f" ({', '.join(plan['rewrites'])})"
            lines.append(f"| {row['key']} | {name} | {cost} | {constants} | {us:.0f} | {ratio} | {kernels} |")
    lines += ["", "What `fuseplan explain` says of the other forms, given the first one:", ""]
    return lines + [f"- {row['key']}: {text}" for row in found for text in row["plans"][CHOSEN]["why"]]
