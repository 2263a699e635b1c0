"""Tensors without elements, and what is made of them that has some: a fill, the value of an empty sum, other parts."""

from collections.abc import Callable, Iterator

import pytest

from codegen.families import FAMILIES
from codegen.kernel import EmitError, Kernel
from codegen.workbench.workbench import Workbench
from fusion_ir import building as B
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import f16, f32
from fusion_ir.records import Device
from testing.tensors import graph_of, spec
from tests.support.candidates import check_all
from tests.support.devices import CUDA_DEVICE
from tests.support.whole import one_part

# Of x, f32[6, 0], and y, f32[6, 5]: tensors of 6 x 0.
MADE: dict[str, Callable[[Node, Node], Node]] = {
    "an input": lambda x, y: x,
    "computed": lambda x, y: B.relu(B.add(x, x)),
    "cut away": lambda x, y: B.slice_(y, (0, 2), (6, 2)),
    "joined": lambda x, y: B.cat([x, B.exp(x)], 1),
    "turned": lambda x, y: B.permute(B.reshape(x, (0, 6)), [1, 0]),
    "cropped": lambda x, y: B.pad(y, (0, -3), (0, -2)),
    "summed up": lambda x, y: B.cumsum(x, 1),
    "a product": lambda x, y: B.matmul(y, B.reshape(B.slice_(x, (0, 0), (5, 0)), (5, 0))),
    "cast": lambda x, y: B.cast(B.cast(x, f16), f32),
}
# Of such a tensor and y: something with elements.
READ: dict[str, Callable[[Node, Node], Node]] = {
    "padded": lambda e, y: B.pad(e, (0, 2), (0, 3), 7),
    "padded on both sides": lambda e, y: B.mul(B.pad(e, (1, 2), (2, 1), -3), 2),
    "padded and summed": lambda e, y: B.sum_(B.pad(e, (0, 40), (0, 60), 1), [1]),
    "padded between others": lambda e, y: B.cat([y, B.pad(e, (0, 1), (0, 0), 5)], 1),
    "sum": lambda e, y: B.sum_(e, [1]),
    "mean": lambda e, y: B.mean(e, [1]),
    "joined with others": lambda e, y: B.relu(B.cat([e, y, e], 1)),
    "product over nothing": lambda e, y: B.matmul(e, B.permute(e, [1, 0])),
    "behind a product": lambda e, y: B.add(B.matmul(e, B.reshape(e, (0, 6))), 1),
}
CASES = [f"{made}, {read}" for made in MADE for read in READ]


def graph(case: str) -> Graph:
    made, read = (part.strip() for part in case.split(","))
    return graph_of([spec((6, 0), f32), spec((6, 5), f32)], lambda x, y: [READ[read](MADE[made](x, y), y)])


def kernels(graph: Graph, device: Device) -> Iterator[Kernel]:
    """Kernels for the graph by the first two schedules of every family that accepts it."""
    for family in FAMILIES.values():
        if family.accepts(graph, device) is None:
            for schedule in family.space(graph, device)[:2]:
                try:
                    yield family.emit(graph, schedule, device)
                except EmitError:
                    continue


@pytest.mark.soak
def test_kernels_of_what_has_no_elements(bench: Workbench) -> None:
    cases: list[tuple[str, Graph, list[Kernel]]] = []
    for case in one_part(CASES, 9, "empty"):
        found = {k.entry: k for k in kernels(graph(case), bench.device)}
        assert found, case
        cases.append((case, graph(case), list(found.values())))
    wrong = check_all(cases, bench)
    assert not wrong, "\n".join(wrong)


def test_kernels_for_a_gpu() -> None:
    for case in CASES:
        # There, running sums are kernels of their own.
        assert list(kernels(graph(case), CUDA_DEVICE)) or case.startswith("summed up"), case
