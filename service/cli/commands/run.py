"""`fuseplan run`: a graph or a plan on tensors from a file."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Annotated, Any

import numpy as np
import typer

from codegen.devices.detection import detect
from codegen.hardware.gpus import GPUS
from codegen.sandbox.object_cache import ObjectCache
from codegen.workbench.programs import order_of
from codegen.workbench.workbench import Workbench
from fusion_ir.accuracy.comparison import Comparison, compare
from fusion_ir.accuracy.tolerance import reference
from fusion_ir.core.named import NamedGraph
from fusion_ir.records import Plan
from fusion_ir.text.printing import parse_graph
from service.cli.answer import origin
from service.cli.commands.tune import search_budget, tune_here
from service.cli.errors import CommandError, bad_input, failed
from service.cli.graph_argument import read_graph
from service.cli.graph_or_plan import load_subject
from service.cli.options import Cache, Db, Format, Inputs, Json, NumericsClass, Outputs, Seconds, Shapes, Target
from service.cli.plan_view import KEY_DIGITS
from service.cli.tensor_files import read_tensors, select, write_tensors
from service.cli.terminal import print_json, say
from service.settings import Settings, load
from service.wording.formatting import count, error
from service.wording.formatting import expected as expected_time
from tuning_db.store import Store

Subject = Annotated[
    str, typer.Argument(metavar="GRAPH|PLAN_KEY", help="A graph's file (- is standard input), or a plan's key.")
]
Check = Annotated[
    bool, typer.Option("--check", help="Compare the outputs with the interpreter; exit code 1 where they differ.")
]


@dataclass(frozen=True)
class Job:
    """A plan with the graph that it computes, and where it is from. The names are those of the tensors in the input
    file."""

    plan: Plan
    named: NamedGraph
    origin: str = "stored"


def run(
    subject: Subject,
    inputs: Inputs,
    outputs: Outputs,
    target: Target = None,
    check: Check = False,
    seconds: Seconds = None,
    numerics: NumericsClass = "reassociate",
    db: Db = None,
    cache: Cache = None,
    format_: Format = None,
    shapes: Shapes = None,
    json: Json = False,
) -> None:
    """Run a graph, or a stored plan, on tensors from a safetensors file.

    Inputs and outputs are named as in the graph's text. For a stored plan that is the text that was stored last; inputs
    may be called in0, in1, ... there, and outputs are then out0, out1, ...
    """
    settings = load({"target": target, "db": db, "cache": cache})
    budget = search_budget(settings, seconds)
    if settings.target in GPUS:
        raise bad_input(f"--target: {settings.target} is planned for, and not run on: expected cpu, cuda or cuda:N")
    tensors = read_tensors(inputs)
    with Store(settings.db) as store:
        objects = ObjectCache(settings.cache, store.seal())
        found = load_subject(store, subject)
        if found is not None:
            job = _stored(store, subject, found[1], tensors)
        else:
            named = read_graph(subject, format_, shapes)
            select(tensors, named.input_names, named.graph.inputs, inputs)  # before the search, not after it
            answer = tune_here(named, store, settings, budget, numerics)
            job = Job(answer.plan, named, origin(answer))
        arrays = select(tensors, job.named.input_names, job.named.graph.inputs, inputs)
        _fetch(store, objects, job.plan)
    results = _execute(job.plan, arrays, settings, objects)
    write_tensors(outputs, dict(zip(job.named.output_names, results, strict=True)))
    expected = reference(job.named.graph, arrays, order=order_of(job.plan)) if check else None
    compared = compare(results, expected) if expected is not None else None
    if json:
        print_json(_as_json(job, results, compared))
    else:
        key, time = job.plan.plan_key[:KEY_DIGITS], expected_time(job.plan.time_us, job.plan.predicted_us)
        say(f"plan {key}, {job.origin}, {time} a run; wrote {count(len(results), 'output')} to {outputs}")
    if compared is not None and expected is not None:
        _report(compared, job.plan, quiet=json)
        for line in _specials(job.named.output_names, results, expected.outputs) if not json else ():
            say(line)


def _stored(store: Store, argument: str, plan: Plan, tensors: Collection[str]) -> Job:
    """tensors: names in the input file, by which it is known whether those of the graph are meant."""
    graph = store.graphs.graph(plan.graph_key)
    if graph is None:
        raise failed(f"{argument}: the plan's graph {plan.graph_key} is not in {store.place} any more")
    plain = NamedGraph.unnamed(parse_graph(graph.text).graph)
    if set(tensors) == set(plain.input_names) and set(tensors) != set(graph.names.inputs):
        return Job(plan, plain)
    return Job(plan, graph.names.named(plain.graph))


def _fetch(store: Store, objects: ObjectCache, plan: Plan) -> None:
    """Puts the plan's binaries into the object cache, where they are run from. Raises CommandError."""
    for step in plan.steps:
        if objects.get(step.binary) is None:
            binary = store.plans.binary(step.binary)
            if binary is None:
                raise failed(
                    f"binary {step.binary} of the plan is not in {store.place} any more; evict the plan and tune again"
                )
            objects.put(binary)


def _execute(plan: Plan, arrays: list[np.ndarray], settings: Settings, objects: ObjectCache) -> list[np.ndarray]:
    if plan.device.origin == "specified":
        here = (
            "tune with --target cuda, or import the plan, which measures it, or run what `fuseplan plans bundle` writes"
        )
        raise bad_input(f"the plan is a prediction for {plan.device.name}; where there is one, {here}")
    target = settings.target if settings.target.startswith(plan.device.target) else plan.device.target
    device = detect(target, objects, ceilings=False)  # which running a plan does without
    if device.class_key != plan.device.class_key:
        raise bad_input(
            f"the plan is for {plan.device.name} ({plan.device.class_key}); here is {device.name} ({device.class_key})"
        )
    with Workbench(device, objects) as bench:
        return bench.run(plan, arrays)


def _report(compared: Comparison, plan: Plan, quiet: bool) -> None:
    if not compared.ok:
        raise _mismatch(compared, plan)
    if not quiet:
        say(f"checked against the interpreter: largest relative error {error(compared.max_rel_error)}")


def _specials(names: Sequence[str], results: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> Iterator[str]:
    """Outputs with NaN or infinities on either side, which agree with anything of their kind."""
    for name, ours, theirs in zip(names, results, expected, strict=True):
        if ours.dtype.kind in "biu":
            continue
        for what, of in (("NaN", np.isnan), ("infinite", np.isinf)):
            here, there = int(of(ours.astype(np.float64)).sum()), int(of(theirs.astype(np.float64)).sum())
            if here or there:
                yield f"{name}: {here:,} of {ours.size:,} values are {what}, {there:,} of the interpreter's"


def _mismatch(compared: Comparison, plan: Plan) -> CommandError:
    why = (
        "; steps of this graph make any error larger: when it was made, the plan's kernels agreed one by one, each on "
        "what it was given, and no plan did as a whole"
    )
    return failed(f"the outputs differ from the interpreter's: {compared.detail}{why * plan.judged_by_steps}")


def _as_json(job: Job, results: list[np.ndarray], compared: Comparison | None) -> dict[str, Any]:
    named = zip(job.named.output_names, results, strict=True)
    value: dict[str, Any] = {
        "plan_key": job.plan.plan_key,
        "outputs": {name: {"dtype": a.dtype.name, "shape": list(a.shape)} for name, a in named},
    }
    if compared is not None:
        error = compared.max_rel_error if isfinite(compared.max_rel_error) else None
        value["check"] = {"ok": compared.ok, "max_rel_error": error, "detail": compared.detail}
    return value
