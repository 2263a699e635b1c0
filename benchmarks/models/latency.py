"""Times of single calls of a compiled model whose server is absent, slow, wrong or dies: what the back end adds.

python -m benchmarks.models.latency [--calls 4000]

Each state has a back end of its own, which asks, waits and asks again while calls go on; beside it, by turns, runs the
same function by `torch.compile(backend="eager")`.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from fuseplan_client.server.limits import Limits
from fuseplan_client.torch.backend import Backend
from torch import Tensor

from benchmarks.machine import RESULTS, machine
from testing.plan_server import NEVER, Asked, Piece, http, plan_server, problem

ABSENT = "http://127.0.0.1:9"
RUN = 50  # calls of one side before the other's turn
OPERATION = {"id": "op1", "state": "queued", "done": False, "kind": "plan"}
STATES: dict[str, Sequence[Piece]] = {
    "absent": (),
    "accepts, and says nothing": (NEVER,),
    "ends in the middle of an answer": (http(b'{"plan": {' + b" " * 500)[:-200],),
    "answers with a page": (http(b"<html>"),),
    "answers with another plan": (http({"plan": 3}),),
    "is busy": (problem(429, "too-many-operations"),),
    "is broken": (problem(500, "internal"),),
    "searches for ever": (http({"operation": OPERATION}, 202, headers=[("Retry-After", "1")]),),
}
FOLDERS = ("a cache", "a file in the cache's place")


def main() -> int:
    """Measures every state and writes results/models_latency.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=4000)
    calls = parser.parse_args().calls
    torch.set_num_threads(1)
    lines: list[str] = []
    for state in STATES:
        for folder in FOLDERS:
            ours, plain = _samples_us(state, folder, calls)
            lines.append(f"| {state} | {folder} | {_row(ours)} | {_row(plain)} | {_added(ours, plain):.0f} |")
            print(lines[-1], flush=True)
    (RESULTS / "models_latency.md").write_text(_page(lines, calls))
    return 0


def _samples_us(state: str, folder: str, count: int) -> tuple[list[float], list[float]]:
    """Times of calls by the back end, and by PyTorch alone."""
    with tempfile.TemporaryDirectory() as where:
        cache = Path(where, "cache")
        if folder != FOLDERS[0]:
            cache.write_text("")

        def respond(_: Asked) -> Sequence[Piece]:
            return STATES[state]

        with plan_server(respond) as server:
            limits = Limits(attempt_s=0.2, connect_s=0.1, hedge_s=0.05, attempts=2, deadline_s=0.5, backoff_s=0.01)
            url = ABSENT if state == "absent" else server.url
            torch._dynamo.reset()
            backend = Backend(server=url, client={"limits": limits, "cache": cache})
            ours = torch.compile(_model, backend=backend, dynamic=False)
            plain = torch.compile(_model, backend="eager", dynamic=False)
            x = torch.randn(1000)
            with torch.no_grad():
                for call in (ours, plain):
                    call(x)
                return _by_turns((ours, plain), x, count)


def _model(x: Tensor) -> Tensor:
    return (x.exp() * 2 + 1).tanh()


def _by_turns(calls: Sequence[Callable[[Tensor], Tensor]], x: Tensor, count: int) -> tuple[list[float], list[float]]:
    found: tuple[list[float], list[float]] = ([], [])
    while len(found[0]) < count:
        for call, samples in zip(calls, found, strict=True):
            for _ in range(RUN):
                start = time.perf_counter()
                call(x)
                samples.append(1e6 * (time.perf_counter() - start))
    return found


def _row(samples: Sequence[float]) -> str:
    median, late, latest = np.percentile(samples, [50, 99, 99.9])
    return f"{median:.1f} | {late:.0f} | {latest:.0f}"


def _added(ours: Sequence[float], plain: Sequence[float]) -> float:
    """Microseconds that the 99th percentile of the back end is above PyTorch's."""
    return float(np.percentile(ours, 99) - np.percentile(plain, 99))


def _page(lines: Sequence[str], calls: int) -> str:
    about = machine()
    return "\n".join(
        (
            "# What a call waits for",
            "",
            f"{about['device']}; PyTorch {torch.__version__}; {about['commit']}. A function of four ops on 1,000",
            f"elements, {calls:,} calls of either side, {RUN} in turn, while the back end asks a server in the state",
            "that is named: microseconds of a call by it, and by Dynamo with eager mode.",
            "`python -m benchmarks.models.latency`",
            "",
            "| the server | on disk | ours, median | p99 | p99.9 | eager, median | p99 | p99.9 | added at p99 |",
            "|---|---|---:|---:|---:|---:|---:|---:|---:|",
            *lines,
            "",
        )
    )


if __name__ == "__main__":
    raise SystemExit(main())
