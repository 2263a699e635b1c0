"""The check whether a contraction can be arranged, which arranges nothing, fails with the errors of arranging it."""

import pytest

from codegen.families import FAMILIES
from codegen.families.matmul_cuda import paths_of, tiles_of
from codegen.kernel import EmitError
from codegen.lowering import stores
from codegen.lowering.canonical_inputs import with_own_inputs
from codegen.tiled.orientation import arrange, check_arranged
from codegen.tiled.problem import main_contraction
from fusion_ir import building as build
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import bf16
from fusion_ir.ops import make_input
from testing.random_graphs import Seeded
from tests.support.attention import causal, masked
from tests.support.devices import CUDA_DEVICE
from tests.support.products import dense_graph, mlp
from tests.support.random_products import product_graph
from tests.support.whole import WHOLE, some


def tensor(*sizes: int) -> InputSpec:
    return InputSpec(shape_of(sizes), bf16, dense_strides(sizes), 16)


def faults(graph: Graph) -> tuple[str, set[str]]:
    """The error of `check_arranged` and those of `arrange` on all paths; "" for none."""
    node = main_contraction(graph)
    assert isinstance(node, Node)
    arranged: set[str] = set()
    for path in paths_of(node, CUDA_DEVICE):
        try:
            arrange(graph, node, tiles_of(graph, node, path, CUDA_DEVICE))
            arranged.add("")
        except EmitError as error:
            arranged.add(str(error))
    try:
        check_arranged(graph, node)
    except EmitError as error:
        return str(error), arranged
    return "", arranged


@pytest.mark.soak
def test_random_products() -> None:
    checked = 0
    for seed in some(range(60), 20):
        graph = product_graph(Seeded(seed))
        if isinstance(main_contraction(graph), Node):
            said, arranged = faults(graph)
            assert arranged == {said}, seed
            checked += 1
    assert checked > 40 or not WHOLE


def _with_its_transpose(x: Node) -> Node:
    return build.add(x, build.transpose(x))


def test_a_product_read_twice() -> None:
    specs = [tensor(48, 32), tensor(32, 48)]
    said, arranged = faults(dense_graph(specs, lambda x, w: _with_its_transpose(build.matmul(x, w))))
    assert arranged == {said} == {"out0 depends on the product at 2 points for each of its elements, expected 1"}


def test_radices_that_do_not_nest() -> None:
    def regrouped(x: Node, w: Node) -> Node:
        return build.reshape(build.permute(build.reshape(build.matmul(x, w), [36, 4, 9]), [1, 0, 2]), [54, 24])

    said, arranged = faults(dense_graph([tensor(36, 32), tensor(32, 36)], regrouped))
    assert arranged == {said}


def test_an_operand_of_too_many_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes of its own: what is known of the operand is kept."""
    specs = [tensor(43, 37), tensor(37, 41), tensor(43, 37)]
    graph = dense_graph(specs, lambda x, w, y: build.matmul(build.tanh(build.mul(x, y)), w))
    monkeypatch.setattr(stores, "MAX_VALUES", 4)
    said, arranged = faults(graph)
    assert arranged == {said} == {"more than 4 values in one kernel"}


def test_what_is_accepted_has_schedules_and_nothing_else_has() -> None:
    turned = dense_graph([tensor(64, 72), tensor(72, 48)], lambda x, w: build.transpose(build.matmul(x, w)))
    twice = dense_graph([tensor(64, 72), tensor(72, 64)], lambda x, w: _with_its_transpose(build.matmul(x, w)))
    products = [dense_graph([tensor(64, 72), tensor(72, 48), tensor(48), tensor(64, 48)], mlp), turned, twice]
    strips = [masked(4, 64, 96, 32), causal(2, 64, 64, 32, 64), masked(2, 64, 8192, 32)]
    for name, graphs, taken in (
        ("matmul", products, [True, True, False]),
        ("wgmma", products, [True, True, False]),
        ("attention", strips, [True, True, False]),
    ):
        family = FAMILIES[name]
        for graph, expected in zip(graphs, taken, strict=True):
            assert (family.accepts(graph, CUDA_DEVICE) is None) == expected, name
            try:
                assert bool(family.space(graph, CUDA_DEVICE)) == expected, name
            except EmitError:
                assert not expected, name


def test_own_inputs_make_equal_what_is_read_elsewhere() -> None:
    one, other = tensor(4, 8), tensor(8)
    first = dense_graph([one, other], build.add)
    x, y = make_input(3, one), make_input(1, other)
    second = Graph((one, other, one, one), dense_graph([one, other], lambda *_: build.add(x, y)).outputs)
    assert first != second
    own, position = with_own_inputs(second)
    assert own == with_own_inputs(first)[0]
    assert position == {3: 0, 1: 1}
    assert [own.inputs[position[i]] for i in (3, 1)] == [one, other]
