"""A model of the times of one segment's schedules, from few measurements: a Gaussian process over their fields.

It models logarithms of times, in any unit. Schedules are alike where their fields are: words are equal or not, numbers
are apart by their logarithms. The covariance is a sum of what fields say one by one and what they say together
(Duvenaud, Nickisch and Rasmussen, "Additive Gaussian processes", NIPS 2011); how much each field matters is chosen by
the likelihood of the measurements. The schedule tried next has the largest expected improvement (Jones, Schonlau and
Welch, "Efficient global optimization of expensive black-box functions", 1998); within a batch, each is chosen as if
those before it had come out as expected.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from math import log, log2

import numpy as np

from codegen.schedule import schedule_values
from fusion_ir.arithmetic.erf import erf_f32

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

NOISE = 0.015  # of a time, relative
DRAWS = 48  # of weights of the fields
TOGETHER = 0.5  # share of the covariance that is of all fields together
REACH = 2.0  # of what a field says alone: of far more than its distances, so that it is nearly constant
FAR = 2.0  # doublings, from where numbers say nothing about each other
LEAST_VARIANCE = 1e-4


class GaussianProcess:
    """The model, fitted to the schedules that were tried.

    points: schedules, all with one set of fields. tried: times of some, None for those that failed, which say nothing.
    expected: a guess at the logarithm of each point's time, up to a constant, before anything is tried.
    """

    def __init__(
        self,
        points: Sequence[str],
        tried: Mapping[str, float | None],
        seed: int,
        expected: Floats | None = None,
        linear: Collection[str] = (),
    ) -> None:
        self.points = list(points)
        self.expected = np.zeros(len(points)) if expected is None else expected
        self._codes, self._tables = _distances(self.points, linear)
        self._index = index = {point: i for i, point in enumerate(self.points)}
        known = {index[p]: log(time) for p, time in tried.items() if p in index and time}
        self._open = [i for p, i in index.items() if p not in tried]
        self._rows, self._logs = list(known), np.array(list(known.values()))
        self._level = float(np.mean(self._logs - self.expected[self._rows])) if known else 0.0
        self._weights, self._variance = self._fit(seed)

    def mean(self) -> Floats:
        """The expected logarithm of each point's time."""
        return self._posterior(range(len(self.points)))[0]

    def propose(self, count: int) -> list[str]:
        """At most `count` points that were not tried, the most promising first."""
        chosen: list[str] = []
        while self._open and len(chosen) < count:
            mean, deviation = self._posterior(self._open)
            least = float(self._logs.min()) if len(self._logs) else float(mean.min())
            at = int(np.argmax(_improvement(least, mean, deviation)))
            chosen.append(self.points[self._open[at]])
            self._assume(self._open[at], float(mean[at]))
        return chosen

    def assume(self, point: str) -> None:
        """Takes a point that somebody else tries to come out as expected."""
        if (i := self._index.get(point)) in self._open:
            self._assume(i, float(self._posterior([i])[0][0]))

    def _assume(self, i: int, log_time: float) -> None:
        self._open.remove(i)
        self._rows.append(i)
        self._logs = np.append(self._logs, log_time)

    def _residuals(self) -> Floats:
        return self._logs - self.expected[self._rows] - self._level

    def _fit(self, seed: int) -> tuple[Floats, float]:
        """Weights of the fields, and the variance: the likeliest of some that are drawn."""
        fields, draw = len(self._tables), np.random.default_rng(seed)
        alike = [np.full(fields, w) for w in (1.0, 0.3, 3.0)]
        drawn = [np.exp(draw.normal(0.0, 1.2, fields)) for _ in range(DRAWS)]
        if len(self._rows) < 2:
            return alike[0], 0.01
        residuals, apart = self._residuals(), self._apart(self._rows, self._rows)
        fits = [(_likelihood(residuals, _covariance(apart, weights)), weights) for weights in (*alike, *drawn)]
        (_, variance), weights = max(fits, key=lambda fit: fit[0])
        return weights, variance

    def _posterior(self, asked: Sequence[int]) -> tuple[Floats, Floats]:
        """Mean and standard deviation of these points."""
        before, variance = self.expected[list(asked)] + self._level, self._variance
        if not self._rows:
            return before, np.full(len(before), np.sqrt(variance))
        known = variance * _covariance(self._apart(self._rows, self._rows), self._weights)
        across = variance * _covariance(self._apart(asked, self._rows), self._weights)
        solved = np.linalg.solve(known + NOISE**2 * np.eye(len(known)), across.T)
        left = np.maximum(variance - np.sum(across.T * solved, axis=0), 1e-10)
        return before + solved.T @ self._residuals(), np.sqrt(left)

    def _apart(self, one: Sequence[int], other: Sequence[int]) -> Floats:
        """Distances by field: [one, other, fields], from 0 to 1."""
        a, b = self._codes[list(one)], self._codes[list(other)]
        return np.stack([table[np.ix_(a[:, k], b[:, k])] for k, table in enumerate(self._tables)], axis=-1)


def _distances(points: Sequence[str], linear: Collection[str]) -> tuple[np.ndarray, list[Floats]]:
    """For each point and field the number of its value; for each field the distances between its values."""
    fields = [schedule_values(point) for point in points]
    codes, tables = list[list[int]](), list[Floats]()
    for name in fields[0] if fields else ():
        texts = list(dict.fromkeys(f[name] for f in fields))
        number = {text: n for n, text in enumerate(texts)}
        codes.append([number[f[name]] for f in fields])
        apart = partial(_linear_distance, len(texts)) if name in linear else _distance
        tables.append(np.array([[apart(a, b) for b in texts] for a in texts]))
    return np.array(codes, np.intp).T, tables


def _distance(a: str, b: str) -> float:
    if a == b:
        return 0.0
    if a.isdecimal() and b.isdecimal():
        return min(abs(log2((int(a) + 1) / (int(b) + 1))) / FAR, 1.0)
    return 1.0


def _linear_distance(count: int, a: str, b: str) -> float:
    return min(2 * abs(int(a) - int(b)) / count, 1.0)


def _covariance(apart: Floats, weights: Floats) -> Floats:
    """Covariances of points `apart` by so much in each field, for a variance of 1. In the share that fields have one by
    one, they matter in proportion to their weights."""
    alone = np.exp(-REACH * apart) @ (weights / weights.sum())
    return (1 - TOGETHER) * alone + TOGETHER * np.exp(-(apart @ weights))


def _likelihood(residuals: Floats, covariance: Floats) -> tuple[float, float]:
    """Twice the logarithm of the likelihood, up to a constant, and the variance that is likely for this covariance."""
    n = len(residuals)
    variance = float(residuals @ np.linalg.solve(covariance + 0.01 * np.eye(n), residuals)) / n
    variance = max(variance, LEAST_VARIANCE)
    matrix = variance * covariance + NOISE**2 * np.eye(n)
    _, size = np.linalg.slogdet(matrix)
    return -float(residuals @ np.linalg.solve(matrix, residuals)) - float(size), variance


def _improvement(best: float, mean: Floats, deviation: Floats) -> Floats:
    """Expected improvement of each point over `best`, in logarithms of times."""
    z = (best - mean) / deviation
    density = np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
    below = 0.5 * (1 + erf_f32(z / np.sqrt(2)))
    return (best - mean) * below + deviation * density
