"""The CUDA print of random graphs gives the bits of the C++ print, thread after thread in the emulator.

Of families that add up in one order on both targets. No kernel of theirs has a barrier, so one order of threads is as
good as any.
"""

import ctypes
from dataclasses import dataclass, replace

import numpy as np
import pytest

from codegen.families import FAMILIES
from codegen.kernel import Kernel
from codegen.launch.emulator import Tensor
from codegen.toolchain.compiler import INCLUDE
from fusion_ir.core.graph import Graph
from fusion_ir.reference.sample_inputs import sample_inputs
from testing import emulated_kernels as emulated
from testing.random_graphs import Seeded, any_graph, pointwise_graph
from testing.vec_harness import compiled_library
from tests.support.devices import CPU_DEVICE, CUDA_DEVICE
from tests.support.whole import WHOLE, seed

FLAGS = (
    "-std=c++17",
    "-O1",
    "-march=native",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fPIC",
    "-shared",
    "-w",
    f"-I{INCLUDE}",
)


@dataclass(frozen=True)
class Case:
    graph: Graph
    cpu: Kernel
    cuda: tuple[Kernel, ...]


def cases(seeds: range) -> list[Case]:
    found: list[Case] = []
    for number in seeds:
        for graph in (pointwise_graph(Seeded(number), exact=False), any_graph(Seeded(number))):
            for family in (FAMILIES["pointwise"], FAMILIES["naive"]):
                if family.accepts(graph, CPU_DEVICE) is None and family.accepts(graph, CUDA_DEVICE) is None:
                    space = family.space(graph, CUDA_DEVICE)
                    cuda = tuple(
                        family.emit(graph, s, CUDA_DEVICE)
                        for s in dict.fromkeys((space[0], space[number % len(space)]))
                    )
                    found.append(Case(graph, family.emit(graph, family.space(graph, CPU_DEVICE)[0], CPU_DEVICE), cuda))
    return found


def build(text: str) -> ctypes.CDLL:
    return ctypes.CDLL(str(compiled_library(text, ("g++", *FLAGS))))


def outputs(graph: Graph) -> list[np.ndarray]:
    """Poisoned, 64-byte aligned."""
    found: list[np.ndarray] = []
    for o in graph.outputs:
        raw = np.full(o.span * o.node.dtype.bytes + 64, 0xA5, np.uint8)
        start = -raw.ctypes.data % 64
        found.append(raw[start : start + o.span * o.node.dtype.bytes])
    return found


def tensors(graph: Graph, pointers: list[int], got: list[np.ndarray]) -> list[Tensor]:
    """The memory that a kernel may access: the whole span of each input, and the outputs."""
    read = [
        Tensor(f"in{i}", "input", p, spec.span * spec.dtype.bytes)
        for i, (p, spec) in enumerate(zip(pointers, graph.inputs, strict=True))
    ]
    return read + [
        Tensor(f"out{i}", "output", o.ctypes.data, o.nbytes, np.zeros(o.nbytes, np.uint8)) for i, o in enumerate(got)
    ]


# Seeds of graphs: of 60 in the long run, otherwise of five, others in each run.
FIRST = 1000 + 5 * seed()
PARTS = [range(at, at + 15) for at in range(500, 560, 15)] if WHOLE else [range(FIRST, FIRST + 5)]


@pytest.mark.soak
@pytest.mark.parametrize("seeds", PARTS, ids=lambda seeds: f"from {seeds.start}")
def test_cuda_print_gives_the_bits_of_the_cpp_print(seeds: range) -> None:
    made = cases(seeds)
    cpu_kernels = {c.cpu.entry: c.cpu.source for c in made}
    cuda_kernels = list({k.entry: k for c in made for k in c.cuda}.values())
    cpu = build('#include "loops_cpu.h"\n' + "\n".join(cpu_kernels.values()))
    emulations = {e.entry: e for e in emulated.build(cuda_kernels)}
    for case in made:
        inputs = sample_inputs(case.graph, seed=seeds.start)
        expected = outputs(case.graph)
        pointers = [a.ctypes.data for a in inputs]
        arguments = ctypes.c_void_p * (len(inputs) + len(expected))
        cpu[case.cpu.entry](
            arguments(*pointers, *(o.ctypes.data for o in expected)), ctypes.c_long(0), ctypes.c_long(1)
        )
        for kernel in case.cuda:
            got = outputs(case.graph)
            emulation = replace(emulations[kernel.entry], grid=kernel.launch.grid, block=kernel.launch.block)
            emulation.run([*pointers, *(o.ctypes.data for o in got)], tensors(case.graph, pointers, got))
            for i, (g, e, spec) in enumerate(zip(got, expected, case.graph.outputs, strict=True)):
                differ = g.view(f"u{spec.node.dtype.bytes}") != e.view(f"u{spec.node.dtype.bytes}")
                if spec.node.dtype.is_float:  # NaN payloads aside
                    differ &= ~(np.isnan(g.view(spec.node.dtype.numpy)) & np.isnan(e.view(spec.node.dtype.numpy)))
                where = np.flatnonzero(differ)
                assert where.size == 0, (
                    f"{kernel.family} {kernel.schedule} out{i}: {where.size} elements, first {where[0]}"
                )
