"""`fuseplan source`: what was generated for a plan's kernels, also as one file that compiles by itself."""

import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated

import typer

from codegen.hardware.libraries import is_call
from fusion_ir.records import Plan, Step
from service.cli.errors import bad_input, failed
from service.cli.options import Db, Format, Json, NumericsClass, Shapes, Target
from service.cli.stored_plan import Asked, Subject, stored_subject
from service.cli.terminal import print_json, say
from service.settings import load
from service.version import VERSION
from service.wording.formatting import ONCE, count, size, visible
from service.wording.kernel_arguments import Arguments
from tuning_db.store import Store

Number = Annotated[int | None, typer.Option("--step", metavar="N", min=0, help="Only this kernel, as the plan counts.")]

Standalone = Annotated[
    bool, typer.Option("--standalone", help="One file that compiles by itself, with the headers that kernels include.")
]
Output = Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help="File to write, else stdout.")]
# Of a file whose kernels each name threads along x and y, and use what they need.
QUIET = "#ifdef __NVCC__\n#pragma nv_diag_suppress 177\n#endif\n"


def source(
    subject: Subject,
    target: Target = None,
    numerics: NumericsClass = "reassociate",
    step: Number = None,
    standalone_: Standalone = False,
    output: Output = None,
    db: Db = None,
    format_: Format = None,
    shapes: Shapes = None,
    json: Json = False,
) -> None:
    """Print the generated source of a plan's kernels, with the tensor that each argument is in a comment above.

    Of a graph, of the plan that is stored for --target; nothing is searched.
    Headers that it includes are in codegen/include of the version that made the plan; --standalone puts them into it,
    and the command line that compiles it above. A call of a library is printed as the JSON that says what is called.
    """
    if json and (standalone_ or output is not None):
        raise bad_input("--json: goes with neither --standalone nor --output")
    settings = load({"target": target, "db": db})
    with Store(settings.db) as store:
        asked = stored_subject(store, subject, Asked(settings.target, numerics, format_, shapes))
        found = asked.plan
        if step is not None and step >= len(found.steps):
            raise bad_input(f"--step: expected 0 to {len(found.steps) - 1}, got {step}; the plan has no other kernels")
        numbers = range(len(found.steps)) if step is None else (step,)
        texts = {i: store.plans.source(found.steps[i].source) if found.steps[i].source else None for i in numbers}
    if json:
        print_json({"plan_key": found.plan_key, "steps": [_record(i, found.steps[i], texts[i]) for i in numbers]})
        return
    arguments = Arguments(found, asked.named)
    if standalone_:
        _write(_standalone(found, texts, arguments, output), output)
        return
    parts = (
        f"{_comment(_head(found, i, arguments))}{NOT_STORED if text is None else text.rstrip()}\n\n"
        for i, text in texts.items()
    )
    _write("".join(parts), output)


NOT_STORED = "// its source is not stored"


def _standalone(plan: Plan, texts: Mapping[int, str | None], arguments: Arguments, output: Path | None) -> str:
    """A file with these kernels. Raises CommandError where none of them is one, or the source of one is not stored."""
    from codegen.standalone import (  # noqa: PLC0415  a compiler, which only this option asks for
        HeaderMissing,
        compile_command,
        standalone,
    )

    calls = [i for i in texts if is_call(plan.steps[i].libraries)]
    missing = [i for i, text in texts.items() if text is None and i not in calls]
    if missing:
        raise failed(f"kernel {missing[0]}: its source is not stored; evict the plan and tune again")
    if len(calls) == len(texts):
        what = f"{count(len(calls), 'step')} of it, each a call of a library" if calls else "a plan of no steps"
        raise bad_input(f"--standalone: expected kernels to compile, got {what}")
    try:
        body = standalone(text for i, text in texts.items() if text is not None and i not in calls)
    except HeaderMissing as error:
        raise failed(f"{error}; the plan was made by version {plan.version}, this is {VERSION}") from error
    file = "kernels.cu" if plan.device.target == "cuda" else "kernels.cpp"
    if output is not None:
        file = output.name
    name = file.rpartition(".")[0] or file
    head = [f"plan {plan.plan_key} for {plan.device.name}; compile it with", ""]
    head += [f"  {shlex.join(compile_command(plan.device, file, f'{name}.o'))}", ""]
    libraries = sorted({name for i in texts if i not in calls for name in plan.steps[i].libraries})
    head += [f"and link it with {', '.join(libraries)}", ""] if libraries else []
    if plan.version != VERSION:
        head += [f"The plan was made by version {plan.version}; the headers in this file are those of {VERSION}.", ""]
    for i, text in texts.items():
        head += _head(plan, i, arguments)
        if i in calls and text is not None:
            head += ("  " + line for line in text.splitlines())
    return _comment(head) + QUIET * (plan.device.target == "cuda") + body


def _comment(lines: Iterable[str]) -> str:
    return "".join(f"// {visible(line)}".rstrip() + "\n" for line in lines)


def _write(text: str, output: Path | None) -> None:
    if output is None:
        sys.stdout.write(text)
        return
    try:
        output.write_text(text)
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise bad_input(f"{output}: {reason}") from error
    say(f"wrote {output}")


def _head(plan: Plan, number: int, arguments: Arguments) -> Iterator[str]:
    """Lines above the source of a kernel: its schedule, when it runs, its launch, and the tensor of each argument."""
    step = plan.steps[number]
    yield f"kernel {number} of {len(plan.steps)}: {step.schedule}"
    if step.prologue:
        yield f"of the prologue: runs {ONCE}"
    if is_call(step.libraries):
        yield f"no kernel: a call of {', '.join(step.libraries)}, as the JSON says"
    elif step.grid != (1, 1, 1) or step.block != (1, 1, 1):
        shared = f", {size(step.shared_bytes)} of dynamic shared memory" if step.shared_bytes else ""
        cluster = f", clusters of {step.cluster}" if step.cluster > 1 else ""
        yield f"{step.entry}<<<{step.grid}, {step.block}>>>{shared}{cluster}"
    elif step.tasks > 1:
        yield f"{step.entry}: {count(step.tasks, 'task')}"
    places = arguments.of(number)
    for parameter, what in places:
        yield f"  {parameter}: {what}"
    for i, m in enumerate(step.tensor_maps):
        swizzled = f", swizzled over {size(m.swizzle)}" if m.swizzle else ""
        yield f"  map{i}: a tensor map of {places[m.argument][0]}, boxes of {list(m.box)}{swizzled}"


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
