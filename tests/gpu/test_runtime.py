"""Plans on the device through the client: kernels and library calls, streams and pointers of others, CUDA graphs."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fuseplan_client import CudaPlan, GuardError, load

from benchmarks.gpu.stage import write_bundle
from codegen.child import cublaslt
from codegen.families import FAMILIES
from codegen.gemm.library_call import library_call
from codegen.hardware.libraries import CUBLASLT
from codegen.kernel import Kernel
from codegen.workbench.workbench import Workbench
from fusion_ir import building as build
from fusion_ir.accuracy.comparison import compare
from fusion_ir.accuracy.tolerance import reference
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType, bf16, f16, f32
from fusion_ir.records import LibraryCall
from fusion_ir.reference.sample_inputs import sample_inputs
from scheduler.budget import Budget
from scheduler.interfaces import Forgetful
from scheduler.tune import tune
from tests.support.candidates import kernels_of, only_row
from tests.support.constants import with_constants
from tests.support.products import dense_graph

cupy = pytest.importorskip("cupy")
pytestmark = pytest.mark.own_context


def folded(x: Node, a: Node, b: Node) -> Node:
    return build.matmul(x, build.matmul(a, b))


def two_layers(x: Node, a: Node, b: Node, c: Node) -> Node:
    return build.softmax(build.exp(build.linear(build.linear(x, a), b, c)), -1)


GRAPH = dense_graph([(64, 96), (128, 96), (80, 128), (80,)], two_layers)


@pytest.fixture(scope="module")
def loaded(bench: Workbench) -> CudaPlan:
    """A plan that was searched for a little: its steps are kernels, and calls where the library is there."""
    made = tune(GRAPH, bench.device, Budget(4.0), Forgetful(), bench)
    with tempfile.TemporaryDirectory() as folder:
        write_bundle(made, bench.cache, Path(folder))
        return load(folder)


def on_device(graph: Graph, seed: int) -> tuple[list[np.ndarray], list[Any]]:
    arrays = [np.ascontiguousarray(x) for x in sample_inputs(graph, seed)]
    return arrays, [cupy.asarray(x) for x in arrays]


def assert_right(loaded: CudaPlan, seed: int, stream: object = None) -> list[Any]:
    """Returns the tensors: while they are alive, nothing else is at their addresses."""
    arrays, tensors = on_device(GRAPH, seed)
    outputs = loaded.empty_outputs()
    for _ in range(4):  # step by step, captured, launched again
        for out in outputs:
            out.fill(-1)
        cupy.cuda.Device().synchronize()
        loaded.run(tensors, outputs, stream=stream)
        cupy.cuda.Device().synchronize()
        found = compare([cupy.asnumpy(o) for o in outputs], reference(GRAPH, arrays))
        assert found.ok, found.detail
    return [*tensors, *outputs]


def test_calls_and_graphs(loaded: CudaPlan) -> None:
    """A graph for the addresses of each three calls."""
    before = loaded.graphs
    alive = [assert_right(loaded, seed) for seed in range(3)]
    assert loaded.graphs == before + 3, [hex(t.data.ptr) for tensors in alive for t in tensors]


def test_streams(loaded: CudaPlan) -> None:
    assert_right(loaded, 5, cupy.cuda.Stream(non_blocking=True))
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        stream = torch.cuda.Stream()
        arrays, _ = on_device(GRAPH, 6)
        tensors = [torch.from_numpy(x).cuda() for x in arrays]
        out = torch.empty((64, 80), device="cuda")
        torch.cuda.synchronize()
        for _ in range(3):
            loaded.run(tensors, [out], stream=stream)
        torch.cuda.synchronize()
        found = compare([out.cpu().numpy()], reference(GRAPH, arrays))
        assert found.ok, found.detail


def test_guards(loaded: CudaPlan) -> None:
    _, tensors = on_device(GRAPH, 1)
    outputs = loaded.empty_outputs()
    with pytest.raises(GuardError, match="in0: expected strides"):
        loaded.run([cupy.asfortranarray(tensors[0]), *tensors[1:]], outputs)
    same = cupy.ndarray((64, 80), np.float32, memptr=tensors[0].data)
    with pytest.raises(GuardError, match="overlaps in0"):
        loaded.run(tensors, [same])


def library_kernel(graph: Graph, bench: Workbench) -> Kernel:
    if CUBLASLT not in bench.device.features:
        pytest.skip("nvmath-python or cuBLAS is not installed")
    assert isinstance(library_call(graph), LibraryCall)
    return kernels_of(graph, "aten", bench, most=1)[0]


def test_relu_of_the_library_loses_nan(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Why no call ends with one (codegen/gemm/epilogue.py), which cuBLASLt does not document: relu(NaN) is NaN."""
    graph = dense_graph([(64, 64), (64, 64)], build.matmul, f16)
    library_kernel(graph, bench)
    call, described = library_call(graph), cublaslt._description
    assert isinstance(call, LibraryCall)

    def with_relu(lt: Any, call: LibraryCall) -> int:
        description = described(lt, call)
        cublaslt._describe(lt, description, "EPILOGUE", int(lt.Epilogue["RELU"]))
        return description

    monkeypatch.setattr(cublaslt, "_description", with_relu)
    x, w = (np.ascontiguousarray(a) for a in sample_inputs(graph, 1))
    x[3, 5] = np.nan
    tensors = [cupy.asarray(a) for a in (x, w, np.full((64, 64), 77, np.float16))]
    cupy.cuda.Device().synchronize()
    ready = cublaslt.CublasLtCall(call, cupy.cuda.Device().id)
    ready.launch([t.data.ptr for t in tensors], cupy.cuda.get_current_stream().ptr)
    cupy.cuda.Device().synchronize()
    found = cupy.asnumpy(tensors[2])
    assert (found >= 0).all(), "not the results of a relu"
    assert (found[3] == 0).all(), "the library's relu keeps NaN: it can be had again"


@pytest.mark.parametrize("dtype", [f32, f16, bf16], ids=str)
def test_every_algorithm_of_a_call(dtype: DType, bench: Workbench) -> None:
    graph = dense_graph([(200, 136), (264, 136), (264,)], build.linear, dtype)
    library_kernel(graph, bench)
    statuses: list[str] = []
    for algorithm in range(8):
        schedule = f"aten{{library=cublaslt,algorithm={algorithm},workspace=4}}"
        row = only_row(graph, FAMILIES["aten"].emit(graph, schedule, bench.device), bench)
        statuses.append(row.status.value if row.status.value != "rejected" else f"rejected: {row.detail}")
    assert statuses[0] == "ok", statuses
    assert all(s == "ok" or "algorithms for this call" in s for s in statuses), statuses


def test_a_prologue_runs_for_pointers_and_versions(bench: Workbench) -> None:
    graph = with_constants(dense_graph([(64, 96), (96, 128), (128, 80)], folded), {1: "a@1", 2: "b@1"})
    made = tune(graph, bench.device, Budget(4.0), Forgetful(), bench)
    assert made.prologue
    assert made.prologue_us
    with tempfile.TemporaryDirectory() as folder:
        write_bundle(made, bench.cache, Path(folder))
        plan = load(folder)
    arrays, (x, *weights) = on_device(graph, 0)
    outputs = plan.empty_outputs()
    for _ in range(3):
        plan.run([x, *weights], outputs)
        assert compare([cupy.asnumpy(outputs[0])], reference(graph, arrays)).ok
    assert plan.prologue_runs == 1
    weights[0] *= 2  # exact, and nobody counts it
    plan.run([x, *weights], outputs)
    assert compare([cupy.asnumpy(outputs[0])], reference(graph, arrays)).ok
    doubled = reference(graph, [arrays[0], 2 * arrays[1], arrays[2]])
    plan.run([x, *weights], outputs, versions={1: "a@2"})
    assert compare([cupy.asnumpy(outputs[0])], doubled).ok
    assert plan.prologue_runs == 2
