"""The database's password as containers get it: in a file, to a PostgreSQL that asks for one."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.dockerfile import DOCKER, ROOT
from tests.support.processes import within

PASSWORD = "s3cret: word"
START_SECONDS = 60.0


@pytest.fixture(scope="module")
def server() -> Iterator[Path]:
    """The folder with the socket of a server that lets `fuseplan` in by password alone, and with the file of that."""
    binaries = next((p for p in sorted(Path("/usr/lib/postgresql").glob("*/bin")) if (p / "initdb").exists()), None)
    if binaries is None:
        pytest.skip("no PostgreSQL server binaries (initdb, postgres) on this machine")
    folder = Path(tempfile.mkdtemp(prefix="fuseplan-pg-"))
    user = "postgres" if os.getuid() == 0 else None  # initdb refuses to run as root
    try:
        (folder / "password").write_text(PASSWORD)
        if user is not None:
            shutil.chown(folder, user)
            shutil.chown(folder / "password", user)
        asking = ["-A", "scram-sha-256", f"--pwfile={folder / 'password'}", "--no-sync"]
        made = [binaries / "initdb", "-D", folder / "data", "-U", "fuseplan", *asking]
        subprocess.run(made, check=True, user=user, cwd=folder, capture_output=True)
        options = ["-c", "listen_addresses=", "-c", f"unix_socket_directories={folder}", "-c", "fsync=off"]
        command = [binaries / "postgres", "-D", folder / "data", *options]
        with (
            (folder / "log").open("wb") as log,
            subprocess.Popen(command, user=user, cwd=folder, stdout=log, stderr=log) as process,
        ):
            try:
                ready = "ready to accept connections"
                assert within(START_SECONDS, lambda: ready in (folder / "log").read_text()), (
                    folder / "log"
                ).read_text()
                yield folder
            finally:
                process.terminate()
    finally:
        shutil.rmtree(folder)


def fuseplan(folder: Path, *words: str, **env: str) -> "subprocess.CompletedProcess[str]":
    """A command behind the entry point, with an address that has no password."""
    address = f"postgresql://fuseplan@/postgres?host={folder}"
    given = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(ROOT), "FUSEPLAN_DB": address, **env}
    command = [str(DOCKER / "entrypoint.sh"), sys.executable, "-m", "service", *words]
    return subprocess.run(command, env=given, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.turn("containers")
def test_a_password_in_a_file_opens_the_database_and_is_told_to_nobody(server: Path) -> None:
    secret = {"PGPASSWORD_FILE": str(server / "password")}
    opened = fuseplan(server, "db", "current", **secret)
    assert opened.returncode == 0, opened.stderr
    shown = fuseplan(server, "config", "show", "--json", **secret)
    assert shown.returncode == 0
    assert PASSWORD not in opened.stdout + opened.stderr + shown.stdout + shown.stderr


@pytest.mark.turn("containers")
def test_without_it_the_database_stays_closed(server: Path) -> None:
    refused = fuseplan(server, "db", "current")
    assert refused.returncode == 2
    assert "no password supplied" in refused.stderr
