"""The CUDA source of both families compiles for every architecture, without local memory for kept values."""

from pathlib import Path

import pytest

from codegen.families import FAMILIES
from codegen.kernel import Kernel
from codegen.limits import Limits
from codegen.object_cache import ObjectCache
from codegen.toolchain.builder import Builder
from codegen.toolchain.compiler import Binary
from codegen.toolchain.cuda import CudaCompiler
from fusion_ir.dtype import DTYPES
from fusion_ir.extent import dense_strides, shape_of
from fusion_ir.graph import Graph, InputSpec, OutputSpec
from fusion_ir.ops import OPS, OpKind, RuleError, make, make_input
from tests.support.devices import CUDA_DEVICE
from tests.support.random_graphs import Seeded, any_graph, pointwise_graph
from tests.unit.codegen.test_goldens import NAMES, graph_named

ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120")


def every_op_on_every_dtype() -> list[Graph]:
    """One graph per dtype, with an output for each pointwise op that takes it."""
    graphs: list[Graph] = []
    for dtype in DTYPES.values():
        specs = [InputSpec(shape_of((96,)), d, (1,)) for d in (dtype, dtype, DTYPES["bool"])]
        x, y, c = (make_input(i, spec) for i, spec in enumerate(specs))
        outputs = [make("cast", (x,), {"dtype": to}) for to in DTYPES.values() if to != dtype]
        for op in OPS.values():
            if op.kind is not OpKind.POINTWISE or op.name == "cast":
                continue
            arity = op.arity if isinstance(op.arity, int) else op.arity[0]
            operands = (c, x, y) if op.name == "where" else (x, y, x)[:arity]
            try:
                outputs.append(make(op.name, operands))
            except RuleError:
                continue
        graphs.append(Graph(tuple(specs), tuple(OutputSpec(n, dense_strides(n.sizes)) for n in outputs)))
    return graphs


def kernels() -> list[Kernel]:
    made: list[Kernel] = []
    graphs = [*every_op_on_every_dtype(), *(graph_named(name) for name in NAMES)]
    graphs += [g(Seeded(seed)) for seed in range(900, 912) for g in (pointwise_graph, any_graph)]
    for i, graph in enumerate(graphs):
        for family in FAMILIES.values():
            if family.accepts(graph, CUDA_DEVICE) is None:
                space = family.space(graph, CUDA_DEVICE)
                made.append(family.emit(graph, space[i % len(space)], CUDA_DEVICE))
    return made


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_kernel_compiles(arch: str, tmp_path: Path) -> None:
    device = CUDA_DEVICE.model_copy(update={"arch": arch})
    made = kernels()
    builder = Builder(CudaCompiler(device), ObjectCache(tmp_path), Limits(compile_seconds=280.0, kernels_per_file=40))
    try:
        built = builder.compile(made)
    finally:
        builder.close()
    failed = [
        f"{k.family} {k.schedule}: {b.detail}" for k, b in zip(made, built, strict=True) if not isinstance(b, Binary)
    ]
    assert not failed, failed[0]
    assert {k.family for k in made} == set(FAMILIES)
    spilled = [
        k.schedule
        for k, b in zip(made, built, strict=True)
        if isinstance(b, Binary) and b.report and b.report.spill_bytes
    ]
    assert not spilled
