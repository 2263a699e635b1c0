"""Machine code of kernels that must be near the limit of memory: 16 bytes an access where the analysis of accesses says
so, tensor by tensor, and no local memory. Takes NVRTC and NVIDIA's disassembler, and no GPU."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from benchmarks.corpus import CASES
from codegen.families import FAMILIES
from codegen.hardware.gpus import specified
from codegen.kernel import Kernel
from codegen.sandbox.limits import Limits
from codegen.sandbox.object_cache import ObjectCache
from codegen.toolchain.builder import Builder
from codegen.toolchain.compiler import Binary
from codegen.toolchain.cuda import CudaCompiler
from fusion_ir.core.graph import Graph
from fusion_ir.records import Device
from tests.support.sass import Sass, disassemble, nvdisasm
from tests.support.sass_origins import Found, accesses_by_parameter
from tests.support.whole import drawn_parameters, in_turn
from tests.unit.codegen.test_goldens import graph_named

pytestmark = pytest.mark.skipif(nvdisasm() is None, reason="needs nvidia-cuda-nvdisasm: the extra `dev`")

WIDEST = 16  # bytes that a thread moves at once
TARGETS = ("h100", "a100")


def corpus(name: str) -> Graph:
    return CASES[name].instance("bf16").graph


# By name: the family that computes the whole graph, and the graph, at the size of the benchmark.
WIDE: Mapping[str, tuple[str, Graph]] = {
    "rope": ("pointwise", graph_named("mistral_rope")),
    "layer_norm": ("normalization", corpus("layer_norm")),
    "softmax": ("normalization", corpus("softmax")),
    "transposed_add": ("transpose", corpus("transposed_add")),
    "transposed_scale": ("transpose", CASES["transposed_scale"].instance("f32").graph),
}

# matmul + bias + gelu + residual: family, target, and what must be there of its instructions. Families that are not
# among `FAMILIES` yet are left out.
PRODUCT = corpus("linear_gelu_residual")
PRODUCTS = [
    (family, target, instructions)
    for family, target, instructions in (
        ("matmul", "h100", ("HMMA", "LDSM", "LDGSTS")),
        ("matmul", "a100", ("HMMA", "LDSM", "LDGSTS")),
        ("wgmma", "h100", ("HGMMA", "UTMALDG")),
    )
    if family in FAMILIES and FAMILIES[family].accepts(PRODUCT, specified(target, "")) is None
]


def machine_code(device: Device, kernels: Mapping[str, Kernel], folder: Path) -> dict[str, Sass]:
    """All of them in one file."""
    cache = ObjectCache(folder)
    builder = Builder(CudaCompiler(device), cache, Limits(compile_seconds=200.0, kernels_per_file=40), 1)
    try:
        built = builder.compile(list(kernels.values()))
    finally:
        builder.close()
    found: dict[str, Sass] = {}
    for (name, kernel), binary in zip(kernels.items(), built, strict=True):
        assert isinstance(binary, Binary), f"{name}: {binary.detail}"
        data = cache.get(binary.sha256)
        assert data is not None
        found[name] = disassemble(data)[kernel.entry]
    return found


def default_kernel(family: str, graph: Graph, device: Device) -> Kernel:
    return FAMILIES[family].emit(graph, FAMILIES[family].space(graph, device)[0], device)


@pytest.fixture(scope="module", params=TARGETS)
def code(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Device, dict[str, tuple[Graph, Kernel, Sass]]]:
    device = specified(request.param, "")
    drawn = {p["name"] for p in drawn_parameters(request) if p.get("code") == request.param}
    kernels = {name: default_kernel(*WIDE[name], device) for name in sorted(drawn)}
    sass = machine_code(device, kernels, tmp_path_factory.mktemp("cache"))
    return device, {name: (WIDE[name][1], kernels[name], sass[name]) for name in kernels}


@pytest.mark.sweep(0.2)
@pytest.mark.parametrize("name", WIDE)
def test_accesses_are_as_wide_as_the_analysis_says(
    name: str, code: tuple[Device, dict[str, tuple[Graph, Kernel, Sass]]]
) -> None:
    device, made = code
    graph, kernel, sass = made[name]
    _check_widths(device, graph, kernel, sass)


@pytest.mark.soak
@pytest.mark.parametrize(("family", "target", "instructions"), in_turn(PRODUCTS, 1), ids=lambda value: str(value))
@pytest.mark.turn("machine code: epilogues and attention")
def test_a_product_with_its_epilogue(family: str, target: str, instructions: tuple[str, ...], tmp_path: Path) -> None:
    """On tensor cores; what the epilogue reads and writes is as wide as anything else."""
    device = specified(target, "")
    kernel = default_kernel(family, PRODUCT, device)
    sass = machine_code(device, {family: kernel}, tmp_path)[family]
    assert all(sass.count(name) for name in instructions)
    _check_widths(device, PRODUCT, kernel, sass)


def _check_widths(device: Device, graph: Graph, kernel: Kernel, sass: Sass) -> None:
    """Every access to a tensor moves as many bytes as `Kernel.accesses` says; what it does not list comes by TMA."""
    assert not sass.local
    names = [f"in{i}" for i in range(len(graph.inputs))] + [f"out{i}" for i in range(len(graph.outputs))]
    element = [i.dtype.bytes for i in graph.inputs] + [o.node.dtype.bytes for o in graph.outputs]
    found = accesses_by_parameter(sass, device.arch)
    wide = 0
    for number, (tensor, bytes_) in enumerate(zip(names, element, strict=True)):
        said = [a for a in kernel.accesses if a.tensor == tensor]
        assert said or (sass.count("UTMALDG") and not _widths(found, number)), tensor
        expected = {min(a.width * bytes_, WIDEST) for a in said}
        assert _widths(found, number) == expected, f"{tensor}: {kernel.accesses}"
        assert all(f.stores == tensor.startswith("out") for f in found if f.place == number)
        wide += any(a.kind == "vector" for a in said) and expected == {WIDEST}
    assert wide >= len(graph.outputs) + 1
    assert _widths(found, None) <= {WIDEST}, "what cannot be followed is wide, too"


def _widths(found: list[Found], place: int | None) -> set[int]:
    return {width for f in found if f.place == place for width in f.widths}


def test_a_narrow_schedule_is_noticed(tmp_path: Path) -> None:
    """The softmax with vectors of two elements instead of eight: the widths read from machine code are 4 bytes."""
    device = specified("h100", "")
    family, graph = WIDE["softmax"]
    schedule = default_kernel(family, graph, device).schedule.replace("vec=8", "vec=2")
    kernel = FAMILIES[family].emit(graph, schedule, device)
    sass = machine_code(device, {"narrow": kernel}, tmp_path)["narrow"]
    found = accesses_by_parameter(sass, device.arch)
    assert (_widths(found, 0), _widths(found, 1)) == ({4}, {4})
