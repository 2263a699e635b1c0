"""Predicted costs of candidates, before anything of them is measured: from their traffic, the families' usual shares of
a device's ceilings, the launches of first kernels, and times of other segments."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

from codegen.families.contraction_limits import REFUSING
from codegen.kernel import EmitError, Family, Kernel, Unrolling
from codegen.schedule import Variant
from codegen.timing.protocol import median
from fusion_ir.core.graph import Graph
from fusion_ir.records import CompileReport, Device
from scheduler.cost.calibration import Calibration, corrections
from scheduler.cost.guarded_predictions import GuardedPredictions
from scheduler.cost.lower_bound import least_bound_us, lower_bound_us
from scheduler.cost.roofline_cpu import family_bound_us, least_us, may_be_narrow, predicted_kernel_us, predicted_us
from scheduler.cost.traffic import LeastTraffic, Traffic, traffic_of
from scheduler.segments.acceptor import SHARES_NOTHING, Acceptor
from scheduler.segments.enumeration import Candidate

MANY_BYTES = 1 << 50
UNKNOWN_US = 1e9  # of what cannot be predicted: everything else is tried before it


@dataclass(frozen=True)
class Estimate:
    """Costs in microseconds of candidates that were not measured; estimates are equal while nothing is learned. us: of
    one candidate. seeming_us: lower bound on `us`, without lowering the segment to find out which families accept it.
    least_us: lower bound on `seeming_us` of any candidate of so much traffic, or more."""

    us: Callable[[Candidate], float]
    seeming_us: Callable[[Candidate], float]
    least_us: Callable[[LeastTraffic], float]

    def times(self, factor: float) -> "Estimate":
        """The estimate with all costs times `factor`."""
        return Estimate(
            lambda c: factor * self.us(c), lambda c: factor * self.seeming_us(c), lambda t: factor * self.least_us(t)
        )


@dataclass(frozen=True)
class _Least:
    """Lower bound on predictions for segments of so much traffic or more. scales: factors of predictions, by family."""

    predictor: "CostModel"
    scales: tuple[tuple[str, float], ...]
    _known: dict[LeastTraffic, float] = field(default_factory=dict[LeastTraffic, float], compare=False, repr=False)

    def __call__(self, least: LeastTraffic) -> float:
        known = self._known.get(least)
        if known is None:  # segments of layers that are alike have equal traffic
            known = self._known[least] = self._of(least)
        return known

    def _of(self, least: LeastTraffic) -> float:
        among = self.scales if least.products else self._moving
        takers = [entry for entry in among if entry[0] not in least.refusing] or among
        return min([scale * self.predictor.least_us(least, name) for name, scale in takers])

    @cached_property
    def _moving(self) -> tuple[tuple[str, float], ...]:
        """Families one of which is the fastest where nothing is multiplied. The others take as long as one that refuses
        nothing for its products, or longer, both for no bytes and for very many; between these all times grow alike."""

        def ends(name: str, scale: float) -> tuple[float, ...]:
            return tuple([scale * self.predictor.least_us(LeastTraffic(b), name) for b in (0, MANY_BYTES)])

        sure = [ends(*entry) for entry in self.scales if entry[0] not in REFUSING]
        slower = [ends(*entry) for entry in self.scales if any(_is_below(s, ends(*entry)) for s in sure)]
        return tuple({ends(*entry): entry for entry in self.scales if ends(*entry) not in slower}.values())


def _is_below(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))


class CostModel:
    """Predicts what candidates take, corrected by what was measured."""

    def __init__(
        self,
        device: Device,
        families: Mapping[str, Family],
        timed: Callable[[str], Sequence[tuple[Graph, float]]] = lambda _: (),
    ) -> None:
        """timed: segments that a family was timed on, on this device, and the shortest time of each (us)."""
        self.device = device
        self.families = families
        self.acceptor = Acceptor(device, families)
        self.guesses = GuardedPredictions()
        self._traffic: dict[Graph, Traffic] = {}  # equal for equal segments of different layers
        self._predicted: dict[tuple[Candidate, str], float] = {}  # by family, not corrected
        self._hopes: dict[Graph, list[tuple[float, str]]] = {}  # see `_hoped`
        self._best_us: dict[Candidate, float] = {}
        self._seeming_us: dict[Candidate, float] = {}
        self._closely: set[Candidate] = set()  # predicted by their kernels
        self._timed = timed
        self._learned: dict[str, Calibration | None] = {}  # by family
        self._ratios: dict[str, list[float]] = {}  # by family: measured over predicted
        self._scales: dict[str, float] = {}  # medians of these

    def traffic(self, candidate: Candidate) -> Traffic:
        graph = candidate.segment.graph
        if graph not in self._traffic:
            self._traffic[graph] = traffic_of(graph)
        return self._traffic[graph]

    def bound_us(self, candidate: Candidate) -> float:
        """Lower bound in microseconds on the time of any kernel of the accepting families."""
        return self._bound_us(candidate, candidate.families.__contains__)

    def _bound_us(self, candidate: Candidate, is_taken_by: Callable[[str], bool]) -> float:
        traffic, device = self.traffic(candidate), self.device
        bound_us = self.guesses.or_else(0.0, "bound", lambda: lower_bound_us(traffic, device))
        best_us = math.inf
        for name in filter(is_taken_by, self.families):
            best_us = min(best_us, self._family_bound_us(traffic, name, bound_us))
            if best_us <= bound_us:  # the others need not be asked
                break
        return best_us

    def family_bound_us(self, candidate: Candidate, family: str) -> float:
        """Lower bound in microseconds on the time of any kernel of one family."""
        return self._family_bound_us(self.traffic(candidate), family, 0.0)

    def _family_bound_us(self, traffic: Traffic, family: str, otherwise_us: float) -> float:
        bound = partial(family_bound_us, traffic, family, self.device)
        return self.guesses.or_else(otherwise_us, f"bound of {family}", bound)

    def predicted_us(self, candidate: Candidate) -> float:
        """The best family's prediction, corrected by how far its predictions were off so far (median ratio). Families
        are asked whether they accept the segment in the order of what they would take, until one does."""
        if candidate not in self._best_us:
            self._best_us[candidate] = self._best(candidate, candidate.families.__contains__)
        return self._best_us[candidate]

    def seeming_us(self, candidate: Candidate) -> float:
        """`predicted_us` by families that seem to accept the segment, without lowering it: never more, rarely less."""
        if candidate in self._best_us:
            return self._best_us[candidate]
        if candidate not in self._seeming_us:
            self._seeming_us[candidate] = self._best(candidate, candidate.families.seems_to)
        return self._seeming_us[candidate]

    def _best(self, candidate: Candidate, is_taken_by: Callable[[str], bool]) -> float:
        best_us = math.inf
        for us, name in self._hoped(candidate):
            if us >= best_us:
                break
            if is_taken_by(name):
                best_us = min(best_us, self.predicted_by(candidate, name))
        return best_us

    def _hoped(self, candidate: Candidate) -> list[tuple[float, str]]:
        """Families by the least that is predicted of them, corrected by what was measured, the fastest first."""
        graph = candidate.segment.graph
        if graph not in self._hopes:
            traffic = self.traffic(candidate)
            self._hopes[graph] = sorted((self._scale(f) * self._hoped_us(traffic, f), f) for f in self.families)
        return self._hopes[graph]

    def fastest(self, candidate: Candidate) -> str:
        """The accepting family of the least `uncorrected_us`, of equals the first; the one that shares nothing only
        where no other accepts."""
        traffic = self.traffic(candidate)
        hoped = [(self._hoped_us(traffic, name), i, name) for i, name in enumerate(self.families)]
        found: list[tuple[float, int, str]] = []
        for us, i, name in sorted(h for h in hoped if h[2] != SHARES_NOTHING):
            if found and us > min(found)[0]:
                break
            if name in candidate.families:
                found.append((self.uncorrected_us(candidate, name), i, name))
        return min(found)[2] if found else SHARES_NOTHING

    def predicted_by(self, candidate: Candidate, family: str) -> float:
        """Prediction in microseconds for one family that accepts the segment, corrected as in `predicted_us`."""
        return self._scale(family) * self.uncorrected_us(candidate, family)

    @property
    def predictions(self) -> Estimate:
        """`predicted_us`."""
        least_us = _Least(self, tuple((name, self._scale(name)) for name in self.families))
        return Estimate(self.predicted_us, self.seeming_us, least_us)

    def _hoped_us(self, traffic: Traffic, family: str) -> float:
        """The least that `uncorrected_us` says of the family, before that is asked whether it accepts the segment."""
        learned = self.corrections_of(family)
        guess = partial(predicted_us, traffic, family, self.device, ())
        return self.guesses.or_else(0.0, f"prediction of {family}", guess) * (learned.least if learned else 1.0)

    def least_us(self, least: LeastTraffic, family: str) -> float:
        """The least that is predicted of any of the family's segments of so much traffic or more."""
        learned = self.corrections_of(family)
        guess = partial(least_us, least, family, self.device)
        return self.guesses.or_else(0.0, f"prediction of {family}", guess) * (learned.least if learned else 1.0)

    @property
    def bounds(self) -> Estimate:
        """`bound_us`."""
        return Estimate(self.bound_us, self._seeming_bound_us, self._least_bound_us)

    def _seeming_bound_us(self, candidate: Candidate) -> float:
        return self._bound_us(candidate, candidate.families.seems_to)

    def _least_bound_us(self, least: LeastTraffic) -> float:
        return self.guesses.or_else(0.0, "bound", partial(least_bound_us, least.bytes, self.device))

    def uncorrected_us(self, candidate: Candidate, family: str) -> float:
        """Prediction in microseconds for one family that accepts the segment, without the scale that measurements of
        this search give (`correct`)."""
        key = candidate, family
        if key not in self._predicted:
            guess = partial(self._predict, candidate, family)
            predicted = self.guesses.or_else(UNKNOWN_US, f"prediction of {family}", guess)
            self._predicted[key] = self._as_learned(candidate, family, predicted)
        return self._predicted[key]

    def _predict(self, candidate: Candidate, family: str) -> float:
        traffic, device = self.traffic(candidate), self.device
        predicted = predicted_us(traffic, family, device, candidate.families)
        narrow = may_be_narrow(traffic, family, device)
        if (narrow or candidate in self._closely) and (kernel := self._default(candidate, family)):
            return max(predicted, predicted_kernel_us(traffic, kernel, None, device, candidate.families))
        return predicted

    def _as_learned(self, candidate: Candidate, family: str, predicted_us: float) -> float:
        """A prediction, corrected by what the family took on other segments where that is known to help."""
        learned = self.corrections_of(family)
        if learned is None:
            return predicted_us
        factor = partial(learned.factor, candidate.segment.graph, self.traffic(candidate))
        return predicted_us * self.guesses.or_else(1.0, f"correction of {family}", factor)

    def corrections_of(self, family: str) -> Calibration | None:
        """The correction of the family's predictions learned from other segments, if there is one."""
        if family not in self._learned:
            turning = self.families.get("transpose")  # what it takes, `pointwise` fetches badly

            def predict(graph: Graph, traffic: Traffic) -> float:
                turns = turning is not None and turning.accepts(graph, self.device) is None
                return predicted_us(traffic, family, self.device, ("transpose",) if turns else ())

            learn = partial(corrections, self._timed(family), predict)
            self._learned[family] = self.guesses.or_else(None, f"correction of {family}", learn)
        return self._learned[family]

    def look_closer(self, candidate: Candidate) -> bool:
        """Predicts a segment on a GPU by the launches of its families' first kernels, which say how many blocks share
        the work. Whether its prediction is another now, which is never a lower one."""
        if self.device.target == "cpu" or candidate in self._closely:
            return False
        before = self.predicted_us(candidate)
        self._closely.add(candidate)
        del self._best_us[candidate]
        for family in self.families:
            self._predicted.pop((candidate, family), None)
        return self.predicted_us(candidate) != before

    def _default(self, candidate: Candidate, family: str) -> Kernel | None:
        try:
            return self.acceptor.first_kernel(candidate.segment, family)
        except EmitError:
            return None

    def least_unrolled(self, candidate: Candidate) -> Variant | None:
        """The variant that compiles fastest, by a family that says which does; None where none takes the candidate.
        Tiles that `transpose` turns in registers, for example, `pointwise` fetches in a quarter of the time."""
        for name in (self.fastest(candidate), *self.families):
            known = self.families[name]
            if isinstance(known, Unrolling) and name in candidate.families:
                return name, known.least_unrolled(candidate.segment.canonical.graph, self.device)
        return None

    def expected_us(self, candidate: Candidate, kernel: Kernel, report: CompileReport | None) -> float:
        """The prediction for one kernel of the candidate, corrected in the same way."""
        traffic, among, family = self.traffic(candidate), candidate.families, kernel.family
        guess = partial(predicted_kernel_us, traffic, kernel, report, self.device, among)
        predicted = self.guesses.or_else(UNKNOWN_US, f"prediction of {family}", guess)
        return self._as_learned(candidate, kernel.family, predicted) * self._scale(kernel.family)

    def correct(self, candidate: Candidate, family: str, time_us: float) -> None:
        """Notes how far off a prediction was. Nothing takes no time: of what seemed to, nothing is learned."""
        if not time_us > 0:
            return
        ratio = time_us / self.uncorrected_us(candidate, family)
        self._ratios.setdefault(family, []).append(ratio)
        self._scales[family] = median(self._ratios[family])
        self._hopes.clear()
        self._best_us.clear()
        self._seeming_us.clear()

    def _scale(self, family: str) -> float:
        return self._scales.get(family, 1.0)
