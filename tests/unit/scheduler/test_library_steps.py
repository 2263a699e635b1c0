"""Plans that hold library calls: where their scratch lies, and that the calls alone compute the graph."""

import numpy as np

from codegen.families import FAMILIES
from codegen.gemm.call_arrays import compute_call
from codegen.hardware.libraries import CUBLASLT
from codegen.toolchain.compiler import Binary
from fusion_ir import building as build
from fusion_ir.accuracy.comparison import compare
from fusion_ir.accuracy.tolerance import reference
from fusion_ir.core.node import Node
from fusion_ir.dtype import DTYPES, f16
from fusion_ir.records import LibraryCall, Plan, Ref, Search, Step
from fusion_ir.reference.sample_inputs import sample_inputs
from scheduler.bitset import bits
from scheduler.cost.traffic import traffic_of
from scheduler.plans.assemble import Choice, assemble
from scheduler.rewrites.prepare import prepare
from scheduler.segments.atoms import atoms_of
from scheduler.segments.segment import Segment, extract
from tests.support.devices import CUDA_DEVICE
from tests.support.products import dense_graph

DEVICE = CUDA_DEVICE.model_copy(update={"features": (CUBLASLT,)})
SEARCH = Search(seconds=0, candidates=0, measured=0, complete=False)


def three_layers(x: Node, a: Node, b: Node, c: Node) -> Node:
    return build.linear(build.linear(build.linear(x, a), b), c)


GRAPH = dense_graph([(24, 40), (56, 40), (72, 56), (32, 72)], three_layers, f16)


def choice(segment: Segment, schedule: int) -> Choice:
    graph = segment.canonical.graph
    aten = FAMILIES["aten"]
    assert aten.accepts(graph, DEVICE) is None
    kernel = aten.emit(graph, aten.space(graph, DEVICE)[schedule], DEVICE)
    return Choice(segment, traffic_of(segment.graph), kernel, Binary("0" * 64, kernel.entry, ""), None)


def planned() -> tuple[Plan, list[LibraryCall]]:
    """A step for each product, in order."""
    prepared = prepare(GRAPH)
    atoms = atoms_of(prepared.graph)
    choices = [choice(extract(atoms, atoms.piece(1 << a)), i) for i, a in enumerate(bits(atoms.all))]
    calls = [LibraryCall.model_validate_json(c.kernel.source) for c in choices]
    return assemble(prepared, DEVICE, choices, SEARCH), calls


def test_scratch_shares_no_buffer_with_what_its_step_reads_or_writes() -> None:
    plan, calls = planned()
    assert [c.workspace_bytes for c in calls] == [32 << 20] * 3
    assert [step.libraries for step in plan.steps] == [(CUBLASLT,)] * 3
    for step in plan.steps:
        assert step.scratch is not None
        assert step.scratch not in (*step.reads, *step.writes)
        assert step.args[-1] == step.scratch
        assert plan.buffers[step.scratch.index].bytes >= 32 << 20
    assert len(plan.buffers) == 3, "two tensors and the scratch of all steps, one after the other"


def test_the_calls_of_a_plan_compute_its_graph() -> None:
    plan, calls = planned()
    inputs = sample_inputs(GRAPH, 1)
    places = {Ref(place="in", index=i): np.ascontiguousarray(x).reshape(-1) for i, x in enumerate(inputs)}
    places |= {Ref(place="tmp", index=i): np.zeros(b.bytes // 2, f16.numpy) for i, b in enumerate(plan.buffers)}
    places |= {Ref(place="out", index=i): np.zeros(o.shape, f16.numpy).reshape(-1) for i, o in enumerate(plan.outputs)}
    for step, call in zip(plan.steps, calls, strict=True):
        compute_call(call, [places[ref] for ref in step.args])
        assert step.scratch is not None
        places[step.scratch][:] = np.nan  # it may hold anything afterwards
    out = places[Ref(place="out", index=0)].reshape(plan.outputs[0].shape)
    assert out.dtype == DTYPES["f16"].numpy
    found = compare([out], reference(GRAPH, inputs))
    assert found.ok, found.detail


def test_plans_of_before_there_was_scratch_keep_their_keys() -> None:
    plan, _ = planned()
    without = plan.model_copy(update={"steps": tuple(s.model_copy(update={"scratch": None}) for s in plan.steps)})
    body = without.model_dump_json()
    assert '"scratch"' not in body
    again = Plan.model_validate_json(body)
    assert again.plan_key == without.plan_key
    assert [step.args for step in again.steps] == [(*s.reads, *s.writes) for s in plan.steps]
    assert Step.model_validate_json(plan.steps[0].model_dump_json()) == plan.steps[0]
