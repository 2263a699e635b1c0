"""Loop programs on CUDA, in the emulator: reductions, norms, transposes and thin products at odd shapes, strides and
alignments, by the schedules of `space` and others drawn from `choices`; and whole random graphs."""

from collections.abc import Iterable

import pytest

from codegen.families import FAMILIES
from codegen.kernel import Kernel
from codegen.workbench.workbench import Workbench
from fusion_ir import building as B
from fusion_ir.core.graph import Graph
from fusion_ir.dtype import DType, f16, f32
from scheduler.rewrites.prepare import prepare
from testing.random_graphs import Seeded
from testing.tensors import graph_of, spec
from tests.support.candidates import check_all, drawn_kernels
from tests.support.loop_graphs import NORMS, REDUCTIONS, THIN, TRANSPOSES, of_every_dtype
from tests.support.random_reductions import reduction_graph
from tests.support.sweep import sweep
from tests.support.views import View
from tests.support.whole import WHOLE, in_turn, some

FIRST, DRAWN = (3, 4) if WHOLE else (2, 1)  # schedules of each graph: of those tried first, and others


def kernels(graph: Graph, bench: Workbench, names: Iterable[str], seed: int) -> list[Kernel]:
    """By the first schedules of every family that takes the graph, and by some that are drawn."""
    return drawn_kernels(graph, bench, names, seed, first=FIRST, drawn=DRAWN)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("graphs", "families"),
    in_turn(
        [
            pytest.param(REDUCTIONS, ["reduction"], id="reduction"),
            pytest.param(NORMS, ["normalization"], id="normalization"),
            pytest.param(TRANSPOSES, ["transpose"], id="transpose"),
            pytest.param(THIN, ["gemv", "reduction"], id="gemv"),
        ],
        2,
        "families",
    ),
)
@pytest.mark.turn("emulated loops: schedules")
def test_every_schedule_is_right(graphs: dict[str, Graph], families: list[str], bench: Workbench) -> None:
    drawn = dict(some(graphs.items(), -(-len(graphs) // 4), families[0]))
    prepared = {name: prepare(graph).graph for name, graph in drawn.items()}
    cases = [(name, g, kernels(g, bench, families, seed)) for seed, (name, g) in enumerate(prepared.items())]
    wrong = check_all(cases, bench)
    assert not wrong, "\n".join(wrong)


@pytest.mark.soak
@pytest.mark.turn("emulated loops: dtypes")
def test_every_dtype_is_right(bench: Workbench) -> None:
    cases: list[tuple[str, Graph, list[Kernel]]] = []
    for name, graph in some(of_every_dtype().items(), 10, "dtypes"):
        families = (f for f in FAMILIES.values() if f.name not in ("naive", "pointwise", "aten"))
        accepting = [f for f in families if f.accepts(graph, bench.device) is None]
        assert accepting, name
        cases += [(name, graph, [f.emit(graph, f.space(graph, bench.device)[0], bench.device)]) for f in accepting]
    wrong = check_all(cases, bench)
    assert not wrong, "\n".join(wrong)


@pytest.mark.soak
@pytest.mark.parametrize("dtype", in_turn([f16, f32], 1, "rows"), ids=str)
@pytest.mark.turn("emulated loops: dtypes")
def test_rows_that_whole_vectors_do_not_divide_are_right(dtype: DType, bench: Workbench) -> None:
    """Repeated whole and element by element, padded and cropped; with a row, and a column, added to each."""
    orders = ((0, 1, 2), (0, 2, 1), (1, 0, 2))
    views = [
        View(m, k, orders[i % 3], pad, crop, 24, dtype)
        for i, (m, k) in enumerate(((3, 10), (5, 7), (6, 40), (12, 10), (20, 3), (40, 6), (50, 4)))
        for pad, crop in (((0, 0), 0), ((2, 2), 0), ((1, 3), 2))
    ]
    graphs = {str(view): view.graph() for view in views}
    for columns in (3, 7, 10, 12, 33):
        specs = [spec(sizes, dtype) for sizes in ((16, columns), (columns,), (16, 1))]
        graphs[f"rows of {columns}"] = graph_of(specs, lambda x, row, column: B.mul(B.add(x, row), column))
    prepared = {name: prepare(graph).graph for name, graph in some(graphs.items(), 5, f"rows of {dtype}")}
    cases = [(name, g, kernels(g, bench, ["pointwise"], seed)) for seed, (name, g) in enumerate(prepared.items())]
    wrong = check_all(cases, bench)
    assert not wrong, "\n".join(wrong)


@pytest.mark.soak
def test_what_cancels_is_noise_in_any_order(bench: Workbench) -> None:
    """A random graph whose results would all be 0 but for what is rounded away on the way to them."""
    graph = prepare(reduction_graph(Seeded(20249))).graph
    wrong = check_all([("noise", graph, kernels(graph, bench, ["normalization"], 1))], bench)
    assert not wrong, "\n".join(wrong)


@pytest.mark.soak
@pytest.mark.turn("emulated loops: schedules")
def test_random_graphs(bench: Workbench) -> None:
    """Cut at random places; whole plans against the interpreter."""
    result = sweep(in_turn(range(600, 612), 1, "random graphs"), bench, bench.device)
    assert not result.wrong, "\n".join(result.wrong[:20])
    assert {"pointwise", "reduction", "normalization"} <= result.families.keys() or not WHOLE
