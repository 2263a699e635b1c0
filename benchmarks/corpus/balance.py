"""Whether memory or arithmetic bounds a case, decided before anything is timed: operations of contractions per byte."""

from math import prod

from benchmarks.corpus.case import Case, Kind
from fusion_ir.core.graph import Graph
from fusion_ir.ops.contract import products

# f32 operations per byte at which arithmetic takes as long as the bytes: 525 GFLOP/s of multiply-adds over 54 GB/s of
# copies, the ceilings of the machine whose results are in benchmarks/results/ (2 cores, AVX-512, 2026-11).
BALANCE = 9.7


def bytes_read(graph: Graph) -> int:
    """Bytes of all inputs, each once: the least that the graph reads, where it reads all of them."""
    return sum(prod(n for n, s in zip(i.sizes, i.strides, strict=True) if s) * i.dtype.bytes for i in graph.inputs)


def bytes_written(graph: Graph) -> int:
    """Bytes of all outputs."""
    return sum(o.node.bytes for o in graph.outputs)


def bytes_of(graph: Graph) -> int:
    """Bytes of all inputs and outputs, each once."""
    return bytes_read(graph) + bytes_written(graph)


def intensity(graph: Graph) -> float:
    """Operations of contractions, two per product, over the bytes of inputs and outputs.

    Other arithmetic does not count: a case with costly functions in it stays among the memory-bound ones, where more is
    asked of a plan.
    """
    operations = 0.0
    for node in graph.nodes:
        if node.op == "contract":
            operations += 2.0 * node.elements * products(node)
    return operations / bytes_of(graph)


def kind_of(case: Case) -> Kind:
    """The resource that bounds the case at the benchmark's sizes, in f32."""
    return "memory" if intensity(case.instance("f32").graph) < BALANCE else "matmul"
