"""The CUDA source of loop programs compiles for every architecture, and the golden ones need no local memory."""

from contextlib import suppress
from math import ceil
from pathlib import Path

import pytest

from codegen.families import FAMILIES
from codegen.kernel import EmitError, Family, Kernel
from codegen.sandbox.limits import Limits
from codegen.sandbox.object_cache import ObjectCache
from codegen.toolchain.builder import Builder
from codegen.toolchain.compiler import Binary
from codegen.toolchain.cuda import CudaCompiler
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import DTYPES
from fusion_ir.ops import OPS, OpKind, RuleError, make, make_input
from fusion_ir.records import Device
from scheduler.rewrites.prepare import prepare
from testing.random_graphs import Seeded, any_graph, pointwise_graph
from tests.support.devices import CUDA_DEVICE
from tests.support.loop_graphs import NORMS, REDUCTIONS, THIN, TRANSPOSES, of_every_dtype
from tests.support.scatters import SCATTERS
from tests.support.whole import WHOLE, in_turn, some
from tests.unit.codegen.test_goldens import NAMES, graph_named

ON_CUDA = {"pointwise", "transpose", "reduction", "normalization", "gemv", "matmul", "naive"}

DRAWN = "sm_90a"  # the architecture that random graphs are compiled for
WITH_MANY = ("sm_80", "sm_90a", "sm_120")
ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120")


def graphs_of_every_dtype() -> list[Graph]:
    """For each dtype a few graphs of four ops each that take it; over all dtypes every pointwise op is there."""
    graphs: list[Graph] = []
    seen: set[str] = set()
    for dtype in DTYPES.values():
        specs = tuple(InputSpec(shape_of((96,)), d, (1,)) for d in (dtype, dtype, DTYPES["bool"]))
        x, y, c = (make_input(i, spec) for i, spec in enumerate(specs))
        made: list[Node] = [make("cast", (x,), {"dtype": to}) for to in list(DTYPES.values())[:3] if to != dtype]
        fresh: list[Node] = []
        for op in OPS.values():
            if op.kind is not OpKind.POINTWISE or op.name == "cast":
                continue
            arity = op.arity if isinstance(op.arity, int) else op.arity[0]
            try:
                node = make(op.name, (c, x, y) if op.name == "where" else (x, y, x)[:arity])
            except RuleError:
                continue
            (made if op.name in seen else fresh).append(node)
            seen.add(op.name)
        nodes = [*fresh, *made[:6]]
        for first in range(0, len(nodes), 4):
            outputs = tuple(OutputSpec(n, dense_strides(n.sizes)) for n in nodes[first : first + 4])
            graphs.append(Graph(specs, outputs))
    assert seen | {"cast"} == {name for name, op in OPS.items() if op.kind is OpKind.POINTWISE}
    return graphs


def device_of(arch: str) -> Device:
    return CUDA_DEVICE.model_copy(update={"arch": arch})


def kernels(device: Device, *, drawn: bool) -> list[Kernel]:
    """Kernels of every family of loop programs at every dtype. drawn: kernels of random graphs, too."""
    made: list[Kernel] = []
    graphs = graphs_of_every_dtype()
    for named in (REDUCTIONS, NORMS, TRANSPOSES, THIN, SCATTERS, of_every_dtype()):
        graphs += [prepare(graph).graph for graph in named.values()]
    chosen = len(graphs)
    if drawn:
        graphs += [g(Seeded(seed)) for seed in range(900, 910) for g in (pointwise_graph, any_graph)]
    for i, graph in enumerate(graphs):
        for family in FAMILIES.values():
            if family.name in ON_CUDA and family.accepts(graph, device) is None:
                kernel = first_emitted(family, graph, device, i)
                # Of what is drawn, a family may find out late that it cannot lower it.
                assert kernel or i >= chosen, f"{family.name} takes graph {i} and lowers it by no schedule"
                made += [kernel] if kernel else []
    return made


def first_emitted(family: Family, graph: Graph, device: Device, start: int) -> Kernel | None:
    """The kernel by the first schedule that can be emitted, from number `start` of the family's space on; None where no
    schedule can be emitted."""
    space = family.space(graph, device)
    for k in range(len(space)):
        with suppress(EmitError):
            return family.emit(graph, space[(start + k) % len(space)], device)
    return None


def compiled(arch: str, made: list[Kernel], folder: Path) -> list[Binary]:
    """The kernels' binaries; none may fail."""
    limits = Limits(compile_seconds=280.0, kernels_per_file=40)
    builder = Builder(CudaCompiler(device_of(arch)), ObjectCache(folder), limits)
    try:
        built = builder.compile(made)
    finally:
        builder.close()
    for k, b in zip(made, built, strict=True):
        assert isinstance(b, Binary), f"{k.family} {k.schedule}: {b.detail}"
    return [b for b in built if isinstance(b, Binary)]


@pytest.mark.soak
@pytest.mark.parametrize("arch", sorted({*in_turn(WITH_MANY, 1), *in_turn(ARCHITECTURES, 4)}))
def test_every_kernel_compiles(arch: str, tmp_path: Path) -> None:
    """All kernels in the long run; in others a sixteenth of them on one of three architectures, one of each family on a
    few of the rest."""
    made = kernels(device_of(arch), drawn=arch == DRAWN)
    assert {k.family for k in made} == ON_CUDA
    if arch in in_turn(WITH_MANY, 1):
        made = some(made, len(made) // 16, arch)
    elif not WHOLE:
        made = [k for f in sorted(ON_CUDA) for k in some((k for k in made if k.family == f), 3, f"{arch} {f}")[1:2]]
    assert len(compiled(arch, made, tmp_path)) == len(made)


@pytest.mark.soak
@pytest.mark.parametrize("arch", in_turn(["sm_80", "sm_90a"], 1, "golden"))
def test_golden_kernels_keep_their_values_in_registers(arch: str, tmp_path: Path) -> None:
    pointwise = FAMILIES["pointwise"]
    made = [
        pointwise.emit(graph, schedule, CUDA_DEVICE)
        for graph in map(graph_named, some(NAMES, ceil(len(NAMES) / 2), arch))
        for schedule in pointwise.space(graph, CUDA_DEVICE)[:3]
    ]
    spilled = {
        k.schedule: b.report
        for k, b in zip(made, compiled(arch, made, tmp_path), strict=True)
        if b.report and b.report.spill_bytes
    }
    assert not spilled
