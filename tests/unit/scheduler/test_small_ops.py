"""Graphs of many small ops that have nothing in common: where there is little time, compilers are given little."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from codegen.families import FAMILIES
from codegen.families.pointwise import Pointwise
from codegen.kernel import Kernel, offers
from fusion_ir import building as build
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType, bf16, f16, f32, f64
from fusion_ir.formats import read
from fusion_ir.records import Plan
from scheduler.budget import Budget
from scheduler.rewrites.prepare import prepare
from scheduler.settings import TuneSettings
from scheduler.tune import tune
from tests.support.devices import CPU_DEVICE, CUDA_DEVICE
from tests.support.products import dense_graph, spec
from tests.unit.scheduler.fakes import CEILINGS, Memory
from tests.unit.scheduler.test_large_graphs import STRETCHES, Compiling

DEVICE = CPU_DEVICE.model_copy(update={"ceilings": CEILINGS})
INDEPENDENT = Path(__file__).parents[2] / "graphs" / "indep.json"
LINES = 90  # of a kernel, on average: loads and products of one row, once more for what is behind whole vectors
MANY = 60


class Reading(Compiling):
    """Keeps what compilers were given, by call. A kernel takes them 10 ms."""

    def __init__(self) -> None:
        super().__init__(compile_s=0.01)
        self.batches: list[list[Kernel]] = []

    def compile_for_plans(self, kernels: Sequence[Kernel], *args: Any, **how: Any) -> list[Any]:
        self.batches.append(list(kernels))
        return super().compile_for_plans(kernels, *args, **how)


def same(x: Node) -> Node:
    return x


def products(dtypes: Sequence[DType], behind: Sequence[Callable[[Node], Node]], longest: int = 16) -> Graph:
    """[m, k] by [k, n], of sizes that go round at paces of their own, so that no two are equal."""
    specs = [
        spec(sizes, dtype=dtypes[i % len(dtypes)])
        for i in range(MANY)
        for m, k, n in [(5 + i % 14, longest - i % 5, 6 + i % 11)]
        for sizes in ((m, k), (k, n))
    ]
    return dense_graph(
        specs,
        lambda *x: tuple(behind[i % len(behind)](build.matmul(x[2 * i], x[2 * i + 1])) for i in range(MANY)),
    )


def softmaxes() -> Graph:
    return dense_graph([(3 + i % 13, 17 + i) for i in range(MANY)], lambda *x: tuple(build.softmax(a) for a in x))


TURNS = ((2, 0, 1), (1, 0, 2), (0, 2, 1), (2, 1, 0))


def turned() -> Graph:
    return dense_graph(
        [(3 + i % 17, 5 + i % 23, 2 + i % 7) for i in range(MANY)],
        lambda *x: tuple(build.permute(a, TURNS[i % 4]) for i, a in enumerate(x)),
    )


GRAPHS: dict[str, Callable[[], Graph]] = {
    "as it was found": lambda: read(INDEPENDENT.read_text()).graph,
    "f32": lambda: products([f32], [same]),
    "f64": lambda: products([f64], [build.relu]),
    "f16": lambda: products([f16], [build.relu]),
    "bf16": lambda: products([bf16], [same]),
    "types take turns": lambda: products([f32, f64, f16, bf16], [build.relu, same]),
    "softmax of each second": lambda: products([f32], [build.softmax, build.relu]),
    "short sums": lambda: products([f32], [build.relu], longest=8),
    "long sums": lambda: products([f32], [build.relu], longest=40),
}


def planned(graph: Graph, seconds: float) -> tuple[Plan, Reading]:
    bench = Reading()
    plan = tune(
        graph, DEVICE, Budget(seconds), Memory(), bench, families=FAMILIES, settings=STRETCHES, clock=bench.clock
    )
    return plan, bench


@pytest.mark.sweep(0.35)
@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_first_plans_in_little_time_write_out_little(graph: Callable[[], Graph]) -> None:
    given = graph()
    plan, bench = planned(given, 1.0)
    first, most = bench.batches[0], len(given.outputs)
    assert len(first) <= most
    assert sum(k.source.count("\n") for k in first) <= LINES * most
    assert plan.time_us is not None


@pytest.mark.turn("small ops with time")
def test_where_time_is_left_kernels_are_those_of_a_search_with_enough() -> None:
    graph = products([f32], [build.relu])
    little, some, enough = (
        {s.schedule for s in planned(graph, seconds)[0].steps if s.family == "pointwise"}
        for seconds in (0.2, 3.0, 11.0)
    )
    assert not any("rows=8" in s for s in little)
    assert some == enough
    assert any("rows=8" in s for s in some)


@pytest.mark.turn("small ops with time")
def test_tiles_are_turned_in_registers_where_there_is_time() -> None:
    """One element after the other otherwise: that takes compilers a quarter."""
    little, some, enough = ({s.family for s in planned(turned(), seconds)[0].steps} for seconds in (0.2, 3.0, 11.0))
    assert little == {"pointwise"}
    assert some == enough == {"transpose"}


@pytest.mark.parametrize("dtype", [f32, f64, f16, bf16], ids=str)
@pytest.mark.parametrize("device", [CPU_DEVICE, CUDA_DEVICE], ids=lambda d: d.target)
def test_what_is_unrolled_least_is_one_of_the_familys_and_grows_with_the_sum_alone(dtype: DType, device: Any) -> None:
    family = Pointwise()
    for m, k, n in ((1, 2, 3), (5, 12, 6), (9, 16, 11), (12, 16, 20), (33, 7, 65), (3, 1, 200)):
        graph = dense_graph([(m, k), (k, n)], lambda a, b: build.relu(build.matmul(a, b)), dtype)
        schedule = family.least_unrolled(graph, device)
        assert offers(family, graph, schedule, device)
        if device.target == "cpu":
            assert family.emit(graph, schedule, device).source.count("\n") <= 8 * k + 30, (m, k, n)


def test_views_that_are_written_count_as_tensors() -> None:
    graph = dense_graph(
        [(3 + i % 13, 17 + i) for i in range(MANY)], lambda *x: tuple(build.permute(a, (1, 0)) for a in x)
    )
    assert f"the graph has {MANY}" in TuneSettings().too_many(prepare(graph), 1.0)
