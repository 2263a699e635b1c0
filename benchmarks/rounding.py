"""How far alternatives are from the real numbers, beside what they stand for: random graphs of 16 bits, by rule.

    python -m benchmarks.rounding [--graphs 1500] [--write]

Each alternative is held against its node on random inputs: root mean square errors against the same graph in f64, the
alternative's over the node's own, both of at least what rounding the result makes. In f16 then with inputs of random
sizes: whether the alternative leaves the range of the dtype where nothing comes near its ends that the node is computed
from. Without --write it prints the page alone.
"""

import argparse
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from benchmarks.seeds.chain import FORMS, GIVEN, HEADS, arrays_of, form
from fusion_ir import building as build
from fusion_ir.arithmetic.conversions import widen
from fusion_ir.core.extent import dense_strides
from fusion_ir.core.graph import Graph, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType, bf16, f16, f64
from fusion_ir.ops import make, make_input
from fusion_ir.reference.interpreter import evaluate, interpret
from fusion_ir.reference.node_value import evaluate_node
from scheduler.rewrites.matching.graph_queries import GraphQueries
from scheduler.rewrites.prepare import prepare
from scheduler.rewrites.rules import ALTERNATIVES
from testing.random_graphs import Seeded
from testing.rule_graphs import rule_graph

RESULTS = Path(__file__).parent / "results" / "rounding.md"
DTYPES = (f16, bf16)
ROUNDOFF: Mapping[DType, float] = {f16: 2.0**-11, bf16: 2.0**-8}
DRAWS = 6  # of inputs, over which errors are taken together
SPREADS = (4, 7, 10)  # inputs are scaled by 2^-n to 2^n
OFFERS = [offer for offer in ALTERNATIVES if offer.numerics == "reassociate"]
MARGIN = 16.0  # from either end of f16's normal numbers
LARGEST, SMALLEST = 65504.0, 2.0**-14
LOST = 16.0  # times the node's own error


@dataclass
class Found:
    """Results for one rule in one dtype. ratios: each alternative's error over the given node's. scaled: number of
    alternatives that were tried with scaled inputs, by spread; beyond: how many of these were out of range."""

    ratios: list[float] = field(default_factory=list[float])
    scaled: dict[int, int] = field(default_factory=lambda: dict.fromkeys(SPREADS, 0))
    beyond: dict[int, int] = field(default_factory=lambda: dict.fromkeys(SPREADS, 0))


def in_f64(graph: Graph) -> Graph:
    """The graph with f64 for every float dtype."""
    image: dict[Node, Node] = {}
    inputs = tuple(replace(s, dtype=f64) if s.dtype.is_float else s for s in graph.inputs)
    for node in graph.nodes:
        args = [image[a] for a in node.args]
        if node.op == "input":
            image[node] = make_input(position := node.attr("position", int), inputs[position])
        elif node.op == "full":
            image[node] = build.cast(node, f64) if node.dtype.is_float else node
        else:
            attrs = {k: f64 if isinstance(v, DType) and v.is_float else v for k, v in node.attrs}
            same = node.op == "cast" and args[0].dtype == attrs["dtype"]
            image[node] = args[0] if same else make(node.op, args, attrs)
    return Graph(inputs, tuple(replace(o, node=image[o.node]) for o in graph.outputs))


def drawn(graph: Graph, seed: int, scales: Sequence[float] = ()) -> list[np.ndarray]:
    """Normal numbers, each input times its scale, as the inputs' dtypes hold them."""
    rng = np.random.default_rng(seed)
    scales = scales or [1.0] * len(graph.inputs)
    return [
        np.asarray(rng.standard_normal(spec.sizes) * scale, np.float32).astype(spec.dtype.numpy)
        for spec, scale in zip(graph.inputs, scales, strict=True)
    ]


def errors(both: Graph, exact: Graph, inputs: Sequence[np.ndarray]) -> tuple[list[float], float]:
    """Mean squares of the errors of a graph's two outputs, and of the result itself."""
    with np.errstate(all="ignore"):
        got = interpret(both, inputs)
        truth = interpret(exact, [x.astype(s.dtype.numpy) for x, s in zip(inputs, exact.inputs, strict=True)])
        off = [float(np.mean(np.square(widen(g).astype(np.float64) - t))) for g, t in zip(got, truth, strict=True)]
    return off, float(np.mean(np.square(truth[0])))


def ratio(both: Graph, draws: Sequence[Sequence[np.ndarray]]) -> float:
    """The error of the second output over that of the first, over several draws of inputs."""
    exact = in_f64(both)
    own, other, floor = 0.0, 0.0, 0.0
    unit = ROUNDOFF.get(both.outputs[0].node.dtype, 2.0**-24)
    for inputs in draws:
        (a, b), size = errors(both, exact, inputs)
        own, other, floor = own + a, other + b, floor + size * unit**2 / 6
    return float(np.sqrt(max(other, floor) / max(own, floor))) if floor else 1.0


def has_margin(graph: Graph, node: Node, inputs: Sequence[np.ndarray]) -> bool:
    """Whether everything that a node is computed from, and itself, keeps `MARGIN` from the ends of f16."""
    kept = True

    def look(n: Node, operands: tuple[np.ndarray, ...]) -> np.ndarray | None:
        nonlocal kept
        value = evaluate_node(n, operands)
        if n.dtype == f16 and value.size:
            kept &= _keeps(value)
        return value

    alone = Graph(graph.inputs, (OutputSpec(node, dense_strides(node.sizes)),))
    read = {n.attr("position", int) for n in alone.nodes if n.op == "input"}
    with np.errstate(all="ignore"):
        evaluate(alone, inputs, look)
    return kept and all(_keeps(x) for i, x in enumerate(inputs) if i in read)


def _keeps(value: np.ndarray) -> bool:
    wide = np.abs(widen(value).astype(np.float64))
    return bool(wide.max() <= LARGEST / MARGIN and np.sqrt(np.mean(wide**2)) >= SMALLEST * MARGIN)


def look_at(graph: Graph, seed: int, dtype: DType, found: dict[tuple[str, DType], Found]) -> None:
    """Adds to `found` the errors of every alternative that rules offer for the nodes of a graph."""
    around = GraphQueries(graph)
    rng = np.random.default_rng(seed)
    for node in graph.nodes:
        for offer in OFFERS if node.dtype.is_float else ():
            for new in offer.of(node, around):
                both = beside(graph, node, new)
                own = found[offer.name, dtype]
                own.ratios.append(ratio(both, [drawn(both, draw) for draw in range(DRAWS)]))
                for spread in own.scaled if dtype == f16 else ():
                    scales = [2.0 ** int(rng.integers(-spread, spread, endpoint=True)) for _ in graph.inputs]
                    inputs = drawn(both, 0, scales)
                    if has_margin(both, node, inputs):
                        own.scaled[spread] += 1
                        own.beyond[spread] += not ratio(both, [inputs]) < LOST  # NaN too


def beside(graph: Graph, node: Node, new: Node) -> Graph:
    """The graph with two outputs: a node, and the alternative offered for it."""
    return Graph(graph.inputs, tuple(OutputSpec(n, dense_strides(n.sizes)) for n in (node, new)))


def tails() -> Iterator[str]:
    """Rows of a table: the alternatives of the tail of DistilGPT-2's attention, as seeds.md has it, in f16."""
    for heads in HEADS:
        graph = form(GIVEN, heads, f16)
        arrays = arrays_of(heads, f16, 0)
        inputs = [arrays[name] for name in FORMS[GIVEN][1]]
        prepared = prepare(graph, None, "reassociate", OFFERS)
        (output,) = prepared.graph.outputs
        for new in prepared.alternatives.producers.get(output.node, ()):
            rule = prepared.alternatives.found_by[new].name
            yield f"| {heads} | `{rule}` | {ratio(beside(graph, output.node, new), [inputs]):.2f} |"


def page(graphs: int) -> str:
    """The page of results over so many random graphs, in Markdown."""
    found: dict[tuple[str, DType], Found] = defaultdict(Found)
    for seed in range(graphs):
        dtype = DTYPES[seed % len(DTYPES)]
        look_at(rule_graph(Seeded(seed), dtype), seed, dtype, found)
    lines = [
        "# Rounding of alternatives",
        "",
        f"`python -m benchmarks.rounding --graphs {graphs}`: each alternative that a rule of class `reassociate`",
        f"offers for a node of {graphs:,} random graphs, half in f16 and half in bf16, on {DRAWS} draws of normal",
        "numbers. Root mean square error against f64, the alternative's over that of the node as given; 1 is as",
        "accurate as what was written. A worst case is of tensors of a few elements, where the given node's own",
        "roundings happened to be small.",
        "",
        "| rule | dtype | alternatives | median | 95% | worst |",
        "|---|---|---|---|---|---|",
    ]
    rows = sorted(found.items(), key=lambda item: (item[0][0], item[0][1].name))
    for (name, dtype), own in rows:
        r = np.array(own.ratios)
        spread = f"{np.median(r):.2f} | {np.quantile(r, 0.95):.2f} | {r.max():.2f}"
        lines.append(f"| `{name}` | {dtype} | {len(r)} | {spread} |")
    lines += [
        "",
        "## Range of f16",
        "",
        "Once more in f16, every input times a random power of two of so many binary digits up or down. Counted are",
        f"alternatives where all that the given node is computed from stays {MARGIN:.0f} times away from 65,504 and,",
        f"in its root mean square, from 2^-14; and of these, how many were not finite or {LOST:.0f} times less",
        "accurate.",
        "",
        "| rule | " + " | ".join(f"2^-{s} to 2^{s} | out of range" for s in SPREADS) + " |",
        "|---|" + "---|---|" * len(SPREADS),
    ]
    for (name, dtype), own in rows:
        if dtype == f16:
            cells = " | ".join(f"{own.scaled[s]} | {own.beyond[s]}" for s in SPREADS)
            lines.append(f"| `{name}` | {cells} |")
    lines += [
        "",
        "## The tail of DistilGPT-2's attention",
        "",
        "Producers of its result that rules offer, f16, at full size, inputs as in `benchmarks/seeds/chain.py`.",
        "",
        "| heads | rule | error over that of the graph as given |",
        "|---|---|---|",
        *tails(),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="How far alternatives are from f64, beside what they stand for.")
    parser.add_argument("--graphs", type=int, default=1500, help="random graphs")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}, too")
    given = parser.parse_args()
    text = page(given.graphs)
    print(text, end="")
    if given.write:
        RESULTS.write_text(text)


if __name__ == "__main__":
    main()
