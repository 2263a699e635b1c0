"""Whether who asks how far a search is takes from what it times: whole plans beside the sum of their steps.

    python -m benchmarks.service.polled [GRAPH] [--seconds S]

Four searches of S seconds, each with a server, a worker and a database of its own: a client that waits (`Prefer:
wait`), and one that asks without a pause; on all CPUs, and all of it on one. Prints a line for each: what the plan
takes as a whole, what its steps take one by one where all of them were timed, which share of a core server and client
used, and what the plan says of a difference. On a machine that others use, the load beside it says what to make of it.
"""

import argparse
import http.client
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.service.resolve_latency import GRAPH, server
from fusion_ir.formats import read
from fusion_ir.formats.json.wire import to_wire
from fusion_ir.records import Plan


@dataclass(frozen=True)
class Searched:
    """A search and who watched it. Shares are of a core."""

    plan: Plan
    answers: int
    server_share: float
    client_share: float

    def line(self) -> str:
        """For a person."""
        steps = [step.time_us for step in self.plan.steps if not step.prologue]
        known = [us for us in steps if us is not None]
        whole = self.plan.time_us
        words = [f"whole {whole:.0f} us" if whole is not None else "not timed"]
        if whole is not None and known and len(known) == len(steps):
            words.append(f"{whole / sum(known):.2f}x the {sum(known):.0f} us of its steps")
        else:
            words.append(f"{len(known)} of {len(steps)} steps timed one by one")
        words += [
            f"{self.answers} answers",
            f"server {self.server_share:.1%}, client {self.client_share:.1%} of a core",
        ]
        words += [reason.text for reason in self.plan.reasons if "as a whole" in reason.text]
        return "; ".join(words)


def main() -> int:
    """Prints a line for each search."""
    parser = argparse.ArgumentParser(description="Searches that are watched, and searches that are let be.")
    parser.add_argument("graph", nargs="?", type=Path, default=GRAPH, help="file with a graph, in any format")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each search")
    options = parser.parse_args()
    body = {"graph": to_wire(read(options.graph.read_text())), "seconds": options.seconds}
    every = os.sched_getaffinity(0)
    for cpus in (every, {max(every)}):
        for asks in (False, True):
            with on(cpus):
                found = searched(body, asks)
            who = "asked without a pause" if asks else "waited for"
            print(f"{who}, {len(cpus)} CPUs, load {os.getloadavg()[0]:.1f}: {found.line()}", flush=True)
    return 0


@contextmanager
def on(cpus: set[int]) -> Iterator[None]:
    """For the block, we and what we start run on these CPUs alone."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def searched(body: dict[str, Any], asks: bool) -> Searched:
    """One search, watched to its end. asks: without a pause."""
    with tempfile.TemporaryDirectory(prefix="fuseplan-polled-") as folder, server(Path(folder), workers=1) as running:
        port, pid = running
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        operation = ask(connection, "POST", "/v1/plans:resolve", body)["operation"]
        where, headers = f"/v1/operations/{operation['id']}", {} if asks else {"Prefer": "wait=30"}
        answers, started, server_s, client_s = 0, time.monotonic(), cpu_seconds(pid), time.process_time()
        while not operation["done"]:
            operation = ask(connection, "GET", where, headers=headers)
            answers += 1
        took = time.monotonic() - started
        shares = (cpu_seconds(pid) - server_s) / took, (time.process_time() - client_s) / took
        if operation["error"]:
            raise SystemExit(operation["error"]["detail"])
        plan = ask(connection, "GET", f"/v1/plans/{operation['result']['plan_key']}")
        return Searched(Plan.model_validate(plan), answers, *shares)


def ask(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    body: dict[str, Any] | None = None,
    headers: dict[str, str] | None = None,
) -> dict[str, Any]:
    """The answer to one request, which has to be a good one."""
    content = None if body is None else json.dumps(body).encode()
    connection.request(method, path, content, {"Content-Type": "application/json", **(headers or {})})
    response = connection.getresponse()
    text = response.read()
    if response.status >= 400:
        raise SystemExit(f"{response.status}: {text.decode()}")
    return json.loads(text)


def cpu_seconds(pid: int) -> float:
    """That a process used so far."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main())
