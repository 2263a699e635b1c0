"""Correction of a family's predicted times by how far off its predictions were on other segments.

Predictions from bytes and arithmetic (`scheduler.cost.roofline_cpu`) leave out what rows, types and reductions do to a
kernel, and are off by about as much on segments that are alike in that (`scheduler.cost.features`). The correction is
the mean of the logarithms of measured over predicted time, weighed by likeness (Nadaraya, "On estimating regression",
1964; Watson, "Smooth regression analysis", 1964), and drawn to their median where no segment is alike.

It has to prove itself: corrected by all other segments but nearly equal ones, predictions have to be nearer to the
measured times, on average, than they are without. A family of which that is not true keeps its predictions.
`python -m benchmarks.predictions` shows how far off either is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, log

import numpy as np

from codegen.timing.protocol import median
from fusion_ir.core.graph import Graph
from scheduler.cost.features import features
from scheduler.cost.gaussian_process import Floats
from scheduler.cost.traffic import Traffic, traffic_of

LEAST_SEGMENTS = 6  # of a family, that say anything
PRIOR = 0.3  # likeness of the median
TWINS = 0.95  # likeness of segments that may not vouch for each other


@dataclass(frozen=True)
class Calibration:
    """The correction of one family. points: features by segment. logs: logarithms of measured over predicted time. own,
    theirs: how far off predictions were on average, corrected and not, as factors."""

    points: Floats
    logs: Floats
    own: float
    theirs: float

    @property
    def least(self) -> float:
        """Lower bound on `factor` for any segment."""
        return exp(float(self.logs.min()))

    def factor(self, graph: Graph, traffic: Traffic) -> float:
        """The factor by which a prediction for the segment is to be multiplied."""
        likeness = _likeness(self.points, np.array(features(graph, traffic)))
        return exp(_mean(self.logs, likeness))


def corrections(
    known: Sequence[tuple[Graph, float]], predicted_us: Callable[[Graph, Traffic], float]
) -> Calibration | None:
    """The correction learned from segments that a family was timed on, with their times (us); None where they are too
    few, or predictions are no worse without it."""
    timed = [(graph, traffic_of(graph), time_us) for graph, time_us in known if time_us > 0]
    if len(timed) < LEAST_SEGMENTS:
        return None
    points = np.array([features(graph, traffic) for graph, traffic, _ in timed])
    logs = np.array([log(time_us / predicted_us(graph, traffic)) for graph, traffic, time_us in timed])
    off: list[float] = []
    for i, point in enumerate(points):
        likeness = _likeness(points, point)
        others = likeness < TWINS
        if others.sum() < LEAST_SEGMENTS - 1:
            return None
        off.append(abs(float(logs[i]) - _mean(logs[others], likeness[others])))
    own, theirs = exp(float(np.mean(off))), exp(float(np.mean(np.abs(logs))))
    return Calibration(points, logs, own, theirs) if own < theirs else None


def _likeness(points: Floats, point: Floats) -> Floats:
    """Likeness of each of `points` to `point`, from 0 to 1, as in `features.alike`."""
    return np.exp(-0.5 * np.sum((points - point) ** 2, axis=1))


def _mean(logs: Floats, likeness: Floats) -> float:
    middle = median(logs.tolist())
    return middle + float(likeness @ (logs - middle)) / (float(likeness.sum()) + PRIOR)
