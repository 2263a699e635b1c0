"""Export: views, aliases, layouts, sizes of nothing, numbers, symbols; each right, or refused with a reason."""

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from fuseplan_client.torch import Exported, Refused, export
from fuseplan_client.torch.wire import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from tests.support.aten_graphs import difference, examples_of, run, traced


def exported(function: Callable[..., Any], *tensors: torch.Tensor) -> tuple[Exported, list[Any]]:
    """The export of the graph of a function, and its outputs by the interpreter, after these were compared."""
    (graph,) = traced(function, tensors)
    made = export(graph.module, examples_of(graph.module))
    found = run(made, graph.inputs)
    expected = graph.module(*graph.inputs)
    for mine, theirs in zip(found, expected, strict=True):
        assert difference(mine, theirs) == ""
        if isinstance(theirs, torch.Tensor):
            assert mine.stride() == theirs.stride()
    return made, found


def test_views_of_inputs_are_views_of_inputs_and_not_computed() -> None:
    x = torch.rand(4, 6)
    made, found = exported(lambda x: (x.t()[1:], x + 1, x, x[2].expand(3, 6)), x)
    assert [o.source for o in made.outputs] == ["input", "computed", "input", "input"]
    assert len(made.buffers) == 1
    assert found[0].untyped_storage().data_ptr() == x.untyped_storage().data_ptr() or found[0]._is_view()
    assert made.outputs[2].view is None
    assert found[3].stride() == (0, 1)


def test_a_view_of_an_input_at_an_offset_is_at_that_offset() -> None:
    whole = torch.arange(24.0)
    exported(lambda x: (x[1:, ::2], x * 2), whole[4:20].reshape(4, 4))
    exported(lambda x: (x.view(-1)[3:], x * 2), whole[8:].view(2, 8))


def test_one_tensor_twice_and_views_of_it_are_one_buffer() -> None:
    def function(x: torch.Tensor) -> Any:
        y = x * 2
        a, b = y.split([1, 3], 1)
        return y, y, y.t(), a, b, y.unsqueeze(0).expand(5, 3, 4)

    made, _ = exported(function, torch.rand(3, 4))
    assert len(made.buffers) == 1
    assert {o.index for o in made.outputs} == {0}


def test_a_copy_of_an_input_is_a_tensor_of_its_own() -> None:
    made, _ = exported(lambda x: (x.clone(), x.t().contiguous(), x.double().float()), torch.rand(3, 4))
    assert [o.source for o in made.outputs] == ["computed"] * 3


def test_nothing_to_compute_is_refused() -> None:
    (graph,) = traced(lambda x: (x.t(), x[0]), [torch.rand(3, 4)])
    with pytest.raises(Refused, match="nothing is computed"):
        export(graph.module, examples_of(graph.module))


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0, 4), ()])
def test_tensors_of_no_elements_and_of_no_axes(shape: tuple[int, ...]) -> None:
    def function(x: torch.Tensor) -> Any:
        return x + 1, x.sum(), x.exp().reshape(-1), torch.cat([x.reshape(-1), x.reshape(-1)]), x.mean(), x.any()

    exported(function, torch.rand(shape))


LAYOUTS: dict[str, Callable[[], torch.Tensor]] = {
    "transposed": lambda: torch.rand(5, 4).t(),
    "permuted": lambda: torch.rand(4, 2, 5).permute(0, 2, 1).reshape(4, 5, 2).permute(2, 0, 1)[0],
    "with gaps": lambda: torch.rand(8, 10)[::2, ::2],
    "at an odd offset": lambda: torch.rand(21)[1:].view(4, 5),
    "expanded in front": lambda: torch.rand(5).expand(4, 5),
    "expanded behind": lambda: torch.rand(4, 1).expand(4, 5),
    "a number, expanded": lambda: torch.rand(()).expand(4, 5),
    "channels last": lambda: torch.rand(1, 2, 2, 5).contiguous(memory_format=torch.channels_last)[0].reshape(4, 5),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_inputs_of_any_layout(layout: str) -> None:
    x = LAYOUTS[layout]()
    made, _ = exported(lambda x, y: (x * y + 1, x.sum(0), torch.softmax(x, -1)), x, torch.rand(4, 5))
    for row in made.body["inputs"]:
        assert 0 not in row["strides"]
    read = made.reads[0]
    assert all(n == 1 or s for n, s in zip(read.sizes, read.strides, strict=True))


def test_alignment_follows_from_the_offset() -> None:
    def alignment(x: torch.Tensor, alignment_bytes: int) -> int:
        (graph,) = traced(lambda x: x * 2, [x])
        made = export(graph.module, [*map(_faked, [x])], alignment_bytes)
        assert made.body["inputs"][0]["alignment"] == made.reads[0].alignment_bytes
        return made.reads[0].alignment_bytes

    whole = torch.rand(64)
    assert alignment(whole, 64) == 32
    assert alignment(whole[4:], 64) == 16
    assert alignment(whole[1:], 64) == 4
    assert alignment(whole[2:], 4) == 4


def _faked(x: torch.Tensor) -> torch.Tensor:
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode().from_tensor(x, static_shapes=True)


def test_an_input_that_overlaps_itself_is_refused() -> None:
    windows = torch.rand(10).as_strided((4, 5), (1, 1))
    (graph,) = traced(lambda x: x * 2, [windows])
    with pytest.raises(Refused, match="overlaps itself"):
        export(graph.module, examples_of(graph.module))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.uint16, torch.uint32])
def test_dtypes_that_the_wire_lacks_are_refused(dtype: torch.dtype) -> None:
    (graph,) = traced(lambda x, y: (x.clone(), y + 1), [torch.ones(3, dtype=dtype), torch.rand(3)])
    with pytest.raises(Refused, match=r"complex|dtype"):
        export(graph.module, examples_of(graph.module))


def test_an_input_of_another_dtype_that_is_only_handed_on_is_fine() -> None:
    made, _ = exported(lambda x, y: (x, y + 1), torch.ones(3, dtype=torch.complex64), torch.rand(3))
    assert [o.source for o in made.outputs] == ["input", "computed"]


def test_negated_inputs_are_refused() -> None:
    negated = torch._neg_view(torch.rand(3))
    module = make_fx(lambda x: x * 2)(torch.rand(3))
    with pytest.raises(Refused, match="negated"):
        export(module, [_faked(negated)])


def test_mutation_is_refused_by_name() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x * 2

    (graph,) = traced(function, [torch.rand(3)])
    with pytest.raises(Refused, match=r"mutation in place: aten\.copy_"):
        export(graph.module, examples_of(graph.module))


def symbolic(function: Callable[..., Any], *args: Any) -> torch.fx.GraphModule:
    """A graph whose sizes and numbers are symbols."""
    return make_fx(function, tracing_mode="symbolic")(*args)


def test_symbolic_sizes_are_made_whole_for_the_sizes_given() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        n = x.shape[0]
        return x.sum(0) / n, torch.cat([x, y]).view(-1)[: n * 2], x.new_zeros(n + 1), x.expand(2, *x.shape)

    module = symbolic(function, torch.rand(3, 4), torch.rand(5, 4))
    for rows in (3, 1, 7, 0):
        inputs = [torch.rand(rows, 4), torch.rand(5, 4)]
        made = export(module, [_faked(i) for i in inputs])
        for mine, theirs in zip(run(made, inputs), module(*inputs), strict=True):
            assert difference(mine, theirs) == ""


def graph_of(build: Callable[[torch.fx.Graph], Any], placeholders: int) -> torch.fx.GraphModule:
    """A graph built by hand: numbers as inputs, which tracing gives only with symbols."""
    graph = torch.fx.Graph()
    inputs = [graph.placeholder(f"i{i}") for i in range(placeholders)]
    graph.output(build(graph, *inputs))
    return torch.fx.GraphModule({}, graph)


def test_a_float_is_an_input_and_promotes_as_a_number() -> None:
    aten = torch.ops.aten

    def build(graph: torch.fx.Graph, x: Any, n: Any, rate: Any) -> Any:
        twice = graph.call_function(operator.mul, (rate, 2))
        scaled = graph.call_function(aten.mul.Tensor, (x, twice))
        whole = graph.call_function(aten.mul.Tensor, (n, rate))
        added = graph.call_function(aten.add.Tensor, (x, x), {"alpha": rate})
        return scaled, whole, added

    module = graph_of(build, 3)
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        inputs = [torch.rand(5).to(dtype), torch.arange(5), 0.1]
        made = export(module, [_faked(inputs[0]), _faked(inputs[1]), 0.5])
        assert [r.number for r in made.reads] == [False, False, True]
        for mine, theirs in zip(run(made, inputs), module(*inputs), strict=True):
            assert difference(mine, theirs) == ""


def test_an_integer_is_part_of_the_graph() -> None:
    module = graph_of(lambda g, x, n: (g.call_function(torch.ops.aten.mul.Tensor, (x, n)), n), 2)
    made = export(module, [_faked(torch.rand(3)), 3])
    assert made.outputs[1].value == 3
    assert len(made.reads) == 1
    assert difference(run(made, [torch.ones(3), 3])[0], torch.full((3,), 3.0)) == ""


def test_a_tensor_constant_of_one_element_is_a_constant() -> None:
    def build(graph: torch.fx.Graph, x: Any) -> Any:
        return (graph.call_function(torch.ops.aten.mul.Tensor, (x, graph.get_attr("held"))),)

    graph = torch.fx.Graph()
    graph.output(build(graph, graph.placeholder("x")))
    module = torch.fx.GraphModule({"held": torch.tensor(2.5)}, graph)
    made = export(module, [_faked(torch.rand(3))])
    assert difference(run(made, [torch.ones(3)])[0], torch.full((3,), 2.5)) == ""


def test_a_lowering_of_a_wrong_shape_is_a_fault_and_no_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    from fuseplan_client.torch import decompositions

    def wrong(call: Any, x: Tensor) -> Tensor:
        return x.unsqueeze(0)

    monkeypatch.setattr(decompositions, "LOWERINGS", {torch.ops.aten.exp.default: wrong})
    (graph,) = traced(torch.exp, [torch.rand(3)])
    with pytest.raises(decompositions.LoweringFault, match=r"exp: wrote torch.float32\[1, 3\], expected"):
        export(graph.module, examples_of(graph.module))
