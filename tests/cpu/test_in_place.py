"""Outputs in the memory of the inputs that they donate: the same bits as in memory of their own."""

import os
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from fuseplan_client import GuardError
from fuseplan_client.cpu.executor import WAYS
from fuseplan_client.cpu.program import CpuProgram
from fuseplan_client.cpu.tensors import empty
from fuseplan_client.fill import CARRIERS, random_values
from fuseplan_client.guards import check
from fuseplan_client.plan import Plan, Tensor, read_plan
from fuseplan_client.tensors import View

from fusion_ir import building as build
from fusion_ir import records
from fusion_ir.core.extent import shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import bool_, f32
from fusion_ir.ops import make, make_input
from scheduler.budget import Budget
from scheduler.interfaces import Forgetful
from scheduler.tune import tune
from testing.random_graphs import Chooser, Seeded, any_graph, pointwise_graph
from tests.support.random_reductions import reduction_graph
from tests.support.sweep import Result, plans_of
from tests.support.whole import WHOLE, seed

pytest.importorskip("torch")


from testing.local_plans import LocalPlans

GRAPHS = int(os.environ.get("FUSEPLAN_RANDOM_GRAPHS", "0")) // 3 or 12


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPlans]:
    made = LocalPlans.made(tmp_path_factory.mktemp("in place") / "cache")
    yield made
    made.close()


def turned(x: Node) -> Node:
    """Elements of other places: two axes of one extent exchanged, or else the last axis reversed by halves."""
    shape = x.sizes
    for a in range(len(shape)):
        for b in range(a + 1, len(shape)):
            if shape[a] == shape[b] != 1:
                order = [*range(len(shape))]
                order[a], order[b] = b, a
                return build.permute(x, tuple(order))
    if not shape or shape[-1] < 2:
        return x
    start, end, middle = [0] * len(shape), [*shape], [*shape]
    start[-1] = middle[-1] = shape[-1] // 2
    return build.cat([build.slice_(x, start, end), build.slice_(x, [0] * len(shape), middle)], -1)


def least(x: Node) -> Node:
    """The least element of a row, for each of its elements."""
    if not x.shape:
        return x
    return build.broadcast_to(build.min_(x, -1, keepdims=True), x.sizes)


WAYS_TO_READ = {"own": lambda x: x, "turned": turned, "least": least}


def donated(graph: Graph, choose: Chooser) -> Graph:
    """The graph with an input for each output, whose memory this may take over: it is joined with the input's element,
    at times with elements of other places, at times with another output's donor as well."""
    inputs, outputs = list(graph.inputs), list[OutputSpec]()
    donors: list[Node] = []
    for output in graph.outputs:
        node = output.node
        inputs.append(InputSpec(node.shape, node.dtype, output.strides, 64))
        donors.append(make_input(len(inputs) - 1, inputs[-1]))
    for i, output in enumerate(graph.outputs):
        node, x = output.node, donors[i]
        ways = [["own"], ["own"], ["own", "own"], ["own", "turned"], ["turned"], ["own", "least"], []]
        for way in ways[choose.below(len(ways))]:
            node = joined(node, WAYS_TO_READ[way](x))
        other = donors[choose.below(len(donors))]
        if other.shape == x.shape and choose.below(3) == 0:
            node = joined(node, build.cast(other, x.dtype))
        outputs.append(OutputSpec(node, output.strides, len(graph.inputs) + i))
    return Graph(tuple(inputs), tuple(outputs))


def joined(a: Node, b: Node) -> Node:
    """A pointwise op of two tensors, whose result depends on each element of either."""
    return make("logical_xor", [a, b]) if a.dtype == bool_ else build.minimum(a, b)


def planned(graph: Graph, plans: LocalPlans) -> tuple[Plan, CpuProgram]:
    return loaded(tune(graph, plans.bench.device, Budget(0.0), Forgetful(), plans.bench), plans)


def loaded(plan: records.Plan, plans: LocalPlans) -> tuple[Plan, CpuProgram]:
    """A plan as the client has it."""
    binaries = {}
    for step in plan.steps:
        path = plans.bench.cache.path(step.binary)
        assert path is not None
        binaries[step.binary] = path.read_bytes()
    read = read_plan(plan.model_dump(mode="json"))
    return read, CpuProgram(read, binaries, plans.executor)


Memory = np.ndarray[tuple[int], np.dtype[np.uint8]]


def memory_of(spec: Tensor, values: np.ndarray | None = None) -> tuple[Memory, int]:
    """Bytes from a tensor's first element to behind its last, and its address. values: of the dtype's carrier."""
    item = empty(Tensor((1,), spec.dtype, (1,), 64)).itemsize
    raw = np.full(max(spec.span, 1) * item + 64, 0xA5, np.uint8)
    start = -raw.ctypes.data % 64
    found = raw[start : start + max(spec.span, 1) * item]
    if values is not None and spec.span:
        found.view(CARRIERS[spec.dtype])[: spec.span] = values
    return found, found.ctypes.data


def bits(spec: Tensor, memory: Memory) -> bytes:
    """The tensor's elements, without what lies between them."""
    if not spec.span:
        return b""
    array = memory.view(CARRIERS[spec.dtype])
    strides = tuple(s * array.itemsize for s in spec.strides)
    return np.lib.stride_tricks.as_strided(array, spec.shape, strides).tobytes()


def ran(program: CpuProgram, plan: Plan, *, in_place: bool, threads: int) -> list[bytes]:
    generator = np.random.default_rng(0)
    inputs = [memory_of(s, random_values(s, generator)) for s in plan.inputs]
    outputs = [memory_of(s) for s in plan.outputs]
    if in_place:
        for i, j in plan.in_place:
            outputs[i] = inputs[j]
    table = program.table()
    for i, (_, address) in enumerate((*inputs, *outputs)):
        table.addresses[i] = address
    program.run(table, threads, WAYS["pool"] if threads > 1 else WAYS["alone"])
    aliased = {i for i, _ in plan.aliases}
    return [bits(s, m) for i, (s, (m, _)) in enumerate(zip(plan.outputs, outputs, strict=True)) if i not in aliased]


@pytest.mark.turn("random graphs on the CPU")
def test_random_graphs_give_the_same_in_place(plans: LocalPlans) -> None:
    """Cut at random, by any family and schedule: whichever outputs a plan says may be in place."""

    def drawn(number: int) -> Graph:
        choose = Seeded(number)
        return donated((pointwise_graph, pointwise_graph, any_graph, reduction_graph)[choose.below(4)](choose), choose)

    result, pairs, asked = Result(), 0, 0
    first = 0 if WHOLE else 100_000 + 1000 * seed()
    ways = (drawn, ("fused", "cut", "apart"))
    made = plans_of(range(first, first + GRAPHS), plans.bench, plans.bench.device, [ways], result)
    for (number, _), attempts in made.items():
        for attempt, whole in attempts:
            plan, program = loaded(whole, plans)
            pairs, asked = pairs + len(plan.in_place), asked + len(plan.outputs)
            for threads in (1, 2):
                own, placed = (ran(program, plan, in_place=p, threads=threads) for p in (False, True))
                if own != placed:
                    result.wrong.append(f"seed {number} {attempt.how}, {threads} threads")
    assert not result.wrong, "\n".join(result.wrong[:20])
    assert 4 * pairs > asked, f"{pairs} of {asked} outputs may be in place"


def test_steps_of_optimizers_are_in_place(plans: LocalPlans) -> None:
    """Adam: three outputs, each of its own tensor and of others of the same place."""
    spec = InputSpec(shape_of((64, 96)), f32, (96, 1), 64)
    p, m, v, g = (make_input(i, spec) for i in range(4))
    m2 = build.add(build.mul(m, 0.9), build.mul(g, 0.1))
    v2 = build.add(build.mul(v, 0.999), build.mul(build.mul(g, g), 0.001))
    p2 = build.sub(p, build.mul(build.truediv(m2, build.add(build.sqrt(v2), 1e-8)), 1e-3))
    outputs = tuple(OutputSpec(n, spec.strides, i) for i, n in enumerate((p2, m2, v2)))
    plan, program = planned(Graph((spec,) * 4, outputs), plans)
    assert plan.in_place == ((0, 0), (1, 1), (2, 2))
    assert len(plan.steps) == 1
    assert ran(program, plan, in_place=True, threads=2) == ran(program, plan, in_place=False, threads=1)


def of_one(computed: Callable[[Node], Node]) -> Graph:
    spec = InputSpec(shape_of((48, 48)), f32, (48, 1), 16)
    return Graph((spec,), (OutputSpec(computed(make_input(0, spec)), spec.strides, 0),))


def test_two_outputs_change_places(plans: LocalPlans) -> None:
    spec = InputSpec(shape_of((48, 48)), f32, (48, 1), 64)
    x, y = (make_input(i, spec) for i in range(2))
    total = build.add(x, y)
    outputs = (OutputSpec(build.mul(total, x), spec.strides, 1), OutputSpec(build.sub(total, y), spec.strides, 0))
    plan, program = planned(Graph((spec, spec), outputs), plans)
    assert plan.in_place == ((0, 1), (1, 0))
    assert ran(program, plan, in_place=True, threads=2) == ran(program, plan, in_place=False, threads=1)


def test_elements_that_others_read_are_not_overwritten(plans: LocalPlans) -> None:
    """A transposed tensor, a row that is shifted, and a sum of the row that one kernel writes again."""
    for other in (turned, lambda x: build.add(x, turned(x))):
        plan, _ = planned(of_one(other), plans)
        assert plan.in_place == ()
    plan, program = planned(of_one(lambda x: build.softmax(x, -1)), plans)
    assert ran(program, plan, in_place=True, threads=2) == ran(program, plan, in_place=False, threads=1)


def test_guards_let_outputs_be_in_place_and_nowhere_else(plans: LocalPlans) -> None:
    plan, _ = planned(of_one(build.exp), plans)
    assert plan.in_place == ((0, 0),)
    spec = plan.inputs[0]

    def view(address: int) -> View:
        return View(address, spec.shape, spec.dtype, spec.strides)

    check(plan, [view(1 << 20)], [view(1 << 20)], 0, "{}{}".format)
    with pytest.raises(GuardError, match="out0: expected alignment to 64 bytes"):
        check(plan, [view((1 << 20) + 16)], [view((1 << 20) + 16)], 0, "{}{}".format)
    with pytest.raises(GuardError, match="out0 overlaps in0"):
        check(plan, [view(1 << 20)], [view((1 << 20) + 64)], 0, "{}{}".format)
