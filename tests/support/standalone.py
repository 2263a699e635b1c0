"""Kernels of every family, as their sources are stored, and compilers that take them as one file."""

import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from codegen.families import FAMILIES
from codegen.kernel import EmitError, Kernel
from codegen.standalone import compile_command
from codegen.toolchain.compiler import in_namespaces, inclusions
from codegen.toolchain.cpu import PRELUDE as CPU_PRELUDE
from codegen.toolchain.cuda import PRELUDE as CUDA_PRELUDE
from fusion_ir import building as build
from fusion_ir.core.graph import Graph
from fusion_ir.dtype import bf16, f32, i64
from fusion_ir.records import Device
from scheduler.rewrites.prepare import prepare
from testing.objects import machine, objects, program
from testing.tensors import graph_of, spec
from tests.support.attention import causal
from tests.support.loop_graphs import NORMS, REDUCTIONS, THIN, TRANSPOSES
from tests.support.products import dense_graph, mlp
from tests.unit.codegen.test_golden_scans import running_sum

GRAPHS: dict[str, Sequence[Graph]] = {
    "pointwise": [dense_graph([(64, 96)], lambda x: build.exp(build.erf(x)), bf16)],
    "transpose": list(TRANSPOSES.values())[:3],
    "reduction": list(REDUCTIONS.values())[:3],
    "normalization": list(NORMS.values())[:3],
    "scan": [running_sum()],
    "scatter": [graph_of([spec((40, 33), f32), spec((40,), i64)], lambda x, i: build.scatter_sum(x, 0, i, 9))],
    "gemv": list(THIN.values())[:2],
    "matmul": [dense_graph([(70, 90), (90, 130), (130,), (70, 130)], mlp, dtype) for dtype in (f32, bf16)]
    + [dense_graph([(70, 12), (12, 130)], build.matmul, bf16)],
    "wgmma": [dense_graph([spec((128, 64), bf16), spec((64, 128), bf16)], build.matmul, bf16)],
    "attention": [causal(2, 64, 64, 64, 64)],
    "aten": [dense_graph([(70, 90), (90, 130)], build.matmul, f32)],
    "naive": [dense_graph([(70, 90), (90, 130)], build.matmul, f32)],
}
CPU = ("pointwise", "transpose", "reduction", "normalization", "scan", "scatter", "gemv", "matmul", "aten", "naive")
CUDA = tuple(name for name in GRAPHS if name not in ("scatter", "aten"))  # on the CPU only; calls of libraries


def sources(family: str, device: Device) -> list[str]:
    """Sources of the family's kernels as they are stored, by the first and the last schedule for each graph."""
    found: list[str] = []
    for graph in GRAPHS[family]:
        prepared = prepare(graph).graph
        if FAMILIES[family].accepts(prepared, device) is not None:
            continue
        space = FAMILIES[family].space(prepared, device)
        for schedule in dict.fromkeys((space[0], space[-1])):
            with suppress(EmitError):
                found.append(unit(FAMILIES[family].emit(prepared, schedule, device)))
    return found


def unit(kernel: Kernel) -> str:
    """See Compiler.unit, of compilers that need not be installed."""
    prelude = CPU_PRELUDE if kernel.target == "cpu" else CUDA_PRELUDE
    return inclusions(prelude, [kernel]) + in_namespaces([kernel])


def compiles(text: str, device: Device, folder: Path) -> None:
    """Fails where `text` does not compile by the command line that `compile_command` gives, in a folder without any
    header."""
    file = "kernels.cu" if device.target == "cuda" else "kernels.cpp"
    command = compile_command(device, file, "kernels.o")

    def made() -> bytes:
        (folder / file).write_text(text)
        ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, f"{' '.join(command)}\n{ended.stderr[:4000]}"
        return (folder / "kernels.o").read_bytes()

    identity = program(command[:1])
    assert objects().get(["standalone", identity, machine(), *command, text], made) if identity else made()
