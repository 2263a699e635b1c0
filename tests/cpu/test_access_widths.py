"""Machine code of a CPU's kernels that crop, pad, expand, permute and reshape: loads and stores of tensors move what
kernels say, and nothing else. Compiled for CPUs with and without masked moves, this one or not, and never run."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pytest

from codegen.families import FAMILIES
from codegen.kernel import EmitError, Kernel
from codegen.toolchain.compiler import CompilerMissing
from codegen.toolchain.cpu import FLAGS, CpuCompiler, find_compiler, host_arch
from fusion_ir.core.graph import Graph
from fusion_ir.dtype import DTYPES, bf16, f32
from fusion_ir.records import Device
from tests.support.devices import CPU_DEVICE
from tests.support.views import View
from tests.support.whole import few_or_all, in_turn
from tests.support.x86_accesses import accesses_by_parameter, objdump

Width = tuple[str, int]  # a tensor, and bytes of a move
NAMES = {0: "in0", 1: "out0", None: "?"}
TOGETHER = 32  # kernels of one file
# g++ makes one move of neighbouring short ones, of rows that are repeated and of steps between them. Kernels speak of
# those that they have.
APART = ("-fno-tree-loop-vectorize", "-fno-store-merging")

AVX2 = ("avx", "avx2", "bmi1", "bmi2", "f16c", "fma")
AVX512 = (*AVX2, "avx512bw", "avx512dq", "avx512f", "avx512vl")
DEVICES = {
    "avx512": CPU_DEVICE.model_copy(update={"features": AVX512}),
    "avx512_bf16": CPU_DEVICE.model_copy(update={"features": (*AVX512, "avx512_bf16")}),
    "avx2": CPU_DEVICE.model_copy(update={"features": AVX2, "vector_bytes": 32}),
    "sse2": CPU_DEVICE.model_copy(update={"features": (), "vector_bytes": 16}),
}
ROWS_WHOLE, EACH_ELEMENT, TURNED = (0, 2, 1), (0, 1, 2), (2, 1, 0)
VIEWS = (
    View(6, 40, ROWS_WHOLE),
    View(24, 10, EACH_ELEMENT),
    View(24, 40, ROWS_WHOLE, (2, 2), dtype=bf16),
    View(3, 10, ROWS_WHOLE),
    View(12, 10, ROWS_WHOLE, (1, 3), 2),
    View(4, 10, ROWS_WHOLE, dtype=f32),
    View(40, 6, (1, 0, 2), (1, 3)),
    View(36, 10, TURNED, (2, 0), 2, 1000, f32),
    View(64, 32, ROWS_WHOLE, dtype=bf16),
)
GRID = tuple(
    View(m, k, order, pad, crop, rows, dtype)
    for m, k in ((3, 10), (6, 40), (12, 10), (24, 10), (24, 40), (40, 6), (64, 3), (50, 4), (128, 8))
    for order in (EACH_ELEMENT, ROWS_WHOLE, TURNED, (1, 0, 2))
    for pad, crop in (((0, 0), 0), ((2, 2), 0), ((1, 3), 0), ((0, 0), 4), ((0, 4), 2))
    for rows, dtype in ((10240, DTYPES["f16"]), (1000, f32), (1024, bf16))
    if crop < m
)


def gxx(device: Device) -> CpuCompiler | None:
    with suppress(CompilerMissing):
        found = find_compiler(device)
        return found if "clang" not in found.version else None


pytestmark = pytest.mark.skipif(
    objdump() is None or host_arch() != "x86-64" or gxx(CPU_DEVICE) is None, reason="needs g++ and objdump for x86-64"
)


@pytest.mark.soak
@pytest.mark.parametrize("views", few_or_all([pytest.param(VIEWS, id="few")], [pytest.param(GRID, id="grid")]))
@pytest.mark.parametrize("device", in_turn(DEVICES, 1, "accesses"))
def test_accesses_are_those_that_kernels_say(device: str, views: Iterable[View], tmp_path: Path) -> None:
    """Kernels of `pointwise` and `transpose` access what they state, by the first schedule that a search tries and by
    that schedule with plain stores. Without the flags APART, g++ may merge accesses, but must not split them."""
    target = DEVICES[device]
    made = {k.entry: (view, k) for view in views for k in kernels(view.graph(), target)}
    for entries in (list(made)[at : at + TOGETHER] for at in range(0, len(made), TOGETHER)):
        some = [made[e][1] for e in entries]
        apart, as_it_is = (machine_code(some, target, flags, tmp_path) for flags in (APART, ()))
        for entry in entries:
            view, kernel = made[entry]
            said = {(a.tensor, a.width * view.dtype.bytes) for a in kernel.accesses}
            assert apart[entry] == said, (view, kernel.source)
            for tensor in ("in0", "out0"):  # neighbours may come together, nothing may come apart
                widths, least = ([w for t, w in found if t == tensor] for found in (as_it_is[entry], said))
                assert (min(widths), max(widths)) >= (min(least), max(least)), (view, kernel.source)


def machine_code(kernels: list[Kernel], device: Device, flags: Iterable[str], folder: Path) -> dict[str, set[Width]]:
    """Tensor and bytes of every load and store, by kernel entry."""
    compiler, entries, binary = gxx(device), [k.entry for k in kernels], folder / "kernels.so"
    assert compiler
    own = [*FLAGS, *compiler.own_flags(), f"-I{compiler.include}", *flags]
    with compiler.slot() as slot:
        built = compiler.build(slot, compiler.unit(kernels), own, 600.0, entries)
    assert isinstance(built, tuple), built
    binary.write_bytes(built[0])
    found = accesses_by_parameter(binary, entries, inputs=1)
    return {entry: {(NAMES[m.place], m.bytes) for m in moved} for entry, moved in found.items()}


def kernels(graph: Graph, device: Device) -> Iterable[Kernel]:
    for name in ("pointwise", "transpose"):
        family = FAMILIES[name]
        if family.accepts(graph, device) is None:
            first = family.space(graph, device)[0]
            for schedule in (first, first.replace("store=stream", "store=plain")):
                with suppress(EmitError):
                    yield family.emit(graph, schedule, device)
