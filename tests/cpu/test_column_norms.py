"""Batch norms of channels that lie innermost: one kernel, whatever the number of channels, whose threads share them."""

import json
from pathlib import Path

import pytest

from codegen.devices.detection import detect
from codegen.families import FAMILIES
from codegen.sandbox.limits import Limits
from codegen.sandbox.object_cache import ObjectCache
from codegen.workbench.workbench import Workbench
from fusion_ir.core.graph import Graph
from fusion_ir.formats import read
from fusion_ir.records import Status
from tests.support.devices import CPU_DEVICE
from tests.support.whole import in_turn

CHANNELS = (3, 8, 16, 24, 64, 96, 100, 128, 200, 256, 1000)


def norm(channels: int, dtype: str, rows: tuple[int, ...], spread: bool = True) -> Graph:
    """(x - mean) / root of the sum of squares over all axes but the last one; or these two numbers of each channel."""
    each = {"axes": list(range(len(rows))), "keepdims": True}
    node = [
        ("w", "cast", ["x"], {"dtype": "f32"}),
        ("s", "sum", ["w"], each),
        ("k", "full", [], {"shape": [], "value": 1 / 512, "dtype": "f32"}),
        ("m", "mul", ["s", "k"], {}),
        ("d", "sub", ["w", "m"], {}),
        ("q", "mul", ["d", "d"], {}),
        ("v", "sum", ["q"], each),
        ("r", "rsqrt", ["v"], {}),
        ("n", "mul", ["d", "r"], {}),
        ("z", "cast", ["n"], {"dtype": dtype}),
    ][: 10 if spread else 8]
    wire = {
        "format": "fuseplan.graph",
        "version": 1,
        "inputs": [{"name": "x", "shape": [*rows, channels], "dtype": dtype}],
        "nodes": [{"name": n, "op": op, "args": args, "attrs": attrs} for n, op, args, attrs in node],
        "outputs": [{"node": n} for n in (["z"] if spread else ["m", "r"])],
    }
    return read(json.dumps(wire)).graph


@pytest.mark.parametrize("channels", CHANNELS)
@pytest.mark.parametrize("units", [1, 2, 16])
def test_any_number_of_channels_is_one_kernel(channels: int, units: int) -> None:
    device = CPU_DEVICE.model_copy(update={"units": units})
    normalization = FAMILIES["normalization"]
    for dtype in ("f32", "bf16"):
        for rows in ((1, 28, 28), (4, 49), (784,)):
            for spread in (True, False):
                graph = norm(channels, dtype, rows, spread)
                assert normalization.accepts(graph, device) is None
                kernel = normalization.emit(graph, normalization.space(graph, device)[0], device)
                if channels >= 32 * min(units, 2):
                    assert "GRID(" in kernel.source


@pytest.mark.soak
@pytest.mark.parametrize("channels", in_turn(CHANNELS, 2, "column norms"))
def test_it_is_right(channels: int, tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path)
    device = detect("cpu", cache, ceilings=False)
    normalization = FAMILIES["normalization"]
    with Workbench(device, cache, Limits(timing_seconds=0.0)) as bench:
        for dtype in ("f32", "bf16"):
            for spread in (True, False):
                graph = norm(channels, dtype, (2, 7, 9), spread)
                schedules = normalization.space(graph, device)[:3]
                rows = bench.measure(graph, "", [normalization.emit(graph, s, device) for s in schedules])
                assert [r.status for r in rows] == [Status.ok] * len(rows), [(r.schedule, r.detail) for r in rows]
