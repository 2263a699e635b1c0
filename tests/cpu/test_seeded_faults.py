"""Kernels with a fault put in: the check calls each of them wrong, and what they were made from right.

Faults are those that lowering could make: a tail that counts too much or too little, an accumulator with a wrong start,
phases in the wrong order, a stride, a row or a piece left out, sums in a narrow dtype.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from codegen.devices.detection import detect
from codegen.families import FAMILIES
from codegen.families.reduction import spreads
from codegen.kernel import Kernel
from codegen.sandbox.limits import Limits
from codegen.sandbox.object_cache import ObjectCache
from codegen.workbench.workbench import Workbench
from fusion_ir import building as B
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType, bf16, bool_, f32, i64
from fusion_ir.records import Status
from testing.tensors import graph_of, spec
from tests.support.attention import below, scores
from tests.support.devices import CPU_DEVICE
from tests.support.whole import in_turn


@dataclass(frozen=True)
class Fault:
    """A change of a kernel's text: every place that `pattern` finds, of which there is one at least."""

    name: str
    pattern: str
    replacement: str


@dataclass(frozen=True)
class Subject:
    """A graph and the faults put into its kernel."""

    name: str
    sizes: tuple[tuple[int, ...], ...]
    dtype: DType
    build: Callable[..., Node]
    faults: tuple[Fault, ...]
    family: str = ""  # "": that of reductions
    indices: tuple[int, ...] = ()  # inputs of whole numbers

    @property
    def graph(self) -> Graph:
        dtypes = [i64 if i in self.indices else self.dtype for i in range(len(self.sizes))]
        return graph_of([spec(sizes, dtype) for sizes, dtype in zip(self.sizes, dtypes, strict=True)], self.build)


# Two loops over 50 rows, one after another at one depth.
FIRST_LOOP = r"(?s)(\n( *)(?:LOOP|ROWS)\(\w+, 50\) \{\n.*?\n\2\})"
SECOND_LOOP = r"(\n\2(?:LOOP|GRID|ROWS)\(\w+, 50\) \{\n.*?\n\2\})"
TAIL_COUNTS_ALL = Fault("the tail counts lanes beyond the end", r"first_lanes\([^,]*, (add_\(.*\)), \w+\)", r"\1")


def _messages(x: Node, source: Node, weight: Node, target: Node) -> Node:
    sent = B.mul(B.index_select(x, 0, source), B.unsqueeze(weight, 1))
    return B.scatter_sum(sent, 0, target, 60)


def _attention(q: Node, k: Node, v: Node) -> Node:
    return B.matmul(B.softmax(B.where(below(30, 30), scores(q, k), -math.inf)), v)


SUBJECTS = (
    Subject("softmax", ((6, 100),), f32, B.softmax, (
        TAIL_COUNTS_ALL,
        Fault("no tail at all", r"TAIL\(", "if (false) TAIL("),
        Fault("rows overlap", r"100 \* i0", "99 * i0"),
        Fault("the last row is left out", r"GRID\(i0, 6\)", "GRID(i0, 5)"),
        Fault("some lanes are left out when they join", r"return add_\(a, b\)", "return a"),
        Fault("sums run on from row to row", r"Vec<float, \w+> av\w+ = splat<\w+>\(bits<float>\(0x80000000u\)\);",
              r"static thread_local \g<0>"),
        Fault("no division", r"divided_\(([^,]*), v\w+\)", r"\1"),
    )),
    Subject("largest of negatives", ((5, 70),), f32, lambda x: B.max_(B.neg(B.abs_(x)), -1), (
        Fault("a maximum starts from 0", r"0xff800000u", "0x0u"),
        Fault("the tail counts lanes beyond the end", r"first_lanes\([^,]*, (maximum_\(.*\)), \w+\)", r"\1"),
        Fault("smallest for largest", r"maximum_", "minimum_"),
    )),
    Subject("column sums", ((50, 70),), f32, lambda x: B.sum_(x, 0), (
        Fault("the last row is left out", r"(LOOP|ROWS)\((\w+), 50\)", r"\1(\2, 49)"),
        Fault("a sum starts from 1", r"0x80000000u", "0x3f800000u"),
        Fault("only the last row counts", r"add_\(kv0\[\w+\], (\w+)\)", r"\1"),
    )),
    Subject("centred columns", ((50, 70),), f32, lambda x: B.sub(x, B.mean(x, 0, keepdims=True)), (
        Fault("phases in the wrong order", FIRST_LOOP + "(.*?)" + SECOND_LOOP, r"\4\3\1"),
        Fault("the mean of one row less", r"0x42480000u", "0x42440000u"),
    )),
    Subject("layer norm of bf16", ((4, 200),), bf16, B.layer_norm, (
        Fault("sums in bf16", r"(av\w+) = (add_\(.*\));", r"\1 = cast<float>(cast<bf16>(\2));"),
        Fault("another eps", r"0x3727c5acu", "0x3f800000u"),
    )),
    Subject("position of the largest", ((5, 77),), f32, lambda x: B.argmax(x, 1), (
        Fault("the next position", r"(iota_<\w+, \w+>)\((\w+)\)", r"\1(\2 + 1)"),
        Fault("the smallest's", r"<true>", "<false>"),
    )),
    Subject("matrix times vector", ((9, 130), (130,)), f32, B.matmul, (
        Fault("a row too far", r"130 \* (\w+)", r"130 * (\1 + 1) - 130 * (\1 == 8)"),
        Fault("factors added", r"fma_\((\w+), (\w+), ", r"fma_(add_(\1, \2), \2, "),
    )),
    Subject("sum over a cat", ((6, 40), (6, 50)), f32, lambda x, y: B.sum_(B.exp(B.cat([x, y], 1)), 1), (
        Fault("one piece left out", r"add_\((v\w+), (v\w+)\)", r"\1"),
        Fault("one piece twice, beyond its end", r"in1 \+ 50 \* i0", "in0 + 40 * i0"),
    )),
    Subject("product of rows", ((6, 40),), f32, lambda x: B.prod(B.add(B.mul(x, 0.125), 1.0), 1), (
        Fault("a product starts from 0", r"(av\w+ = splat<\w+>\(bits<float>)\(0x3f800000u", r"\1(0x0u"),
    )),
    Subject("any", ((6, 40),), bool_, lambda x: B.any_(x, 1), (
        Fault("all for any", r"logical_or_", "logical_and_"),
    )),
    Subject("causal attention", ((2, 30, 24), (2, 30, 24), (2, 30, 20)), f32, _attention, (
        Fault("a column less is multiplied", r"% 30 \+ 1, 30\)", "% 30, 30)"),
        Fault("a term less is summed up", r"terms_needed\([^()]*\), in3", "seen - 1, in3"),
        Fault("a row does not see itself", r"le_\(", "lt_("),
        Fault("scores are not scaled", r"mul_\((\w+), splat<\w+>\(bits<float>\(0x3e000000u\)\)\)", r"\1"),
        Fault("values of the first head for all", r"in2 \+ 600 \* c0", "in2 + 0 * c0"),
        Fault("weights of the rows before", r"before\(weights, row \* 48\);\n    long",
              "before(weights, row * 48) + 48;\n    long"),
    ), "attention"),
    Subject("messages", ((40, 70), (400,), (400,), (400,)), f32, _messages, (
        Fault("places below 0 count from the end", r"return get\(v0, 0\)",
              "return get(v0, 0) + (get(v0, 0) < 0 ? 60 : 0)"),
        Fault("places beyond the last count there", r"return get\(v0, 0\)", "return get(v0, 0) < 60 ? get(v0, 0) : 59"),
        Fault("weights by their place in the lists", r"in2 \+ \(idx_t\)get\(v1, 0\)", "in2 + i2"),
        Fault("the last slice of a list is left out", r"WALK\((\w+), lists0, i0\)",
              r"for (idx_t \1 = lists0.begin(i0); \1 + 1 < lists0.end(i0); \1++)"),
        Fault("the lists of the places before", r"WALK\((\w+), lists0, i0\)", r"WALK(\1, lists0, (i0 ? i0 - 1 : i0))"),
        Fault("sums in bf16", r"(kv\w+\[\w+\]) = (add_\(.*\));", r"\1 = cast<float>(cast<bf16>(\2));"),
        Fault("sums run on from place to place", r"LOOP\(\w+, VECTORS\(\d+, \d+\)\) kv0.*;", ""),
    ), "scatter", (1, 3)),
)  # fmt: skip


@pytest.mark.soak
@pytest.mark.parametrize("subject", in_turn(SUBJECTS, 1, "faults"), ids=lambda s: s.name)
def test_every_seeded_fault_is_called_wrong(subject: Subject, tmp_path: Path) -> None:
    graph = subject.graph
    family = FAMILIES[subject.family or ("normalization" if spreads(graph) else "reduction")]
    kernel = family.emit(graph, family.space(graph, CPU_DEVICE)[0], CPU_DEVICE)
    faulty = [_with(fault, kernel, i) for i, fault in enumerate(subject.faults)]
    cache = ObjectCache(tmp_path)
    with Workbench(detect("cpu", cache, ceilings=False), cache, Limits(timing_seconds=0.0)) as bench:
        right, *rows = bench.measure(graph, "", [kernel, *faulty])
    assert right.status is Status.ok, right.detail
    statuses = {fault.name: row.status for fault, row in zip(subject.faults, rows, strict=True)}
    assert set(statuses.values()) <= {Status.wrong_result, Status.crashed}, statuses


def _with(fault: Fault, kernel: Kernel, number: int) -> Kernel:
    """The kernel with the fault put in, under a name of its own."""
    text, places = re.subn(fault.pattern, fault.replacement, kernel.source)
    assert places, f"{fault.name}: {fault.pattern} is nowhere in\n{kernel.source}"
    entry = f"{kernel.entry}_{number}"
    return replace(kernel, entry=entry, source=text.replace(kernel.entry, entry))
