"""Operands that a contraction would read through views that no family sees through are stored before it, in as few
bytes as possible."""

import pytest

from codegen.families import FAMILIES
from codegen.gemm.call import HEAVY
from fusion_ir import building as build
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import bf16, f32
from scheduler.interfaces import Forgetful
from scheduler.segments.atom_cuts import cut
from scheduler.tuning.trials import Ledger
from tests.support.devices import CPU_DEVICE, CUDA_DEVICE
from tests.support.products import dense_graph, spec


def halved(x: Node) -> Node:
    """Every second column: no library takes steps of two elements along both axes."""
    return build.slice_(x, (0, 0), x.sizes, (1, 2))


def product(rows: int, *, widened: bool) -> Graph:
    def compute(x: Node, w: Node) -> Node:
        operand = halved(x)
        return build.matmul(build.cast(operand, f32) if widened else operand, w)

    dtype = bf16 if widened else f32
    return dense_graph([spec((rows, 256), None, dtype), spec((128, 100))], compute)


def stored(graph: Graph, device: object = CPU_DEVICE) -> list[str]:
    """Ops of the atoms that the graph is cut into, each of which is stored."""
    ledger = Ledger(device, FAMILIES, Forgetful(), None, 0)  # type: ignore[arg-type]
    return [n.op for n in cut(graph, ledger.acceptor.computable).nodes]


@pytest.mark.parametrize("widened", [False, True])
def test_the_narrowest_tensor_on_the_way_is_stored(widened: bool) -> None:
    assert stored(product(100, widened=widened)) == ["slice", "contract"]


def test_a_device_that_reads_through_the_view_stores_nothing() -> None:
    assert stored(product(100, widened=True), CUDA_DEVICE) == ["contract"]


def test_a_contraction_that_is_not_heavy_is_left_as_it_is() -> None:
    graph = product(7, widened=False)
    assert HEAVY > 7 * 128 * 100
    assert stored(graph) == ["contract"]


def test_the_operand_that_is_in_the_way_is_stored_and_no_other() -> None:
    def compute(x: Node, w: Node) -> Node:
        return build.matmul(build.permute(x, [1, 0]), halved(w))

    graph = dense_graph([(128, 200), (128, 200)], compute)
    assert stored(graph) == ["slice", "contract"]


def test_where_nothing_helps_all_of_it_is_stored() -> None:
    graph = product(100, widened=True)
    assert [n.op for n in cut(graph, lambda atoms, a: atoms.nodes[a].op != "contract").nodes] == [
        "slice",
        "cast",
        "contract",
    ]
