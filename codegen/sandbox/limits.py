"""Limits of time, memory and output, beyond which compilers and kernels are stopped."""

from dataclasses import dataclass

from fusion_ir.core.graph import Graph
from fusion_ir.ops.contract import products

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the children, all per job.

    compile_seconds, compile_memory_bytes, binary_bytes: one translation unit and what the compiler writes for it.
    kernel_seconds: one launch of one kernel, beyond what its arithmetic and bytes allow for (see `allowance_seconds`).
    memory_bytes: address space of the timing child; 0: three quarters of the device's memory.
    output_bytes: what a child may print in one job. kernels_per_file: kernels compiled together.
    timing_seconds: finalists of one segment are timed for about this long, beyond screening.
    """

    compile_seconds: float = 60.0
    compile_memory_bytes: int = 4 * GIB
    binary_bytes: int = GIB // 4
    kernel_seconds: float = 4.0
    memory_bytes: int = 0
    output_bytes: int = 1 << 20
    kernels_per_file: int = 16
    timing_seconds: float = 0.8
    job_seconds: float = 1800.0


DEFAULT_LIMITS = Limits()


def allowance_seconds(base: float, bytes_: float, operations: float) -> float:
    """How long an honest kernel may take: scalar code on one slow core, 0.5 GB/s and 0.2 G operations per second,
    after `base`."""
    return base + bytes_ / 0.5e9 + operations / 0.2e9


def kernel_seconds(graph: Graph, base: float) -> float:
    """Seconds for one run of a kernel, or of a plan, that computes the graph."""
    return allowance_seconds(base, sum(n.bytes for n in graph.nodes), check_work(graph))


def check_seconds(graph: Graph) -> float:
    """Seconds for the timing child's work between runs of kernels: sampling, interpreting and comparing."""
    return 60.0 + 1e-6 * sum(n.elements for n in graph.nodes) + check_work(graph) / 1e8


def check_work(graph: Graph) -> float:
    """Operations of the interpreter: one per element; of contractions, two per product."""
    work = 0.0
    for n in graph.nodes:
        work += n.elements
        if n.op == "contract":
            work += 2.0 * n.elements * products(n)
    return work
