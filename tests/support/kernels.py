"""Kernels written by hand, for tests of what compiles, runs and times kernels: they need no header of ours."""

from pathlib import Path

from codegen.kernel import Family, Kernel, Launch
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType, f32
from fusion_ir.ops import make, make_input
from tests.support.devices import CPU_DEVICE

# Every element of this task's part: out = a + b.
SUM = "for (long i = low; i < high; i++) out[i] = a[i] + b[i];"


def bare_headers(folder: Path) -> Path:
    """A folder with preludes that define nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("loops_cpu.h", "loops_cuda.cuh"):
        (folder / name).write_text("")
    return folder


def dense(*sizes: int, dtype: DType = f32, strides: tuple[int, ...] | None = None, alignment: int = 16) -> InputSpec:
    """An input."""
    return InputSpec(shape_of(sizes), dtype, strides or dense_strides(sizes), alignment)


def graph_of(inputs: tuple[InputSpec, ...], *outputs: Node) -> Graph:
    """A graph with dense outputs."""
    return Graph(inputs, tuple(OutputSpec(n, dense_strides(n.sizes)) for n in outputs))


def sum_graph(n: int) -> Graph:
    """out0 = in0 + in1, f32[n]."""
    specs = (dense(n), dense(n))
    return graph_of(specs, make("add", [make_input(0, specs[0]), make_input(1, specs[1])]))


def sum_kernel(n: int, entry: str, body: str = SUM, tasks: int = 2, before: str = "") -> Kernel:
    """A kernel for `sum_graph`: `body` sees a, b, out, n, task, and the bounds low and high of its part."""
    source = f"""{before}
extern "C" void {entry}(void* const* args, long task, long tasks) {{
  float *a = (float*)args[0], *b = (float*)args[1], *out = (float*)args[2];
  const long n = {n}, low = n * task / tasks, high = n * (task + 1) / tasks;
  {body}
}}
"""
    return Kernel(entry, source, "cpu", "hand", entry, Launch(tasks=tasks))


def narrow_lanes(family: Family, graph: Graph) -> str:
    """A family's default schedule with 32 lanes: small graphs have whole vectors then."""
    return family.space(graph, CPU_DEVICE)[0].replace("lanes=64", "lanes=32")
