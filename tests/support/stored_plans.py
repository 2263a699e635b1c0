"""Plans that were never searched for, complete enough to be stored, listed, drawn and read."""

import hashlib
from collections.abc import Sequence

from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.dtype import f32
from fusion_ir.keys.graph_key import graph_key
from fusion_ir.ops import make, make_input
from fusion_ir.records import Ceilings, Device, Plan, Reason, Ref, Search, Step, TensorSpec
from fusion_ir.text.printing import print_graph
from service.version import VERSION
from tuning_db.reading.graphs import Names
from tuning_db.requests import RequestKey
from tuning_db.states import PlanState
from tuning_db.store import Store

DEVICE = Device(
    target="cpu",
    name="Test CPU",
    arch="x86-64",
    features=("avx2",),
    units=2,
    vector_bytes=32,
    cache_bytes=2**20,
    memory_bytes=2**30,
    toolchain="g++ 12",
    ceilings=Ceilings(copy_gbps=((0, 10.0),), read_gbps=((0, 12.0),), launch_us=1.5, fma_gflops=100.0),
)
BINARY = b"\x7fELF" + bytes(range(256))


def sha(content: bytes | str) -> str:
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def chain(size: int = 8, ops: Sequence[str] = ("exp", "neg")) -> Graph:
    """in0 -> ops[0] -> ops[1] ... -> out0, on f32[size]."""
    spec = InputSpec(shape_of((size,)), f32, (1,))
    node = make_input(0, spec)
    for op in ops:
        node = make(op, [node])
    return Graph((spec,), (OutputSpec(node, (1,)),))


def plan_of(
    graph: Graph, source: str = "void k() {}\n", version: str = VERSION, reasons: Sequence[Reason] = ()
) -> Plan:
    """A measured plan for the graph, of one step that computes all nodes."""
    nodes = tuple(i for i, n in enumerate(graph.nodes) if n.op != "input")
    step = Step(
        family="pointwise",
        schedule="pointwise{lanes=8}",
        binary=sha(BINARY),
        entry="k",
        reads=tuple(Ref(place="in", index=i) for i in range(len(graph.inputs))),
        writes=tuple(Ref(place="out", index=i) for i in range(len(graph.outputs))),
        time_us=12.5,
        bound_us=10.0,
        bytes=64,
        operations=16.0,
        nodes=nodes,
        segment_key=sha("segment"),
        source=sha(source),
    )
    return Plan(
        graph_key=graph_key(graph),
        numerics="reassociate",
        device=DEVICE,
        inputs=tuple(
            TensorSpec(shape=s.sizes, dtype=s.dtype.name, strides=s.strides, alignment_bytes=s.alignment_bytes)
            for s in graph.inputs
        ),
        outputs=tuple(
            TensorSpec(
                shape=o.node.sizes, dtype=o.node.dtype.name, strides=dense_strides(o.node.sizes), alignment_bytes=16
            )
            for o in graph.outputs
        ),
        buffers=(),
        steps=(step,),
        time_us=12.5,
        spread=0.01,
        unfused_us=100.0,
        lower_bound_us=10.0,
        search_gap=1.04,
        copy_us=11.0,
        max_rel_error=0.0,
        reasons=tuple(reasons),
        search=Search(seconds=1.5, candidates=3, measured=2, complete=True),
        version=version,
    )


def store_plan(
    store: Store,
    graph: Graph,
    names: Names | None = None,
    source: str = "void k() {}\n",
    version: str = VERSION,
    reasons: Sequence[Reason] = (),
) -> str:
    """Stores the graph and the plan that `plan_of` makes for it, in state measured; the plan's key."""
    return put_plan(store, graph, names, plan_of(graph, source, version, reasons), source)


def put_plan(
    store: Store,
    graph: Graph,
    names: Names | None,
    plan: Plan,
    source: str = "void k() {}\n",
    state: PlanState = "measured",
    device: Device | None = None,
) -> str:
    """Stores the graph and the given plan in this state; the plan's key. device: the device that the plan is for."""
    names = names or Names(
        tuple(f"x{i}" for i in range(len(graph.inputs))), tuple(f"y{i}" for i in range(len(graph.outputs)))
    )
    key = graph_key(graph)
    store.graphs.put(key, print_graph(graph), names)
    return store.plans.put(
        RequestKey(key, (device or DEVICE).class_key), plan, state, {sha(BINARY): BINARY}, {sha(source): source}
    )


def store_alike(store: Store) -> tuple[str, list[str]]:
    """Four digits, and the keys of two plans that begin with them, in order."""
    seen: dict[str, str] = {}
    for version in map(str, range(5000)):  # two of a few hundred keys share four digits
        beginning = plan_of(chain(), version=version).plan_key[:4]
        if beginning in seen:
            return beginning, sorted(store_plan(store, chain(), version=v) for v in (seen[beginning], version))
        seen[beginning] = version
    raise AssertionError("no two keys begin with the same four digits")
