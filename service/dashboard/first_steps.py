"""First steps that an empty list of plans offers: the target that the server plans for, and requests to try."""

from dataclasses import dataclass

from codegen.devices.detection import DeviceError
from service.api.context import Context

EXAMPLE = "examples/mistral_rope_forward.nvfuser.py"
REQUEST = (
    '{"graph": {"format": "fuseplan.graph", "version": 1, '
    '"inputs": [{"name": "x", "shape": [64, 32], "dtype": "f32"}], '
    '"nodes": [{"name": "y", "op": "gelu", "args": ["x"]}], "outputs": [{"node": "y"}]}, "seconds": 5}'
)


@dataclass(frozen=True)
class FirstSteps:
    """target: what is planned for by default; state: "ok", "starting", or why there is no such device; device: its
    name, "" where that is not known. commands: pairs of where to run a command, in words, and the command."""

    target: str
    state: str
    device: str
    commands: tuple[tuple[str, str], ...]


def first_steps(ctx: Context, origin: str) -> FirstSteps:
    """The first steps on this server. origin: its address, as the reader of the page has it."""
    target = ctx.settings.target
    state, device = ctx.devices.state(target), ""
    if state == "ok":
        try:
            device = ctx.devices.detect(target).name
        except DeviceError as error:
            state = str(error)
    headers = "-H 'Content-Type: application/json' -H 'Prefer: wait=60'"
    curl = f"curl -s {origin}/v1/plans:resolve {headers} \\\n  -d '{REQUEST}'"
    commands = (
        ("In a checkout of the repository", f".venv/bin/fuseplan tune {EXAMPLE} --server {origin}"),
        ("Installed, with a graph of your own", f"fuseplan tune GRAPH --server {origin}"),
        ("From anywhere", curl),
    )
    return FirstSteps(target, state, device, commands)
