"""The graph that a plan's steps compute, cut as they cut it: the way back from `scheduler.plans.assemble`.

    step 0: in0 -> t0    %1 = exp(%0)             %0 = in0
    step 1: t0 -> out0   %1 = neg(%0)        ->   %1 = exp(%0)      t0, stored
                                                  %2 = neg(%1)      out0

Nodes are interned: for steps that this version's own rewrites led to, the composed graph is the prepared one, node for
node, which proves that they compute the graph given.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from codegen.families import FAMILIES
from fusion_ir.core.extent import dense_strides
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.layout import normal_strides
from fusion_ir.core.node import Node
from fusion_ir.errors import FormatError
from fusion_ir.ops import make_input
from fusion_ir.records import NUMERICS, Device, Numerics, Ref
from scheduler.cost.model import CostModel
from scheduler.rewrites.alternatives import Alternatives
from scheduler.rewrites.prepare import Prepared, prepare
from scheduler.rewrites.rules import ALTERNATIVES
from scheduler.rewrites.rules.split_reduction import split_tasks
from scheduler.segments.boundary import OUTPUT_ALIGNMENT_BYTES, TEMPORARY_ALIGNMENT_BYTES
from scheduler.segments.segment import Segment
from scheduler.segments.segment_mask import SegmentMask


@dataclass(frozen=True)
class StepGraph:
    """One step: what it computes, and the tensors that it connects, in the order of `graph`'s inputs and outputs. "tmp"
    refs number tensors, each of which is written once."""

    graph: Graph
    reads: tuple[Ref, ...]
    writes: tuple[Ref, ...]


@dataclass(frozen=True)
class Composed:
    """`segments`: one for each step, in order. recognised: whether `prepared` is what this version's rewrites make of
    the graph given."""

    prepared: Prepared
    segments: tuple[Segment, ...]
    recognised: bool


@dataclass(frozen=True)
class _Tensor:
    """The tensor at a place: its node, and the layout and alignment that a kernel may assume."""

    node: Node
    strides: tuple[int, ...]
    alignment_bytes: int


def compose(
    given: Graph,
    steps: Sequence[StepGraph],
    aliases: Sequence[tuple[int, Ref]],
    device: Device,
    numerics: Numerics,
    rewrites: Sequence[str] = (),
) -> Composed:
    """Puts steps together to a plan of `given`, in which rewrites of class `numerics` are allowed.

    rewrites: those that the steps' maker says it used, for steps that this version's own do not lead to; then only
    running the steps shows that they compute `given`, and the class is "reassociate" at least. Raises FormatError,
    whose place is a pointer into the steps, where tensors do not fit, outputs are missing, or such steps are to be
    "exact".
    """
    tasks = split_tasks(device)
    allowed = NUMERICS[: NUMERICS.index(numerics) + 1]
    takes = CostModel(device, FAMILIES).acceptor.shares
    for each in allowed:
        prepared = prepare(given, tasks, each, ALTERNATIVES, takes)
        segments, graph, slots = _composed(given, steps, aliases, prepared.alternatives.tensor)
        if (prepared.slots, prepared.aliases) == (slots, tuple(aliases)) and _same(prepared.graph, graph):
            return Composed(prepared, segments, recognised=True)
    if numerics == "exact":
        raise FormatError("/steps", "expected what exact rewrites of this version make of the graph, got another graph")
    segments, graph, slots = _composed(given, steps, aliases, lambda node: node)
    origin = prepare(given, tasks, numerics, takes=takes).origin
    own = Alternatives(graph)
    prepared = Prepared(given, graph, slots, tuple(aliases), origin, tuple(rewrites), numerics, own)
    return Composed(prepared, segments, recognised=False)


def _composed(
    given: Graph, steps: Sequence[StepGraph], aliases: Sequence[tuple[int, Ref]], tensor: Callable[[Node], Node]
) -> tuple[tuple[Segment, ...], Graph, tuple[int, ...]]:
    """The steps, the graph that they compute, and the outputs that they write. tensor: the node that stands for what a
    node produces, which may be one of several ways."""
    tensors = {
        Ref(place="in", index=i): _Tensor(
            make_input(i, spec), normal_strides(spec.sizes, spec.strides), spec.alignment_bytes
        )
        for i, spec in enumerate(given.inputs)
    }
    segments = tuple(_segment(given, step, tensors, tensor, f"/steps/{k}") for k, step in enumerate(steps))
    slots = tuple(sorted(ref.index for ref in tensors if ref.place == "out"))
    _check_outputs(given, slots, aliases, tensors)
    outputs = (replace(given.outputs[s], node=tensors[Ref(place="out", index=s)].node) for s in slots)
    return segments, Graph(given.inputs, tuple(_normal(o) for o in outputs)), slots


def _segment(
    given: Graph,
    step: StepGraph,
    tensors: dict[Ref, _Tensor],
    tensor: Callable[[Node], Node],
    place: str,
) -> Segment:
    """The step as a segment over the tensors that there are so far; adds those that it writes to `tensors`."""
    for what, refs, specs in (("reads", step.reads, step.graph.inputs), ("writes", step.writes, step.graph.outputs)):
        if len(refs) != len(specs):
            raise FormatError(f"{place}/{what}", f"expected {len(specs)} tensors, as the segment has, got {len(refs)}")
    image: dict[Node, Node] = {}
    made: dict[Node, Node] = {}  # before it is known for one of several ways to produce a tensor
    for node in step.graph.nodes:
        if node.op == "input":
            position = node.attr("position", int)
            ref = step.reads[position]
            image[node] = _read(tensors, ref, step.graph.inputs[position], f"{place}/reads/{position}").node
        else:
            made[node] = node.over(tuple([image[a] for a in node.args]))
            image[node] = tensor(made[node])
    for i, (ref, spec) in enumerate(zip(step.reads, step.graph.inputs, strict=True)):  # those that nothing uses too
        _read(tensors, ref, spec, f"{place}/reads/{i}")
    reads = tuple(tensors[ref].node for ref in step.reads)
    writes: list[Node] = []
    there = {t.node for t in tensors.values()}
    for i, (ref, output) in enumerate(zip(step.writes, step.graph.outputs, strict=True)):
        where = f"{place}/writes/{i}"
        written = _written(given, ref, output, image[output.node], where)
        if ref in tensors:
            raise FormatError(where, f"expected a place that is not written yet, got {ref}")
        if written.node.op == "input":
            raise FormatError(where, "expected a tensor that is not there yet, got an input")
        tensors[ref] = written
        writes.append(written.node)
    if there.issuperset(writes):
        raise FormatError(f"{place}/writes/0", "expected a tensor that is not there yet, got one that was written")
    cone = tuple(made.values())
    return Segment(SegmentMask(0, 0), reads, tuple(writes), cone, step.graph)


def _read(tensors: dict[Ref, _Tensor], ref: Ref, spec: InputSpec, place: str) -> _Tensor:
    tensor = tensors.get(ref)
    if tensor is None:
        raise FormatError(place, f"expected an input, or a tensor that an earlier step writes, got {ref}")
    node = tensor.node
    expected = f"{spec.dtype}{list(spec.sizes)} strides {list(normal_strides(spec.sizes, spec.strides))}"
    found = f"{node.dtype}{list(node.sizes)} strides {list(tensor.strides)}"
    if expected != found:
        raise FormatError(place, f"expected {expected}, as the segment reads, got {ref}, which is {found}")
    if spec.alignment_bytes > tensor.alignment_bytes:
        raise FormatError(
            place, f"expected alignment of {spec.alignment_bytes} bytes, got {ref} with {tensor.alignment_bytes}"
        )
    return tensor


def _written(given: Graph, ref: Ref, output: OutputSpec, node: Node, place: str) -> _Tensor:
    strides = normal_strides(node.sizes, output.strides)
    if ref.place == "in" or (ref.place == "out" and ref.index >= len(given.outputs)):
        raise FormatError(place, f"expected one of {len(given.outputs)} outputs or a temporary, got {ref}")
    if ref.place == "tmp":
        wanted = f"{node.dtype}{list(node.sizes)} strides {list(dense_strides(node.sizes))}"
    else:
        spec = given.outputs[ref.index]
        sizes = spec.node.sizes
        wanted = f"{spec.node.dtype}{list(sizes)} strides {list(normal_strides(sizes, spec.strides))}"
    found = f"{node.dtype}{list(node.sizes)} strides {list(strides)}"
    if wanted != found:
        raise FormatError(place, f"expected {wanted} for {ref}, got {found}")
    return _Tensor(node, strides, TEMPORARY_ALIGNMENT_BYTES if ref.place == "tmp" else OUTPUT_ALIGNMENT_BYTES)


def _check_outputs(
    given: Graph, slots: Sequence[int], aliases: Sequence[tuple[int, Ref]], tensors: dict[Ref, _Tensor]
) -> None:
    """Raises FormatError unless every output is written, or an alias of an input or written output with its layout."""
    for i, (slot, ref) in enumerate(aliases):
        place = f"/aliases/{i}"
        if not 0 <= slot < len(given.outputs) or slot in slots or slot in [s for s, _ in aliases[:i]]:
            raise FormatError(place, f"expected an output that no step writes, once, got out{slot}")
        if ref.place == "tmp" or ref not in tensors:
            raise FormatError(place, f"expected an input or an output that a step writes, got {ref}")
        output, tensor = given.outputs[slot], tensors[ref]
        strides = normal_strides(output.node.sizes, output.strides)
        expected = f"{output.node.dtype}{list(output.node.sizes)} strides {list(strides)}"
        found = f"{tensor.node.dtype}{list(tensor.node.sizes)} strides {list(tensor.strides)}"
        if expected != found:
            raise FormatError(place, f"expected {expected} for out{slot}, got {ref}, which is {found}")
    covered = {*slots, *(slot for slot, _ in aliases)}
    missing = next((s for s in range(len(given.outputs)) if s not in covered), None)
    if missing is not None:
        raise FormatError("/steps", f"expected a step that writes out{missing}, got none")


def _normal(output: OutputSpec) -> OutputSpec:
    return replace(output, strides=normal_strides(output.node.sizes, output.strides))


def _same(one: Graph, other: Graph) -> bool:
    return len(one.outputs) == len(other.outputs) and all(
        a.node is b.node and a.strides == b.strides for a, b in zip(one.outputs, other.outputs, strict=True)
    )
