"""What the pages show, computed: templates only place it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fusion_ir.dtype import DTYPES
from fusion_ir.graph import Graph
from fusion_ir.records import Alternative, Cost, Plan, Reason, Step, TensorSpec
from service import formatting
from service.api.models import OperationModel
from service.dashboard import source
from service.dashboard.graph_svg import COLOURS
from service.reports import report_words

STATES = {
    "measured": "Checked against a reference and timed on this device.",
    "predicted": "Not run on this device: times are predictions, marked ~.",
    "stale": "Timed under another driver or toolchain; waiting to be checked again.",
    "failed": "The last check of this plan failed.",
    "superseded": "A newer plan answers its request now.",
}
ABSENT = "not here: known from its data sheet"
MAX_TEXT_LINES = 3000
REASON_TITLES = {
    "not_fused": "Why not fused",
    "rejected": "Refused by a kernel family",
    "measured_worse": "Tried, and slower",
    "predicted_worse": "Predicted to be slower",
    "alternative": "Other ways to compute it",
    "cap": "Limits that were hit",
    "note": "Notes",
}


@dataclass(frozen=True)
class Bar:
    """One bar of the comparison; `width` in percent of the longest."""

    label: str
    kind: str
    value: str
    width: float
    help: str


@dataclass(frozen=True)
class StepRow:
    """One row of the steps table."""

    index: int
    colour: int
    family: str
    schedule: str
    once: str  # of the prologue: how often it runs
    time: str
    bound: str
    share: str
    share_width: float
    bytes: str
    rate: str
    nodes: int
    ops: str
    reads: str
    writes: str
    launch: str
    compiled: str  # the compiler's report
    lines: Sequence[str]  # of HTML
    cut: int  # lines left out
    missing: bool


@dataclass(frozen=True)
class TensorRow:
    place: str
    name: str
    dtype: str
    shape: str
    layout: str
    bytes: str
    alignment: int
    constant: str


@dataclass(frozen=True)
class ReasonGroup:
    title: str
    open: bool
    reasons: Sequence[Reason]


@dataclass(frozen=True)
class CostRow:
    """What a family costs for a contraction, in one launch with `nodes`; or why it does not take them."""

    nodes: Sequence[int]
    family: str
    schedule: str
    time: str
    apart: str
    chosen: bool
    refusal: str


@dataclass(frozen=True)
class CostTable:
    nodes: Sequence[int]
    rows: Sequence[CostRow]


@dataclass(frozen=True)
class PlanView:
    """Everything on a plan's page but the picture."""

    plan: Plan
    state: str
    state_help: str
    cut_short: str  # why its search ended early, in words, "" where it did not
    hits: int
    time: str
    origin: str  # of the device, where it is not there
    spread: str
    speedup: str
    share: str
    share_width: float
    gap: str
    error: str
    bars: Sequence[Bar]
    steps: Sequence[StepRow]
    inputs: Sequence[TensorRow]
    outputs: Sequence[TensorRow]
    reasons: Sequence[ReasonGroup]
    contractions: Sequence[CostTable]
    temporaries: str
    prologue: str
    copy_rate: str
    launch: str


@dataclass(frozen=True)
class ListRow:
    """One row of the list of plans."""

    plan_key: str
    short: str
    names: str
    state: str
    state_help: str
    cut_short: str  # why its search ended early, in words, "" where it did not
    device: str
    numerics: str
    steps: int
    time: str
    speedup: str
    share: str
    share_width: float
    hits: int
    age: str
    created: str


def list_row(
    *,
    plan_key: str,
    graph_key: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    state: str,
    cut_short: str | None,
    device: str,
    numerics: str,
    steps: int,
    time_us: float | None,
    unfused_us: float | None,
    lower_bound_us: float,
    hits: int,
    created: float,
    now: float,
) -> ListRow:
    """A row from the columns of the database; times in seconds since 1970."""
    share = formatting.ratio(lower_bound_us, time_us)
    return ListRow(
        plan_key,
        graph_key[:10],
        signature(inputs, outputs),
        state,
        STATES.get(state, ""),
        _cut_short(cut_short),
        device,
        numerics,
        steps,
        formatting.duration(time_us),
        formatting.times(formatting.ratio(unfused_us, time_us)),
        formatting.percent(share),
        _percent(share),
        hits,
        formatting.age(created, now),
        formatting.moment(created),
    )


@dataclass(frozen=True)
class QueueRow:
    """One operation that waits or runs."""

    running: bool
    short: str
    text: str


def queue_row(graph_key: str, operation: OperationModel, created: float, now: float) -> QueueRow:
    """ "segments, 37 kernels measured, best so far 2.87 ms, 6 s"."""
    running = operation.state == "running"
    progress = operation.progress or {} if running else {}
    parts = [str(progress["phase"])] if progress.get("phase") else []
    if progress.get("measured"):
        parts.append(f"{formatting.count(progress['measured'], 'kernel')} measured")
    if progress.get("best_us"):
        parts.append(f"best so far {formatting.duration(progress['best_us'])}")
    parts += ["cancelling"] if operation.cancel_requested else []
    parts.append(f"{max(1, int(now - created))} s")
    return QueueRow(running, graph_key[:10] or operation.kind, ", ".join(parts))


def signature(inputs: Sequence[str], outputs: Sequence[str], limit: int = 60) -> str:
    """ "q, k, v → out": the names of a graph on one line, control characters as spaces."""
    text = f"{', '.join(inputs)} → {', '.join(outputs)}"
    line = "".join(c if c.isprintable() else " " for c in text[: limit + 1])
    return line if len(line) <= limit else line[: limit - 1] + "…"


def plan_view(
    plan: Plan,
    graph: Graph | None,
    state: str,
    hits: int,
    input_names: Sequence[str],
    output_names: Sequence[str],
    sources: Mapping[str, str],
    cut_short: str | None = None,
) -> PlanView:
    """The page of a plan. `sources`: by the sha256 that steps name; `graph` None where it is no longer stored."""
    share = formatting.ratio(plan.lower_bound_us, plan.time_us)
    dram = plan.device.ceilings.copy_gbps[-1][1] if plan.device.ceilings and plan.device.ceilings.copy_gbps else None
    return PlanView(
        plan=plan,
        state=state,
        state_help=STATES.get(state, ""),
        cut_short=_cut_short(cut_short),
        hits=hits,
        time=formatting.expected(plan.time_us, plan.predicted_us),
        origin=ABSENT if plan.device.origin == "specified" else "",
        spread=formatting.NONE if plan.spread is None else f"± {formatting.percent(plan.spread)}",
        speedup=formatting.times(formatting.ratio(plan.unfused_us, plan.time_us)),
        share=formatting.percent(share),
        share_width=_percent(share),
        gap=formatting.times(plan.search_gap),
        error=formatting.NONE
        if plan.max_rel_error is None
        else ("0" if plan.max_rel_error == 0 else f"{plan.max_rel_error:.1e}"),
        bars=_bars(plan),
        steps=[_step(i, s, graph, sources) for i, s in enumerate(plan.steps)],
        inputs=[_tensor(f"in{i}", t, _at(input_names, i)) for i, t in enumerate(plan.inputs)],
        outputs=[_tensor(f"out{i}", t, _at(output_names, i)) for i, t in enumerate(plan.outputs)],
        reasons=[
            ReasonGroup(title, kind in ("not_fused", "cap"), [r for r in plan.reasons if r.kind == kind])
            for kind, title in REASON_TITLES.items()
            if any(r.kind == kind for r in plan.reasons)
        ],
        contractions=[
            CostTable(c.nodes, [r for a in c.alternatives for r in _cost_rows(a)]) for c in plan.contractions
        ],
        temporaries=_temporaries(plan),
        prologue=formatting.prologue(plan) if plan.prologue else "",
        copy_rate=formatting.NONE if dram is None else f"{formatting.significant(dram)} GB/s",
        launch=formatting.NONE if plan.device.ceilings is None else formatting.duration(plan.device.ceilings.launch_us),
    )


def _cut_short(reason: str | None) -> str:
    return "" if reason is None else f"The search ended early: {reason}. A request with more seconds makes another one."


def _cost_rows(alternative: Alternative) -> list[CostRow]:
    nodes, apart = alternative.nodes, alternative.apart
    apart_text = _cost(apart) if apart else ""
    rows = [CostRow(nodes, c.family, c.schedule, _cost(c.cost), apart_text, c.chosen, "") for c in alternative.costs]
    return rows + [CostRow(nodes, ", ".join(r.families), "", "", "", False, r.text) for r in alternative.refusals]


def _cost(cost: Cost) -> str:
    return formatting.expected(cost.us if cost.measured else None, cost.us)


def _temporaries(plan: Plan) -> str:
    """ "84.0 MiB of at most 1.00 GiB"."""
    limit = plan.search.memory_bytes
    allowed = "" if limit is None else f" of at most {formatting.size(limit)}"
    return f"{formatting.size(plan.temporary_bytes) if plan.buffers else 'none'}{allowed}"


def _bars(plan: Plan) -> list[Bar]:
    known_by = "assumed" if plan.device.origin == "specified" else "measured"
    rows = (
        ("Unfused", "unfused", plan.unfused_us, "One kernel per node, each the best measured"),
        ("This plan", "plan", plan.time_us, "All steps, timed end to end, inputs in memory"),
        ("This plan, warm", "plan", plan.warm_us, "Again and again on the same tensors, inputs in cache"),
        ("This plan, predicted", "predicted", plan.predicted_us, "The sum of what its steps are predicted to take"),
        ("Copy floor", "copy", plan.copy_us, f"Its inputs and outputs at the {known_by} copy bandwidth"),
        ("Lower bound", "bound", plan.lower_bound_us, "No kernels on this device can be faster"),
    )
    known = [(label, kind, us, help_) for label, kind, us, help_ in rows if us is not None]
    assumed = {"predicted"} | ({"copy"} if plan.device.origin == "specified" else set())
    longest = max((us for _, _, us, _ in known), default=0.0) or 1.0
    return [
        Bar(label, kind, formatting.expected(None if kind in assumed else us, us), max(0.4, 100 * us / longest), help_)
        for label, kind, us, help_ in known
    ]


def _step(index: int, step: Step, graph: Graph | None, sources: Mapping[str, str]) -> StepRow:
    share = formatting.ratio(step.bound_us, step.time_us)
    text = sources.get(step.source)
    lines = source.lines(text) if text is not None else []
    total = text.rstrip("\n").count("\n") + 1 if text is not None else 0
    is_grid = step.grid != (1, 1, 1) or step.block != (1, 1, 1)
    launch = f"grid {_by(step.grid)}, block {_by(step.block)}" if is_grid else formatting.count(step.tasks, "task")
    return StepRow(
        index=index,
        colour=index % COLOURS,
        family=step.family,
        schedule=step.schedule,
        once=formatting.ONCE if step.prologue else "",
        time=formatting.expected(step.time_us, step.predicted_us),
        compiled="; ".join(report_words(step.report)) if step.report else "",
        bound=formatting.duration(step.bound_us),
        share=formatting.percent(share),
        share_width=_percent(share),
        bytes=formatting.size(step.bytes),
        rate=formatting.rate(step.bytes, step.time_us),
        nodes=len(step.nodes),
        ops=_ops(step, graph),
        reads=", ".join(map(str, step.reads)),
        writes=", ".join(map(str, step.writes)),
        launch=launch,
        lines=lines,
        cut=total - len(lines),
        missing=text is None,
    )


def _ops(step: Step, graph: Graph | None) -> str:
    """ "mul ×4, add ×2, cat": the ops of a step, most frequent first."""
    if graph is None:
        return ""
    nodes = graph.nodes
    counts = Counter(nodes[i].op for i in step.nodes if i < len(nodes) and nodes[i].op != "input")
    return ", ".join(op if n == 1 else f"{op} ×{n}" for op, n in counts.most_common())


def _tensor(place: str, spec: TensorSpec, name: str) -> TensorRow:
    elements = dense = 1
    is_dense = True
    for extent, stride in zip(reversed(spec.shape), reversed(spec.strides), strict=True):
        is_dense &= extent == 1 or stride == dense
        dense *= max(extent, 1)
        elements *= extent
    layout = "dense" if is_dense else f"strides {_by(spec.strides, ', ')}"
    item = DTYPES[spec.dtype].bytes if spec.dtype in DTYPES else 0
    return TensorRow(
        place,
        name,
        spec.dtype,
        f"[{_by(spec.shape, ', ')}]",
        layout,
        formatting.size(elements * item),
        spec.alignment_bytes,
        spec.constant or "",
    )


def _percent(share: float | None) -> float:
    return 0.0 if share is None else round(min(100.0, max(0.0, 100 * share)), 1)


def _by(numbers: Sequence[int], separator: str = " × ") -> str:
    return separator.join(map(str, numbers))


def _at(names: Sequence[str], index: int) -> str:
    return names[index] if index < len(names) else ""
