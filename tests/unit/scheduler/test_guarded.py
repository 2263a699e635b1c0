"""Guesses: finite for every legal segment, of any extents; and where one fails, there is a plan without it."""

import math
import random
from collections.abc import Callable

import numpy as np
import pytest

from codegen.families import FAMILIES
from codegen.timing.protocol import race
from fusion_ir import building as B
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.core.scalar import Scalar
from fusion_ir.dtype import DTYPES, DType
from fusion_ir.ops import make, make_input
from fusion_ir.records import Device, Measurement, Status
from scheduler.cost import model as predictor
from scheduler.cost.calibration import corrections
from scheduler.cost.features import LEAST_TIMES, Tuned, alike, expected_logs, features
from scheduler.cost.gaussian_process import GaussianProcess
from scheduler.cost.lower_bound import bound_terms_us, least_bound_us, lower_bound_us
from scheduler.cost.model import CostModel
from scheduler.cost.roofline_cpu import ASSUMED, family_bound_us, least_us, predicted_us
from scheduler.cost.traffic import LeastTraffic, Traffic, traffic_of
from scheduler.tuning import trials as ledger
from scheduler.tuning.trial_log import TrialLog, variant_of
from tests.support.devices import CPU_DEVICE, CUDA_DEVICE
from tests.unit.scheduler.fakes import FakeBench
from tests.unit.scheduler.test_tune import diamond, search

EXTENTS = (0, 0, 1, 1, 2, 3, 17, 4096, 2**20, 2**31 + 1, 2**40)
DEVICES: tuple[Device, ...] = tuple(
    device.model_copy(update={"ceilings": ceilings})
    for device in (CPU_DEVICE, CUDA_DEVICE)
    for ceilings in (None, ASSUMED[device.target])
)
GRAPHS = 400


def strange_graph(seed: int) -> Graph:
    """A verified graph whose extents may be 0, 1, or beyond all memory, of any dtype; with or without inputs."""
    rng = random.Random(seed)
    extents = tuple(rng.choice(EXTENTS) for _ in range(rng.randint(0, 3)))
    dtype = rng.choice(list(DTYPES.values()))
    specs: tuple[InputSpec, ...] = ()
    if rng.random() < 0.8:  # else without inputs
        strides = rng.choice((dense_strides(extents), (0,) * len(extents)))
        specs = (InputSpec(shape_of(extents), dtype, strides),)
        x = make_input(0, specs[0])
    else:
        start, step = Scalar.of(0, dtype), Scalar.of(1, dtype)
        x = make("full", [], {"shape": shape_of(extents), "value": start})
        if extents and number(dtype):
            x = make("iota", [], {"shape": shape_of(extents), "axis": 0, "start": start, "step": step})
    nodes = [x]
    for _ in range(rng.randint(1, 8)):
        nodes.append(rng.choice(STEPS)(rng, rng.choice(nodes)))
    outputs = rng.sample(nodes, rng.randint(1, min(3, len(nodes))))
    return Graph(specs, tuple(OutputSpec(node, dense_strides(node.sizes)) for node in outputs))


def number(dtype: DType) -> bool:
    return dtype.is_float or dtype.is_integer


def _map(rng: random.Random, x: Node) -> Node:
    return make("neg", [x]) if number(x.dtype) else make("logical_not", [x])


def _cast(rng: random.Random, x: Node) -> Node:
    return make("cast", [x], {"dtype": rng.choice(list(DTYPES.values()))})


def _sum(rng: random.Random, x: Node) -> Node:
    axes = tuple(sorted(rng.sample(range(x.rank), rng.randint(0, x.rank))))
    return make("sum", [x], {"axes": axes}) if axes and number(x.dtype) else _map(rng, x)


def _square(rng: random.Random, x: Node) -> Node:
    return make("mul", [x, x]) if number(x.dtype) else make("logical_and", [x, x])


def _crop(rng: random.Random, x: Node) -> Node:
    stop = tuple(rng.randint(0, n) for n in x.sizes)
    return make("slice", [x], {"start": (0,) * x.rank, "stop": stop, "step": (1,) * x.rank})


def _cat(rng: random.Random, x: Node) -> Node:
    return make("cat", [x, x], {"axis": rng.randrange(x.rank)}) if x.rank else x


def _spread(rng: random.Random, x: Node) -> Node:
    first = rng.choice(EXTENTS)
    return make("broadcast_in_dim", [x], {"shape": shape_of((first, *x.sizes)), "dims": tuple(range(1, x.rank + 1))})


def _product(rng: random.Random, x: Node) -> Node:
    if not 0 < x.rank <= 3 or not x.dtype.is_float:
        return _map(rng, x)
    labels = range(x.rank)
    return B.einsum(x, x, labels, labels, labels[: rng.randint(0, x.rank)])


STEPS: tuple[Callable[[random.Random, Node], Node], ...] = (_map, _cast, _sum, _square, _crop, _cat, _spread, _product)


def doubled(times: int) -> Graph:
    """x + x, again and again: computed without sharing, the first is asked for 2^times times."""
    spec = InputSpec(shape_of((64,)), DTYPES["f32"], (1,))
    node = make_input(0, spec)
    for _ in range(times):
        node = make("add", [node, node])
        node = make("cat", [node, node], {"axis": 0}) if times < 40 else node
    return Graph((spec,), (OutputSpec(node, dense_strides(node.sizes)),))


def strange_graphs() -> list[Graph]:
    return [*(strange_graph(seed) for seed in range(GRAPHS)), doubled(30), doubled(1500)]


def numbers(traffic: Traffic) -> list[float]:
    return [
        traffic.bytes, traffic.operations, traffic.vector_operations, traffic.pulled_operations, traffic.elements,
        traffic.longest, traffic.made_operations, *(n for _, n in (*traffic.products, *traffic.made_products)),
    ]  # fmt: skip


def test_the_graphs_are_strange() -> None:
    graphs = strange_graphs()
    outputs = [o.node for g in graphs for o in g.outputs]
    assert any(n.elements == 0 for n in outputs)
    assert any(n.elements > 2**62 for n in outputs)
    assert any(n.rank == 0 for n in outputs)
    assert any(not g.inputs for g in graphs)
    assert any(n.op == "contract" and not n.sizes for g in graphs for n in g.nodes)


def test_what_is_told_of_any_segment_is_finite() -> None:
    graphs = strange_graphs()
    traffics = [traffic_of(graph) for graph in graphs]
    for graph, traffic in zip(graphs, traffics, strict=True):
        assert all(math.isfinite(n) and n >= 0 for n in numbers(traffic)), graph
        assert all(math.isfinite(f) and f >= 0 for f in features(graph, traffic)), graph
        assert 0 <= alike(graph, graphs[0]) <= 1
        assert alike(graph, graph) == 1
        least = LeastTraffic(traffic.bytes, traffic.made_products, traffic.elements)
        for device in DEVICES:
            bounds = [lower_bound_us(traffic, device), least_bound_us(traffic.bytes, device)]
            bounds += bound_terms_us(traffic, device).values()
            assert all(math.isfinite(us) and us >= 0 for us in bounds), (device.target, graph)
            for name in FAMILIES:
                bound_us = family_bound_us(traffic, name, device)
                assert math.isfinite(bound_us) and bound_us >= 0, (name, graph)
                for among in ((), ("transpose",)):
                    us = predicted_us(traffic, name, device, among)
                    assert math.isfinite(us) and us > 0, (name, graph)
                us = least_us(least, name, device)
                assert math.isfinite(us) and us > 0, (name, graph)


def test_strange_segments_teach_something_finite() -> None:
    graphs = strange_graphs()
    traffics = [(g, traffic_of(g)) for g in graphs]
    points = [f"f{{a={n}}}" for n in range(8)]
    for at in range(0, len(graphs), 10):
        some = graphs[at : at + 10]
        known = [Tuned(g, {p: float(i) for i, p in enumerate(points[:LEAST_TIMES])}) for g in some]
        expected = expected_logs(graphs[at], points, known, 0)
        assert expected is None or np.isfinite(expected).all()
        for device in DEVICES:
            rows = [(g, time_us) for g, time_us in zip(some, (0.0, 1e-9, 1.0, 7.0, 1e9) * 2, strict=False)]
            learned = corrections(rows, lambda _, traffic, d=device: predicted_us(traffic, "pointwise", d, ()))
            if learned is not None:
                factors = [learned.factor(g, traffic) for g, traffic in traffics]
                assert all(math.isfinite(f) and f > 0 for f in (*factors, learned.least))


def row(schedule: str, race: str, *samples_us: float) -> Measurement:
    return Measurement(
        segment_key="s", device_key="d", family="f", schedule=schedule, status=Status.ok, samples_us=samples_us,
        race=race, toolchain="", driver="",
    )  # fmt: skip


def test_kernels_that_seem_to_take_no_time_are_compared() -> None:
    entry = TrialLog([])
    for number, zero in enumerate((0.0, 0.0, 1.0, 0.0)):
        entry.note([row("a", f"r{number}", *[zero] * 20), row("b", f"r{number}", *[0.0] * 20)])
    assert all(math.isfinite(us) for us in entry.relative.values())
    assert {variant_of(m) for m in entry.tried.values()} == {("f", "a"), ("f", "b")}
    timings = race(3, lambda i, n: [0.0] * n, seconds=0.0)
    assert all(0 < us < 1e-3 for t in timings for us in t.samples_us)
    assert np.isfinite(GaussianProcess(["f{a=1}", "f{a=2}"], {"f{a=1}": 0.0}, 0).mean()).all()


def test_of_what_takes_no_time_nothing_is_learned() -> None:
    graph = diamond()
    plan, bench = search(graph, FakeBench(slowest=0.0))
    assert plan.steps
    again, _ = search(graph, bench)
    assert again.steps


GUESSES: tuple[tuple[object, str], ...] = (
    (predictor, "predicted_us"), (predictor, "least_us"), (predictor, "lower_bound_us"), (predictor, "family_bound_us"),
    (predictor, "corrections"), (ledger, "expected_logs"), (ledger, "proposals"),
)  # fmt: skip


@pytest.mark.parametrize(("module", "name"), GUESSES, ids=[name for _, name in GUESSES])
@pytest.mark.parametrize("fault", [ValueError("math domain error"), ZeroDivisionError("division by zero"), math.nan])
def test_a_fault_while_guessing_costs_the_guess(
    monkeypatch: pytest.MonkeyPatch, module: object, name: str, fault: float | Exception
) -> None:
    def broken(*args: object) -> float:
        if isinstance(fault, Exception) or not name.endswith("_us"):  # the others give no numbers
            raise ValueError(fault)
        return fault

    monkeypatch.setattr(module, name, broken)
    plan, _ = search(diamond(), beyond={"a": (1, 2, 3), "b": (1, 2, 3)}, schedules=("a=1,b=1", "a=2,b=1"))
    assert plan.steps
    assert plan.time_us
    assert any("was done without" in r.text for r in plan.reasons)


def test_an_interrupt_is_no_fault() -> None:
    def interrupted() -> float:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        CostModel(CPU_DEVICE, {}).guesses.or_else(1.0, "test", interrupted)
