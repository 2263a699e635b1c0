"""Databases for the tests: SQLite in a temporary folder, PostgreSQL on a server of their own."""

import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from math import ceil
from pathlib import Path

import psycopg
import pytest

from tests.service.db.samples import Samples
from tests.support.whole import WHOLE, some
from tuning_db.store import Store

ROOT = Path(__file__).parents[3]
POSTGRESQL_SHARE = 0.25  # of the tests that run on both databases
WORKER = Path(__file__).with_name("queue_worker.py")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Draws the tests of this folder that run on PostgreSQL as well as on SQLite; in the long run, and where somebody
    names tests, all of them do."""
    mine = [
        item
        for item in items
        if isinstance(item, pytest.Function)
        and item.path.is_relative_to(WORKER.parent)
        and hasattr(item, "callspec")
        and item.callspec.params.get("url") == "postgresql"
    ]
    for item in mine:
        item.add_marker(pytest.mark.soak)
    if WHOLE or any("::" in argument for argument in config.args):
        return
    left = set(mine) - set(some(mine, ceil(POSTGRESQL_SHARE * len(mine)), "postgresql"))
    if left:
        config.hook.pytest_deselected(items=[item for item in mine if item in left])
        items[:] = [item for item in items if item not in left]


@pytest.fixture
def samples() -> Samples:
    return Samples()


def _postgres_binaries() -> Path | None:
    found = shutil.which("initdb")
    places = [Path(found).parent] if found else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((place for place in places if (place / "initdb").exists() and (place / "postgres").exists()), None)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Callable[[str], str]]:
    """A server on a unix socket in a folder of its own; gives the address of a schema by name."""
    binaries = _postgres_binaries()
    if binaries is None:
        pytest.skip("no PostgreSQL server binaries (initdb, postgres) on this machine")
    with tempfile.TemporaryDirectory(prefix="fuseplan-pg-", ignore_cleanup_errors=True) as folder:
        yield from _served(binaries, Path(folder))


def _served(binaries: Path, folder: Path) -> Iterator[Callable[[str], str]]:
    user: str | None = None
    if os.getuid() == 0:  # initdb refuses to run as root
        user = "postgres"
        shutil.chown(folder, user)
    data = folder / "data"
    setup = [binaries / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "--no-sync", "--no-instructions"]
    subprocess.run(setup, check=True, user=user, cwd=folder, capture_output=True)
    options = ["listen_addresses=", f"unix_socket_directories={folder}", "fsync=off", "max_connections=60"]
    command = [binaries / "postgres", "-D", data, *itertools.chain.from_iterable(("-c", o) for o in options)]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, user=user, cwd=folder, stdout=log, stderr=log)
    try:
        _wait_for_server(server, folder)
        yield lambda schema: f"postgresql://postgres@/postgres?host={folder}&options=-csearch_path%3D{schema}"
    finally:
        server.send_signal(signal.SIGQUIT)  # at once: nobody needs the data
        server.wait(timeout=30)


def _wait_for_server(server: subprocess.Popen[bytes], folder: Path) -> None:
    for _ in range(300):
        assert server.poll() is None, (folder / "log").read_text()
        try:
            psycopg.connect(f"host={folder} user=postgres dbname=postgres").close()
            return
        except psycopg.OperationalError:
            time.sleep(0.05)
    raise AssertionError("PostgreSQL did not start: " + (folder / "log").read_text())


_numbers = itertools.count()


@pytest.fixture
def postgres_url(postgres: Callable[[str], str]) -> str:
    """An empty PostgreSQL database: a schema of its own, quicker to make than a database."""
    name = f"test{next(_numbers)}"
    with psycopg.connect(postgres("public"), autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")  # pyright: ignore
    return postgres(name)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'fuseplan.db'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> str:
    """An empty database of each kind."""
    return request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "postgres_url")


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with Store(url) as opened:
        yield opened


@pytest.fixture
def worker() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts `queue_worker.py` with arguments; what still runs at the end is killed by its process id."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, str(WORKER), *arguments]
        process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()
