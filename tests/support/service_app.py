"""The application with a database of its own and a device that is not there, for tests over HTTP without workers."""

import atexit
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.testclient import TestClient

from codegen.devices.detection import DeviceError
from fusion_ir.records import Device
from service.api.readers import Readers
from service.app import create_app
from service.settings import Settings, load
from tests.support.stored_plans import DEVICE
from tuning_db.store import Store


@dataclass(frozen=True)
class Running:
    """The application, a client of it, and its database."""

    app: FastAPI
    client: TestClient
    store: Store
    settings: Settings


def detector(target: str) -> Device:
    """A machine with one CPU and nothing else."""
    if target == "cpu":
        return DEVICE
    raise DeviceError("no CUDA device: there is no driver; install one")


@cache
def readers() -> Readers:
    """The `Readers` that all applications of a test run share: their process starts once, and ends with the run."""
    found = Readers()
    atexit.register(found.close)
    return found


@contextmanager
def running(folder: Path, **settings: Any) -> Iterator[Running]:
    """Answers requests within the block."""
    given = {"db": f"sqlite:///{folder / 'fuseplan.db'}", "cache": str(folder / "cache"), **settings}
    loaded = load(given, env={"HOME": str(folder)})
    app = create_app(loaded, detector=detector, readers=readers())
    with TestClient(app, base_url="http://localhost", raise_server_exceptions=False) as client:
        yield Running(app, client, app.state.context.store, loaded)


def wire(size: int = 8, ops: tuple[str, ...] = ("exp", "neg"), names: tuple[str, str] = ("x", "y")) -> dict[str, Any]:
    """`stored_plans.chain` in the wire format."""
    nodes: list[dict[str, Any]] = []
    last = names[0]
    for i, op in enumerate(ops):
        nodes.append({"name": f"t{i}", "op": op, "args": [last]})
        last = f"t{i}"
    inputs = [{"name": names[0], "shape": [size], "dtype": "f32"}]
    return {
        "format": "fuseplan.graph",
        "version": 1,
        "inputs": inputs,
        "nodes": nodes,
        "outputs": [{"node": last, "name": names[1]}],
    }


def problems(service: Running) -> dict[str, float]:
    """Problems by type, as the server's metrics have them."""
    text = service.client.get("/metrics").text
    rows = re.findall(r'^fuseplan_problems_total\{type="(\S+)"\} (\S+)', text, re.MULTILINE)
    return {slug: float(count) for slug, count in rows}


def stored(store: Store) -> tuple[int, int]:
    """How many plans and operations there are: what a refused request must not change."""
    return len(store.plans.plans(limit=1000).items), len(store.queue.operations())
