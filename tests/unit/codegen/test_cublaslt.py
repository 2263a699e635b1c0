"""Making library calls: what the bindings of cuBLASLt get computes the graph, by the library's own rules of columns."""

from collections.abc import Iterator
from itertools import permutations, product
from pathlib import Path

import numpy as np
import pytest

from codegen.child import cublaslt, cuda_candidate
from codegen.child.cublaslt import CallError, CublasLtCall, library_version
from codegen.families import FAMILIES
from codegen.gemm.library_call import library_call
from codegen.hardware.libraries import CUBLASLT
from codegen.kernel import Kernel, Reject
from codegen.sandbox.object_cache import ObjectCache
from codegen.workbench.programs import kernel_program
from fusion_ir import building as build
from fusion_ir.accuracy.comparison import compare
from fusion_ir.accuracy.tolerance import reference
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType, bf16, f16, f32, f64
from fusion_ir.records import LibraryCall
from fusion_ir.reference.sample_inputs import sample_inputs
from tests.support.candidates import is_beyond_the_list
from tests.support.devices import CUDA_DEVICE
from tests.support.fake_cublaslt import FakeBindings
from tests.support.fake_cupy import FakeCupy
from tests.support.products import dense_graph, einsum_graph

WITH_LIBRARY = CUDA_DEVICE.model_copy(update={"features": (CUBLASLT,)})


@pytest.fixture
def bindings(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBindings]:
    fake = FakeBindings()
    monkeypatch.setattr(cublaslt, "bindings", lambda: fake)
    cublaslt._handle.cache_clear()
    yield fake
    cublaslt._handle.cache_clear()


def wrong(graph: Graph, call: LibraryCall) -> str:
    """The difference between the library's result by this call and the graph's, in words; "" where they agree."""
    (output,) = graph.outputs
    for integers in (False, True):
        inputs = [np.ascontiguousarray(x) for x in sample_inputs(graph, 5, integers=integers)]
        out = np.full(output.node.sizes, 77, output.node.dtype.numpy)
        workspace = np.zeros(max(call.workspace_bytes, 1), np.uint8)
        CublasLtCall(call, 0).launch([x.ctypes.data for x in (*inputs, out, workspace)], 42)
        found = compare([out], reference(graph, inputs))
        if not found.ok:
            return found.detail
    return ""


def described(graph: Graph) -> LibraryCall:
    call = library_call(graph)
    assert isinstance(call, LibraryCall), call
    return call


@pytest.mark.parametrize("batch", ["", "z"])
def test_every_layout(batch: str, bindings: FakeBindings) -> None:
    sizes = {"z": 3, "m": 19, "k": 33, "n": 23}
    orders = [list(map("".join, permutations(batch + pair))) for pair in ("mk", "kn", "mn")]
    for a, b, out in product(*orders):
        if not batch or "z" not in (a[-1], b[-1], out[-1]):
            graph = einsum_graph(a, b, out, sizes)
            assert wrong(graph, described(graph)) == "", (a, b, out)


@pytest.mark.parametrize("dtype", [f16, bf16, f32, f64], ids=str)
def test_every_dtype_with_everything_added(dtype: DType, bindings: FakeBindings) -> None:
    wide = f64 if dtype == f64 else f32

    def compute(x: Node, w: Node, b: Node, y: Node) -> Node:
        total = build.mul(build.matmul(x, w, wide), 0.5)
        total = build.add(total, build.mul(build.cast(y, wide), -2.0))
        total = build.add(total, build.broadcast_to(build.cast(b, wide), total.shape))
        return build.cast(total, dtype)

    graph = dense_graph([(5, 37, 65), (65, 48), (48,), (5, 37, 48)], compute, dtype)
    assert wrong(graph, described(graph)) == ""


def test_loops_around_a_call(bindings: FakeBindings) -> None:
    graph = dense_graph(
        [(6, 20, 64), (6, 64, 40), (6, 40)],
        lambda x, w, b: build.add(build.matmul(x, w), build.broadcast_in_dim(b, [6, 20, 40], [0, 2])),
    )
    call = described(graph)
    assert [loop.extent for loop in call.loops] == [6]
    assert wrong(graph, call) == ""
    assert len(bindings.calls) == 12


def test_what_algorithms_may_count_on(bindings: FakeBindings) -> None:
    graph = einsum_graph("mk", "kn", "mn", {"m": 32, "k": 64, "n": 48}, f16)
    call = described(graph).model_copy(update={"algorithm": 2, "workspace_bytes": 4096})
    assert wrong(graph, call) == ""
    assert bindings.preferences == {
        "MAX_WORKSPACE_BYTES": 4096,
        "REDUCTION_SCHEME_MASK": 2,
        "MIN_ALIGNMENT_A_BYTES": 2,
        "MIN_ALIGNMENT_B_BYTES": 2,
        "MIN_ALIGNMENT_C_BYTES": 64,
        "MIN_ALIGNMENT_D_BYTES": 64,
    }
    # The second of the library's answers is none: the algorithms are 70, 72, 73 and 74.
    assert {c["algorithm"] for c in bindings.calls} == {73}
    assert {c["stream"] for c in bindings.calls} == {42}
    assert all(c["workspace"] and c["workspace_bytes"] == 4096 for c in bindings.calls)


def test_an_algorithm_beyond_the_list(bindings: FakeBindings) -> None:
    call = described(einsum_graph("mk", "kn", "mn", {"m": 32, "k": 64, "n": 48}))
    with pytest.raises(CallError, match="has 4 algorithms for this call, not 5") as error:
        CublasLtCall(call.model_copy(update={"algorithm": 4}), 0)
    line = f"graph aten{{library=cublaslt,algorithm=4,workspace=0}}: rejected: {error.value}"
    assert is_beyond_the_list(line)
    assert not is_beyond_the_list(line.replace("has 4", "has 0"))
    assert not is_beyond_the_list(line.replace("rejected", "crashed"))


def test_version(bindings: FakeBindings) -> None:
    assert library_version() == "cuBLASLt 13.1.0"


def test_the_family_on_a_gpu() -> None:
    aten = FAMILIES["aten"]
    graph = dense_graph([(32, 64), (48, 64), (48,)], build.linear, f16)
    assert aten.accepts(graph, WITH_LIBRARY) is None
    refusal = aten.accepts(graph, CUDA_DEVICE)
    assert isinstance(refusal, Reject)
    assert "cublas13" in refusal.reason
    kernels = [aten.emit(graph, s, WITH_LIBRARY) for s in aten.space(graph, WITH_LIBRARY)]
    assert len({k.entry for k in kernels}) == len(kernels) == 4
    assert [k.schedule for k in kernels[:2]] == [
        "aten{library=cublaslt,algorithm=0,workspace=32}",
        "aten{library=cublaslt,algorithm=1,workspace=32}",
    ]
    last: Kernel = kernels[-1]
    call = LibraryCall.model_validate_json(last.source)
    assert (call.algorithm, call.workspace_bytes, last.launch.scratch_bytes) == (3, 32 << 20, 32 << 20)
    assert last.libraries == (CUBLASLT,)
    older = WITH_LIBRARY.model_copy(update={"arch": "sm_86"})
    assert aten.space(graph, older)[0] == "aten{library=cublaslt,algorithm=0,workspace=4}"


def test_a_program_of_the_timing_child(bindings: FakeBindings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cupy = FakeCupy()
    monkeypatch.setattr(cuda_candidate, "cupy", lambda: cupy)
    graph = dense_graph([(32, 64), (48, 64), (48,)], build.linear)
    kernel = FAMILIES["aten"].emit(graph, "aten{library=cublaslt,algorithm=0,workspace=4}", WITH_LIBRARY)
    cache = ObjectCache(tmp_path)
    text = kernel_program(kernel, cache.put(kernel.source.encode()), graph, cache)
    assert text["buffers"] == [4 << 20]
    candidate = cuda_candidate.CudaCandidate(text, 3, 1)
    inputs = [np.ascontiguousarray(x) for x in sample_inputs(graph, 5)]
    out, scratch = np.zeros((32, 48), np.float32), np.zeros(8, np.uint8)
    candidate.captured([x.ctypes.data for x in (*inputs, out, scratch)], cupy.cuda.Stream(non_blocking=True))
    assert compare([out], reference(graph, inputs)).ok
    first, captured = bindings.calls
    assert first == captured, "once as it is, so that all is loaded, then captured"
    assert (first["workspace"], first["workspace_bytes"]) == (scratch.ctypes.data, 4 << 20)
    assert [entry[0] for entry in cupy.log] == ["synchronize"]


@pytest.mark.parametrize(("field", "value"), [("turned", True), ("leading", 67), ("offset", 1), ("tensor", 1)])
def test_a_wrong_description_is_seen(field: str, value: int, bindings: FakeBindings) -> None:
    graph = dense_graph([(64, 64), (64, 64)], build.matmul)
    call = described(graph)
    assert wrong(graph, call) == ""
    changed = call.model_copy(update={"a": call.a.model_copy(update={field: value}), "m": 48})
    assert wrong(graph, changed) != ""
