"""README.md of a bundle: what the plan computes, how to run it, what was verified, which file is what."""

import re
from collections.abc import Iterator, Sequence

from codegen.hardware.libraries import CUBLASLT
from fusion_ir.records import Plan, Ref, TensorSpec
from service.bundling.subject import GRAPH, SIGNATURE, Subject, did_run, libraries, verified
from service.wording.formatting import count, expected, prologue, size, spread, visible
from service.wording.naming import MOST_NAMES, Naming

MOST_CALLED = 6  # inputs that the example names
MOST_KERNELS = 200


def readme(subject: Subject, folder: str) -> str:
    """The file's text, in Markdown. folder: its name."""
    return "\n".join(_lines(subject, folder)) + "\n"


def _lines(subject: Subject, folder: str) -> Iterator[str]:
    plan, device = subject.plan, subject.plan.device
    yield f"# Plan {subject.key[:12]}"
    yield ""
    yield (
        f"{count(len(plan.steps), 'kernel')} for {device.name} ({device.arch}), made by Fuseplan {plan.version} on "
        f"{subject.made}."
    )
    yield from ("", "## What was verified", "", verified(plan, subject.made), "")
    yield _time(subject)
    if plan.prologue:
        yield ""
        yield f"Kernels that depend on constants alone run first: {prologue(plan)}."
    yield from ("", "## How to run it", "", *_how(subject, folder), "", "## Tensors", "")
    yield (
        "Shapes, dtypes and strides (in elements) are what the kernels were made for: other ones are refused before "
        "anything is launched."
    )
    yield ""
    yield from _table(("input", "dtype", "shape", "strides", "aligned to", ""), _inputs(subject))
    yield ""
    yield from _table(("output", "dtype", "shape", "strides", "aligned to", ""), _outputs(subject))
    yield from ("", "## Kernels", "")
    yield from _kernels(subject)
    yield from ("", "## Files", "")
    yield from _table(("file", "what it is"), _files(subject))


def _time(subject: Subject) -> str:
    plan = subject.plan
    if not plan.steps:
        return "It takes no time on the device."
    if not did_run(plan):
        return f"Predicted time of a run: {expected(None, plan.predicted_us)}. Nothing was timed."
    time = ", ".join(filter(None, (expected(plan.time_us, None), spread(plan.spread))))
    state = "" if subject.state == "measured" else f" The plan's state is now: {subject.state}."
    return f"Measured time of a run: {time}, with its inputs in memory.{state}"


def _how(subject: Subject, folder: str) -> Iterator[str]:
    plan = subject.plan
    install, comment = _install_cpu(plan) if plan.device.target == "cpu" else _install_cuda(plan)
    comments = {
        install: comment,
        "python run.py": "on random inputs",
        "python run.py inputs.safetensors": "on tensors with the names below",
    }
    width = max(map(len, comments))
    for command, comment in comments.items():
        yield f"    {command:{width}}  # {comment}" if comment else f"    {command}"
    yield ""
    yield f"It takes {_machine(plan)}. From Python, inputs go by name or in order:"
    yield ""
    yield "    from fuseplan_client import load"
    yield f"    plan = load({folder!r})  # the path of this folder"
    yield f"    outputs = plan({_call(subject.inputs)})"
    yield f"    outputs[{subject.outputs[0]!r}]"
    if subject.graph:
        yield ""
        yield "Where Fuseplan is installed, this computes the same on a CPU, and compares it with the interpreter:"
        yield ""
        files = "--inputs inputs.safetensors --outputs outputs.safetensors"
        yield f"    fuseplan run {GRAPH} --target cpu {files} --check"


def _install_cuda(plan: Plan) -> tuple[str, str]:
    """The command that installs what the program needs, and a comment on it."""
    extras, other = (",cublas13", ",cublas12") if CUBLASLT in libraries(plan.steps) else ("", "")
    return f"pip install 'fuseplan-client[cuda13{extras}]'", f"[cuda12{other}] for drivers before 580"


def _install_cpu(plan: Plan) -> tuple[str, str]:
    calls = ",".join(libraries(plan.steps))
    return f"pip install 'fuseplan-client[{calls}]'" if calls else "pip install fuseplan-client", ""


def _machine(plan: Plan) -> str:
    if plan.device.target != "cpu":
        return f"a GPU that runs code for {plan.device.arch}"
    features = f" with {', '.join(plan.device.features)}" if plan.device.features else ""
    return f"a CPU of {plan.device.arch}{features}, and takes up to {count(plan.device.units, 'thread')}"


def _call(names: Sequence[str]) -> str:
    """The inputs of a call: a dict, since names need be no identifiers."""
    shown = [f"{name!r}: ..." for name in names[:MOST_CALLED]]
    return "{" + ", ".join(shown) + (", ...}" if len(names) > MOST_CALLED else "}")


def _inputs(subject: Subject) -> Iterator[tuple[str, ...]]:
    for name, spec in zip(subject.inputs, subject.plan.inputs, strict=True):
        constant = "" if spec.constant is None else f"constant, version {_code(spec.constant)}"
        yield (*_tensor(name, spec), constant)


def _outputs(subject: Subject) -> Iterator[tuple[str, ...]]:
    aliases = dict(subject.plan.aliases)
    for i, (name, spec) in enumerate(zip(subject.outputs, subject.plan.outputs, strict=True)):
        yield (*_tensor(name, spec), _is(subject, aliases.get(i)))


def _is(subject: Subject, ref: Ref | None) -> str:
    if ref is None:
        return ""
    what = "the input" if ref.place == "in" else "the output"
    return f"{what} {_code(subject.name_of(ref))} itself, not a copy"


def _tensor(name: str, spec: TensorSpec) -> tuple[str, ...]:
    return (
        _code(name),
        spec.dtype,
        str(list(spec.shape)),
        str(list(spec.strides)),
        size(spec.alignment_bytes),
    )


def _kernels(subject: Subject) -> Iterator[str]:
    steps, files = subject.plan.steps, subject.source_files
    if not steps:
        yield "None: every output is an input as it is."
        return
    rows = [
        (
            str(i),
            _code(step.schedule),
            f"{_refs(naming, step.reads)} → {_refs(naming, step.writes)}",
            expected(step.time_us, step.predicted_us),
            f"[{files[step.source]}]({files[step.source]})" if step.source in files else "not stored",
        )
        for i, (step, naming) in enumerate(zip(steps[:MOST_KERNELS], subject.naming.at_steps(steps), strict=False))
    ]
    yield from _table(("", "kernel and schedule", "reads → writes", "time", "source"), rows)
    if len(steps) > MOST_KERNELS:
        yield ""
        yield f"bundle.json lists the other {len(steps) - MOST_KERNELS:,}."


def _refs(naming: Naming, refs: Sequence[Ref]) -> str:
    shown = [_code(naming.of(ref)) for ref in refs[:MOST_NAMES]]
    return " ".join(shown) + (f" and {len(refs) - MOST_NAMES} more" if len(refs) > MOST_NAMES else "")


def _files(subject: Subject) -> Iterator[tuple[str, ...]]:
    yield "`run.py`", "runs the plan and prints its outputs"
    yield "`plan.json`", "the plan: what is launched, in which order, on which tensors; its sha256 is the plan's key"
    yield "`bundle.json`", "what this page says, for programs: names, dtypes, shapes, strides, what was verified"
    yield f"`{SIGNATURE}`", "the signature of its maker over these two, and so over all kernels"
    if subject.graph:
        yield f"`{GRAPH}`", "what the plan computes, as text that Fuseplan reads"
    if subject.binaries:
        yield "`binaries/`", f"{_binaries(subject)}, by sha256"
    if subject.source_files:
        yield "`sources/`", "what was generated, as the compiler got it but for the headers that it includes"


def _binaries(subject: Subject) -> str:
    calls = {step.binary for step in subject.plan.steps if CUBLASLT in step.libraries}
    kernels = len(subject.binaries.keys() - calls)
    parts = [count(kernels, "compiled kernel")] if kernels else []
    return " and ".join([*parts, f"{count(len(calls), 'call')} of cuBLASLt as JSON"] if calls else parts)


def _table(head: Sequence[str], rows: Iterator[tuple[str, ...]] | Sequence[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _code(text: str) -> str:
    """Text as code in a cell of a table, whatever is in it."""
    shown = visible(text).replace("|", "\\|")
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", shown)), default=0))
    padded = f" {shown} " if shown.startswith("`") or shown.endswith("`") else shown
    return f"{fence}{padded}{fence}"
