"""Plans with a prologue in the emulator: checked at a second run too, and run."""

from collections.abc import Iterator

import numpy as np
import pytest

from codegen.devices.detection import detect
from codegen.sandbox.limits import Limits
from codegen.sandbox.object_cache import ObjectCache
from codegen.toolchain.compiler import Binary
from codegen.workbench.workbench import Workbench
from fusion_ir.core.graph import Graph
from fusion_ir.records import Plan, Status
from tests.emulator.test_target import RIGHT
from tests.support.folding import folding_wrongly, sharing, sum_plan

N = 512


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    cache = ObjectCache(tmp_path_factory.mktemp("objects"))
    with Workbench(detect("emulator", cache), cache, Limits(kernel_seconds=0.05)) as made:
        yield made


@pytest.fixture(scope="module")
def plan(bench: Workbench) -> tuple[Graph, Plan]:
    (add,) = bench.compile_for_plans([RIGHT])
    assert isinstance(add, Binary)
    return sum_plan(N, bench.device, add, grid=(4, 1, 1), block=(128, 1, 1))


def test_checks(bench: Workbench, plan: tuple[Graph, Plan]) -> None:
    graph, right = plan
    timings = bench.measure_plans(graph, [right, sharing(right), folding_wrongly(right)], seconds=0.0)
    assert [t.status for t in timings] == [Status.ok, Status.wrong_result, Status.wrong_result]


def test_runs(bench: Workbench, plan: tuple[Graph, Plan]) -> None:
    _, right = plan
    for seed in range(2):
        x, w = np.random.default_rng(seed).standard_normal((2, N)).astype(np.float32)
        a = x + (w + w)
        np.testing.assert_array_equal(bench.run(right, [x, w])[0], (a + x) + a)
