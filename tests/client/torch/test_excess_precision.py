"""Excess precision: no rounding to bf16 between two ops of which one alone reads the other."""

import random
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from fuseplan_client.torch import export
from fuseplan_client.torch.backend import Backend
from fuseplan_client.torch.excess_precision import is_pointwise
from torch.fx import GraphModule, Node

from tests.support.aten_graphs import examples_of, run, traced

aten = torch.ops.aten
ARITHMETIC: list[Callable[..., torch.Tensor]] = [torch.add, torch.sub, torch.mul, torch.maximum]


def inference(function: Callable[..., Any], *inputs: torch.Tensor) -> GraphModule:
    (graph,) = traced(function, inputs)
    return graph.module


def both(function: Callable[..., Any], *inputs: torch.Tensor) -> tuple[Any, Any]:
    """Bodies of a function's graph: with every rounding of eager mode, and without those that may be left out."""
    module = inference(function, *inputs)
    kept, left_out = (export(module, examples_of(module), excess_precision=excess).body for excess in (False, True))
    return kept, left_out


def roundings(body: dict[str, Any]) -> int:
    """Casts to bf16, and other ops whose results are of it."""
    narrow = {row["name"] for row in body["inputs"] if row["dtype"] == "bf16"}
    narrow |= {row["name"] for row in body["nodes"] if row["attrs"].get("value", "").startswith("bf16:")}
    count = 0
    for row in body["nodes"]:
        of = row["attrs"].get("dtype") if row["op"] == "cast" else None
        if of == "bf16" or (of is None and row["args"] and set(row["args"]) <= narrow):
            narrow.add(row["name"])
            count += 1
    return count


def drawn(rng: random.Random, inputs: int, ops: int) -> Callable[..., tuple[torch.Tensor, ...]]:
    """A random function of so many tensors that is all arithmetic, whose last values are given out."""
    steps = [(rng.choice(ARITHMETIC), rng.randrange(inputs + k), rng.randrange(inputs + k)) for k in range(ops)]
    given = [inputs + k for k in range(ops) if k == ops - 1 or rng.random() < 0.2]

    def function(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values = list(tensors)
        for op, a, b in steps:
            values.append(op(values[a], values[b]))
        return tuple(values[k] for k in given)

    return function


def evaluated(module: GraphModule, inputs: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    """The outputs, computed in f32 and rounded wherever a value has not exactly one reader, or is an output."""
    values: dict[Node, torch.Tensor] = {}
    given = iter(inputs)
    for node in module.graph.nodes:
        if node.op == "placeholder":
            values[node] = next(given).float()
        elif node.op == "call_function":
            found = node.target(*(values[a] for a in node.args))
            stays = len(node.users) == 1 and next(iter(node.users)).op == "call_function"
            values[node] = found if stays else found.bfloat16().float()
        elif node.op == "output":
            return [values[n].bfloat16() for n in node.args[0]]
    raise AssertionError("no output")


@pytest.mark.parametrize("seed", range(30))
def test_arithmetic_is_rounded_where_values_have_several_readers_or_are_given_out(seed: int) -> None:
    rng = random.Random(seed)
    torch.manual_seed(seed)
    inputs = tuple(torch.randn(50).bfloat16() for _ in range(3))
    module = inference(drawn(rng, 3, rng.randrange(2, 12)), *inputs)
    exported = export(module, examples_of(module), excess_precision=True)
    for mine, expected in zip(run(exported, inputs), evaluated(module, inputs), strict=True):
        assert torch.equal(mine, expected)


def test_a_chain_is_rounded_once() -> None:
    x, y = torch.randn(8).bfloat16(), torch.randn(8).bfloat16()
    kept, left_out = both(lambda x, y: torch.sqrt((x - y) * (x - y).abs() + 3) / y, x, y)
    assert roundings(kept) >= 5
    assert roundings(left_out) == 2, "x - y, which two ops read, and the result"


def test_a_step_of_adam_rounds_what_it_stores_alone() -> None:
    p, g, m, v = (torch.rand(8).bfloat16() + 0.1 for _ in range(4))

    def step(p: torch.Tensor, g: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
        (m,) = torch._foreach_lerp([m], [g], 0.1)
        (v,) = torch._foreach_addcmul(torch._foreach_mul([v], 0.999), [g], [g], 0.001)
        (denominator,) = torch._foreach_add(torch._foreach_div(torch._foreach_sqrt([v]), 0.3), 1e-8)
        (p,) = torch._foreach_addcdiv([p], [m], [denominator], -0.01)
        return p, m, v

    kept, left_out = both(step, p, g, m, v)
    assert roundings(left_out) == 3 < roundings(kept)


@pytest.mark.parametrize(
    ("name", "function"),
    {
        "a comparison": lambda x, y: (x * 3 + y) > x,
        "a choice by a comparison": lambda x, y: torch.where(x * y > 0.5, x, y),
        "whole numbers": lambda x, y: torch.floor(x * 3 / y),
        "a remainder": lambda x, y: torch.remainder(x * 3 + y, 0.5),
        "an integer": lambda x, y: (x * 3 - y).int(),
        "the place of the largest": lambda x, y: (x * 3 + y).argmax(),
        "a comparison behind a sum": lambda x, y: (x * 3 + y).float().sum() > 0,
        "a cast that was asked for": lambda x, y: (x.float() * y.float()).bfloat16().float() + 1,
        "a copy of a cast that was asked for": lambda x, y: (x.float() * y.float()).bfloat16().clone().float() + 1,
        "half precision": lambda x, y: (x.half() * 3 + y.half()) * x.half(),
        "a softmax": lambda x, y: torch.softmax(x * y, -1),
        "products": lambda x, y: (x * y).reshape(8, 8) @ (x + y).reshape(8, 8),
    }.items(),
)
def test_what_else_depends_on_a_rounding_has_eager_bits(name: str, function: Callable[..., torch.Tensor]) -> None:
    torch.manual_seed(1)
    inputs = torch.randn(64).bfloat16(), torch.rand(64).bfloat16() + 0.5
    kept, left_out = both(function, *inputs)
    assert left_out == kept


@pytest.mark.parametrize("function", [F.gelu, F.silu, F.softplus, torch.sigmoid, lambda x: F.layer_norm(x, (64,))])
def test_results_are_no_further_from_the_truth_than_with_every_rounding(function: Callable[..., Any]) -> None:
    torch.manual_seed(0)
    x = torch.randn(64, 64).bfloat16()

    def block(x: torch.Tensor) -> torch.Tensor:
        return function(x * 1.7 + 0.3) * x - 0.1

    module = inference(block, x)
    truth = block(x.double())
    off = [
        float((run(export(module, examples_of(module), excess_precision=excess), [x])[0].double() - truth).norm())
        for excess in (False, True)
    ]
    assert off[1] <= off[0]


def test_casts_and_copies_are_no_pointwise_ops() -> None:
    casts = torch.ops.prims.convert_element_type.default, aten._to_copy.default, aten._foreach_copy.default
    assert not any(map(is_pointwise, casts))
    assert is_pointwise(aten.mul.Tensor) and is_pointwise(aten._foreach_mul.Scalar)


def test_a_graph_that_would_have_too_many_nodes_is_rounded_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def chain(x: torch.Tensor) -> torch.Tensor:
        return (x * 3 + 1) * x

    kept, left_out = both(chain, torch.randn(8).bfloat16())
    assert roundings(left_out) == 1
    monkeypatch.setattr(sys.modules["fuseplan_client.torch.export"], "MOST_NODES", len(left_out["nodes"]) - 1)
    assert both(chain, torch.randn(8).bfloat16()) == (kept, kept)


def test_the_option_keeps_eager_roundings() -> None:
    bodies: list[Any] = []

    class Noting:
        def ask(self, question: Any) -> None:
            bodies.append(question.requests()[0]["graph"])

    x = torch.randn(64).bfloat16()
    for excess in (True, False):
        torch._dynamo.reset()
        torch.compile(lambda x: (x * 3 + 1) * x, backend=Backend(asker=Noting(), excess_precision=excess))(x)
    assert roundings(bodies[0]) == 1
    assert roundings(bodies[1]) == 3


def test_a_word_in_place_of_the_option_is_refused() -> None:
    with pytest.raises(ValueError, match="excess_precision: expected True or False, got 'no'"):
        Backend(asker=object(), excess_precision="no")  # type: ignore[arg-type]
