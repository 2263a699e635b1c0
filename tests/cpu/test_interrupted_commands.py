"""Ctrl-C at any moment from our first line on: one line on standard error, exit code 130, nothing left behind."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from codegen.devices.ceilings import MEASURING
from tests.cpu.test_command_line import GRAPH
from tests.support.processes import descendants, gone, within
from tests.support.whole import in_turn

ROOT = Path(__file__).resolve().parents[2]
LINE = "error: interrupted\n"
# What commands say before they measure or search, whether anybody interrupts them then or not.
ANNOUNCED = re.compile(rf"^({re.escape(MEASURING)}|.*searching up to \d+ s.*)\n", re.MULTILINE)
END_SECONDS = 30.0

# Runs a command line that interrupts itself when the module is about to be imported.
AT_AN_IMPORT = """
import os, runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever started us ignores
class At:
    def find_spec(self, name, *_):
        if name == WHERE:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, At())
runpy.run_module("service", run_name="__main__")
"""
# Says that it is there, then runs a command line.
SAYS = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from service.process import interruption
interruption.listen()
os.write(1, b"here\\n")
from service.__main__ import main
sys.exit(main())
"""
# Interrupted while an object goes away: Python drops exceptions there.
GOING_AWAY = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from service.process import interruption
from service.__main__ import main
import service.cli.commands.convert as convert
class Object:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):
            pass
def read(*_):
    Object()
    time.sleep(20)
convert.read_graph = read
sys.exit(main())
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "graph.txt").write_text(GRAPH)
    (tmp_path / "tmp").mkdir()
    return tmp_path


@pytest.fixture
def searching_home(home: Path, known_machine: Path) -> Path:
    """`home` of a machine whose ceilings are known, for commands that search."""
    return known_machine


def environment(home: Path) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"], "HOME": str(home), "TMPDIR": str(home / "tmp"), "PYTHONPATH": str(ROOT),
        "FUSEPLAN_DB": f"sqlite:///{home / 'plans.db'}", "FUSEPLAN_CACHE": str(home / "cache"),
    }  # fmt: skip


@contextmanager
def started(home: Path, *arguments: str, code: str = SAYS) -> "Iterator[subprocess.Popen[str]]":
    """A command in a session of its own, as at a terminal, once its first line has run."""
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments], env=environment(home), cwd=home, text=True, start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            if code == SAYS:
                assert process.stdout.readline() == "here\n"
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def interrupt(process: "subprocess.Popen[str]") -> None:
    """Sends SIGINT to the process's whole group, as a terminal does on Ctrl-C to its foreground."""
    os.killpg(process.pid, signal.SIGINT)


def ended(process: "subprocess.Popen[str]") -> tuple[int, str]:
    """The exit code, and what was said on stderr but announcements."""
    _, told = process.communicate(timeout=END_SECONDS)
    return process.returncode, ANNOUNCED.sub("", told)


MODULES = [
    "service.process.standard_output", "service.cli", "typer", "typer.main", "service.cli.commands.tune", "numpy",
    "ml_dtypes", "sqlalchemy", "sqlalchemy.orm", "tuning_db.models", "pydantic.main", "rich.console",
    "codegen.devices.detection", "fusion_ir.formats.json.wire", "service.planning.search", "scheduler.tune",
    "highspy", "codegen.families",
]  # fmt: skip


@pytest.mark.soak
@pytest.mark.parametrize("module", in_turn(MODULES, 2, "modules"))
def test_while_a_module_is_imported(searching_home: Path, module: str) -> None:
    home = searching_home
    code = AT_AN_IMPORT.replace("WHERE", repr(module))
    with started(home, "tune", str(home / "graph.txt"), "--seconds", "5", code=code) as process:
        assert ended(process) == (130, LINE)


COMMANDS = [
    ["--help"], ["plans", "list"], ["config", "show"], ["db", "current"], ["explain", "-"], ["trials", "-"],
    ["convert", "-", "--to", "json"], ["doctor"], ["devices"], ["run", "-", "--inputs", "none", "--outputs", "none"],
]  # fmt: skip


@pytest.mark.soak
@pytest.mark.parametrize("arguments", in_turn(COMMANDS, 1, "commands"), ids=" ".join)
def test_at_some_moments(home: Path, arguments: list[str]) -> None:
    for number in range(6):
        with started(home, *arguments) as process:
            try:
                process.wait(0.02 + 0.11 * number)
            except subprocess.TimeoutExpired:
                interrupt(process)
            code, told = ended(process)
        assert "Traceback" not in told
        assert "Exception ignored" not in told
        if code == 130:
            assert told == LINE, number
        else:
            assert "interrupted" not in told, "it was through"


@pytest.mark.soak
def test_while_a_graph_is_read_from_a_terminal_or_a_pipe(home: Path) -> None:
    for arguments in in_turn((["tune", "-"], ["convert", "-", "--to", "text"], ["explain", "-"]), 1, "read"):
        with started(home, *arguments) as process:
            assert within(30, lambda process=process: waits_for_input(process.pid))
            interrupt(process)
            assert ended(process) == (130, LINE), arguments


def waits_for_input(pid: int) -> bool:
    """Whether the process is in a read of descriptor 0."""
    return Path(f"/proc/{pid}/syscall").read_text().startswith("0 0x0 ")


ASKING = [["tune", "graph.txt"], ["batch", "list"], ["batch", "watch", "b"]]


@pytest.mark.soak
@pytest.mark.parametrize("command", in_turn(ASKING, 1, "asking"), ids=" ".join)
def test_while_a_server_says_nothing(home: Path, command: list[str]) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        server.settimeout(END_SECONDS)
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        with started(home, *command, "--server", address) as process:
            connection, _ = server.accept()
            with connection:
                assert connection.recv(1)
                interrupt(process)
                assert ended(process) == (130, LINE)


def test_where_python_drops_exceptions(home: Path) -> None:
    with started(home, "convert", "-", "--to", "text", code=GOING_AWAY) as process:
        assert ended(process) == (130, LINE)


def test_who_ignores_interrupts_goes_on_to(home: Path) -> None:
    """A command that was started with SIGINT ignored, as a shell starts background jobs, ends its work undisturbed."""
    code = SAYS.replace("signal.default_int_handler", "signal.SIG_IGN")
    with subprocess.Popen(
        [sys.executable, "-c", code, "convert", "-", "--to", "text"], env=environment(home), cwd=home, text=True,
        start_new_session=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert within(30, lambda: waits_for_input(process.pid))
        interrupt(process)
        out, told = process.communicate(GRAPH, timeout=END_SECONDS)
    assert (process.returncode, told) == (0, "")
    assert "fuseplan.graph" in out


def children_gone(family: "set[int] | list[int]") -> Callable[[], bool]:
    return lambda: all(map(gone, family))


@pytest.mark.turn("interrupts")
@pytest.mark.soak
@pytest.mark.timeout(180)
@pytest.mark.parametrize("times", in_turn([2, 3], 1, "times"))
def test_twice_in_a_search(searching_home: Path, times: int) -> None:
    """The first asks for the best so far, the second for no plan, a third for no time to clean up in."""
    home = searching_home
    with started(home, "tune", "graph.txt", "--seconds", "60") as process:
        assert within(60, lambda: len(descendants(process.pid)) >= 2), "compilers, timing"
        family = descendants(process.pid)
        for _ in range(times):
            interrupt(process)
            try:
                process.wait(0.1)
            except subprocess.TimeoutExpired:
                continue
            break
        code, told = ended(process)
    assert (code, told) in ((130, LINE), (0, "")), "its plan may have been there at once"
    assert within(10.0, children_gone(family))
    if times == 2:
        assert not list((home / "tmp").glob("fuseplan-*"))


@pytest.mark.timeout(120)
def test_a_server_ends_as_it_was_asked_to(home: Path) -> None:
    with started(home, "serve", "--port", "0") as process:
        assert process.stderr is not None
        assert "Ctrl-C stops it" in process.stderr.readline()
        family = descendants(process.pid)
        interrupt(process)
        assert ended(process) == (0, "")
    assert within(10.0, children_gone(family))
