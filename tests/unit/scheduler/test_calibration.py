"""Predictions corrected by other segments: where these are alike and agree, and nowhere else."""

import random

import pytest

from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.dtype import f32
from fusion_ir.ops import make, make_input
from scheduler.cost.calibration import LEAST_SEGMENTS, corrections
from scheduler.cost.model import CostModel
from scheduler.cost.traffic import LeastTraffic, Traffic, traffic_of
from scheduler.segments.atom_cuts import cut
from scheduler.segments.enumeration import Candidate, find_candidates
from tests.unit.scheduler.fakes import DEVICE, families
from tests.unit.scheduler.test_tune import ALL, diamond


def chain(rows: int, columns: int, ops: int) -> Graph:
    """So many computations of one matrix."""
    spec = InputSpec(shape_of((rows, columns)), f32, dense_strides((rows, columns)))
    node = make_input(0, spec)
    for _ in range(ops):
        node = make("exp", [node])
    return Graph((spec,), (OutputSpec(node, dense_strides(node.sizes)),))


def predict(graph: Graph, traffic: Traffic) -> float:
    return traffic.bytes / 50e3


def known(off: dict[tuple[int, int, int], float]) -> list[tuple[Graph, float]]:
    """Segments that took so many times their prediction."""
    graphs = {shape: chain(*shape) for shape in off}
    return [(g, off[shape] * predict(g, traffic_of(g))) for shape, g in graphs.items()]


LIGHT = {(rows, columns, 1): 1.5 for rows in (64, 512, 4096) for columns in (128, 2048)}
DEAR = {(rows, columns, 60): 4.0 for rows in (64, 512, 4096) for columns in (128, 2048)}


def test_a_segment_is_corrected_by_those_that_are_like_it() -> None:
    learned = corrections(known(LIGHT | DEAR), predict)
    assert learned is not None
    assert learned.own < learned.theirs
    for shape, factor in (((256, 1024, 1), 1.5), ((256, 1024, 60), 4.0)):
        graph = chain(*shape)
        assert learned.factor(graph, traffic_of(graph)) == pytest.approx(factor, rel=0.2)
    least = [learned.factor(g, traffic_of(g)) for g in (chain(2, 2, 1), chain(8192, 8192, 5), chain(64, 64, 500))]
    assert min(least) >= learned.least - 1e-9


def test_the_order_of_what_is_known_does_not_matter() -> None:
    rows = known(LIGHT | DEAR)
    graph = chain(100, 100, 7)
    factors = list[float]()
    for seed in range(5):
        random.Random(seed).shuffle(rows)
        learned = corrections(rows, predict)
        assert learned is not None
        factors.append(learned.factor(graph, traffic_of(graph)))
    assert factors == pytest.approx([factors[0]] * 5, rel=1e-12)


def test_few_segments_say_nothing() -> None:
    few = dict(list((LIGHT | DEAR).items())[: LEAST_SEGMENTS - 1])
    assert corrections(known(few), predict) is None


def test_what_contradicts_itself_is_not_used() -> None:
    """Neighbours are off in opposite directions: each says the wrong thing of the next one."""
    shapes = [(2**i, 4096, 1) for i in range(4, 16)]
    off = {shape: 1.05 if i % 2 else 1 / 1.05 for i, shape in enumerate(shapes)}
    assert corrections(known(off), predict) is None


def test_twins_do_not_vouch_for_each_other() -> None:
    assert corrections(known({(512, 1024 + i, 1): 3.0 for i in range(20)}), predict) is None


def test_predictions_are_corrected_and_stay_above_what_is_said_to_be_the_least() -> None:
    asked: list[str] = []

    def timed(family: str) -> list[tuple[Graph, float]]:
        asked.append(family)
        return known(LIGHT | DEAR) if family == "fused" else []

    plain, taught = (CostModel(DEVICE, families(kinds=ALL), told) for told in (lambda _: (), timed))
    atoms = cut(diamond(), taught.acceptor.computable)
    found = find_candidates(atoms, lambda piece: taught.acceptor.ask(atoms, piece))
    changed = 0
    for candidate in found.accepted.values():
        changed += taught.predicted_us(candidate) != plain.predicted_us(candidate)
        least = LeastTraffic(taught.traffic(candidate).bytes)
        assert taught.predictions.least_us(least) <= taught.predicted_us(candidate) * (1 + 1e-12)
    assert changed
    assert sorted(asked) == sorted(set(asked)), "each family's are asked for once"


def test_a_correction_does_not_hide_what_this_search_measured() -> None:
    """Scales of this search go on top: predictions of a family that is twice as slow here double."""
    predictor = CostModel(DEVICE, families(kinds=ALL), lambda f: known(LIGHT | DEAR) if f == "fused" else [])
    atoms = cut(diamond(), predictor.acceptor.computable)
    answer = predictor.acceptor.ask(atoms, atoms.piece(1))
    assert isinstance(answer, Candidate)
    before = predictor.predicted_by(answer, "fused")
    predictor.correct(answer, "fused", 2 * before)
    assert predictor.predicted_by(answer, "fused") == pytest.approx(2 * before)
