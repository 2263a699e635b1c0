"""`make demo`: the main job, end to end. Starts the real server, sends Mistral RoPE over HTTP, shows what comes back.

The demo has a database and a cache of its own in a temporary folder, so that the first answer is a search every time.
At a terminal the server stays up for a while, for looking at the pages; otherwise the demo ends and says how to start
it again.
"""

import argparse
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.text import Text

from fusion_ir.core.named import NamedGraph
from fusion_ir.formats.json.wire import to_wire
from fusion_ir.records import Plan
from service.cli.errors import CommandError, failed
from service.cli.graph_argument import read_graph
from service.cli.plan_view import plan_view
from service.cli.server_client import Remote, encode
from service.cli.terminal import err, out, search_progress, show
from service.wording.formatting import size
from service.wording.naming import Naming

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "mistral_rope_forward.nvfuser.py"
START_SECONDS = 60.0
REPEATS = 50


@dataclass(frozen=True)
class Server:
    """A server process of the demo's."""

    remote: Remote
    process: subprocess.Popen[bytes]
    log: Path


def main() -> int:
    """Runs the demo; 0 if everything that it shows happened."""
    options = _options()
    console = out()
    folder = Path(tempfile.mkdtemp(prefix="fuseplan-demo-"))
    with ExitStack() as at_end:
        at_end.callback(shutil.rmtree, folder, ignore_errors=True)
        try:
            plan = _show(console, folder, options)
        except CommandError as error:
            err().print(f"demo: {error}", markup=False)
            return error.code
        except KeyboardInterrupt:
            return 130
        console.print(_again(folder, plan), soft_wrap=True)
        at_end.pop_all()  # the folder stays for the server that this says how to start
    return 0


def _show(console: Console, folder: Path, options: argparse.Namespace) -> Plan:
    named = read_graph(str(options.graph))
    compulsory = sum(n.elements * n.dtype.bytes for n in _tensors(named))
    console.print(
        f"[bold]{options.graph.name}[/]: {len(named.graph.nodes)} nodes, {len(named.graph.inputs)} inputs, "
        f"{len(named.graph.outputs)} outputs, {size(compulsory)} in and out",
        soft_wrap=True,
    )
    with _serve(folder) as server:
        body = {"graph": to_wire(named), "target": options.target, "seconds": options.seconds}
        where = f"The service is up at {server.remote.url}; the graph goes to [bold]POST /v1/plans:resolve[/]"
        console.print(where, soft_wrap=True)
        started = time.perf_counter()
        with search_progress(options.seconds) as progress:
            first = server.remote.resolve(body, progress.show)
        console.print(
            f"First answer, a {first.cache}: read, searched, generated, checked, timed and stored "
            f"in {time.perf_counter() - started:.1f} s\n",
            soft_wrap=True,
        )
        show(plan_view(first.plan, first.state, Naming.of_graph(named)))
        console.print("\n" + _repeated(server.remote, body), soft_wrap=True)
        console.print(Text.assemble("The plan's page: ", (server.remote.page(first.plan_key), "bold")), soft_wrap=True)
        _keep(console, options.keep)
        return first.plan


def _repeated(remote: Remote, body: Mapping[str, Any]) -> str:
    """Asks again, and again: what a framework sees on every later start."""
    content = encode(body)
    milliseconds: list[float] = []
    received = 0
    for _ in range(REPEATS):
        response, took_ms = remote.resolve_raw(content)
        if response.json().get("cache") != "hit":
            raise failed("the second answer did not come from the cache")
        milliseconds.append(took_ms)
        received = len(response.content)
    return (
        f"Second answer, a hit: [bold]{milliseconds[0]:.1f} ms[/] over HTTP; median of {REPEATS}: "
        f"{median(milliseconds):.1f} ms ({size(len(content))} sent, {size(received)} received)"
    )


@contextmanager
def _serve(folder: Path) -> Iterator[Server]:
    """The server on a free port, in a process of its own; ends with the block."""
    port = _free_port()
    log = folder / "server.log"
    command = [sys.executable, "-m", "service", "serve", "--port", str(port), *_places(folder)]
    env = os.environ | {"FUSEPLAN_SIGNING_KEY": str(folder / "signing_key.pem")}
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=env)
    try:
        with Remote(f"http://127.0.0.1:{port}") as remote:
            deadline = time.monotonic() + START_SECONDS
            while not remote.ready():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise failed(f"the server did not start; the end of {log}:\n{_tail(log)}")
                time.sleep(0.05)
            yield Server(remote, process, log)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _keep(console: Console, minutes: float) -> None:
    if minutes > 0:
        console.print(f"It is open for {minutes:g} minutes; Ctrl-C ends the demo.")
        try:
            time.sleep(minutes * 60)
        except KeyboardInterrupt:
            console.print()


def _again(folder: Path, plan: Plan) -> Text:
    program = Path(sys.executable).with_name("fuseplan")
    shown = program.relative_to(Path.cwd()) if program.is_relative_to(Path.cwd()) else program
    command = shlex.join([str(shown), "serve", *_places(folder)])
    return Text.assemble(
        ("The server has stopped. To look at the page, start it again:\n  ", "dim"), command,
        ("\nand open ", "dim"), f"http://127.0.0.1:8080/plans/{plan.plan_key}",
    )  # fmt: skip


def _places(folder: Path) -> list[str]:
    return ["--db", f"sqlite:///{folder / 'fuseplan.db'}", "--cache", str(folder / "cache")]


def _tensors(named: NamedGraph) -> Iterator[Any]:
    graph = named.graph
    yield from (n for n in graph.nodes if n.op == "input")
    yield from {o.node: None for o in graph.outputs}


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def _tail(log: Path, lines: int = 15) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m service.demo", description="The main job, from end to end.")
    parser.add_argument("--graph", type=Path, default=EXAMPLE, help="graph to plan (default: Mistral RoPE)")
    parser.add_argument("--target", default="cpu", help="cpu, cuda, cuda:N, emulator or emulator:ARCH")
    parser.add_argument("--seconds", type=float, default=20.0, help="seconds of search")
    parser.add_argument(
        "--keep",
        type=float,
        default=10.0 if sys.stdout.isatty() else 0.0,
        metavar="MINUTES",
        help="keep the server up (default: 10 at a terminal)",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
