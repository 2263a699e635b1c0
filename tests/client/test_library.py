"""Library calls as the client makes them, from descriptions that Fuseplan wrote: the same results as the graph's."""

import json
from collections.abc import Iterator

import numpy as np
import pytest
from fuseplan_client.cuda import library
from fuseplan_client.cuda.library import Call, LibraryError
from fuseplan_client.plan import read_plan

from codegen.gemm.library_call import library_call
from fusion_ir import building as build
from fusion_ir.accuracy.comparison import compare
from fusion_ir.accuracy.tolerance import reference
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import bf16, f16, f32, f64
from fusion_ir.records import LibraryCall
from fusion_ir.reference.sample_inputs import sample_inputs
from tests.support.fake_cublaslt import FakeBindings
from tests.support.products import dense_graph, einsum_graph
from tests.unit.scheduler.test_library_steps import planned


@pytest.fixture(autouse=True)
def bindings(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBindings]:
    fake = FakeBindings()
    monkeypatch.setattr(library, "bindings", lambda: fake)
    library._handle.cache_clear()
    yield fake
    library._handle.cache_clear()


def everything(x: Node, w: Node, b: Node, y: Node) -> Node:
    wide = f64 if x.dtype == f64 else f32
    total = build.add(build.mul(build.matmul(x, w, wide), 0.5), build.mul(build.cast(y, wide), -2.0))
    total = build.add(total, build.broadcast_to(build.cast(b, wide), total.shape))
    return build.cast(total, x.dtype)


GRAPHS = {
    "plain": einsum_graph("mk", "kn", "mn", {"m": 19, "k": 33, "n": 23}),
    "turned": einsum_graph("km", "nk", "nm", {"m": 19, "k": 33, "n": 23}, bf16),
    "batched": einsum_graph("zmk", "zkn", "mzn", {"z": 3, "m": 19, "k": 33, "n": 23}, f16),
    "everything": dense_graph([(5, 37, 65), (65, 48), (48,), (5, 37, 48)], everything, f16),
    "everything in f64": dense_graph([(5, 37, 65), (65, 48), (48,), (5, 37, 48)], everything, f64),
    "loops": dense_graph(
        [(6, 20, 64), (6, 64, 40), (6, 40)],
        lambda x, w, b: build.add(build.matmul(x, w), build.broadcast_in_dim(b, [6, 20, 40], [0, 2])),
    ),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_calls(name: str) -> None:
    graph: Graph = GRAPHS[name]
    call = library_call(graph)
    assert isinstance(call, LibraryCall), call
    inputs = [np.ascontiguousarray(x) for x in sample_inputs(graph, 5)]
    out = np.full(graph.outputs[0].node.sizes, 77, graph.outputs[0].node.dtype.numpy)
    Call(call.text().encode(), 0).launch([x.ctypes.data for x in (*inputs, out)], 42)
    found = compare([out], reference(graph, inputs))
    assert found.ok, found.detail


def test_calls_of_another_version_are_refused() -> None:
    """A call with an unknown or a missing field raises LibraryError: ignoring the field would give a wrong result."""
    call = library_call(GRAPHS["plain"])
    assert isinstance(call, LibraryCall), call
    fields = call.model_dump()
    with pytest.raises(LibraryError, match="not with or without activation"):
        Call(json.dumps({**fields, "activation": "relu"}).encode(), 0)
    del fields["bias"]
    with pytest.raises(LibraryError, match="not with or without bias"):
        Call(json.dumps(fields).encode(), 0)


def test_plans_that_fuseplan_writes() -> None:
    plan, _ = planned()
    read = read_plan(plan.model_dump(mode="json"))
    assert [[(r.place, r.index) for r in s.args] for s in read.steps] == [
        [(r.place, r.index) for r in s.args] for s in plan.steps
    ]
    assert [(t.shape, t.strides, t.dtype) for t in read.inputs] == [(t.shape, t.strides, t.dtype) for t in plan.inputs]
    assert [(b.bytes, b.kept) for b in read.buffers] == [(b.bytes, b.kept) for b in plan.buffers]
