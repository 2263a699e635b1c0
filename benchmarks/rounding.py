"""How far alternatives are from the real numbers, beside what they stand for: random graphs of 16 bits, by rule.

    python -m benchmarks.rounding [--graphs 1500] [--write]

Each rule that offers another way to a node of a random graph is held against that node on random inputs: root mean
square errors against the same graph in f64, the alternative's over the node's own, both of at least the rounding of the
result. Then once more with every input scaled by a random power of two between 1/16 and 16, where that leaves every
value of the node's own computation 16 times away from either end of f16's normal numbers: a value of the alternative
that is no longer finite there, or an error of 16 times the node's own or more, is one out of range.
"""

import argparse
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from fusion_ir import build
from fusion_ir.dtype import DType, bf16, f16, f64
from fusion_ir.extent import dense_strides
from fusion_ir.graph import Graph, OutputSpec
from fusion_ir.interpreter import evaluate, interpret
from fusion_ir.node import Node
from fusion_ir.node_value import evaluate_node
from fusion_ir.numerics import widen
from fusion_ir.ops import make, make_input
from scheduler.rewrites import ALTERNATIVES
from scheduler.rewrites.neighbourhood import Neighbourhood
from scheduler.rewrites.rule import Offer
from tests.support.random_graphs import Seeded
from tests.support.rule_graphs import rule_graph

RESULTS = Path(__file__).parent / "results" / "rounding.md"
TAIL = Path(__file__).parents[1] / "examples" / "distilgpt2_attention_tail.migraphx.txt"
DTYPES = (f16, bf16)
ROUNDOFF: Mapping[DType, float] = {f16: 2.0**-11, bf16: 2.0**-8}
DRAWS = 6  # of inputs, over which errors are taken together
SCALES = 4  # inputs are scaled by 2^-4 to 2^4
MARGIN = 16.0  # from either end of f16's normal numbers
LARGEST, SMALLEST = 65504.0, 2.0**-14
LOST = 16.0  # times the node's own error


@dataclass
class Found:
    """What was seen of one rule. ratios: of errors. scaled: alternatives that were tried with scaled inputs; beyond: of
    these, out of range."""

    ratios: list[float] = field(default_factory=list[float])
    scaled: int = 0
    beyond: int = 0


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
        truth = interpret(
            exact, [x.astype(np.float64) if s.dtype.is_float else x for x, s in zip(inputs, both.inputs, strict=True)]
        )
        off = [float(np.mean(np.square(widen(g).astype(np.float64) - t))) for g, t in zip(got, truth, strict=True)]
    return off, float(np.mean(np.square(truth[0])))


def ratio(both: Graph, exact: Graph, seeds: Sequence[int], scales: Sequence[float] = ()) -> float:
    """The error of the second output over that of the first, over several draws of inputs."""
    own, other, floor = 0.0, 0.0, 0.0
    unit = ROUNDOFF[both.outputs[0].node.dtype] if both.outputs[0].node.dtype in ROUNDOFF else 2.0**-24
    for seed in seeds:
        (a, b), size = errors(both, exact, drawn(both, seed, scales))
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


def look_at(graph: Graph, seed: int, found: dict[tuple[str, DType], Found], dtype: DType) -> None:
    """Everything that rules offer for the nodes of a graph."""
    around = Neighbourhood(graph)
    rng = np.random.default_rng(seed)
    for node in graph.nodes:
        if not node.dtype.is_float:
            continue
        for offer in ALTERNATIVES:
            for new in offer.of(node, around) if offer.numerics != "exact" else ():
                both = Graph(graph.inputs, tuple(OutputSpec(n, dense_strides(n.sizes)) for n in (node, new)))
                exact = in_f64(both)
                own = found[_label(offer), dtype]
                own.ratios.append(ratio(both, exact, range(DRAWS)))
                if dtype != f16:
                    continue
                scales = [2.0 ** int(rng.integers(-SCALES, SCALES, endpoint=True)) for _ in graph.inputs]
                if has_margin(both, node, drawn(both, 0, scales)):
                    own.scaled += 1
                    r = ratio(both, exact, [0], scales)
                    own.beyond += not r < LOST  # NaN too


def _label(offer: Offer) -> str:
    return offer.name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", type=int, default=1500)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    found: dict[tuple[str, DType], Found] = defaultdict(Found)
    for seed in range(given.graphs):
        dtype = DTYPES[seed % len(DTYPES)]
        look_at(rule_graph(Seeded(seed), dtype), seed, found, dtype)
    for (name, dtype), own in sorted(found.items(), key=lambda item: (item[0][0], item[0][1].name)):
        r = np.array(own.ratios)
        print(
            f"{name:20s} {dtype.name:5s} {len(r):5d} median {np.median(r):.2f} 95% {np.quantile(r, 0.95):.2f} worst {r.max():.2f}  scaled {own.scaled} beyond {own.beyond}"
        )


if __name__ == "__main__":
    main()
