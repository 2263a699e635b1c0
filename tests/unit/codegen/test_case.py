"""Which results of a plan must be those of the graph's own order of operations."""

from codegen.child.case import is_judged, make_case
from fusion_ir import build
from fusion_ir.dtype import DType, bf16, f16, f32
from fusion_ir.graph import Graph
from fusion_ir.node import Node
from tests.support.tensors import graph_of, spec


def chain(dtype: DType, between: DType) -> Graph:
    """(x y) z, the first product rounded to `between`."""

    def make(x: Node, y: Node, z: Node) -> Node:
        return build.matmul(build.cast(build.relu(build.matmul(x, y, between)), dtype), z)

    return graph_of([spec((6, 20), dtype), spec((20, 20), dtype), spec((20, 5), dtype)], make)


def test_sums_of_rounded_sums_in_another_order_are_held_to_random_data_alone() -> None:
    for dtype in (f16, bf16):
        case = make_case(chain(dtype, dtype), 0)
        assert len(case.trials) == 2
        assert is_judged(case, 0, reordered=True), "random data"
        assert not is_judged(case, 1, reordered=True), "small integers"
        assert is_judged(case, 1, reordered=False), "the graph's own order gives its own bits"


def test_sums_without_a_rounding_between_are_exact_in_any_order() -> None:
    assert is_judged(make_case(chain(f32, f32), 0), 1, reordered=True)
    one = graph_of([spec((6, 20), f16), spec((20, 5), f16)], lambda x, y: build.relu(build.matmul(x, y)))
    assert is_judged(make_case(one, 0), 1, reordered=True), "rounded at the end alone"
