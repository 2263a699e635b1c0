"""The application behind a real socket, in a thread of the test's process, for clients that are programs."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI

from service.app import create_app
from service.connections import BoundedProtocol
from service.settings import Settings, load
from testing.plan_server import waited
from tests.support.service_app import detector, readers
from tuning_db.store import Store


@dataclass(frozen=True)
class Served:
    """The address of the application, the application, its database and its public key."""

    url: str
    app: FastAPI
    store: Store
    settings: Settings
    public_key: str


@contextmanager
def served(folder: Path, **settings: Any) -> Iterator[Served]:
    """Answers requests within the block, without workers."""
    given = {"db": f"sqlite:///{folder / 'fuseplan.db'}", "cache": str(folder / "cache"), "port": 0, **settings}
    loaded = load(given, env={"HOME": str(folder)})
    app = create_app(loaded, detector=detector, readers=readers())
    options: dict[str, Any] = {"loop": "asyncio", "http": BoundedProtocol, "ws": "none", "log_config": None}
    config = uvicorn.Config(app, host="127.0.0.1", port=0, access_log=False, **options)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        assert waited(lambda: server.started)
        port = server.servers[0].sockets[0].getsockname()[1]
        found = app.state.context
        yield Served(f"http://127.0.0.1:{port}", app, found.store, loaded, found.key.public)
    finally:
        server.should_exit = True
        thread.join(20)
