"""Content of a plan's page, computed here so that templates only place it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fusion_ir.dtype import DTYPES
from fusion_ir.records import Plan, Step, TensorSpec
from service.dashboard.bars import Bar, bars, known_by
from service.dashboard.graph_svg import COLOURS
from service.dashboard.list_view import ended_early
from service.dashboard.reasons_view import CostTable, ReasonGroup, cost_tables, node_texts, reason_groups
from service.dashboard.source_view import SourceView
from service.dashboard.source_view import sources as sources_here
from service.timing_noise import NOISY
from service.wording import formatting
from service.wording.how_far import how_far
from service.wording.limits import limit_words
from service.wording.naming import Naming
from service.wording.nodes import NodeWords
from service.wording.search_spending import searched
from service.wording.shares import Share, beside_copy, share_of
from service.wording.states import shown_state, state_help
from service.wording.whole_plan_times import far_apart, is_mixed, kernels_predicted

ABSENT = "not here: known from its data sheet"
MAX_TEXT_LINES = 3000
KEY_DIGITS = 12  # of a plan's key, as at a terminal
MOST_STEPS = 60  # on the plan's page
MOST_ROWS = 100  # reasons of a kind, contractions, inputs, outputs
_AS_A_WHOLE = " That is so of the plan as a whole; times of kernels with ~ are predictions."
TEXT_LINES = 60  # of a graph's text that are part of the plan's page


@dataclass(frozen=True)
class StepRow:
    """One row of the steps table."""

    index: int
    colour: int
    family: str
    schedule: str
    once: str  # of the prologue: how often it runs
    time: str
    part: Share  # of what all kernels of a run take
    bound: str
    limit: str  # what the bound is the least for
    share: Share
    bytes: str
    rate: str
    nodes: int
    computes: Sequence[str]  # in words, a line each: of halves which one, as at a terminal
    reads: str
    writes: str
    launch: str
    source: str  # where its source is: on the page, or a page of its own


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
class PlanView:
    """Everything on a plan's page but the picture. untimed: why there are no times, "" where there are."""

    plan: Plan
    plan_key: str
    state: str
    state_help: str
    as_a_whole: str  # which kernels are predicted, of a plan that was timed as a whole, "" where all were timed
    short: str  # the first digits of its key, as at a terminal
    kernels: str  # "3 kernels"
    how_far: str  # from the best, in a sentence
    searched: str  # what the search saw, in a sentence
    cut_short: str  # why its search ended early, in words, "" where it did not
    hits: int
    time: str
    untimed: str
    origin: str  # of the device, where it is not there
    spread: str
    speedup: str
    unfused: str
    share: Share
    bound: str  # what the lower bound says
    beside_copy: str  # how it compares with a copy of its bytes, "" where that is not known
    has_notes: bool
    apart: str  # that its steps take another time than the whole, "" where they do not
    gap: str
    error: str
    error_help: str
    bars: Sequence[Bar]
    steps: Sequence[StepRow]
    mixed: bool  # timed as a whole, and some kernels of it not by themselves
    sources: Sequence[SourceView]  # those that are on its page
    inputs: Sequence[TensorRow]
    outputs: Sequence[TensorRow]
    reasons: Sequence[ReasonGroup]
    node_texts: Mapping[int, str]  # what nodes compute, by their numbers
    words: NodeWords  # what nodes are called
    contractions: Sequence[CostTable]
    temporaries: str
    prologue: str
    copy_rate: str
    launch: str
    ceilings: str  # how they are known


def plan_view(
    plan: Plan,
    words: NodeWords,
    state: str,
    hits: int,
    source_of: Callable[[str], str | None],
    cut_short: str | None = None,
) -> PlanView:
    """The page of a plan. words: of its graph; source_of: by the sha256 that steps name."""
    shown = shown_state(state, plan.device.target, plan.time_us, plan.spread)
    share = share_of(plan.lower_bound_us, plan.time_us, plan.predicted_us)
    plan_key = plan.plan_key
    shown_sources = sources_here(plan, source_of)
    here = {s.index for s in shown_sources}
    naming = words.naming
    whole_us = sum(_us(s) for s in plan.steps if not s.prologue)
    mixed = is_mixed(plan)
    steps = [
        _step(i, s, words, names, (whole_us, mixed), f"/plans/{plan_key}{'#source-' if i in here else '/sources/'}{i}")
        for i, (s, names) in enumerate(zip(plan.steps, naming.at_steps(plan.steps), strict=True))
    ]
    dram = plan.device.ceilings.copy_gbps[-1][1] if plan.device.ceilings and plan.device.ceilings.copy_gbps else None
    return PlanView(
        plan=plan,
        plan_key=plan_key,
        state=shown,
        state_help=f"{state_help(shown, len(plan.steps))}{_AS_A_WHOLE if mixed else ''}",
        as_a_whole=f"as a whole; {kernels_predicted(plan)}" if mixed else "",
        short=plan_key[:KEY_DIGITS],
        kernels=formatting.count(len(plan.steps), "kernel"),
        how_far=how_far(plan),
        searched=_searched(plan),
        cut_short=ended_early(cut_short),
        hits=hits,
        time=formatting.expected(plan.time_us, plan.predicted_us),
        untimed=_untimed(plan),
        origin=ABSENT if plan.device.origin == "specified" else "",
        spread=_spread(plan),
        speedup=formatting.times(formatting.ratio(plan.unfused_us, plan.time_us)),
        unfused="not timed" if plan.unfused_us is None else formatting.duration(plan.unfused_us),
        share=share,
        bound=_bound(plan, share),
        beside_copy=beside_copy(plan.copy_us, plan.predicted_us if plan.time_us is None else plan.time_us),
        has_notes=any(r.kind == "note" for r in plan.reasons),
        apart=far_apart(plan),
        gap=formatting.NONE if share.doubt else formatting.times(plan.search_gap),
        error=_error(plan),
        error_help=_error_help(plan),
        bars=bars(plan, share),
        steps=steps,
        mixed=mixed,
        sources=shown_sources,
        inputs=[_tensor(f"in{i}", t, _at(naming.inputs, i)) for i, t in enumerate(plan.inputs)],
        outputs=[_tensor(f"out{i}", t, _at(naming.outputs, i)) for i, t in enumerate(plan.outputs)],
        reasons=reason_groups(plan),
        node_texts=node_texts(words.graph),
        words=words,
        contractions=cost_tables(plan, words),
        temporaries=_temporaries(plan),
        prologue=formatting.prologue(plan) if plan.prologue else "",
        copy_rate=formatting.NONE if dram is None else f"{formatting.significant(dram)} GB/s",
        launch=formatting.NONE if plan.device.ceilings is None else formatting.duration(plan.device.ceilings.launch_us),
        ceilings="" if plan.device.ceilings is None else known_by(plan),
    )


def _searched(plan: Plan) -> str:
    """ "searched 17.1 s: 3,792 segments, 12 kernels timed, 3 failed; cut short: ...", as at a terminal."""
    search = plan.search
    words = "; ".join(searched(search))
    return f"{words}; cut short: {search.cut_short}" if search.cut_short else words


def _untimed(plan: Plan) -> str:
    """Why neither a time nor a prediction can be shown."""
    if plan.device.target == "emulator" and plan.time_us is None:
        return (
            "Nothing was timed: the emulator runs kernels to check them, on no device that could be fast or slow, and "
            "has no ceilings that a bound could be made of."
        )
    return "Nothing was timed." if plan.time_us is None and plan.predicted_us is None else ""


def _spread(plan: Plan) -> str:
    """ "± 1.2 %"; from NOISY on it says what that means."""
    if not plan.steps:
        return "nothing runs"
    if plan.time_us is None:
        return "nothing was timed" if plan.predicted_us is None else "predicted, not timed"
    if plan.spread is None:
        return "not timed as a whole"
    text = formatting.spread(plan.spread)
    return f"{text}: noisy, may be far off" if plan.spread >= NOISY else text


def _bound(plan: Plan, share: Share) -> str:
    """The line under the share of the lower bound: "no kernel can beat 2.01 ms", or why the bound says nothing."""
    if plan.lower_bound_us <= 0:
        return "the emulator has no ceilings" if plan.device.target == "emulator" else "there is no bound"
    bound = formatting.duration(plan.lower_bound_us)
    if share.doubt:
        return f"faster than the {bound} that nothing was to beat"
    return (
        f"by its data sheet, no kernel can beat {bound}"
        if plan.device.origin == "specified"
        else (f"no kernel can beat {bound}")
    )


def _error(plan: Plan) -> str:
    if plan.max_rel_error is None:
        return formatting.NONE
    return formatting.error(plan.max_rel_error)


def _error_help(plan: Plan) -> str:
    """The line under the largest error: what was compared with what, or why there is no error."""
    emulated = plan.device.target == "emulator" and plan.time_us is None
    if plan.max_rel_error is not None:
        return "relative, of each kernel by itself in the emulator" if emulated else "relative, against the reference"
    if emulated:
        return "each kernel agreed in the emulator; how nearly was not kept"
    if plan.judged_by_steps:
        return "each kernel agrees by itself; the outputs as a whole say nothing"
    return "nothing ran, so nothing was compared" if plan.time_us is None else "not kept"


def _temporaries(plan: Plan) -> str:
    """ "84.0 MiB of at most 1.00 GiB"."""
    limit = plan.search.memory_bytes
    allowed = "" if limit is None else f" of at most {formatting.size(limit)}"
    return f"{formatting.size(plan.temporary_bytes) if plan.buffers else 'none'}{allowed}"


def _us(step: Step) -> float:
    """Time of a kernel in µs, measured or else predicted; 0 where neither is known."""
    return step.time_us or step.predicted_us or 0.0


def _step(
    index: int, step: Step, words: NodeWords, naming: Naming, whole: tuple[float, bool], source_at: str
) -> StepRow:
    """The row of a step. whole: total time of all kernels of a run (us), and whether it mixes measured and predicted
    times."""
    is_grid = step.grid != (1, 1, 1) or step.block != (1, 1, 1)
    launch = f"grid {_by(step.grid)}, block {_by(step.block)}" if is_grid else formatting.count(step.tasks, "task")
    return StepRow(
        index=index,
        colour=index % COLOURS,
        family=step.family,
        schedule=step.schedule.removeprefix(step.family).strip("{}"),
        once=formatting.ONCE if step.prologue else "",
        time=formatting.expected(step.time_us, step.predicted_us),
        part=_part(step, *whole),
        bound=formatting.duration(step.bound_us if step.bound_us > 0 else None),
        limit=limit_words(step.bound_by),
        share=share_of(step.bound_us, step.time_us, step.predicted_us),
        bytes=formatting.size(step.bytes),
        rate=formatting.rate(step.bytes, step.time_us),
        nodes=len(step.nodes),
        computes=list(words.computed_by(step)) if words.graph is not None else [],
        reads=naming.list_of(step.reads),
        writes=naming.list_of(step.writes),
        launch=launch,
        source=source_at,
    )


def _part(step: Step, whole_us: float, mixed: bool) -> Share:
    """A kernel's part of the total time of all kernels of a run: "23 %", with "~" where a time in it is predicted."""
    part = formatting.ratio(_us(step), whole_us) if _us(step) and not step.prologue else None
    if part is None:
        return Share(formatting.NONE, 0.0)
    return Share(f"{'~' if mixed or step.time_us is None else ''}{formatting.percent(part)}", round(100 * part, 1))


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


def _by(numbers: Sequence[int], separator: str = " × ") -> str:
    return separator.join(map(str, numbers))


def _at(names: Sequence[str], index: int) -> str:
    return names[index] if index < len(names) else ""
