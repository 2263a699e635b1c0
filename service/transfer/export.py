"""Writing an export: plans with everything that it takes to make them again elsewhere."""

import hashlib
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from fusion_ir.records import NUMERICS, Numerics, Plan, Record, Ref
from service.transfer.lines import (
    FILE_BYTES,
    LINE_BYTES,
    DeviceLine,
    End,
    GraphLine,
    Header,
    MeasurementLine,
    PlanLine,
    SegmentLine,
    StepLine,
)
from service.version import VERSION
from tuning_db.reading.graphs import StoredGraph
from tuning_db.store import Store


class ExportError(Exception):
    """A plan cannot be exported, or the file would be too large; the message says which and why."""


def export(store: Store, plans: Sequence[tuple[str, Plan]], file: BinaryIO) -> int:
    """Writes the plans, given by key, and all measurements of their graphs' segments. Returns the number of these.

    Raises ExportError, OSError.
    """
    digest, lines, bytes_, measured = hashlib.sha256(), 0, 0, 0
    for record in _records(store, plans):
        line = record.model_dump_json(exclude_none=True).encode() + b"\n"
        lines, bytes_ = lines + 1, bytes_ + len(line)
        if len(line) > LINE_BYTES or bytes_ > FILE_BYTES - 1000:
            raise ExportError(f"more than {FILE_BYTES:,} bytes, the limit of one file: export fewer plans at a time")
        digest.update(line)
        file.write(line)
        measured += isinstance(record, MeasurementLine)
    file.write(End(lines=lines, sha256=digest.hexdigest()).model_dump_json().encode() + b"\n")
    return measured


def _records(store: Store, plans: Sequence[tuple[str, Plan]]) -> Iterator[Record]:
    graphs = {plan.graph_key: _graph(store, key, plan) for key, plan in plans}
    parts = {graph_key: dict.fromkeys(store.segments.of(graph_key)) for graph_key in graphs}
    for _, plan in plans:
        parts[plan.graph_key].update((step.segment_key, None) for step in plan.steps)
    texts = {s: store.segments.segment(s) for segments in parts.values() for s in segments}
    for key, plan in plans:
        for i, step in enumerate(plan.steps):
            if texts[step.segment_key] is None:
                raise ExportError(
                    f"plan {key}: what step {i} computes is not in {store.place}: evict it and tune again"
                )
    yield Header(version=VERSION)
    known = {d.class_key: d.device for d in store.devices.devices()}
    known |= {plan.device.class_key: plan.device for _, plan in plans if plan.device.class_key not in known}
    tried = (t for s, text in texts.items() if text for t in store.trials.trials(s))
    trials = [t for t in tried if t.measurement.device_key in known]
    used = {plan.device.class_key for _, plan in plans} | {t.measurement.device_key for t in trials}
    yield from (DeviceLine(key=key, device=device) for key, device in known.items() if key in used)
    yield from (SegmentLine(key=key, text=text) for key, text in texts.items() if text)
    for key, graph in graphs.items():
        yield GraphLine(
            key=key,
            text=graph.text,
            inputs=graph.names.inputs,
            outputs=graph.names.outputs,
            nodes=graph.names.nodes,
            segments=tuple(s for s in parts[key] if texts[s]),
        )
    yield from (_plan_line(store, key, plan) for key, plan in plans)
    for trial in trials:
        own = trial.measurement.model_copy(update={"origin": ""})
        yield MeasurementLine(version=trial.version, created=trial.created, measurement=own)


def _graph(store: Store, key: str, plan: Plan) -> StoredGraph:
    graph = store.graphs.graph(plan.graph_key)
    if graph is None:
        raise ExportError(f"plan {key}: its graph {plan.graph_key} is not in {store.place} any more")
    return graph


def _plan_line(store: Store, key: str, plan: Plan) -> PlanLine:
    requests = store.plans.asked(key)
    asked = {request.numerics for request in requests}
    limits = [request.memory_bytes for request in requests if request.memory_bytes is not None]
    classes: tuple[Numerics, ...] = tuple(n for n in NUMERICS if n in asked) or (_default(plan),)
    return PlanLine(
        key=key,
        graph=plan.graph_key,
        device=plan.device.class_key,
        asked=classes,
        rewrites=plan.rewrites,
        steps=tuple(_steps(plan)),
        aliases=plan.aliases,
        version=plan.version,
        memory_bytes=max(limits) if limits and len(limits) == len(requests) else None,
        judged_by_steps=plan.judged_by_steps,
    )


def _default(plan: Plan) -> Numerics:
    """Class of numerics for a plan without requests: `reassociate`, or the plan's own class where that is looser."""
    return NUMERICS[max(NUMERICS.index("reassociate"), NUMERICS.index(plan.numerics))]


def _steps(plan: Plan) -> Iterator[StepLine]:
    """The steps of a plan, with temporaries numbered by tensor, in the order of writing, not by the buffer that they
    share."""
    tensor_in: dict[Ref, Ref] = {}
    written = 0
    for step in plan.steps:
        reads = tuple(tensor_in.get(ref, ref) for ref in step.reads)
        writes: list[Ref] = []
        for ref in step.writes:
            if ref.place == "tmp":
                tensor_in[ref] = Ref(place="tmp", index=written)
                written += 1
            writes.append(tensor_in.get(ref, ref))
        yield StepLine(
            segment=step.segment_key, family=step.family, schedule=step.schedule, reads=reads, writes=tuple(writes)
        )
