"""Family `scan` on CUDA, in the emulator: rows that threads go through in step, sums side by side; every dtype, each
axis, odd sizes, prologues and epilogues, by the schedules of `space` and others drawn from `choices`."""

from collections.abc import Iterator

import pytest

from codegen.workbench.workbench import Workbench
from fusion_ir import building as B
from fusion_ir.core.graph import Graph
from fusion_ir.dtype import DTYPES, f32
from scheduler.budget import Budget
from scheduler.interfaces import Forgetful
from scheduler.tune import tune
from testing.tensors import graph_of, spec
from tests.support.candidates import check_all, drawn_kernels
from tests.support.scan_graphs import CONES, graph, scan
from tests.support.whole import WHOLE, one_part

FIRST, DRAWN = (4, 6) if WHOLE else (2, 2)  # schedules of each graph


def cases() -> Iterator[tuple[str, Graph]]:
    for name, build in CONES.items():
        yield name, graph((37, 70), "f32", build)
    for dtype in DTYPES:
        yield f"along, {dtype}", graph((5, 267), dtype, lambda x: scan(x, 1))
        yield f"across, {dtype}", graph((67, 35), dtype, lambda x: scan(x, 0))
        yield f"both, {dtype}", graph((5, 67), dtype, lambda x: [scan(x, 0), scan(x, 1)])
    for sizes in ((3, 4, 5), (1, 33, 130), (40, 1, 1), (2, 129, 64), (7, 2, 300)):
        for axis in range(3):
            yield f"{sizes} along {axis}", graph(sizes, "f32", lambda x, axis=axis: scan(x, axis))
    for n in (1, 2, 31, 32, 33, 1000, 5000):
        yield f"one row of {n}", graph((n,), "f32", lambda x: scan(x, 0))
    yield "rows of several turns", graph((9, 3001), "f32", lambda x: scan(x, 1))
    yield "permuted", graph_of([spec((40, 50), f32, strides=(1, 40))], lambda x: scan(x, 1))
    yield "a row for all", graph_of([spec((40, 330), f32), spec((330,), f32)], lambda x, y: scan(B.mul(x, y), 1))


@pytest.mark.soak
def test_cases(bench: Workbench) -> None:
    drawn = one_part(cases(), 10, "scans on CUDA")
    wrong = check_all(
        [
            (name, g, drawn_kernels(g, bench, ["scan"], seed, first=FIRST, drawn=DRAWN))
            for seed, (name, g) in enumerate(drawn)
        ],
        bench,
    )
    assert not wrong, "\n".join(wrong)


def test_a_long_row_is_summed_in_parts(bench: Workbench) -> None:
    """One row would be one block's: it comes in parts, by several kernels of this family among them."""
    g = graph((1 << 16,), "f32", lambda x: scan(x, 0))
    plan = tune(g, bench.device, Budget(seconds=20.0), Forgetful(), bench)
    families = [step.family for step in plan.steps]
    assert len(families) > 1 and "scan" in families, families
