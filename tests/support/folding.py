"""A plan with a prologue, of one kernel that adds: right, and with faults."""

from collections.abc import Sequence

from codegen.toolchain.compiler import Binary
from fusion_ir.core.graph import Graph
from fusion_ir.keys.graph_key import graph_key
from fusion_ir.ops import make, make_input
from fusion_ir.records import Buffer, Device, Plan, Ref, Search, Step, TensorSpec
from tests.support.constants import with_constants
from tests.support.kernels import dense, graph_of

STEPS = ("in1 in1 tmp0", "in0 tmp0 tmp1", "tmp1 in0 tmp2", "tmp2 tmp1 out0")


def sum_plan(n: int, device: Device, add: Binary, **launch: object) -> tuple[Graph, Plan]:
    """y = in1 + in1, of a constant; a = in0 + y; b = a + in0; out0 = b + a, f32[n]. launch: fields of all steps."""
    specs = (dense(n), dense(n))
    x, w = make_input(0, specs[0]), make_input(1, specs[1])
    a = make("add", [x, make("add", [w, w])])
    graph = with_constants(graph_of(specs, make("add", [make("add", [a, x]), a])), {1: "w@1"})
    spec = TensorSpec(shape=(n,), dtype="f32", strides=(1,), alignment_bytes=16)
    refs = [[Ref(place=t[:-1], index=int(t[-1])) for t in text.split()] for text in STEPS]  # type: ignore[arg-type]
    steps = [
        Step(
            family="hand", schedule="", binary=add.sha256, entry=add.entry, reads=(one, other), writes=(result,),
            time_us=None, bound_us=0.0, bytes=12 * n, operations=n, nodes=(), segment_key="", prologue=i == 0,
            **launch,  # type: ignore[arg-type]
        )
        for i, (one, other, result) in enumerate(refs)
    ]  # fmt: skip
    return graph, Plan(
        graph_key=graph_key(graph), numerics="exact", device=device,
        inputs=(spec, spec.model_copy(update={"constant": "w@1"})), outputs=(spec,),
        buffers=(Buffer(bytes=4 * n, kept=True), Buffer(bytes=4 * n), Buffer(bytes=4 * n)), steps=tuple(steps),
        time_us=None, spread=None, unfused_us=None, lower_bound_us=0.0, search_gap=None, copy_us=None,
        max_rel_error=None, search=Search(seconds=0, candidates=0, measured=0, complete=False), version="0",
    )  # fmt: skip


def sharing(plan: Plan) -> Plan:
    """With b where y is kept: written after the last step that reads y, but before the next run does."""

    def moved(refs: Sequence[Ref]) -> tuple[Ref, ...]:
        return tuple(r.model_copy(update={"index": 0}) if str(r) == "tmp2" else r for r in refs)

    steps = [s.model_copy(update={"reads": moved(s.reads), "writes": moved(s.writes)}) for s in plan.steps]
    return plan.model_copy(update={"steps": tuple(steps)})


def folding_wrongly(plan: Plan) -> Plan:
    """With another sum for y."""
    first = plan.steps[0].model_copy(update={"reads": plan.steps[1].reads})
    return plan.model_copy(update={"steps": (first, *plan.steps[1:])})
