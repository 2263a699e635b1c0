"""Masked tails stay within their tensors, whatever the compiler makes of them: each runs between guard pages."""

from pathlib import Path

import pytest

from codegen.devices.detection import detect
from codegen.families import FAMILIES
from codegen.sandbox.limits import Limits
from codegen.sandbox.object_cache import ObjectCache
from codegen.workbench.workbench import Workbench
from fusion_ir.core.extent import shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.dtype import DTYPES, DType
from fusion_ir.ops import make, make_input
from fusion_ir.records import Status
from tests.support.whole import in_turn

# g++ 12 made a masked load of i32, its mask known when compiling, widened to i64, a load of the whole register.
PAIRS = [("i32", "i64"), ("f32", "f64"), ("bf16", "f32"), ("f16", "f64"), ("u8", "i64"), ("i64", "i8"), ("bool", "f32")]


def widened(source: DType, target: DType, extent: int) -> Graph:
    spec = InputSpec(shape_of((extent,)), source, (1,), alignment_bytes=source.bytes)
    node = make("cast", (make_input(0, spec),), {"dtype": target})
    return Graph((spec,), (OutputSpec(node, (1,)),))


@pytest.mark.soak
@pytest.mark.parametrize(("source", "target"), in_turn(PAIRS, 1, "tails"))
def test_no_tail_reads_or_writes_beyond_the_end(source: str, target: str, tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path)
    device = detect("cpu", cache, ceilings=False)
    pointwise = FAMILIES["pointwise"]
    with Workbench(device, cache, Limits(timing_seconds=0.0)) as bench:
        for extent in in_turn((1, 7, 40, 63, 65, 100), 2, f"{source} {target}"):
            graph = widened(DTYPES[source], DTYPES[target], extent)
            kernels = [pointwise.emit(graph, schedule, device) for schedule in pointwise.space(graph, device)]
            rows = bench.measure(graph, "", kernels)
            assert [r.status for r in rows] == [Status.ok] * len(rows), [(r.schedule, r.detail) for r in rows]
