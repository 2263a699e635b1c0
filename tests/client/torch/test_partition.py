"""Groups of nodes: as large as they can be, never waiting for themselves, with views and mutation left outside."""

import operator
import random
from typing import Any

import pytest
import torch
from fuseplan_client.torch import Support, export, partition
from fuseplan_client.torch.partition import Partitioned
from torch.fx import Graph, GraphModule

from tests.support.aten_graphs import difference, examples_of, nodes_of, run, traced
from tests.support.whole import WHOLE, seed

aten = torch.ops.aten


def parts_of(function: Any, *tensors: torch.Tensor, **options: Any) -> tuple[Partitioned, torch.fx.GraphModule]:
    """The groups of a function's graph, compared with the graph: every group by the interpreter."""
    (graph,) = traced(function, tensors)
    parts = partition(graph.module, **options)
    check(graph.module, parts, graph.inputs)
    return parts, graph.module


def check(module: GraphModule, parts: Partitioned, inputs: Any) -> None:
    """The parts give, and write to inputs, what the module does: PyTorch's own ops bit for bit."""
    mine, theirs = ([v.clone() for v in inputs] for _ in range(2))
    found, expected = parts.module(*mine), module(*theirs)
    for a, b in zip((*found, *mine), (*expected, *theirs), strict=True):
        assert torch.equal(a, b)
        assert a.stride() == b.stride()
    for name in parts.groups:
        group = getattr(parts.module, name)
        made = export(group, examples_of(group))
        given = [torch.rand(e.shape).to(e.dtype).as_strided(e.shape, e.stride()) for e in examples_of(group)]
        for a, b in zip(run(made, given), group(*given), strict=True):
            assert difference(a, b) == ""


def calls(module: GraphModule) -> list[Any]:
    """The ops that are left to PyTorch."""
    return [n.target for n in nodes_of(module) if n.target is not operator.getitem]


def test_a_graph_that_can_be_said_is_one_group() -> None:
    parts, _ = parts_of(
        lambda x, w: torch.softmax(torch.relu(x @ w) + 1, -1).sum(0), torch.rand(3, 4), torch.rand(4, 5)
    )
    assert len(parts.groups) == 1
    assert calls(parts.module) == []


def test_an_op_of_pytorchs_in_the_middle_makes_two_groups() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = (x + 1).exp()
        return torch.sort(y * 2)[0].exp() + y

    parts, _ = parts_of(function, torch.rand(7))
    assert len(parts.groups) == 2
    assert calls(parts.module) == [aten.sort.default]


def test_branches_that_do_not_wait_for_each_other_are_one_group() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        return torch.sort((x + 1).exp())[0], (y * 2).exp() + 1

    parts, _ = parts_of(function, torch.rand(7), torch.rand(3))
    assert len(parts.groups) == 1


def test_a_group_does_not_hold_a_way_through_pytorchs_ops() -> None:
    """Diamonds: exp -> sort -> add, and exp -> add at once; the add cannot be with the exp."""

    def function(x: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            y = x.exp() - 1
            x = torch.sort(y)[0] * y + y.sum()
        return x

    parts, _ = parts_of(function, torch.rand(5))
    assert len(parts.groups) == 5


def test_what_is_read_late_is_computed_late() -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        wide = w.double().float()
        return torch.sort((x + 1).exp())[0] * wide + 1

    parts, _ = parts_of(function, torch.rand(64), torch.rand(64))
    late = getattr(parts.module, parts.groups[-1])
    assert aten._to_copy.default in [n.target for n in nodes_of(late)]


def test_several_results_of_one_op_stay_together_where_they_sink() -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> Any:
        var, mean = torch.var_mean(w, 1, keepdim=True)
        return torch.sort((x + 1).exp(), 1)[0] * var + mean

    parts_of(function, torch.rand(8, 4), torch.rand(8, 4))


def test_views_that_leave_a_group_are_made_outside() -> None:
    def function(x: torch.Tensor) -> Any:
        y = (x * 2).exp()
        first, second = y.split(2, 1)
        return torch.sort(y.t())[0], first, second * 2, y

    parts, _ = parts_of(function, torch.rand(3, 4))
    group = getattr(parts.module, parts.groups[0])
    assert aten.t.default not in [n.target for n in nodes_of(group)]
    assert aten.t.default in calls(parts.module)


def test_a_single_op_is_not_worth_a_plan_unless_asked_for() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.sort(x.view(-1).exp())[0]

    assert parts_of(function, torch.rand(3, 4))[0].groups == ()
    assert len(parts_of(function, torch.rand(3, 4), least_ops=1)[0].groups) == 1


def test_ops_that_are_left_to_pytorch_stay() -> None:
    parts, _ = parts_of(
        lambda x: (x @ x).exp() + 1, torch.rand(3, 3), support=Support(left=frozenset({aten.mm.default}))
    )
    assert aten.mm.default in calls(parts.module)


def test_mutation_of_inputs_stays_at_the_end_and_behind_all_that_reads() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = (x + y).exp()
        x.mul_(0.5).add_(z)
        y.copy_(x)
        return torch.sort(z)[0] * x

    parts, _ = parts_of(function, torch.rand(4), torch.rand(4))
    assert calls(parts.module).count(aten.copy_.default) == 2
    assert parts.groups


def test_random_ops_keep_their_order() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        a = torch.bernoulli(x)
        b = (x * a + 1).exp()
        c = torch.bernoulli(x * 0.5 + 0.1)
        return torch.bernoulli(torch.sigmoid(b)) + c * torch.rand_like(x)

    (graph,) = traced(function, [torch.rand(200)])
    parts = partition(graph.module)
    assert parts.groups
    for _ in range(3):
        state = torch.get_rng_state()
        expected, after = graph.module(*graph.inputs), torch.get_rng_state()
        torch.set_rng_state(state)
        found = parts.module(*graph.inputs)
        assert torch.equal(found[0], expected[0])
        assert torch.equal(torch.get_rng_state(), after)


def random_module(rng: random.Random, count: int) -> tuple[GraphModule, list[torch.Tensor]]:
    """A graph of `count` ops, a part of which plans cannot compute, with views and writes to inputs among them."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode()
    inputs = [torch.rand(4, 4) for _ in range(4)]
    graph = Graph()
    values: list[Any] = []
    for i, x in enumerate(inputs):
        values.append(graph.placeholder(f"i{i}"))
        values[-1].meta["val"] = mode.from_tensor(x)

    def call(target: Any, *args: Any) -> Any:
        node = graph.call_function(target, args)
        with mode:
            node.meta["val"] = target(*torch.fx.node.map_arg(args, lambda n: n.meta["val"]))
        return node

    for _ in range(count):
        a, b = rng.choice(values[-12:]), rng.choice(values)
        match rng.randrange(8):
            case 0 | 1 | 2:
                values.append(call(rng.choice([aten.add.Tensor, aten.mul.Tensor, aten.maximum.default]), a, b))
            case 3:
                values.append(call(aten.tanh.default, a))
            case 4:
                values.append(call(operator.getitem, call(aten.sort.default, a), 0))
            case 5:
                values.append(call(aten.t.default, a))
            case 6:
                parts = call(aten.split.Tensor, a, 2)
                values.append(call(aten.cat.default, [call(operator.getitem, parts, i) for i in (1, 0)]))
            case _:
                values.append(call(aten.cumprod.default, a, 0))
    outputs = rng.sample(values[4:], min(4, len(values) - 4))
    call(aten.copy_.default, values[0], call(aten.add.Tensor, values[-1], values[-2]))
    graph.output(tuple(outputs))
    return GraphModule({}, graph), inputs


@pytest.mark.soak
def test_random_graphs_give_the_same_in_parts() -> None:
    for number in range(2000 if WHOLE else 12):
        rng = random.Random(f"{seed()} {number}")
        module, inputs = random_module(rng, rng.randrange(5, 60))
        parts = partition(module, least_ops=rng.choice([1, 2, 3]), most_nodes=rng.choice([3, 10, 4000]))
        mine, theirs = ([v.clone() for v in inputs] for _ in range(2))
        for a, b in zip((*parts.module(*mine), *mine), (*module(*theirs), *theirs), strict=True):
            assert torch.equal(a, b), f"{seed()} {number}"


def test_thousands_of_nodes_take_about_as_long_each_as_hundreds() -> None:
    """Each node is looked at a bounded number of times: counted, as times depend on the machine."""
    looked: list[int] = []
    for count in (100, 800):
        module, _ = random_module(random.Random(3), count)
        support = Support()
        seen = 0
        verdict = support.verdict

        def counted(node: Any, verdict: Any = verdict) -> Any:
            nonlocal seen
            seen += 1
            return verdict(node)

        support.verdict = counted  # type: ignore[method-assign]
        partition(module, support)
        looked.append(seen)
        assert len(support._of_calls) < 30
    assert looked[1] < 10 * looked[0]
