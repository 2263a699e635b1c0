"""How long a resolve that hits takes over HTTP: Mistral RoPE, a server process of its own, one keep-alive connection.

    python -m benchmarks.service.resolve_latency [--requests N] [--seconds S] [--results FOLDER]

Two runs. "same body": as a framework asks again, where the server recognises the bytes. "new body": every request
differs in a member that does not change its key, so that the graph is read and its key computed each time. The plan
comes from a search of S seconds. Times are from before the request is written until its answer is read whole.
"""

import argparse
import http.client
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from codegen.hardware.machine import cpu_name
from fusion_ir.formats import read
from fusion_ir.formats.json.wire import to_wire
from service.settings import environment, load

ROOT = Path(__file__).resolve().parents[2]
GRAPH = ROOT / "examples" / "mistral_rope_forward.nvfuser.py"
LIMIT_MS = 5.0
QUANTILES = {"median": 0.5, "p90": 0.9, "p99": 0.99}
SERVER = (
    "from service.server import serve; from service.settings import load; serve(load(), lambda a: print(a, flush=True))"
)


def main() -> int:
    """Prints a table, writes resolve_latency.json; exit code 1 where a median is over the limit."""
    parser = argparse.ArgumentParser(description="Latency of a resolve that hits.")
    parser.add_argument("--requests", type=int, default=2000, help="timed requests of each run")
    parser.add_argument("--seconds", type=float, default=5.0, help="of the search that makes the plan")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results", help="folder to write to")
    options = parser.parse_args()
    wire = to_wire(read(GRAPH.read_text(), "nvfuser"))
    body = {"graph": wire, "seconds": max(0.1, options.seconds)}
    with tempfile.TemporaryDirectory(prefix="fuseplan-latency-") as folder, server(Path(folder)) as (port, _):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        plan = planned(connection, body)
        same = json.dumps(body).encode()
        runs = {
            "same body": run(connection, [same] * options.requests),
            "new body": run(
                connection, [json.dumps(body | {"seconds": 1 + i / 1000}).encode() for i in range(options.requests)]
            ),
        }
    result: dict[str, Any] = {
        "graph": GRAPH.name,
        "request_bytes": len(same),
        "answer_bytes": len(plan),
        "requests": options.requests,
        "limit_ms": LIMIT_MS,
        "cpu": cpu_name(),
        "threads": os.cpu_count(),
        "python": platform.python_version(),
        "runs": {name: {f"{q}_ms": quantile(t, share) for q, share in QUANTILES.items()} for name, t in runs.items()},
    }
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / "resolve_latency.json").write_text(json.dumps(result, indent=2) + "\n")
    print(f"{GRAPH.name}: request {len(same):,} bytes, answer {len(plan):,} bytes, {options.requests:,} requests a run")
    for name, times in runs.items():
        print(f"  {name:<10}" + "".join(f"   {q} {quantile(times, share):6.3f} ms" for q, share in QUANTILES.items()))
    return int(any(quantile(times, 0.5) >= LIMIT_MS for times in runs.values()))


@contextmanager
def server(folder: Path, code: str = SERVER, **given: object) -> Iterator[tuple[int, int]]:
    """A server with a database of its own, and settings as given; its port and process id. code: what it runs."""
    settings = load(
        {"db": f"sqlite:///{folder / 'fuseplan.db'}", "cache": str(folder / "cache"), "port": 0, **given},
        env={"HOME": str(folder)},
    )
    env = {**os.environ, **environment(settings), "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True, cwd=folder
    ) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            if not address:
                raise SystemExit("the server did not start")
            yield int(address.rpartition(":")[2]), process.pid
        finally:
            process.send_signal(signal.SIGTERM)


def planned(connection: http.client.HTTPConnection, body: dict[str, Any]) -> bytes:
    """Waits until there is a plan; the answer that holds it."""
    content = json.dumps(body).encode()
    deadline = time.monotonic() + 30 + 10 * body["seconds"]
    while time.monotonic() < deadline:
        status, answer = ask(connection, content, wait=30)
        if status == 200:
            return answer
        if status != 202:
            raise SystemExit(f"{status}: {answer.decode()}")
    raise SystemExit("there was no plan in time")


def run(connection: http.client.HTTPConnection, bodies: list[bytes]) -> list[float]:
    """Milliseconds of each request, sorted. All must hit."""
    for content in bodies[:50]:  # connections, caches, and the interpreter's own specialisation
        ask(connection, content)
    times: list[float] = []
    for content in bodies:
        started = time.perf_counter()
        status, answer = ask(connection, content)
        times.append((time.perf_counter() - started) * 1e3)
        if status != 200 or b'"cache":"hit"' not in answer[:200]:
            raise SystemExit(f"{status}: expected a hit, got {answer[:200]!r}")
    return sorted(times)


def ask(connection: http.client.HTTPConnection, content: bytes, wait: int = 0) -> tuple[int, bytes]:
    """One resolve: status and answer."""
    headers = {"Content-Type": "application/json"} | ({"Prefer": f"wait={wait}"} if wait else {})
    connection.request("POST", "/v1/plans:resolve", content, headers)
    response = connection.getresponse()
    return response.status, response.read()


def quantile(ordered: list[float], share: float) -> float:
    """The value below which `share` of the sorted values lie, rounded to a microsecond."""
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 3)


if __name__ == "__main__":
    sys.exit(main())
