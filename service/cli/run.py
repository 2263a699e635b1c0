"""`fuseplan run`: a graph or a plan on tensors from a file."""

from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from codegen.devices import detect
from codegen.gpus import GPUS
from codegen.object_cache import ObjectCache
from codegen.programs import order_of
from codegen.workbench import Workbench
from fusion_ir.comparison import Comparison, compare
from fusion_ir.named import NamedGraph
from fusion_ir.records import Plan
from fusion_ir.text import parse_graph
from fusion_ir.tolerance import reference
from service.cli.errors import CommandError, bad_input, failed
from service.cli.options import Cache, Db, Format, Inputs, Json, Outputs, Seconds, Shapes, Target
from service.cli.source import read_graph
from service.cli.stored import PREFIX, load_plan
from service.cli.tensors import read_tensors, select, write_tensors
from service.cli.terminal import print_json, say
from service.cli.tune import search_budget, tune_here
from service.settings import Settings, load
from tuning_db import Store

Subject = Annotated[
    str, typer.Argument(metavar="GRAPH|PLAN_KEY", help="A graph's file (- is standard input), or a plan's key.")
]
Check = Annotated[
    bool, typer.Option("--check", help="Compare the outputs with the interpreter; exit code 1 where they differ.")
]


@dataclass(frozen=True)
class Job:
    """A plan with the graph that it computes. The names are those of the tensors in the input file."""

    plan: Plan
    named: NamedGraph


def run(
    subject: Subject,
    inputs: Inputs,
    outputs: Outputs,
    target: Target = None,
    check: Check = False,
    seconds: Seconds = None,
    db: Db = None,
    cache: Cache = None,
    format_: Format = None,
    shapes: Shapes = None,
    json: Json = False,
) -> None:
    """Run a graph, or a stored plan, on tensors from a safetensors file.

    Inputs are named as in the graph's text, for a plan in0, in1, ...; outputs are out0, out1, ...
    """
    settings = load({"target": target, "db": db, "cache": cache})
    budget = search_budget(settings, seconds)
    if settings.target in GPUS:
        raise bad_input(f"--target: {settings.target} is planned for, and not run on: expected cpu, cuda or cuda:N")
    tensors = read_tensors(inputs)
    with Store(settings.db) as store:
        objects = ObjectCache(settings.cache, store.seal())
        if PREFIX.match(subject) and not Path(subject).exists():
            job = _stored(store, subject)
        else:
            named = read_graph(subject, format_, shapes)
            select(tensors, named.input_names, named.graph.inputs, inputs)  # before the search, not after it
            job = Job(tune_here(named, store, settings, budget).plan, named)
        arrays = select(tensors, job.named.input_names, job.named.graph.inputs, inputs)
        _fetch(store, objects, job.plan)
    results = _execute(job.plan, arrays, settings, objects)
    write_tensors(outputs, {f"out{i}": array for i, array in enumerate(results)})
    compared = compare(results, reference(job.named.graph, arrays, order=order_of(job.plan))) if check else None
    if json:
        print_json(_as_json(job.plan, results, compared))
    else:
        say(f"wrote {len(results)} output{'' if len(results) == 1 else 's'} to {outputs}")
    if compared is not None:
        _report(compared, job.plan, quiet=json)


def _stored(store: Store, argument: str) -> Job:
    _, plan = load_plan(store, argument)
    graph = store.graph(plan.graph_key)
    if graph is None:
        raise failed(f"{argument}: the plan's graph {plan.graph_key} is not in {store.place} any more")
    return Job(plan, NamedGraph.unnamed(parse_graph(graph.text).graph))


def _fetch(store: Store, objects: ObjectCache, plan: Plan) -> None:
    """Puts the plan's binaries into the object cache, where they are run from. Raises CommandError."""
    for step in plan.steps:
        if objects.get(step.binary) is None:
            binary = store.binary(step.binary)
            if binary is None:
                raise failed(
                    f"binary {step.binary} of the plan is not in {store.place} any more; evict the plan and tune again"
                )
            objects.put(binary)


def _execute(plan: Plan, arrays: list[np.ndarray], settings: Settings, objects: ObjectCache) -> list[np.ndarray]:
    if plan.device.origin == "specified":
        raise bad_input(f"the plan is a prediction for {plan.device.name}; tune with --target cuda where there is one")
    device = detect(settings.target if settings.target.startswith(plan.device.target) else plan.device.target, objects)
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
        say(f"checked against the interpreter: largest relative error {compared.max_rel_error:.3g}")


def _mismatch(compared: Comparison, plan: Plan) -> CommandError:
    why = (
        "; steps of this graph make any error larger: when it was made, the plan's kernels agreed one by one, each on "
        "what it was given, and no plan did as a whole"
    )
    return failed(f"the outputs differ from the interpreter's: {compared.detail}{why * plan.judged_by_steps}")


def _as_json(plan: Plan, results: list[np.ndarray], compared: Comparison | None) -> dict[str, Any]:
    value: dict[str, Any] = {
        "plan_key": plan.plan_key,
        "outputs": {f"out{i}": {"dtype": a.dtype.name, "shape": list(a.shape)} for i, a in enumerate(results)},
    }
    if compared is not None:
        error = compared.max_rel_error if isfinite(compared.max_rel_error) else None
        value["check"] = {"ok": compared.ok, "max_rel_error": error, "detail": compared.detail}
    return value
