"""A batch is worked off whoever is killed on the way: a worker in the middle of a search, then everything at once.

In `make soak` it is the whole corpus, at its small sizes; with FUSEPLAN_CORPUS=bf16 or another dtype, at those of the
benchmarks.
"""

import json
import os
import signal
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks.corpus import CASES
from fusion_ir.core.named import NamedGraph
from fusion_ir.formats.json.wire import to_wire
from fusion_ir.records import Plan
from tests.support.service_process import server
from tuning_db.store import Store

LARGE = os.environ.get("FUSEPLAN_CORPUS", "")
WHOLE = bool(LARGE) or int(os.environ.get("FUSEPLAN_RANDOM_GRAPHS", "0")) >= 2000
SETTINGS = {"workers": 2, "lease_seconds": 2.0}
GRAPHS = 6
SECONDS = 3.0 if WHOLE else 0.5


def products(size: int) -> dict[str, Any]:
    """Two matrix products, which no kernel computes at once: the first is in every graph."""
    return {
        "format": "fuseplan.graph",
        "version": 1,
        "inputs": [
            {"name": "x", "shape": [32, 64], "dtype": "f32"},
            {"name": "w", "shape": [64, 48], "dtype": "f32"},
            {"name": "v", "shape": [48, size], "dtype": "f32"},
        ],
        "nodes": [
            {"name": "common", "op": "matmul", "args": ["x", "w"]},
            {"name": "own", "op": "matmul", "args": ["common", "v"]},
        ],
        "outputs": [{"node": "own"}],
    }


def lines() -> bytes:
    """Graphs with a segment in common; or the corpus."""
    graphs: dict[str, Any] = {f"products {n}": products(40 + n) for n in range(GRAPHS)}
    if WHOLE:
        of = {name: case.instance("f32", case.small[1]).graph for name, case in CASES.items()}
        if LARGE:
            of = {name: case.instance(LARGE).graph for name, case in CASES.items() if LARGE in case.bench_dtypes}
        graphs = {name: to_wire(NamedGraph.unnamed(graph)) for name, graph in of.items()}
    return b"".join(json.dumps({"custom_id": n, "graph": g}).encode() + b"\n" for n, g in graphs.items())


class Watched:
    """A batch, seen through the database."""

    def __init__(self, store: Store, id: str) -> None:
        self.store, self.id = store, id

    def ended(self) -> int:
        return len(self.store.batches.ended(self.id))

    def held(self, dead: Collection[int] = ()) -> dict[str, int]:
        """Operations whose search has begun, and the processes that hold them, dead ones aside."""
        items = self.store.batches.items(self.id, ["running"])
        found = [self.store.queue.operation(item.operation_id or "") for item in items if item.progress]
        owners = {o.id: int(o.owner.split(":")[1]) for o in found if o is not None and o.state == "running"}
        return {id: process for id, process in owners.items() if process not in dead}

    def kill(self, process: int) -> set[str]:
        """Kills a worker; the operations that it leaves behind."""
        os.kill(process, signal.SIGKILL)
        self.wait(lambda: is_gone(process))
        return {id for id, holder in self.held().items() if holder == process}

    def wait(self, holds: Callable[[], object]) -> None:
        for _ in range(40_000 if WHOLE else 4_000):
            if holds():
                return
            time.sleep(0.02)
        raise AssertionError(f"waited long enough: {self.store.batches.batch(self.id)}")


def is_gone(process: int) -> bool:
    """Whether the process has ended, though its parent may not have noticed."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.turn("kills")
@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_batch_ends_complete_though_its_workers_are_killed_twice(known_machine: Path) -> None:
    folder, db = known_machine, f"sqlite:///{known_machine / 'plans.db'}"
    with Store(db) as store:
        with server(folder, db=db, **SETTINGS) as (process, port):
            sent = httpx.post(
                f"http://127.0.0.1:{port}/v1/batches?seconds={SECONDS}",
                content=lines(),
                headers={"Content-Type": "application/x-ndjson"},
                timeout=60,
            )
            assert sent.status_code == 201, sent.text
            watched = Watched(store, sent.json()["id"])

            lost: set[str] = set()
            dead: set[int] = set()
            while not lost:  # one that ended in that very moment loses nothing
                watched.wait(lambda: watched.held(dead))
                victim = next(iter(watched.held(dead).values()))
                lost |= watched.kill(victim)
                dead.add(victim)

            before = watched.ended()
            watched.wait(lambda: watched.ended() > before and watched.held(dead))
            process.kill()
            for worker in set(watched.held(dead).values()):
                lost |= watched.kill(worker)
            process.wait()
        left = store.batches.batch(watched.id)
        assert left is not None and left.state == "running", "it ended before the second kill: nothing was tested"
        with server(folder, db=db, **SETTINGS) as (_, port):
            watched.wait(lambda: getattr(store.batches.batch(watched.id), "finished", None))
            shown = httpx.get(f"http://127.0.0.1:{port}/v1/batches/{watched.id}", timeout=60).json()
        assert shown["counts"] == {"queued": 0, "running": 0, "done": shown["items"], "failed": 0, "cancelled": 0}
        leases = {o.id: o.token for o in store.queue.operations(limit=1000)}
        assert all(leases[id] > 1 for id in lost), "what was killed was taken over"
        for item in watched.store.batches.items(watched.id):
            body = store.plans.plan(json.loads(item.result or "")["plan_key"])
            assert body is not None
            assert Plan.model_validate_json(body).graph_key == item.graph_key
        segments = shown["segments"]
        assert segments["used"] == segments["distinct"] + segments["shared"]
        assert segments["shared"] > 0
        print(f"{shown['items']} graphs: {segments}")
