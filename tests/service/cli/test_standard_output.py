"""Standard output of the process: results alone, whatever libraries and other processes write to the descriptor."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from codegen.sandbox.object_cache import ObjectCache
from tests.support.known_machine import know_machine
from tuning_db.store import Store

ROOT = Path(__file__).resolve().parents[3]
NOISE = "a library says"
# Libraries that print: when imported, through C's own buffers, when called, from a process, and when all is over.
NOISY = f"""
import atexit, ctypes, os, sys

class Noisy:
    def find_spec(self, name, path=None, target=None):
        if name in ("numpy", "highspy", "sqlalchemy", "service.cli.app", "typer"):
            os.write(1, b"{NOISE}: imported\\n")
            ctypes.CDLL(None).puts(b"{NOISE}: imported, by puts")
            os.system("echo {NOISE}: from a process")

sys.meta_path.insert(0, Noisy())
atexit.register(lambda: os.write(1, b"{NOISE}: the end\\n"))
"""


def fuseplan(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """The command line as a process, among libraries that print. Its home is `folder`."""
    (folder / "sitecustomize.py").write_text(NOISY)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("FUSEPLAN_", "XDG_"))},
        "PYTHONPATH": os.pathsep.join((str(folder), str(ROOT))),
        "HOME": str(folder),
        "FUSEPLAN_DB": f"sqlite:///{folder / 'plans.db'}",
        "FUSEPLAN_CACHE": str(folder / "cache"),
    }
    return subprocess.run(
        [sys.executable, "-m", "service", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
        cwd=folder,
        check=False,
    )


@pytest.mark.parametrize("command", ["tune", "convert"])
def test_results_alone_are_printed(tmp_path: Path, graph_file: Path, command: str) -> None:
    arguments = {
        "tune": ("tune", graph_file, "--seconds", 0, "--json"),
        "convert": ("convert", graph_file, "--to", "text"),
    }[command]
    if command == "tune":
        with Store(f"sqlite:///{tmp_path / 'plans.db'}") as store:
            know_machine(ObjectCache(tmp_path / "cache", store.seal()))
    ended = fuseplan(tmp_path, *arguments)
    assert ended.returncode == 0, ended.stderr
    assert NOISE not in ended.stdout
    assert all(f"{NOISE}: {what}" in ended.stderr for what in ("imported\n", "imported, by puts", "from a", "the end"))
    if command == "convert":
        assert ended.stdout == graph_file.read_text()
    else:
        json.loads(ended.stdout)


CLAIMING = f"""
import ctypes, os, sys
sys.path.insert(0, {str(ROOT)!r})
from service.process import standard_output
standard_output.claim()
with open(sys.argv[1], "w") as database:
    os.write(1, b"{NOISE}")
    print("a result", flush=True)
"""


@pytest.mark.parametrize("closed", ["", "<&-", ">&-", "2>&-", "<&- >&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_no_file_gets_what_was_printed_where_descriptors_are_closed(tmp_path: Path, closed: str) -> None:
    file = tmp_path / "database"
    command = f'exec "$0" -c "$1" "$2" {closed}'
    arguments = ["/bin/sh", "-c", command, sys.executable, CLAIMING, str(file)]
    ended = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == ("" if ">&-" in closed.replace("2>&-", "") else "a result\n")
    assert ended.stderr == ("" if "2>&-" in closed else NOISE)
    assert file.read_text() == ""
