"""How much signing adds to a resolve that hits: two servers with one plan, of which one signs nothing, asked in turn.

    python -m benchmarks.service.signing_cost [--requests N] [--seconds S]

Each pair of requests goes to both servers, in random order, so that whatever disturbs the machine disturbs both. Times
are from before the request is written until its answer is read whole. Bodies are the same ones again, the fastest path.
Processor time of the servers says more where others work on the machine.
"""

import argparse
import http.client
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.service.resolve_latency import GRAPH, SERVER, ask, planned, quantile, server
from fusion_ir.formats import read
from fusion_ir.formats.json.wire import to_wire

UNSIGNED = "from service.api import resolve; resolve.signed = lambda *_: {}; " + SERVER
WARM = 100


def main() -> int:
    """Prints quantiles of both servers, and of the differences within pairs, in microseconds."""
    parser = argparse.ArgumentParser(description="Cost of signing a hit.")
    parser.add_argument("--requests", type=int, default=3000, help="pairs of timed requests")
    parser.add_argument("--seconds", type=float, default=2.0, help="of the search that makes the plan")
    options = parser.parse_args()
    body = {"graph": to_wire(read(GRAPH.read_text(), "nvfuser")), "seconds": max(0.1, options.seconds)}
    content = json.dumps(body).encode()
    with (
        tempfile.TemporaryDirectory(prefix="fuseplan-signing-") as folder,
        made(Path(folder), body) as size,
        server(Path(folder), workers=0) as (signing, *processes),
        server(Path(folder), code=UNSIGNED, workers=0) as (plain, other),
    ):
        connections = [http.client.HTTPConnection("127.0.0.1", port, timeout=600) for port in (signing, plain)]
        processes.append(other)
        timed(connections, content, WARM)
        before_us = [processor_us(process) for process in processes]
        pairs = timed(connections, content, options.requests)
        spent_us = [(processor_us(process) - us) / len(pairs) for process, us in zip(processes, before_us, strict=True)]
    print(f"{GRAPH.name}: request {len(content):,} bytes, answer {size:,} bytes, {len(pairs):,} pairs of requests")
    columns = {
        "signed": [a for a, _ in pairs],
        "unsigned": [b for _, b in pairs],
        "difference": [a - b for a, b in pairs],
    }
    for name, times_us in columns.items():
        ordered = sorted(times_us)
        print(f"  {name:<10}" + "".join(f"  {q:.0%} {quantile(ordered, q):8.1f} us" for q in (0.1, 0.5, 0.9)))
    print("  processor time a request: signed {:.0f} us, unsigned {:.0f} us".format(*spent_us))
    return 0


def processor_us(process: int) -> float:
    """Microseconds of processor time that a process has taken, in steps of a clock tick."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1e6 / os.sysconf("SC_CLK_TCK")


@contextmanager
def made(folder: Path, body: dict[str, Any]) -> Iterator[int]:
    """Has a server make the plan, which ends before the block; the bytes of the answer."""
    with server(folder, workers=1) as (port, _):
        size = len(planned(http.client.HTTPConnection("127.0.0.1", port, timeout=600), body))
    yield size


def timed(connections: list[http.client.HTTPConnection], content: bytes, count: int) -> list[tuple[float, float]]:
    """Microseconds of pairs of requests, the signing server's first. All must hit, and be signed by that one alone."""
    pairs: list[tuple[float, float]] = []
    for _ in range(count):
        took_us = [0.0, 0.0]
        for which in random.sample((0, 1), 2):
            started = time.perf_counter()
            status, answer = ask(connections[which], content)
            took_us[which] = (time.perf_counter() - started) * 1e6
            if status != 200 or b'"cache":"hit"' not in answer[:200]:
                raise SystemExit(f"{status}: expected a hit, got {answer[:200]!r}")
        pairs.append((took_us[0], took_us[1]))
    return pairs


if __name__ == "__main__":
    sys.exit(main())
