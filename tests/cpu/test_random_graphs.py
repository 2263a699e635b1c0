"""Random graphs on the CPU: 6 fresh ones in every run (FUSEPLAN_RANDOM_GRAPHS sets how many; `make soak`: 2,000)."""

import os
from datetime import date
from pathlib import Path

import pytest

from codegen.devices.detection import detect
from codegen.sandbox.limits import Limits
from codegen.sandbox.object_cache import ObjectCache
from codegen.workbench.workbench import Workbench
from tests.support.inexact_graphs import inexact_graph
from tests.support.sweep import sweep
from tests.support.whole import seed

SOAK = 2000  # from so many on, what was seen is kept
REPORT = Path(__file__).parents[2] / "benchmarks" / "results" / "random_graphs.md"
GRAPHS = int(os.environ.get("FUSEPLAN_RANDOM_GRAPHS", "6"))
FIRST = 0 if GRAPHS >= SOAK else 100_000 + 1000 * seed()  # the seed of the first graph


@pytest.mark.turn("random graphs on the CPU")
@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_random_graphs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache = ObjectCache(tmp_path)
    device = detect("cpu", cache, ceilings=False)
    with Workbench(device, cache, Limits(timing_seconds=0.0)) as bench:
        result = sweep(range(FIRST, FIRST + GRAPHS // 3), bench, device)
    with capsys.disabled():
        print(f"\n{result}")
    if GRAPHS >= SOAK:
        REPORT.write_text(
            f"# {GRAPHS} random graphs on the CPU\n\n{date.today()}, {device.name}, {device.toolchain}\n\n{result}\n"
        )
    assert not result.wrong, "\n".join(result.wrong[:20])
    assert result.graphs >= GRAPHS // 3 * 3
    if GRAPHS >= SOAK:  # few graphs may have kernels of other families alone
        assert {"pointwise", "reduction", "normalization"} <= result.families.keys()


@pytest.mark.turn("random graphs on the CPU")
@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_kernels_of_inexact_graphs_agree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Masks, gradients, optimizers, products of few terms: what errors make of them is allowed. Fused, and in parts."""
    cache = ObjectCache(tmp_path)
    device = detect("cpu", cache, ceilings=False)
    graphs = GRAPHS if GRAPHS >= SOAK else 2
    with Workbench(device, cache, Limits(timing_seconds=0.0)) as bench:
        result = sweep(range(FIRST, FIRST + graphs), bench, device, [(inexact_graph, ("fused", "apart"))])
    with capsys.disabled():
        print(f"\n{result}")
    assert not result.wrong, "\n".join(result.wrong[:20])
    assert result.graphs == graphs
