"""A model of what schedules of one segment take, from few measurements: a Gaussian process over their fields.

Logarithms of times, relative to anything. Schedules are alike where their fields are: words are equal or not, numbers
are apart by their logarithms. The covariance is a sum of what fields say one by one and what they say together
(Duvenaud, Nickisch, Rasmussen, "Additive Gaussian processes", NIPS 2011); how much each field matters is chosen by the
likelihood of the measurements. What is tried next has the largest expected improvement (Jones, Schonlau and Welch,
"Efficient global optimization of expensive black-box functions", 1998); of a batch, each as if those before it had come
out as expected.
"""

from collections.abc import Mapping, Sequence
from math import log2

import numpy as np

from codegen.schedule import schedule_values
from fusion_ir.erf import erf_f32

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

NOISE = 0.015  # of a time, relative
DRAWS = 48  # of weights of the fields
TOGETHER = 0.5  # share of the covariance that is of all fields together
FAR = 2.0  # doublings, from where numbers say nothing about each other


class Surrogate:
    """`expected`: of each point, what it is thought to take (a logarithm) before anything is measured; 0 without."""

    def __init__(self, points: Sequence[str], seed: int, expected: Floats | None = None) -> None:
        self.points = list(points)
        self.index = {point: i for i, point in enumerate(self.points)}
        self.fields = [schedule_values(point) for point in self.points]
        self.expected = np.zeros(len(self.points)) if expected is None else expected
        self._weights = _draws(len(self.fields[0]) if self.fields else 0, np.random.default_rng(seed))

    def propose(self, tried: Mapping[str, float | None], count: int) -> list[str]:
        """At most `count` points that were not tried, the most promising first. tried: times; None for what failed."""
        known = {self.index[p]: float(np.log(t)) for p, t in tried.items() if p in self.index and t}
        open_ = [i for i, p in enumerate(self.points) if p not in tried]
        if not known:
            return [self.points[i] for i in sorted(open_, key=lambda i: self.expected[i])[:count]]
        rows, targets = list(known), np.array(list(known.values()))
        level = float(np.mean(targets - self.expected[rows]))
        weights, scale = self._fit(rows, targets - self.expected[rows] - level)
        chosen: list[int] = []
        while open_ and len(chosen) < count:
            mean, deviation = self._posterior(rows, targets - self.expected[rows] - level, open_, weights, scale)
            mean = mean + self.expected[open_] + level
            best = open_[int(np.argmax(_improvement(float(targets.min()), mean, deviation)))]
            at = open_.index(best)
            rows, targets = [*rows, best], np.append(targets, mean[at])
            chosen.append(best)
            del open_[at]
        return [self.points[i] for i in chosen]

    def _fit(self, rows: Sequence[int], residuals: Floats) -> tuple[Floats, float]:
        """Weights of the fields and the variance, by likelihood."""
        apart = self._apart(rows, rows)
        best: tuple[float, Floats, float] | None = None
        for weights in self._weights:
            shape = _covariance(apart, weights)
            variance = max(
                float(residuals @ np.linalg.solve(shape + 0.01 * np.eye(len(rows)), residuals)) / len(rows), 1e-4
            )
            matrix = variance * shape + NOISE**2 * np.eye(len(rows))
            _, logdet = np.linalg.slogdet(matrix)
            surprise = float(residuals @ np.linalg.solve(matrix, residuals)) + float(logdet)
            if best is None or surprise < best[0]:
                best = surprise, weights, variance
        assert best is not None
        return best[1], best[2]

    def _posterior(
        self, rows: Sequence[int], residuals: Floats, asked: Sequence[int], weights: Floats, scale: float
    ) -> tuple[Floats, Floats]:
        """Mean and standard deviation at the points asked for."""
        matrix = scale * _covariance(self._apart(rows, rows), weights) + NOISE**2 * np.eye(len(rows))
        across = scale * _covariance(self._apart(asked, rows), weights)
        solved = np.linalg.solve(matrix, across.T)
        return solved.T @ residuals, np.sqrt(np.maximum(scale - np.sum(across.T * solved, axis=0), 1e-10))

    def _apart(self, one: Sequence[int], other: Sequence[int]) -> Floats:
        """Distances by field: [one, other, fields], from 0 to 1."""
        names = list(self.fields[0])
        found = np.empty((len(one), len(other), len(names)))
        for k, name in enumerate(names):
            texts = list(dict.fromkeys(f[name] for f in self.fields))
            table = np.array([[_distance(a, b) for b in texts] for a in texts])
            code = {text: n for n, text in enumerate(texts)}
            rows, columns = ([code[self.fields[i][name]] for i in side] for side in (one, other))
            found[:, :, k] = table[np.ix_(rows, columns)]
        return found


def _draws(fields: int, draw: np.random.Generator) -> list[Floats]:
    """Weights to choose from: all alike first, then some fields that matter more than others."""
    alike = [np.full(fields, w) for w in (0.3, 1.0, 3.0)]
    return [*alike, *(np.exp(draw.normal(0.0, 1.2, fields)) for _ in range(DRAWS))]


def _covariance(apart: Floats, weights: Floats) -> Floats:
    """Of a variance of 1. Fields matter one by one in proportion to their weights."""
    alone = np.exp(-2.0 * apart) @ (weights / weights.sum())
    return (1 - TOGETHER) * alone + TOGETHER * np.exp(-(apart @ weights))


def _distance(a: str, b: str) -> float:
    if a == b:
        return 0.0
    if a.isdecimal() and b.isdecimal():
        return min(abs(log2((int(a) + 1) / (int(b) + 1))) / FAR, 1.0)
    return 1.0


def _improvement(best: float, mean: Floats, deviation: Floats) -> Floats:
    """Expected improvement over the best."""
    z = (best - mean) / deviation
    density = np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
    below = 0.5 * (1 + erf_f32(z / np.sqrt(2)))
    return (best - mean) * below + deviation * density
