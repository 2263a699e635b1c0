"""Assembly of a plan from a cover and its kernels: steps, buffers, and the place of every tensor."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from math import fsum

from codegen.kernel import Kernel
from codegen.toolchain.compiler import Binary
from codegen.workbench.step_check import Meaning, Meanings
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.keys.graph_key import graph_key
from fusion_ir.ops import make_input
from fusion_ir.records import NUMERICS, Buffer, Device, Plan, Ref, Search, Step, TensorAccess, TensorSpec, Written
from scheduler.cost.lower_bound import bound_by, copy_us, lower_bound_us
from scheduler.cost.traffic import Traffic, traffic_of
from scheduler.plans.buffers import Lifetime, share_buffers
from scheduler.rewrites.prepare import Prepared
from scheduler.rewrites.provenance import halves_of, other_ways_of, written_of
from scheduler.rewrites.rules import ALTERNATIVES
from scheduler.segments.boundary import OUTPUT_ALIGNMENT_BYTES
from scheduler.segments.segment import Segment

_ROUNDING_ELSEWHERE = {offer.name for offer in ALTERNATIVES if offer.rounding}


@dataclass(frozen=True)
class Choice:
    """A segment of the cover with the kernel chosen for it. binary: None where nothing was compiled. time_us: None
    where nothing was timed; then predicted_us is all there is. max_rel_error: of the kernel by itself, where that
    was run and plans are not."""

    segment: Segment
    traffic: Traffic
    kernel: Kernel
    binary: Binary | None
    time_us: float | None
    predicted_us: float | None = None
    max_rel_error: float | None = None


def assemble(prepared: Prepared, device: Device, choices: Sequence[Choice], search: Search) -> Plan:
    """The plan that runs `choices` in order, but first those that depend on constants alone: these are its prologue.
    Its time is the sum of the other steps', predicted if one of them is; times of the whole, gap and reasons are for
    the caller to fill in."""
    given = prepared.given
    order, once = _prologue_first(prepared.graph, [c.segment for c in choices])
    choices = [choices[i] for i in order]
    refs, scratch, buffers = _places(prepared, choices, once)
    rules_of = prepared.alternatives.rules_of
    used = list(dict.fromkeys(rule for c in choices for n in c.segment.cone for rule in rules_of(n)))
    rewrites = (*prepared.rewrites, *(offer.name for offer in used))
    # What the graph given takes is no bound for a plan that computes less.
    whole = traffic_of(_every_run(prepared, choices[once:], refs) if once or used else prepared.graph)
    time_us, predicted_us = _times_us(choices[once:])
    prologue_us = next((us for us in _times_us(choices[:once]) if us is not None), None) if once else None
    return Plan(
        graph_key=graph_key(given),
        numerics=NUMERICS[max([NUMERICS.index(prepared.numerics), *(offer.looseness for offer in used)])],
        device=device,
        inputs=tuple(
            TensorSpec(
                shape=spec.sizes,
                dtype=spec.dtype.name,
                strides=spec.strides,
                alignment_bytes=spec.alignment_bytes,
                constant=spec.constant,
            )
            for spec in given.inputs
        ),
        outputs=tuple(
            TensorSpec(
                shape=o.node.sizes, dtype=o.node.dtype.name, strides=o.strides, alignment_bytes=OUTPUT_ALIGNMENT_BYTES
            )
            for o in given.outputs
        ),
        buffers=buffers,
        steps=tuple(
            _step(prepared, device, c, refs, own, prologue=i < once)
            for i, (c, own) in enumerate(zip(choices, scratch, strict=True))
        ),
        aliases=prepared.aliases,
        in_place=_in_place(prepared, choices),
        time_us=time_us,
        predicted_us=predicted_us,
        prologue_us=prologue_us,
        spread=None,
        unfused_us=None,
        lower_bound_us=lower_bound_us(whole, device) if choices else 0.0,
        bound_by=bound_by(whole, device) if choices else None,
        search_gap=None,
        copy_us=copy_us(whole, device),
        max_rel_error=max((c.max_rel_error for c in choices if c.max_rel_error is not None), default=None),
        rewrites=rewrites,
        rounds_elsewhere=not _ROUNDING_ELSEWHERE.isdisjoint(rewrites),
        search=search,
        version=_version(),
    )


def meanings_of(prepared: Prepared, segments: Sequence[Segment]) -> Meanings:
    """Meanings of the steps of the plan that `assemble` makes of choices with these segments."""
    order, _ = _prologue_first(prepared.graph, segments)
    steps = [Meaning(segments[i].canonical.graph, *segments[i].arguments) for i in order]
    outputs = {slot: o.node for o, slot in zip(prepared.graph.outputs, prepared.slots, strict=True)}
    return Meanings(tuple(steps), outputs)


def _prologue_first(graph: Graph, segments: Sequence[Segment]) -> tuple[list[int], int]:
    """Positions of segments in execution order, the prologue first, and how many are in the prologue: segments that
    read only constants and what other such segments write, and write no output. None where no input is constant."""
    known = {make_input(i, spec) for i, spec in enumerate(graph.inputs) if spec.constant is not None}
    if not known:
        return list(range(len(segments))), 0
    outputs = {o.node for o in graph.outputs}
    once, others = list[int](), list[int]()
    for i, segment in enumerate(segments):
        if known.issuperset(segment.reads) and outputs.isdisjoint(segment.writes):
            once.append(i)
            known.update(segment.writes)
        else:
            others.append(i)
    return [*once, *others], len(once)


def _in_place(prepared: Prepared, choices: Sequence[Choice]) -> tuple[tuple[int, int], ...]:
    """Pairs (output, input) of the graph given: the output may lie in the memory of the input that it donates. Steps
    run one after the other, so that those that read the input may come before the one that writes the output; that
    itself may read it where its kernel reads each element before it writes there."""
    copied = {ref.index for _, ref in prepared.aliases if ref.place == "in"}  # when all steps are over
    found: list[tuple[int, int]] = []
    for output, slot in zip(prepared.graph.outputs, prepared.slots, strict=True):
        donor = output.donates
        if donor is None or donor in copied:
            continue
        node = make_input(donor, prepared.graph.inputs[donor])
        writer = next(i for i, c in enumerate(choices) if output.node in c.segment.writes)
        readers = [i for i, c in enumerate(choices) if node in c.segment.reads]
        _, writes = choices[writer].segment.arguments
        fits = writer not in readers or writes.index(output.node) in choices[writer].kernel.in_place
        if fits and max(readers, default=writer) <= writer:
            found.append((slot, donor))
    return tuple(sorted(found))


def _every_run(prepared: Prepared, choices: Sequence[Choice], refs: Mapping[Node, Ref]) -> Graph:
    """The graph that these choices compute of the graph's inputs and of the prologue's tensors, further inputs here."""
    inputs = list(prepared.graph.inputs)
    there: dict[Node, Node] = {}
    for choice in choices:
        segment = choice.segment
        image: dict[Node, Node] = {}
        for node, spec in zip(segment.reads, segment.graph.inputs, strict=True):
            if node not in there:
                position = refs[node].index if node.op == "input" else len(inputs)
                if node.op != "input":
                    inputs.append(spec)
                there[node] = make_input(position, inputs[position])
        for node in segment.graph.nodes:
            if node.op == "input":
                image[node] = there[segment.reads[node.attr("position", int)]]
            else:
                image[node] = node.over(tuple([image[a] for a in node.args]))
        there |= {n: image[o.node] for n, o in zip(segment.writes, segment.graph.outputs, strict=True)}
    return Graph(tuple(inputs), tuple(replace(o, node=there[o.node], donates=None) for o in prepared.graph.outputs))


def _times_us(choices: Sequence[Choice]) -> tuple[float | None, float | None]:
    """Time of all choices together, as (measured, None), or (None, predicted) where one was not timed; (None, None)
    where one was neither timed nor predicted."""
    times = [c.time_us for c in choices]
    if None not in times:
        return fsum(t for t in times if t is not None), None
    predicted = [c.predicted_us if c.time_us is None else c.time_us for c in choices]
    return None, fsum(t for t in predicted if t is not None) if None not in predicted else None


def _step(
    prepared: Prepared, device: Device, choice: Choice, refs: dict[Node, Ref], scratch: Ref | None, prologue: bool
) -> Step:
    kernel, segment = choice.kernel, choice.segment
    reads, writes = segment.arguments
    return Step(
        family=kernel.family,
        schedule=kernel.schedule,
        binary=choice.binary.sha256 if choice.binary else "",
        entry=choice.binary.entry if choice.binary else kernel.entry,
        source=choice.binary.source if choice.binary else "",
        reads=tuple(refs[n] for n in reads),
        writes=tuple(refs[n] for n in writes),
        grid=kernel.launch.grid,
        block=kernel.launch.block,
        shared_bytes=kernel.launch.shared_bytes,
        cluster=kernel.launch.cluster,
        tensor_maps=kernel.launch.tensor_maps,
        tasks=kernel.launch.tasks,
        libraries=kernel.libraries,
        time_us=choice.time_us,
        predicted_us=choice.predicted_us if choice.time_us is None else None,
        report=choice.binary.report if choice.binary else None,
        bound_us=lower_bound_us(choice.traffic, device),
        bound_by=bound_by(choice.traffic, device),
        bytes=choice.traffic.bytes,
        operations=choice.traffic.operations,
        nodes=positions(prepared, segment),
        segment_key=segment.key,
        scratch=scratch,
        prologue=prologue,
        accesses=_accesses(kernel, reads, writes),
        halves=halves_of(prepared, segment.cone),
        other_ways=other_ways_of(prepared, segment.cone),
        written=_written(prepared, writes, refs),
    )


def _written(prepared: Prepared, writes: Sequence[Node], refs: Mapping[Node, Ref]) -> tuple[Written | None, ...]:
    """Contents of each tensor that a step writes, None for outputs and unknown ones; () where all would be None."""
    found = tuple([written_of(prepared, n) if refs[n].place == "tmp" else None for n in writes])
    return found if any(found) else ()


def _accesses(kernel: Kernel, reads: Sequence[Node], writes: Sequence[Node]) -> tuple[TensorAccess, ...]:
    """The kernel's accesses by argument, in order."""
    places = {f"in{i}": (i, node) for i, node in enumerate(reads)}
    places |= {f"out{i}": (len(reads) + i, node) for i, node in enumerate(writes)}
    found = [
        TensorAccess(argument=argument, kind=a.kind, width=a.width, bytes=a.width * node.dtype.bytes)
        for a in kernel.accesses
        if a.tensor in places
        for argument, node in [places[a.tensor]]
    ]
    return tuple(sorted(found, key=lambda a: (a.argument, -a.bytes, a.kind)))


def positions(prepared: Prepared, segment: Segment) -> tuple[int, ...]:
    """Positions, in the graph given, of the nodes that the segment computes."""
    return tuple(sorted({p for n in segment.cone for p in prepared.origin.get(n, ())}))


def _places(
    prepared: Prepared, choices: Sequence[Choice], once: int
) -> tuple[dict[Node, Ref], tuple[Ref | None, ...], tuple[Buffer, ...]]:
    """Place of each tensor that a step reads or writes, each step's scratch, and the buffers. Temporaries are numbered
    in the order of the kernels' arguments: equal kernels make equal plans, in whatever order a segment came to list its
    tensors. A tensor that the first `once` choices write for others has a buffer to itself."""
    graph = prepared.graph
    refs = {o.node: Ref(place="out", index=slot) for o, slot in zip(graph.outputs, prepared.slots, strict=True)}
    first: dict[Node, int] = {}
    last: dict[Node, int] = {}
    for i, choice in enumerate(choices):
        reads, writes = choice.segment.arguments
        for node in reads:
            if node.op == "input":
                refs[node] = Ref(place="in", index=node.attr("position", int))
            last[node] = i
        for node in writes:
            first.setdefault(node, i)
            last[node] = i
    stored = [n for n in first if n not in refs]
    scratch = {i: c.kernel.launch.scratch_bytes for i, c in enumerate(choices) if c.kernel.launch.scratch_bytes}
    lifetimes = [Lifetime(first[n], last[n], n.bytes, kept=first[n] < once <= last[n]) for n in stored]
    buffer_of, bytes_ = share_buffers([*lifetimes, *(Lifetime(i, i, size) for i, size in scratch.items())])
    places = [Ref(place="tmp", index=b) for b in buffer_of]
    refs |= dict(zip(stored, places, strict=False))
    own = dict(zip(scratch, places[len(stored) :], strict=True))
    kept = {b for b, tensor in zip(buffer_of, lifetimes, strict=False) if tensor.kept}
    buffers = tuple(Buffer(bytes=size, kept=b in kept) for b, size in enumerate(bytes_))
    return refs, tuple(own.get(i) for i in range(len(choices))), buffers


def _version() -> str:
    """Version of the installed distribution; "0" in a source tree that was never installed."""
    try:
        return version("fuseplan")
    except PackageNotFoundError:
        return "0"
