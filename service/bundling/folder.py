"""Writing a bundle: plan, binaries, sources, graph, what was verified, and a program that runs it."""

from pathlib import Path

from service.bundling.about import about
from service.bundling.readme import readme
from service.bundling.subject import GRAPH, SIGNATURE, Subject
from service.signing.key import SigningKey
from service.signing.messages import bundle_message

RUNNER = '''"""Runs the plan in this folder: python run.py [INPUTS.safetensors]; without a file, on random inputs."""

import sys
from pathlib import Path

from fuseplan_client import load

plan = load(Path(__file__).resolve().parent)
print(plan.verified)
inputs = plan.read_inputs(sys.argv[1]) if len(sys.argv) > 1 else plan.random_inputs()
outputs = plan(*inputs)
for (name, array), spec in zip(outputs.items(), plan.plan.outputs, strict=True):
    print(f"{name!r}: {spec.dtype}{list(array.shape)}")
'''


def write_bundle(subject: Subject, folder: Path, key: SigningKey) -> None:
    """Writes the folder, which is new or empty, signed with a key. Raises OSError."""
    (folder / "binaries").mkdir(parents=True, exist_ok=True)
    executor = () if subject.executor is None else (subject.executor,)
    for sha, data in (*subject.binaries.items(), *executor):
        (folder / "binaries" / sha).write_bytes(data)
    for sha, name in subject.source_files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(subject.sources[sha], "utf-8", "surrogatepass")
    if subject.graph:
        (folder / GRAPH).write_text(subject.graph, "utf-8", "surrogatepass")
    (folder / "run.py").write_text(RUNNER, "utf-8")
    (folder / "README.md").write_text(
        readme(subject, folder.resolve().name or str(folder)), "utf-8", "backslashreplace"
    )
    said = about(subject).encode()
    (folder / "bundle.json").write_bytes(said)
    (folder / SIGNATURE).write_text(key.signature(bundle_message(subject.body, said)) + "\n", "utf-8")
    (folder / "plan.json").write_bytes(
        subject.body
    )  # as stored: its sha256 is the plan's key; last, so that it is whole
