"""Loop programs on CUDA, in the emulator: reductions, norms, transposes and thin products at odd shapes, strides and
alignments, by the schedules of `space` and others drawn from `choices`; and whole random graphs."""

import random
from collections.abc import Iterable

import pytest

from codegen.families import FAMILIES
from codegen.kernel import EmitError, Kernel
from codegen.schedule import schedule_text
from codegen.workbench import Workbench
from fusion_ir.graph import Graph
from scheduler.prepare import prepare
from tests.support.candidates import check_all
from tests.support.loop_graphs import NORMS, REDUCTIONS, THIN, TRANSPOSES, of_every_dtype
from tests.support.random_graphs import Seeded
from tests.support.random_reductions import reduction_graph
from tests.support.sweep import sweep

DRAWN = 4  # schedules of each graph beside the first ones


def kernels(graph: Graph, bench: Workbench, names: Iterable[str], seed: int) -> list[Kernel]:
    """By the first schedules of every family that takes the graph, and by some that are drawn."""
    rng = random.Random(seed)
    found: dict[str, Kernel] = {}
    for name in names:
        family = FAMILIES[name]
        if family.accepts(graph, bench.device) is not None:
            continue
        choices = family.choices(graph, bench.device)
        drawn = [schedule_text(name, {k: rng.choice(v) for k, v in choices.items()}) for _ in range(DRAWN)]
        for schedule in (*family.space(graph, bench.device)[:3], *drawn):
            try:
                kernel = family.emit(graph, schedule, bench.device)
            except EmitError:
                continue
            found[kernel.entry] = kernel
    assert found
    return list(found.values())


@pytest.mark.parametrize(
    ("graphs", "families"),
    [
        pytest.param(REDUCTIONS, ["reduction"], id="reduction"),
        pytest.param(NORMS, ["normalization"], id="normalization"),
        pytest.param(TRANSPOSES, ["transpose"], id="transpose"),
        pytest.param(THIN, ["gemv", "reduction"], id="gemv"),
    ],
)
def test_every_schedule_is_right(graphs: dict[str, Graph], families: list[str], bench: Workbench) -> None:
    prepared = {name: prepare(graph).graph for name, graph in graphs.items()}
    cases = [(name, g, kernels(g, bench, families, seed)) for seed, (name, g) in enumerate(prepared.items())]
    wrong = check_all(cases, bench)
    assert not wrong, "\n".join(wrong)


def test_every_dtype_is_right(bench: Workbench) -> None:
    cases: list[tuple[str, Graph, list[Kernel]]] = []
    for name, graph in of_every_dtype().items():
        families = (f for f in FAMILIES.values() if f.name not in ("naive", "pointwise", "aten"))
        accepting = [f for f in families if f.accepts(graph, bench.device) is None]
        assert accepting, name
        cases += [(name, graph, [f.emit(graph, f.space(graph, bench.device)[0], bench.device)]) for f in accepting]
    wrong = check_all(cases, bench)
    assert not wrong, "\n".join(wrong)


def test_what_cancels_is_noise_in_any_order(bench: Workbench) -> None:
    """A random graph whose results would all be 0 but for what is rounded away on the way to them."""
    graph = prepare(reduction_graph(Seeded(20249))).graph
    wrong = check_all([("noise", graph, kernels(graph, bench, ["normalization"], 1))], bench)
    assert not wrong, "\n".join(wrong)


def test_random_graphs(bench: Workbench) -> None:
    """Cut at random places; whole plans against the interpreter."""
    result = sweep(range(600, 612), bench, bench.device)
    assert not result.wrong, "\n".join(result.wrong[:20])
    assert {"pointwise", "reduction", "normalization"} <= result.families.keys()
