"""`fuseplan explain`: why a plan is as it is."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import groupby
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fusion_ir.records import Plan, Reason, Refusal, Step
from fusion_ir.text.printing import parse_graph, print_graph
from service.cli.commands.tune import search_budget, tune_here
from service.cli.contraction_view import contraction_view
from service.cli.graph_argument import read_graph
from service.cli.graph_or_plan import load_subject
from service.cli.options import Cache, Db, Format, Json, Memory, NumericsClass, Seconds, Shapes, Target
from service.cli.plan_view import plan_view
from service.cli.stored_plan import Subject
from service.cli.terminal import print_json, say, show
from service.settings import load
from service.wording.compile_reports import report_words
from service.wording.formatting import ONCE, duration, size
from service.wording.limits import limit_words
from service.wording.naming import Naming
from service.wording.nodes import NodeWords
from service.wording.shares import share_of
from service.wording.whole_plan_times import untried
from tuning_db.store import Store

WholeGraph = Annotated[
    bool, typer.Option("--graph", help="Print all of the graph, not only what the text refers to by number.")
]

_TITLES = {
    "not_fused": "Why these are apart",
    "rejected": "What the kernel families refused",
    "measured_worse": "What was tried and was slower",
    "predicted_worse": "What is predicted to be slower",
    "alternative": "Other ways to compute it",
    "cap": "What limits of the search left untried",
    "note": "Notes",
}


def explain(
    subject: Subject,
    target: Target = None,
    seconds: Seconds = None,
    numerics: NumericsClass = "reassociate",
    memory: Memory = None,
    db: Db = None,
    cache: Cache = None,
    format_: Format = None,
    shapes: Shapes = None,
    graph: WholeGraph = False,
    json: Json = False,
) -> None:
    """Show what each kernel of a plan computes, why the graph was cut so, what each family would cost for every
    contraction, and how far the plan is from the bound."""
    settings = load({"target": target, "db": db, "cache": cache})
    with Store(settings.db) as store:
        found = load_subject(store, subject)
        if found is not None:
            _, plan = found
            summary = store.plans.summary(plan.plan_key)
            state = (summary.state if summary is not None else None) or "superseded"
            stored = store.graphs.graph(plan.graph_key)
            words = NodeWords(parse_graph(stored.text).graph if stored else None, Naming.of_stored(stored))
        else:
            named = read_graph(subject, format_, shapes)
            answer = tune_here(named, store, settings, search_budget(settings, seconds, memory), numerics)
            plan, state, words = answer.plan, answer.state, NodeWords(named.graph, Naming.of_graph(named))
            if answer.continued is not None:
                say(answer.continued.words)
    if json:
        print_json(_as_json(plan, state, words))
        return
    show(plan_view(plan, state, words.naming), *_why(plan, words, whole_graph=graph))


def _why(plan: Plan, words: NodeWords, *, whole_graph: bool) -> Iterator[RenderableType]:
    """Paragraphs of the explanation: kernels, reasons by kind, costs of contractions, rewrites, and lines of the graph
    where a paragraph above refers to nodes by number. whole_graph: all lines of the graph in any case."""
    for number, (step, naming) in enumerate(zip(plan.steps, words.naming.at_steps(plan.steps), strict=True)):
        yield Padding(_step(number, step, words, naming), (1, 0, 0, 1))
    for kind, title in _TITLES.items():
        reasons = [r for r in plan.reasons if r.kind == kind]
        if reasons:
            yield Padding(Text(title, style="bold"), (1, 0, 0, 1))
            if doubt := untried(plan, reasons, "go on with --continue"):
                yield Padding(Text(doubt, style="yellow"), (0, 0, 0, 3))
            shared = _shared(reasons)
            yield from (Padding(_reason(r, words, shared), (0, 0, 0, 3)) for r in reasons)
            yield from (Padding(_told_once(r, n, len(reasons)), (0, 0, 0, 3)) for r, n in shared.items())
    for contraction in plan.contractions:
        yield Padding(contraction_view(contraction, words), (1, 0, 0, 1))
    if plan.rewrites:
        yield Padding(Text.assemble(("Rewrites used: ", "bold"), ", ".join(plan.rewrites)), (1, 0, 0, 1))
    if words.nodes and (whole_graph or words.told):
        yield Padding(_graph(words, whole=whole_graph), (1, 0, 0, 1))


def _graph(words: NodeWords, *, whole: bool) -> Text:
    """The lines of the graph's text that something above refers to, or all of them."""
    text = Text("The graph" if words.is_whole(everything=whole) else "Of the graph (--graph: all of it)", style="bold")
    text.append("".join(f"\n  {line}" for line in words.lines(everything=whole)), style="not bold")
    return text


def _shared(reasons: Sequence[Reason]) -> dict[Refusal, int]:
    """Refusals that occur in several reasons, with the number of these reasons: each is printed once."""
    counted = Counter(refusal for reason in reasons for refusal in reason.refusals)
    return {refusal: number for refusal, number in counted.items() if number > 1}


def _told_once(refusal: Refusal, number: int, reasons: int) -> Text:
    where = f"all {reasons}" if number == reasons else f"{number} of these {reasons}"
    return Text.assemble(f"{where}, ", (", ".join(refusal.families), "cyan"), f": {refusal.text}")


def _reason(reason: Reason, words: NodeWords, shared: Collection[Refusal]) -> Text:
    """A reason in words: its pairs of kernels, its text, its nodes; below it the refusals that no other reason has."""
    text = Text(f"{_edges(reason.edges)}{reason.text}")
    text.append(f"  ({words.list_of(reason.nodes)})" if reason.nodes else "", style="dim")
    for refusal in [r for r in reason.refusals if r not in shared]:
        text.append(f"\n  {', '.join(refusal.families)}: ", style="cyan")
        text.append(refusal.text)
    return text


def _edges(edges: Sequence[tuple[int, int]]) -> str:
    """ "kernels 0 and 1, 4 and 5: "."""
    pairs = ", ".join(f"{i} and {j}" for i, j in edges[:6])
    more = f", {len(edges) - 6} more" if len(edges) > 6 else ""
    return f"kernels {pairs}{more}: " if edges else ""


def _step(number: int, step: Step, words: NodeWords, naming: Naming) -> Table:
    """A table on one kernel: its schedule, ops, tensors, lower bound, memory accesses and compile report."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row(f"kernel {number}", Text(step.schedule.replace(",", ", "), style="cyan"))
    table.add_row("computes", "\n".join(words.computed_by(step)))
    table.add_row("reads", naming.list_of(step.reads) or "nothing")
    table.add_row("writes", naming.list_of(step.writes))
    table.add_row("bound", _bound(step))
    if step.prologue:
        table.add_row("runs", f"{ONCE}: it reads nothing else")
    if step.accesses:
        table.add_row("accesses", Text("\n".join(_accesses(step, naming))))
    if step.report is not None:
        table.add_row("compiled", "; ".join(report_words(step.report)))
    return table


def _bound(step: Step) -> str:
    """The lower bound on a step's time, the limit that sets it, and how near the step comes to it, in words."""
    if not step.bound_us:
        return "none: the device has no ceilings"
    bound = f"{duration(step.bound_us)} for {limit_words(step.bound_by) or 'its bytes and operations'}"
    share = share_of(step.bound_us, step.time_us, step.predicted_us)
    if step.time_us is not None:
        near = f": {share.text}" if share.doubt else f", so it runs at {share.text}"
        return f"{bound}; it takes {duration(step.time_us)}{near}"
    if step.predicted_us is not None:
        return f"{bound}; predicted to take {duration(step.predicted_us)}, {share.text}, not timed"
    return bound


def _accesses(step: Step, naming: Naming) -> Iterator[str]:
    """ "in0: vector of 8 (16 B)": elements and bytes at a time, tensors alike together."""
    alike: dict[str, list[str]] = {}
    for argument, accesses in groupby(step.accesses, key=lambda a: a.argument):
        text = ", ".join(f"{a.kind} of {a.width} ({size(a.bytes)})" for a in accesses)
        place = "reads" if argument < len(step.reads) else "writes"
        alike.setdefault(text, []).append(f"{place} {naming.of(step.args[argument])}")
    return (f"{', '.join(names)}: {text}" for text, names in alike.items())


def _as_json(plan: Plan, state: str, words: NodeWords) -> dict[str, Any]:
    naming = words.naming
    names = {"inputs": list(naming.inputs), "outputs": list(naming.outputs), "nodes": list(naming.nodes)}
    return {
        "plan_key": plan.plan_key,
        "graph_key": plan.graph_key,
        "state": state,
        "time_us": plan.time_us,
        "predicted_us": plan.predicted_us,
        "lower_bound_us": plan.lower_bound_us,
        "copy_us": plan.copy_us,
        "search_gap": plan.search_gap,
        "complete": plan.search.complete,
        "prologue_us": plan.prologue_us,
        "kept_bytes": plan.kept_bytes,
        "steps": [
            {
                "family": s.family,
                "schedule": s.schedule,
                "time_us": s.time_us,
                "predicted_us": s.predicted_us,
                "report": s.report and s.report.model_dump(mode="json"),
                "bound_us": s.bound_us,
                "nodes": [{"node": n, "op": words.op(n)} for n in s.nodes],
                "halves": [half.model_dump(mode="json") for half in s.halves],
                "other_ways": list(s.other_ways),
                "written": [w and w.model_dump(mode="json") for w in s.written],
                "reads": [str(r) for r in s.reads],
                "writes": [str(w) for w in s.writes],
                "prologue": s.prologue,
                "accesses": [{"tensor": str(s.args[a.argument]), **a.model_dump(mode="json")} for a in s.accesses],
            }
            for s in plan.steps
        ],
        "reasons": [r.model_dump(mode="json") for r in plan.reasons],
        "contractions": [c.model_dump(mode="json") for c in plan.contractions],
        "rewrites": list(plan.rewrites),
        "names": names,
        "graph": None if words.graph is None else print_graph(words.graph),
    }
