"""`fuseplan source`: what was generated for the kernels of a plan, and which tensor each argument is."""

import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from fusion_ir.records import Plan, Ref, Step
from service.cli.errors import bad_input
from service.cli.options import Db, Json, PlanKey
from service.cli.stored import load_plan
from service.cli.terminal import print_json
from service.formatting import count, size, visible
from service.naming import UNNAMED, Naming
from service.settings import load
from tuning_db import Store

Number = Annotated[int | None, typer.Option("--step", metavar="N", min=0, help="Only this kernel, as the plan counts.")]


def source(plan: PlanKey, step: Number = None, db: Db = None, json: Json = False) -> None:
    """Print the generated source of a plan's kernels, with the tensor that each argument is in a comment above.

    Headers that it includes are in codegen/include of the version that made the plan. A call of a library is printed as
    the JSON that says what is called.
    """
    with Store(load({"db": db}).db) as store:
        _, found = load_plan(store, plan)
        stored = store.graph(found.graph_key)
        if step is not None and step >= len(found.steps):
            raise bad_input(f"--step: expected 0 to {len(found.steps) - 1}, got {step}; the plan has no other kernels")
        numbers = range(len(found.steps)) if step is None else (step,)
        texts = {i: store.source(found.steps[i].source) if found.steps[i].source else None for i in numbers}
    if json:
        print_json({"plan_key": found.plan_key, "steps": [_record(i, found.steps[i], texts[i]) for i in numbers]})
        return
    naming = Naming(stored.names.inputs, stored.names.outputs) if stored is not None else UNNAMED
    for i, text in texts.items():
        head = "\n".join(f"// {visible(line)}" for line in _head(found, i, naming))
        body = "// its source is not stored\n" if text is None else text.rstrip() + "\n"
        sys.stdout.write(f"{head}\n{body}\n")


def _head(plan: Plan, number: int, naming: Naming) -> Iterator[str]:
    """What is launched, and which tensor each argument is."""
    step = plan.steps[number]
    yield f"kernel {number} of {len(plan.steps)}: {step.schedule}"
    if step.grid != (1, 1, 1) or step.block != (1, 1, 1):
        shared = f", {size(step.shared_bytes)} of dynamic shared memory" if step.shared_bytes else ""
        cluster = f", clusters of {step.cluster}" if step.cluster > 1 else ""
        yield f"{step.entry}<<<{step.grid}, {step.block}>>>{shared}{cluster}"
    elif step.tasks > 1:
        yield f"{step.entry}: {count(step.tasks, 'task')}"
    places = [(f"in{i}", ref) for i, ref in enumerate(step.reads)]
    places += [(f"out{i}", ref) for i, ref in enumerate(step.writes)]
    places += [("scratch", step.scratch)] if step.scratch else []
    for parameter, ref in places:
        yield f"  {parameter}: {_tensor(plan, ref, naming)}"


def _tensor(plan: Plan, ref: Ref, naming: Naming) -> str:
    """ "q, the plan's in0, bf16[2, 32, 1024, 128]"; of a temporary its bytes."""
    if ref.place == "tmp":
        return f"{ref}, {size(plan.buffers[ref.index].bytes)}"
    spec = (plan.inputs if ref.place == "in" else plan.outputs)[ref.index]
    name = naming.of(ref)
    whose = str(ref) if name == str(ref) else f"{name}, the plan's {ref}"
    return f"{whose}, {spec.dtype}[{', '.join(map(str, spec.shape))}]"


def _record(number: int, step: Step, text: str | None) -> dict[str, object]:
    return {
        "step": number,
        "family": step.family,
        "schedule": step.schedule,
        "entry": step.entry,
        "grid": step.grid,
        "block": step.block,
        "arguments": [str(ref) for ref in step.args],
        "source": text,
    }
