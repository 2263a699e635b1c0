"""Kernels of every family agree as written, and with every inexact operation as far off as its row allows
(`tests/support/perturbed.py`): some graphs in every run, 3,000 where FUSEPLAN_RANDOM_GRAPHS says 2,000 or more."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from codegen.devices.detection import detect
from codegen.sandbox.limits import Limits
from codegen.sandbox.object_cache import ObjectCache
from codegen.toolchain.compiler import INCLUDE
from codegen.workbench.workbench import Workbench
from testing.random_graphs import Seeded
from testing.scatter_graphs import scatter_graph
from testing.vec_compare import exact, ulps_off
from testing.vec_harness import FLOATS, Spelling, build_functions
from testing.vec_ops import INEXACT, functions, math_operands
from tests.support.attention import causal, masked
from tests.support.candidates import check_all, kernels_of
from tests.support.inexact_graphs import inexact_graph
from tests.support.perturbed import SEEDS, perturbed_headers, quick_compiler
from tests.support.random_products import product_graph
from tests.support.random_reductions import reduction_graph
from tests.support.sweep import Drawn, Result, sweep
from tests.support.whole import in_turn

SOAK = 2000
DRAWN: tuple[Drawn, ...] = (
    (inexact_graph, ("fused",)),
    (lambda seed: reduction_graph(Seeded(seed)), ("fused",)),
    (lambda seed: product_graph(Seeded(seed)), ("fused",)),
    (lambda seed: scatter_graph(Seeded(seed)), ("fused",)),
)
IS_SOAK = int(os.environ.get("FUSEPLAN_RANDOM_GRAPHS", "0")) >= SOAK
GRAPHS = {"cpu": 3000 if IS_SOAK else 12, "emulator:sm_90a": 600 if IS_SOAK else 3}
BUILDS = ("as written", *SEEDS)
IN_TURN = (("cpu", "anywhere"), ("cpu", "either end"), ("emulator:sm_90a", "up"))
SWEPT = [(t, b) for t in GRAPHS for b in BUILDS] if IS_SOAK else in_turn(IN_TURN, 1, "builds")


def headers(build: str, folder: Path) -> Path:
    return INCLUDE if build == "as written" else perturbed_headers(folder / "include", SEEDS[build])


def swept(target: str, seeds: Sequence[int], include: Path, folder: Path, drawn: Sequence[Drawn]) -> Result:
    cache = ObjectCache(folder / "objects")
    device = detect(target, cache, ceilings=False)
    with Workbench(device, cache, Limits(timing_seconds=0.0), compiler=quick_compiler(device, include)) as bench:
        return sweep(seeds, bench, device, drawn)


@pytest.mark.turn("perturbed")
@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("target", "build"), SWEPT)
def test_kernels_agree(target: str, build: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first build has all graphs, the others share them."""
    count = GRAPHS[target] // len(DRAWN)
    seeds = (
        range(count) if build == "as written" else range(BUILDS.index(build) - 1, max(count, len(SEEDS)), len(SEEDS))
    )
    result = swept(target, seeds, headers(build, tmp_path), tmp_path, DRAWN)
    with capsys.disabled():
        print(f"\n{target}, {build}: {result}")
    assert not result.wrong, "\n".join(result.wrong[:20])
    assert result.graphs == len(seeds) * len(DRAWN)


@pytest.mark.turn("perturbed")
@pytest.mark.soak
@pytest.mark.parametrize("build", SEEDS if IS_SOAK else ["either end"])
def test_attention_agrees(build: str, tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path / "objects")
    device = detect("emulator:sm_80", cache)
    graphs = {"causal": causal(1, 40, 72, 40, 24), "masked": masked(1, 40, 72, 40)}
    compiler = quick_compiler(device, headers(build, tmp_path))
    with Workbench(device, cache, Limits(timing_seconds=0.0), compiler=compiler) as bench:
        drawn = in_turn(graphs.items(), 1, "attention")
        wrong = check_all([(n, g, kernels_of(g, "attention", bench, most=1)) for n, g in drawn], bench)
    assert not wrong, "\n".join(wrong)


# What the builds are


HEADERS = [(build, header) for build in ("anywhere", "up") for header in ("vec_cpu.h", "vec_cuda.cuh")]


@pytest.mark.soak
@pytest.mark.parametrize(("build", "header"), in_turn(HEADERS, 1, "headers"))
def test_operations_are_off_and_within_what_is_stated(build: str, header: str, tmp_path: Path) -> None:
    include = headers(build, tmp_path)
    host = ("-DFP_EMULATE",) if header == "vec_cuda.cuh" else ()
    spelling = Spelling(build, ("g++",), ("-march=native", "-O1", f"-I{include}", *host), 16, header)
    found = [(op, f) for op, f in functions(INEXACT, 2) if f.operands[0] in FLOATS]
    library = build_functions([f for _, f in found], spelling)
    for op, function in found:
        is_wide = function.operands[0].bytes == 8
        arrays = math_operands(op, function.operands[0], 3, 500)
        value = exact(op, *arrays)
        off = ulps_off(library.run(function, *arrays), value)
        assert off.max() <= op.ulps + (op.name.startswith("erf") and is_wide), function.name
        if not is_wide:  # of which less is left
            with np.errstate(over="ignore"):
                moved = np.isfinite(value.astype(np.float32)) & (value.astype(np.float32) != 0)
            assert np.quantile(off[moved], 0.9) > 0.5 * op.ulps, function.name


@pytest.mark.turn("perturbed")
@pytest.mark.soak
def test_kernels_that_are_off_by_more_do_not_agree(tmp_path: Path) -> None:
    """By a hundred times what is stated: what the sweep finds, if there is anything."""
    include = perturbed_headers(tmp_path / "include", SEEDS["either end"], 100.0)
    result = swept("cpu", range(16 if IS_SOAK else 6), include, tmp_path, [(inexact_graph, ("fused",))])
    assert len(result.wrong) >= result.graphs // 4
