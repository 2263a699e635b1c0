"""Machine code of kernels that crop, pad, expand, permute and reshape: every access, that to what is left behind whole
vectors too, is as wide as kernels say, and kernels say of no other. Takes NVRTC and NVIDIA's disassembler, no GPU."""

from collections.abc import Iterable
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest

from codegen.families import FAMILIES
from codegen.hardware.gpus import specified
from codegen.kernel import EmitError, Kernel
from fusion_ir.dtype import f32
from tests.nvrtc.test_sass import machine_code
from tests.support.sass import nvdisasm
from tests.support.sass_origins import accesses_by_parameter
from tests.support.views import View
from tests.support.whole import few_or_all, some

pytestmark = pytest.mark.skipif(nvdisasm() is None, reason="needs nvidia-cuda-nvdisasm: the extra `dev`")

ROWS_WHOLE, EACH_ELEMENT, TURNED = (0, 2, 1), (0, 1, 2), (2, 1, 0)
VIEWS = (
    View(6, 40, ROWS_WHOLE),  # a vector and half of one
    View(24, 10, EACH_ELEMENT),
    View(24, 40, ROWS_WHOLE),
    View(3, 10, ROWS_WHOLE),
    View(3, 10, TURNED),
    View(6, 40, TURNED),  # tiles of rows shorter than 16 bytes
    View(20, 3, ROWS_WHOLE, (2, 2)),
    View(12, 10, ROWS_WHOLE, (1, 3), 2),
    View(4, 10, ROWS_WHOLE),  # a short run, repeated
    View(50, 4, EACH_ELEMENT),  # each element several times
    View(5, 7, ROWS_WHOLE),  # an address for each lane
    View(40, 6, (1, 0, 2), (1, 3)),  # and for each two lanes
    View(36, 3, ROWS_WHOLE, (0, 2), 0, 8, f32),
    View(36, 10, TURNED, (2, 0), 2, 1000, f32),
)
GRID = tuple(
    View(m, k, order, pad, crop)
    for m, k in ((3, 10), (6, 40), (12, 10), (24, 10), (24, 40), (40, 6), (64, 3), (50, 4))
    for order in (EACH_ELEMENT, ROWS_WHOLE, TURNED, (1, 0, 2))
    for pad, crop in (((0, 0), 0), ((2, 2), 0), ((1, 3), 0), ((0, 0), 4), ((0, 4), 2))
    if crop < m
)


@pytest.mark.turn("machine code: accesses and functions")
@pytest.mark.soak
@pytest.mark.parametrize("views", few_or_all([pytest.param(VIEWS, id="few")], [pytest.param(GRID, id="grid")]))
def test_accesses_are_those_that_kernels_say(views: Iterable[View], tmp_path: Path) -> None:
    device = specified("h200", "")
    made = {f"{family} {view}": (view, k) for view in some(views, 4) for family, k in first_kernels(view)}
    code = machine_code(device, {name: kernel for name, (_, kernel) in made.items()}, tmp_path)
    for name, (view, kernel) in made.items():
        said = {(a.tensor, a.width * view.dtype.bytes) for a in kernel.accesses}
        assert {tensor for tensor, _ in said} == {"in0", "out0"}, name
        found = {
            ({0: "in0", 1: "out0"}.get(f.place) if isinstance(f.place, int) else None, width)
            for f in accesses_by_parameter(code[name], device.arch)
            for width in f.widths
        }
        assert found == said, (name, kernel.schedule)


def first_kernels(view: View) -> Iterable[tuple[str, Kernel]]:
    """Kernels of `pointwise` and `transpose` where they take the view, by the first schedule that a search tries."""
    graph, device = view.graph(), specified("h200", "")
    for name in ("pointwise", "transpose"):
        family = FAMILIES[name]
        if family.accepts(graph, device) is None:
            with suppress(EmitError) if name == "transpose" else nullcontext():  # nothing may lie across after all
                yield name, family.emit(graph, family.space(graph, device)[0], device)
