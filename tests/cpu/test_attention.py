"""Family `attention` on the CPU: rows of products that are reduced, and multiplied again, checked like any kernel."""

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from codegen.families import FAMILIES
from codegen.workbench.workbench import Workbench
from fusion_ir import building as build
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import bf16, f16, f32, f64
from fusion_ir.reference.interpreter import interpret
from fusion_ir.reference.sample_inputs import sample_inputs
from tests.support.attention import below, causal, masked, scores, tensor, whole
from tests.support.candidates import assert_right, check_all, check_statistics, kernels_of, refusal, run_kernel
from tests.support.products import dense_graph
from tests.support.ranges import check_ranges
from tests.support.whole import WHOLE, in_turn, one_part

ATTENTION = FAMILIES["attention"]
DTYPES = (f32, bf16, f16)


def of(q: Node, k: Node, v: Node, shift: int = 0, *, above: bool = False) -> Node:
    """Attention to columns up to the row's number and `shift`, or from there on."""
    rows, columns = q.sizes[-2], k.sizes[-2]
    column, row = build.iota([rows, columns], 1), build.iota([rows, columns], 0)
    seen = build.ge(column, row) if above else build.le(column, build.add(row, shift))
    p = build.softmax(build.where(seen, scores(q, k), -math.inf))
    return build.matmul(build.cast(p, v.dtype), v)


def heads(x: Node, count: int) -> Node:
    """[tokens, count * size] as [count, tokens, size]."""
    tokens, width = x.sizes
    return build.permute(build.reshape(x, [tokens, count, width // count]), [1, 0, 2])


def packed(x: Node, count: int) -> Node:
    """Attention of queries, keys and values side by side in one tensor, heads merged again."""
    tokens, width = x.sizes[0], x.sizes[1] // 3
    q, k, v = (heads(build.slice_(x, (0, i * width), (tokens, (i + 1) * width), (1, 1)), count) for i in range(3))
    return build.reshape(build.permute(of(q, k, v), [1, 0, 2]), [tokens, width])


def grouped(q: Node, k: Node, v: Node) -> Node:
    """Several heads of queries for each head of keys and values."""
    groups, repeats = q.sizes[:2]
    k, v = (build.expand(build.unsqueeze(x, 1), [groups, repeats, *x.sizes[1:]]) for x in (k, v))
    return of(q, k, v)


def values_grouped(q: Node, k: Node, v: Node) -> Node:
    """Several heads of queries and keys for each head of values: rows of all of them are one matrix's."""
    return of(q, k, build.expand(build.unsqueeze(v, 1), [*q.sizes[:2], *v.sizes[1:]]))


def linear(q: Node, k: Node, v: Node) -> Node:
    """Weights without exponents: rows that see nothing have weights of 0, and need no terms of the second product."""
    rows, columns = q.sizes[-2], k.sizes[-2]
    seen = build.le(build.iota([rows, columns], 1), build.sub(build.iota([rows, columns], 0), 40))
    p = build.where(seen, build.relu(scores(q, k)), 0.0)
    p = build.div(p, build.add(build.sum_(p, [-1], keepdims=True), 1.0))
    return build.matmul(build.cast(p, v.dtype), v)


def with_residual(x: Node, w: Node, b: Node) -> Node:
    """A linear layer and the norm behind it."""
    return build.layer_norm(build.add(build.matmul(x, w), b), [1])


def cases() -> Iterator[tuple[str, Graph]]:
    for dtype in DTYPES:
        yield f"causal {dtype}", causal(3, 65, 65, 33, 17, dtype)
        yield f"causal probabilities {dtype}", causal(2, 37, 37, 24, None, dtype)
        yield f"more columns {dtype}", causal(2, 20, 83, 24, 40, dtype)
        yield f"more rows {dtype}", causal(2, 83, 20, 24, 40, dtype)
        yield f"masked {dtype}", masked(2, 45, 50, 20, dtype)
        qkv = [tensor(2, 5, 41, 24, dtype=dtype), *[tensor(2, 5, 53, 24, dtype=dtype)] * 2]
        yield f"whole {dtype}", dense_graph(qkv, whole)
        yield f"side by side {dtype}", dense_graph([tensor(61, 3 * 72, dtype=dtype)], lambda x: packed(x, 3))
        many = [tensor(2, 3, 33, 24, dtype=dtype), *[tensor(2, 33, 24, dtype=dtype)] * 2]
        yield f"grouped {dtype}", dense_graph(many, grouped)
        yield (
            f"grouped values {dtype}",
            dense_graph([many[0], tensor(2, 3, 33, 24, dtype=dtype), many[2]], values_grouped),
        )
        yield f"rows that see nothing {dtype}", dense_graph([tensor(2, 150, 24, dtype=dtype)] * 3, linear)
    qkv = [tensor(2, 70, 24, dtype=f32), *[tensor(2, 90, 24, dtype=f32)] * 2]
    for shift in (-100, -1, 0, 1, 20, 100):
        yield f"shifted by {shift}", dense_graph(qkv, lambda q, k, v, n=shift: of(q, k, v, n))
    yield "above", dense_graph(qkv, lambda q, k, v: of(q, k, v, above=True))
    yield (
        "read on both sides",
        dense_graph(
            qkv,
            lambda q, k, v: build.matmul(
                build.softmax(build.where(below(70, 90), scores(q, k), build.neg(scores(q, k)))), v
            ),
        ),
    )
    yield "a norm behind a layer", dense_graph([(50, 40), (40, 65), (65,)], with_residual)
    yield (
        "norm and sum",
        dense_graph(
            [(50, 40), (40, 65), (50, 65)],
            lambda x, w, r: (y := build.add(build.matmul(x, w), r), build.layer_norm(y, [1])),
        ),
    )
    yield (
        "f64",
        dense_graph(
            [(2, 40, 24)] * 3, lambda q, k, v: build.matmul(build.softmax(build.matmul(q, build.transpose(k))), v), f64
        ),
    )
    yield (
        "not rounded",
        dense_graph(
            [tensor(2, 70, 24), *[tensor(2, 70, 24)] * 2],
            lambda q, k, v: build.cast(build.matmul(build.softmax(scores(q, k)), build.cast(v, f32), f32), bf16),
        ),
    )


@pytest.mark.soak
def test_cases(bench: Workbench) -> None:
    assert_right(one_part(cases(), 3, "attention"), "attention", bench, most=12 if WHOLE else 3)


def test_statistics_behind_a_product(bench: Workbench) -> None:
    check_statistics(bench)


@pytest.mark.soak
def test_rows_of_other_ranges(bench: Workbench) -> None:
    check_ranges(bench, most=6 if WHOLE else 2)


def test_rows_that_see_nothing(bench: Workbench) -> None:
    """Tasks of such rows alone have products of no terms, which are 0 by every library."""
    (dtype,) = in_turn(DTYPES, 1, "rows that see nothing")
    graph = dense_graph([tensor(2, 100, 24, dtype=dtype)] * 3, linear)
    schedules = [
        f"attention{{library={library},rows=16,lanes=16,store=plain}}"
        for library in ATTENTION.choices(graph, bench.device)["library"]
    ]
    kernels = [ATTENTION.emit(graph, schedule, bench.device) for schedule in schedules]
    assert not check_all([(f"{dtype}", graph, kernels)], bench)


def test_what_is_hidden_may_be_infinite(bench: Workbench) -> None:
    """0 times infinity is NaN: values behind the last column that is seen count, unless they are finite."""
    graph = causal(2, 70, 70, 24, 20, f32)
    q, k, v = (np.array(x) for x in sample_inputs(graph, seed=3))
    for place, value in (((0, 69, 3), np.inf), ((1, 69, 5), np.nan), ((1, 30, 7), -np.inf), ((1, 31, 7), np.inf)):
        given = v.copy()
        given[place] = value
        (expected,) = interpret(graph, [q, k, given])
        for kernel in kernels_of(graph, "attention", bench, most=2):
            (found,) = run_kernel(graph, kernel, [q, k, given], bench)
            assert np.array_equal(np.isnan(found), np.isnan(expected)), (place, value, kernel.schedule)
            assert np.array_equal(np.isinf(found), np.isinf(expected)), (place, value, kernel.schedule)


def test_what_is_refused(bench: Workbench) -> None:
    q, k, v = tensor(2, 50, 40), tensor(2, 70, 40), tensor(2, 70, 24)

    def reason(compute: Callable[..., Node | tuple[Node, ...]]) -> str:
        return refusal(dense_graph([q, k, v], compute), "attention", bench.device)

    assert "0 reductions" in reason(lambda q, k, v: scores(q, k))
    heads = reason(lambda q, k, v: build.sub(scores(q, k), build.max_(scores(q, k), 0, keepdims=True)))
    assert "does not run over its" in heads
    both = reason(lambda q, k, v: (p := build.cast(build.softmax(scores(q, k)), bf16), build.matmul(p, v)))
    assert both == "an output does not depend on the last product"
    computed = reason(lambda q, k, v: build.softmax(scores(build.exp(q), k)))
    assert computed == "operand a is computed, not stored"
