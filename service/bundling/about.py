"""bundle.json: what the tensors of a bundled plan are called, what was checked of it, and which file is what."""

import json
from typing import Any

from fusion_ir.records import Ref, TensorSpec
from service.bundling.subject import Subject, did_run, verified

FORMAT = 1


def about(subject: Subject) -> str:
    """The file's text."""
    plan = subject.plan
    aliases = dict(plan.aliases)
    content = {
        "format": FORMAT,
        "plan_key": subject.key,
        "graph_key": plan.graph_key,
        "fuseplan": plan.version,
        "state": subject.state,
        "made": subject.made,
        "ran": did_run(plan),
        "verified": verified(plan, subject.made),
        "device": {
            "name": plan.device.name,
            "arch": plan.device.arch,
            "driver": plan.device.driver,
            "compiler": plan.device.toolchain,
        },
        "time_us": plan.time_us,
        "predicted_us": plan.predicted_us,
        "max_rel_error": plan.max_rel_error,
        "inputs": [_tensor(n, spec) for n, spec in zip(subject.inputs, plan.inputs, strict=True)],
        "outputs": [
            _tensor(n, spec) | _alias(subject, aliases.get(i))
            for i, (n, spec) in enumerate(zip(subject.outputs, plan.outputs, strict=True))
        ],
        "kernels": [
            {
                "family": step.family,
                "schedule": step.schedule,
                "entry": step.entry,
                "reads": [subject.name_of(r) for r in step.reads],
                "writes": [subject.name_of(r) for r in step.writes],
                "binary": f"binaries/{step.binary}",
                "source": subject.source_files.get(step.source),
                "time_us": step.time_us,
                "predicted_us": step.predicted_us,
            }
            for step in plan.steps
        ],
    }
    if subject.executor is not None:
        content["executor"] = subject.executor[0]
    return json.dumps(content, indent=1) + "\n"


def _tensor(name: str, spec: TensorSpec) -> dict[str, Any]:
    described: dict[str, Any] = {
        "name": name,
        "dtype": spec.dtype,
        "shape": spec.shape,
        "strides": spec.strides,
        "alignment_bytes": spec.alignment_bytes,
    }
    return described | ({} if spec.constant is None else {"constant": spec.constant})


def _alias(subject: Subject, ref: Ref | None) -> dict[str, str]:
    """That no kernel writes an output, and which tensor it is."""
    return {} if ref is None else {"is": subject.name_of(ref)}
