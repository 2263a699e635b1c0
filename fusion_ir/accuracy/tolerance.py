"""The reference that a kernel's outputs are compared with, and the tolerance of each element.

Outputs that only exact ops lead to must agree bit for bit (NaN payloads aside). Elsewhere the tolerance of an element
is the largest of

* one ulp of the output's dtype at the element's magnitude;
* its error bound (`fusion_ir.accuracy.error_bound`): beside the graph's values one pass computes how far off each may
  be, through products of few terms, masks, branches and roundings, as if errors of different elements were independent;
* its deviation where the graph is evaluated again with errors of `SAFETY` times the largest allowed size put in at
  every inexact node (`fusion_ir.accuracy.perturb`): the joint effect of errors that have their signs in common.

Neither the bound nor the runs are enough alone. A dozen runs are samples: errors of a few terms cancel in all of them
at some element of a million, and a branch that an error could turn may not be turned. The bound takes errors for
independent, and adds up those of many terms accordingly. Where it is many times the deviations of the runs, in graphs
of many steps, all bounds of an output are made smaller by one factor; an element whose bound becomes too small by that
is still allowed `MARGIN` times the root of the sum of the squares of its own deviations, up to its bound.

Sums of inexact values that were rounded to a narrower float (the probabilities of attention in bf16) are off by a sum
of a few jumps, one per value that a kernel rounds the other way: one draw more beside those of the runs, and the
largest of a dozen draws is no bound on those of a million elements. There an element's own deviation is `MARGIN` times
the root of the sum of the squares of its deviations in all runs: jumps that cancel in one run do not in all others.

A plan whose rewrites reassociate may also sum few products, which the language puts in order, in any order (`Order`). A
plan that rounds other values than the graph does only has to be about as accurate as the graph: in each run, sums and
their terms that are rounded to 16 bits are off by the distance that two roundings may have
(`fusion_ir.accuracy.displaced_rounding`). Values that depend on them may be off by `MARGIN` times the root of the sum
of the squares, as above: with a dozen runs, about seven times the error of the graph's own roundings. Values that
depend on no sum stay equal to the bit. Where the graph's own roundings overflow, others may not, and any value is
allowed; where they do not overflow, none of the plan's may.

Perturbed runs leave nothing of some elements: integers and bools behind inexact nodes (`exp(x) > 1`, argmax of sums)
that come out as other ones; floats behind a branch that is taken otherwise, or at the end of fifty steps that each
amplify errors, when they are off by `LOST` times the root mean square of their output. The difference of such an
element in one run says nothing of the next run. So as many further elements may be off, by no more than the largest
such difference, and floats by no more than `BEYOND` times their bound, unless some lost element is off by more than
that: where errors that elements have in common grow step by step, they outgrow independent ones.

The bound and each further run only raise tolerances. So they are computed, in this order, when some element is off by
more than the tolerance known so far, and only for the pieces of the graph (`fusion_ir.reference.chunking`) that hold
such elements: the verdict is that of all runs over everything, and most kernels, which differ from the interpreter by
an ulp here and there, need none. For small graphs `FURTHER_RUNS` are made where an element is still off by more than
its tolerance, and by no more than `BEYOND` times its bound: where steps amplify errors, a dozen runs are few.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import Literal, get_args

import numpy as np

from fusion_ir.accuracy.common_errors import cancelling
from fusion_ir.accuracy.comparison import Allowed, Fixed, Index, Reference, difference
from fusion_ir.accuracy.displaced_rounding import Rounding, behind_sums, roundings_of_sums
from fusion_ir.accuracy.error_bound import Bounds
from fusion_ir.accuracy.error_patterns import more_patterns, patterns
from fusion_ir.accuracy.perturb import BY_SIGN, BY_VALUE, EXACT, INEXACT, Exactness, Perturbation, sums_of
from fusion_ir.accuracy.sum_cache import SumCache
from fusion_ir.arithmetic.cache_blocks import blocks
from fusion_ir.arithmetic.conversions import dtype_of, ulp, widen
from fusion_ir.arithmetic.threads import blockwise, for_all, side_by_side
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.ops.contract import sums_in_any_order
from fusion_ir.reference.chunking import cut
from fusion_ir.reference.evaluation import Evaluation, EvaluationSchedule
from fusion_ir.reference.interpreter import check_inputs, dense

MARGIN = 2.0
LOOSE = 4.0  # times what perturbed runs do, up to which the typical bound is taken as it is
LOOSE_OF_FEW = 16.0  # where they say less: of fewer elements than that
FEW = 64
BESIDE = 1 / 16  # of a jump that runs show, up to which errors of other elements come on top of it
FURTHER_RUNS = 36
FEW_ELEMENTS = 1 << 23  # of all nodes of a graph that is evaluated so often: a tenth of a second each time
BEYOND = 16.0  # times its bound, from which on an element is wrong whatever else is
LOST = 1 / 4  # of the root mean square of an output, from which on nothing is left of an element
TINY = float(np.finfo(np.float64).tiny)
_SAMPLE = 4096  # elements by which an output's bounds are compared with its deviations

# Orders of operations: the graph's own; sums of few products in any order, too; and other values rounded on the way.
Order = Literal["own", "any", "elsewhere"]
ORDERS: tuple[Order, ...] = get_args(Order)  # the strictest first

_LEAST_SHARE = 256  # elements of an output whose deviations are looked at together


def strictest(graph: Graph, order: Order) -> Order:
    """The strictest order that allows as much as `order` does in this graph."""
    if order == "elsewhere" and roundings_of_sums(graph):
        return order
    is_free = all(sums_in_any_order(n) for n in graph.nodes if n.op == "contract" and n.dtype.is_float)
    return "own" if order == "own" or is_free else "any"


def reference(graph: Graph, inputs: Sequence[np.ndarray], runs: int = 12, order: Order = "own") -> Reference:
    """The interpreter's outputs, with tolerances from at most `runs` perturbed evaluations (2 or more). Raises
    InputError. Keeps `inputs`, which must not change. order: the order of operations that kernels may compute in.

    A graph without inexact nodes takes no such run; one with a single inexact node takes two, unless its results are
    rounded to a narrower float and summed.
    """
    check_inputs(graph, inputs)
    schedule = EvaluationSchedule(cut(graph))
    sums = SumCache()
    exactness = Exactness(sums, reordered=order != "own")
    values = Evaluation(schedule, inputs, exactness).outputs()
    given = [o.node.op == "input" for o in graph.outputs]
    outputs = [np.array(v, order="C") if g else dense(v) for v, g in zip(values, given, strict=True)]
    elsewhere = roundings_of_sums(graph) if order == "elsewhere" else {}
    perturbed = _Perturbed(schedule, inputs, outputs, exactness, elsewhere, runs, sums)
    levels = exactness.levels(graph) | dict.fromkeys(behind_sums(graph, elsewhere), INEXACT)
    allowed: list[Allowed | None] = []
    for i, (output, expected) in enumerate(zip(graph.outputs, outputs, strict=True)):
        level = levels[output.node]
        if level > BY_VALUE:
            allowed.append(_Growing(perturbed, i))
        else:
            allowed.append(None if level == EXACT else Fixed(np.broadcast_to(np.float32(0), expected.shape)))
    return Reference(outputs, allowed)


@dataclass(slots=True, eq=False)  # shares of outputs of different times may have the same pieces
class _Share:
    """Results of `runs` runs for some pieces of the outputs of one time, or for all outputs that are not in pieces. The
    first run makes the bounds.

    bounds, deviations, tolerances: by output. together: by output, `MARGIN` times the root of the sum of the squares of
    the deviations in all runs.
    """

    first: int  # piece
    last: int
    runs: int = 0
    bounds: dict[int, np.ndarray] = field(default_factory=dict[int, np.ndarray])
    deviations: dict[int, np.ndarray] = field(default_factory=dict[int, np.ndarray])
    together: dict[int, np.ndarray] = field(default_factory=dict[int, np.ndarray])
    tolerances: dict[int, np.ndarray] = field(default_factory=dict[int, np.ndarray])


class _Perturbed:
    """The perturbed runs of a graph, as far as they were made."""

    def __init__(
        self,
        schedule: EvaluationSchedule,
        inputs: Sequence[np.ndarray],
        outputs: Sequence[np.ndarray],
        exactness: Exactness,
        moved: Mapping[Node, Rounding],
        runs: int,
        sums: SumCache,
    ) -> None:
        graph = schedule.cutting.graph
        levels = exactness.levels(graph, moved)
        sums.share(node for node in graph.nodes if all(levels[arg] < BY_SIGN for arg in node.args))
        self._sums = sums
        self._numbers, self._roundings = exactness.numbers(graph), exactness.roundings(graph)
        self._moved, movable = moved, behind_sums(graph, moved)
        erring = {node for node, level in levels.items() if level > BY_VALUE}
        self._signless = exactness.signless(graph)
        self._bounds = Bounds(erring, self._numbers, moved, sums, self._signless, cancelling(graph))
        self.outputs, self.patterns = outputs, patterns(len(self._numbers), runs, bool(self._roundings or moved))
        self.runs = len(self.patterns)
        if sum(node.elements for node in graph.nodes) <= FEW_ELEMENTS:
            self.patterns += more_patterns(FURTHER_RUNS, self.patterns)
        self._schedule, self._inputs = schedule, inputs
        self._evaluations: dict[int, Evaluation] = {}  # by run, where they got to
        self._lock = threading.Lock()  # of the evaluations
        self._nodes = [o.node for o in graph.outputs]
        jumping = sums_of(graph, self._roundings) | movable
        self._movable = [node in movable for node in self._nodes]
        self._jumping = [node in jumping and node.dtype.is_float for node in self._nodes]
        own = exactness.levels(graph)
        loose = [i for i, node in enumerate(self._nodes) if own[node] > BY_VALUE or node in movable]
        axes, times = schedule.cutting.axes, schedule.cutting.times
        self._whole = [i for i in loose if self._nodes[i] not in axes or not self._nodes[i].dtype.is_float]
        self._together = _Share(0, 0)
        self._in_pieces: dict[int, list[int]] = {}  # outputs by time
        for i in loose:
            if i not in self._whole:
                self._in_pieces.setdefault(times[self._nodes[i]], []).append(i)
        self._shares = {time: self._cut(members) for time, members in self._in_pieces.items()}

    def _cut(self, members: Sequence[int]) -> list[_Share]:
        """Shares of one piece or of as many as give each output `_LEAST_SHARE` elements."""
        bounds = self._schedule.cutting.bounds
        step = max(-(-_LEAST_SHARE * len(bounds) // max(self.outputs[i].size, 1)) for i in members)
        starts = range(0, len(bounds), step)
        return [_Share(first, min(first + step, len(bounds)) - 1) for first in starts]

    def shares(self, i: int) -> list[tuple[Index, _Share]]:
        """The parts of an output."""
        if i in self._whole:
            return [((...,), self._together)]
        cutting = self._schedule.cutting
        node = self._nodes[i]
        return [(self._index(node, share), share) for share in self._shares[cutting.times[node]]]

    def _index(self, node: Node, share: _Share) -> Index:
        cutting = self._schedule.cutting
        return cutting.index(node, cutting.bounds[share.first][0], cutting.bounds[share.last][1])

    def advance(self, share: _Share) -> None:
        """One run more for a share. Shares of one time may be called for by several threads."""
        if share is self._together:
            values = self._start(share.runs).outputs()
            for i in self._whole:
                self._begin(share, i, (...,))
                self._deviate(share, i, (...,), (...,), values[i])
        else:
            time = next(t for t, shares in self._shares.items() if share in shares)
            evaluation = self._evaluation(share.runs, time)
            cutting = self._schedule.cutting
            start = cutting.bounds[share.first][0]
            for i in self._in_pieces[time]:
                self._begin(share, i, self._index(self._nodes[i], share))

            def deviate(number: int) -> None:
                values, (low, high) = evaluation.piece(number), cutting.bounds[number]
                for i in self._in_pieces[time]:
                    node = self._nodes[i]
                    within = cutting.index(node, low - start, high - start)
                    self._deviate(share, i, self._index(node, share), within, values[node])

            side_by_side(deviate, range(share.first, share.last + 1))
        share.runs += 1
        share.tolerances.clear()

    def _start(self, run: int) -> Evaluation:
        if not run:
            return Evaluation(self._schedule, self._inputs, self._bounds, self._bounds.dtype)
        step = Perturbation(
            self.patterns[run - 1], self._numbers, self._roundings, self._moved, self._sums, self._signless
        )
        return Evaluation(self._schedule, self._inputs, step)

    def _evaluation(self, run: int, time: int) -> Evaluation:
        with self._lock:
            found = self._evaluations.get(run)
            if found is None or found.time > time:
                found = self._evaluations[run] = self._start(run)
            if found.time < time:
                with for_all():
                    found.advance(time)
            return found

    def _begin(self, share: _Share, i: int, index: Index) -> None:
        """Makes zeroed arrays for the results of an output, before its first run."""
        if i not in share.deviations:
            expected = self.outputs[i][index]
            for held in (share.bounds, share.deviations, share.together):
                held[i] = np.zeros(expected.shape, _error_dtype(expected))

    def _deviate(self, share: _Share, i: int, index: Index, within: Index, value: np.ndarray) -> None:
        """Raises the deviations of a share's elements `within` to |value - expected|, and the sum of their squares by
        its square; the first run sets their bounds."""
        expected = self.outputs[i][index]
        if not share.runs:
            share.bounds[i][within] = value["error"]
            return
        deviation, together, expected = share.deviations[i][within], share.together[i][within], expected[within]

        def raise_(block: tuple[slice | int, ...]) -> None:
            apart = difference(value[block], expected[block])
            np.maximum(deviation[block], apart, out=deviation[block])
            np.hypot(together[block], apart * apart.dtype.type(MARGIN), out=together[block])

        side_by_side(raise_, blocks(deviation.shape))

    def tolerance(self, share: _Share, i: int, index: Index) -> np.ndarray:
        """The tolerance of output `i` in a share, by the runs so far."""
        if i not in share.tolerances:
            together = share.together[i]
            if share.runs - 1 > self.runs:
                together = together * together.dtype.type(sqrt(self.runs / (share.runs - 1)))
            share.tolerances[i] = _loosened(
                share.bounds[i],
                np.maximum(together, share.deviations[i]) if self._jumping[i] else share.deviations[i],
                together,
                self.outputs[i][index],
                self._movable[i],
            )
        return share.tolerances[i]


class _Growing:
    """The tolerance of one output, from perturbed runs made on demand."""

    def __init__(self, perturbed: _Perturbed, i: int) -> None:
        self._perturbed, self._i = perturbed, i
        self._shares = perturbed.shares(i)

    @property
    def parts(self) -> Sequence[Index]:
        return [index for index, _ in self._shares]

    def growing(self, part: int) -> Iterator[np.ndarray]:
        index, share = self._shares[part]
        expected = self._perturbed.outputs[self._i][index]
        if not share.runs:
            is_float = dtype_of(expected).is_float
            yield (
                blockwise(ulp, _error_dtype(expected), expected)
                if is_float
                else np.zeros(expected.shape, _error_dtype(expected))
            )
        else:
            yield self._perturbed.tolerance(share, self._i, index)
        while share.runs <= self._perturbed.runs:
            self._perturbed.advance(share)
            yield self._perturbed.tolerance(share, self._i, index)

    def further(self, part: int, apart: np.ndarray) -> Iterator[np.ndarray]:
        index, share = self._shares[part]
        if not apart.any() or (apart > self._possible(share, self._lost(share, index))).any():
            return
        while share.runs <= len(self._perturbed.patterns):
            self._perturbed.advance(share)
            yield self._perturbed.tolerance(share, self._i, index)

    def others(self, part: int) -> tuple[int, np.ndarray]:
        index, share = self._shares[part]
        expected = self._perturbed.outputs[self._i][index]
        if self._i not in share.deviations:
            return 0, np.zeros_like(expected, _error_dtype(expected))
        tolerance = self._perturbed.tolerance(share, self._i, index)
        if not dtype_of(expected).is_float:
            return int(np.count_nonzero(tolerance)), np.full_like(tolerance, tolerance.max(initial=0))
        lost = self._lost(share, index)
        largest = tolerance.max(initial=0, where=lost & np.isfinite(tolerance))
        return int(np.count_nonzero(lost)), np.minimum(self._possible(share, lost), largest)

    def _lost(self, share: _Share, index: Index) -> np.ndarray:
        """Mask of the lost elements, which runs move by `LOST` times the output's root mean square or more."""
        values = widen(self._perturbed.outputs[self._i][index])
        return share.deviations[self._i] >= max(LOST * _root_mean_square(values), TINY)

    def _possible(self, share: _Share, lost: np.ndarray) -> np.ndarray:
        """The largest differences that further runs may allow: `BEYOND` times the bounds; infinite where a lost element
        is off by more than that."""
        bound, deviation = share.bounds[self._i], share.deviations[self._i]
        most = bound * bound.dtype.type(BEYOND)
        return np.full_like(most, np.inf) if (lost & (deviation > most)).any() else most

    def both(self, part: int, at: tuple[int, ...]) -> tuple[float, float]:
        _, share = self._shares[part]
        if self._i not in share.bounds:
            return 0.0, 0.0
        return float(share.bounds[self._i][at]), float(share.deviations[self._i][at])


def _root_mean_square(x: np.ndarray) -> float:
    """The root mean square of the finite elements; 0 where there are none."""
    finite = x[np.isfinite(x)].astype(np.float64)
    return float(np.sqrt(np.mean(np.square(finite)))) if finite.size else 0.0


def _error_dtype(x: np.ndarray) -> np.dtype:
    """The dtype in which differences are held: f32, but f64 for f64 and for integers."""
    return widen(x[..., :0]).dtype if dtype_of(x).is_float and x.ndim else np.dtype(np.float64)


def _calibrated(bound: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """Bounds made smaller by one factor where the typical one is more than `LOOSE` times what perturbed runs do there.

    Infinite ones stay where they are exceptions, and are the limit where they are typical. Grows with the deviations.
    """
    step = max(bound.size // _SAMPLE, 1)
    bounds, deviations = (x.reshape(-1)[::step] for x in (bound, deviation))
    can_err = bounds > 0
    if not can_err.any():
        return bound
    typical = float(np.median(bounds[can_err]))
    done = deviations[can_err].astype(np.float64)
    limit = (LOOSE if len(done) >= FEW else LOOSE_OF_FEW) * float(np.sqrt(np.mean(np.square(done))))
    if typical <= limit or not np.isfinite(limit):
        return bound
    if np.isinf(typical):
        return np.minimum(bound, bound.dtype.type(limit))
    return np.multiply(bound, bound.dtype.type(limit / typical), where=np.isfinite(bound), out=bound.copy())


def _loosened(
    bound: np.ndarray, deviation: np.ndarray, together: np.ndarray, expected: np.ndarray, movable: bool
) -> np.ndarray:
    """The tolerance that a bound and deviations make, see the module; integers have no ulp. movable: the output depends
    on roundings that rewrites may move."""
    if not dtype_of(expected).is_float:
        return np.maximum(bound, deviation)
    usual = _calibrated(bound, deviation)
    result = np.asarray(deviation + np.minimum(usual, deviation * deviation.dtype.type(BESIDE)))
    for other in (usual, np.minimum(bound, together), blockwise(ulp, result.dtype, expected)):
        np.maximum(result, other, out=result)
    if movable:
        result[~np.isfinite(widen(expected))] = np.inf
    return result
