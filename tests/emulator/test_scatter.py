"""Scatters with sums on CUDA, in the emulator: family `naive`, which compares the place of every slice."""

import pytest

from codegen.families import FAMILIES
from codegen.kernel import Kernel
from codegen.workbench.workbench import Workbench
from fusion_ir import building as B
from fusion_ir.core.graph import Graph
from fusion_ir.dtype import DTYPES, i64
from scheduler.rewrites.prepare import prepare
from testing.random_graphs import Seeded
from testing.scatter_graphs import scatter_graph
from testing.tensors import graph_of, spec
from tests.support.candidates import check_all
from tests.support.scatters import SCATTERS
from tests.support.sweep import sweep
from tests.support.whole import in_turn, some

NAIVE = FAMILIES["naive"]


def kernels(graph: Graph, bench: Workbench) -> list[Kernel]:
    return [NAIVE.emit(graph, schedule, bench.device) for schedule in NAIVE.space(graph, bench.device)]


def test_forms(bench: Workbench) -> None:
    prepared = {name: prepare(graph).graph for name, graph in some(SCATTERS.items(), 4, "scatters")}
    taken = [(name, g) for name, g in prepared.items() if NAIVE.accepts(g, bench.device) is None]
    wrong = check_all([(name, g, kernels(g, bench)) for name, g in taken], bench)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("dtype", some(DTYPES, 3))
def test_every_dtype(dtype: str, bench: Workbench) -> None:
    g = graph_of([spec((20, 13), DTYPES[dtype]), spec((20,), i64)], lambda x, i: B.scatter_sum(x, 0, i, 7))
    wrong = check_all([(dtype, g, kernels(g, bench))], bench)
    assert not wrong, "\n".join(wrong)


@pytest.mark.soak
@pytest.mark.turn("emulated loops: dtypes")
def test_random_graphs(bench: Workbench) -> None:
    drawn = [(lambda seed: scatter_graph(Seeded(seed), max_elements=600), ("fused", "apart"))]
    result = sweep(in_turn(range(40), 5, "scatters"), bench, bench.device, drawn)
    assert not result.wrong, "\n".join(result.wrong)
