"""Latencies that live clients see of a server under attack: hostile bodies on one side, 20 clients on the other.

    python -m benchmarks.service.hostile [--bodies N] [--seed N] [--results FOLDER]

A server process of its own, without workers, on loopback. ATTACKERS connections send what `hostile_bodies` makes, one
after another; each of CLIENTS connections asks `/livez` twenty times a second. Written down: latencies of `/livez`,
answers by status and by the problem's type, the server's memory (all of its processes) over the run.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.service.hostile_bodies import Hostile, bodies
from benchmarks.service.resolve_latency import quantile, server
from codegen.hardware.machine import cpu_name

ROOT = Path(__file__).resolve().parents[2]
CLIENTS, PAUSE_SECONDS = 20, 0.05
ATTACKERS = 8
ANSWER_SECONDS = 180.0  # that any answer may take
DRIP_SECONDS = 0.2
LIMIT_MS = 50.0


@dataclass
class Seen:
    """Answers to hostile bodies, latencies of live clients, and the server's memory."""

    livez_ms: list[float] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    problems: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)  # 5xx, and what was not answered, by what grew the body
    memory_mib: list[int] = field(default_factory=list)


def attack(port: int, count: int, seed: int, pid: int, scale: float = 1.0) -> Seen:
    """Sends `count` hostile bodies while live clients ask from a process of their own: growing bodies takes time, which
    would be in the clients' latencies."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    live = context.Process(target=_live, args=(port, theirs))
    live.start()
    ours.recv()
    seen = asyncio.run(_attack(port, bodies(count, seed, scale), pid))
    ours.send(None)
    seen.livez_ms = ours.recv()
    live.join()
    return seen


def _live(port: int, parent: "Connection[Any, Any]") -> None:
    """Runs the clients until the parent sends something, and sends it their milliseconds."""
    times: list[float] = []

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while not parent.poll():
            started = time.perf_counter()
            writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(_length(head))
            times.append(1e3 * (time.perf_counter() - started))
            await asyncio.sleep(PAUSE_SECONDS)
        writer.close()

    async def clients() -> None:
        await asyncio.gather(*(client() for _ in range(CLIENTS)))

    parent.send(None)
    asyncio.run(clients())
    parent.send(times)


async def _attack(port: int, todo: Iterator[Hostile], pid: int) -> Seen:
    seen, over = Seen(), asyncio.Event()

    async def attacker() -> None:
        for hostile in todo:
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    status, kind = await send(port, hostile)
            except TimeoutError:
                status, kind = "none", "no answer"
            seen.statuses[status] += 1
            seen.problems[kind] += 1
            if status == "none" or status.startswith("5"):
                seen.faults.append(f"{hostile.how}: {status} {kind} {hostile.content[:300]!r}")

    async def watch() -> None:
        while not over.is_set():
            seen.memory_mib.append(memory_mib(pid))
            await asyncio.sleep(1.0)

    watching = asyncio.create_task(watch())
    await asyncio.gather(*(attacker() for _ in range(ATTACKERS)))
    over.set()
    await watching
    return seen


async def send(port: int, hostile: Hostile) -> tuple[str, str]:
    """Status and problem of the answer; "cut" for a body that is cut off, "closed" where the connection was."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        kind = hostile.media_type.encode("latin-1", "replace")
        head = b"POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: %s\r\nContent-Length: %d"
        writer.write((head + b"\r\n\r\n") % (hostile.address.encode(), kind, len(hostile.content)))
        if hostile.cut is not None:
            writer.write(hostile.content[: min(hostile.cut, len(hostile.content) - 1)])
            await writer.drain()
            return "cut", "cut"
        if hostile.drip:
            for i in range(0, len(hostile.content), 20):
                writer.write(hostile.content[i : i + 20])
                await writer.drain()
                await asyncio.sleep(DRIP_SECONDS)
        else:
            writer.write(hostile.content)
            await writer.drain()
        answer = await reader.read()
        status = answer[9:12].decode("ascii", "replace")
        text = answer.partition(b"\r\n\r\n")[2]
        begin = text.find(b'{"type"')
        try:
            document, _ = json.JSONDecoder().raw_decode(text[begin:].decode()) if begin >= 0 else ({}, 0)
        except ValueError:
            document = {}
        return status or "closed", str(document.get("type", status or "closed"))
    except (ConnectionResetError, BrokenPipeError):
        return "closed", "closed"
    finally:
        writer.transport.abort()


def memory_mib(pid: int) -> int:
    """MiB of a process and all processes below it: their share of each page (proportional set size)."""
    total = 0
    for process in [pid, *_below(pid)]:
        try:
            rows = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        except (OSError, ProcessLookupError):
            continue
        total += sum(int(row.split()[1]) for row in rows if row.startswith("Pss:"))
    return total // 1024


def _below(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += [int(child), *_below(int(child))]
    except OSError:
        pass  # it has ended meanwhile
    return found


def _length(head: bytes) -> int:
    return next(int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))


def main() -> int:
    """Prints and writes hostile.json; exit code 1 for a 5xx, no answer, or a `/livez` beyond the limit."""
    parser = argparse.ArgumentParser(description="Hostile bodies, with live clients beside.")
    parser.add_argument("--bodies", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results", help="folder to write to")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="fuseplan-hostile-") as folder,
        server(Path(folder), workers=0) as (port, pid),
    ):
        attack(port, 50, options.seed + 1, pid)  # what is imported and started once
        started = time.monotonic()
        seen = attack(port, options.bodies, options.seed, pid)
        seconds = time.monotonic() - started
    times = sorted(seen.livez_ms)
    quarter = max(1, len(seen.memory_mib) // 4)
    result: dict[str, Any] = {
        "bodies": options.bodies,
        "seed": options.seed,
        "seconds": round(seconds, 1),
        "livez": len(times),
        "livez_ms": {name: quantile(times, share) for name, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))},
        "statuses": dict(sorted(seen.statuses.items())),
        "problems": dict(seen.problems.most_common()),
        "faults": seen.faults[:20],
        "memory_mib": {
            "first quarter": sum(seen.memory_mib[:quarter]) // quarter,
            "last quarter": sum(seen.memory_mib[-quarter:]) // quarter,
            "most": max(seen.memory_mib),
        },
        "cpu": cpu_name(),
        "threads": os.cpu_count(),
        "load_1_min": os.getloadavg()[0],
    }
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / "hostile.json").write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))
    return int(bool(seen.faults) or quantile(times, 0.99) >= LIMIT_MS)


if __name__ == "__main__":
    sys.exit(main())
