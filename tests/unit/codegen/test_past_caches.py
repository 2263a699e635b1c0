"""Families store nothing past the caches that these can hold."""

import pytest

from codegen.families import FAMILIES
from codegen.families.past_caches import pays
from fusion_ir import building as build
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import f32
from tests.support.devices import CPU_DEVICE
from tests.support.products import dense_graph


def normalized(x: Node) -> Node:
    e = build.exp(build.sub(x, build.max_(x, (1,), keepdims=True)))
    return build.div(e, build.sum_(e, (1,), keepdims=True))


def attention(q: Node, k: Node, v: Node) -> Node:
    return build.matmul(normalized(build.matmul(q, build.permute(k, (1, 0)), f32)), v, f32)


GRAPHS: dict[str, Graph] = {
    "pointwise": dense_graph([(512, 256)], build.exp),
    "reduction": dense_graph([(512, 4)], lambda x: build.sum_(build.exp(x), (1,))),
    "normalization": dense_graph([(512, 256)], normalized),
    "scan": dense_graph([(512, 256)], lambda x: build.cumsum(x, 1)),
    "transpose": dense_graph([(512, 256)], lambda x: build.permute(x, (1, 0))),
    "matmul": dense_graph([(512, 256), (256, 128)], lambda a, b: build.relu(build.matmul(a, b, f32))),
    "attention": dense_graph([(256, 64), (256, 64), (256, 64)], attention),
}


@pytest.mark.parametrize("family", GRAPHS)
def test_stores_go_past_the_caches_where_these_cannot_hold_what_is_stored(family: str) -> None:
    graph, of = GRAPHS[family], FAMILIES[family]
    small = CPU_DEVICE.model_copy(update={"cache_bytes": 2 * graph.written_bytes - 2})
    large = CPU_DEVICE.model_copy(update={"cache_bytes": 2 * graph.written_bytes})
    assert not pays(graph, large)
    assert pays(graph, small)
    for device, may in ((large, False), (small, True)):
        assert of.accepts(graph, device) is None
        space = of.space(graph, device)
        assert space and len(set(space)) == len(space)
        assert ("stream" in of.choices(graph, device)["store"]) == may
        assert may or not any("store=stream" in schedule for schedule in space)


def test_however_large_a_cache_is_others_use_it_too() -> None:
    huge = CPU_DEVICE.model_copy(update={"cache_bytes": 1 << 30})
    found = {elements: pays(dense_graph([(elements,)], build.exp), huge) for elements in (4 << 20, (4 << 20) + 1)}
    assert list(found.values()) == [False, True]


def test_a_schedule_of_before_is_still_emitted() -> None:
    schedule = FAMILIES["pointwise"].space(GRAPHS["pointwise"], CPU_DEVICE)[0].replace("store=plain", "store=stream")
    assert "store_stream" in FAMILIES["pointwise"].emit(GRAPHS["pointwise"], schedule, CPU_DEVICE).source
