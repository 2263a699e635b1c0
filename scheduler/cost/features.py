"""A first guess at the times of schedules on a new segment, from their times on other segments.

Segments are alike where their bytes, arithmetic, types and lengths of rows are, since these decide about schedules. For
each of the segments that are most alike, a model of the times measured there (`scheduler.cost.gaussian_process`)
predicts every schedule; the guess is the mean of these predictions, weighted by likeness.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import exp, log2

import numpy as np

from fusion_ir.core.graph import Graph
from fusion_ir.ops import OPS, OpKind
from scheduler.cost.gaussian_process import Floats, GaussianProcess
from scheduler.cost.traffic import Traffic, traffic_of

NEAREST = 6  # segments that are asked
LEAST_TIMES = 4  # schedules of a segment, for it to say anything
DOUBT = 0.5  # how much of what other segments say holds for a new one: the rest of a difference is forgotten


@dataclass(frozen=True)
class Tuned:
    """A segment, and times of one family's schedules on it, in any unit."""

    graph: Graph
    times: Mapping[str, float]


def expected_logs(graph: Graph, points: Sequence[str], known: Sequence[Tuned], seed: int) -> Floats | None:
    """A guess at the logarithm of each point's time, up to a constant; None where nothing that is known helps."""
    usable = [t for t in known if len(t.times) >= LEAST_TIMES]
    weighed = sorted(((alike(graph, t.graph), t) for t in usable), key=lambda pair: -pair[0])[:NEAREST]
    total = sum(weight for weight, _ in weighed)
    if not total or not points:
        return None
    guess = np.zeros(len(points))
    for weight, tuned in weighed:
        model = GaussianProcess([*dict.fromkeys((*points, *tuned.times))], tuned.times, seed)
        mean = model.mean()[: len(points)]
        guess += weight / total * (mean - mean.min())
    return DOUBT * guess


def alike(one: Graph, other: Graph) -> float:
    """Likeness of two segments, from 0 to 1: 1 where their schedules are expected to do equally well."""
    distance = sum((a - b) ** 2 for a, b in zip(_features(one), _features(other), strict=True))
    return exp(-0.5 * distance)


@lru_cache(maxsize=1024)
def _features(graph: Graph) -> tuple[float, ...]:
    return features(graph, traffic_of(graph))


def features(graph: Graph, traffic: Traffic) -> tuple[float, ...]:
    """Features of a segment, finite numbers: where one differs by 1, schedules may do otherwise."""
    kinds = [OPS[n.op].kind for n in graph.nodes if n.op in OPS]
    tensors = [(s.sizes, s.dtype) for s in graph.inputs] + [(o.node.sizes, o.node.dtype) for o in graph.outputs]
    rows = [sizes[-1] for sizes, _ in tensors if sizes]
    return (
        log2(traffic.read_bytes + 1) / 4,
        log2(traffic.written_bytes + 1) / 4,
        log2(1 + traffic.operations / max(traffic.bytes, 1)) / 1.5,
        log2(min((dtype.bytes for _, dtype in tensors), default=4)),
        log2(max(*rows, 1, 1)) / 4,  # of empty rows as of those of one element
        len(graph.inputs) / 3,
        len(graph.outputs) / 2,
        log2(1 + sum(kind is OpKind.REDUCTION for kind in kinds)),
        log2(1 + sum(kind is OpKind.CONTRACT for kind in kinds)),
    )
