"""Input from outside: what of it reaches people and logs, and what is refused. Passwords, escapes, origins, uploads
that end early, disks without room, interrupts while a server starts."""

import http.client
import io
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from codegen.sandbox.object_cache import CacheError
from service.app import create_app
from service.cli.app import main
from service.cli.terminal import SafeConsole, out, say
from service.process import interruption, logs
from service.settings import OTHER_VARIABLES, SettingsError, load
from service.wording.formatting import visible
from tests.support.service_app import running, wire
from tests.support.service_process import CODE, server
from tuning_db.engine import shown

ROOT = Path(__file__).parents[3]
URL = "/v1/plans:resolve"
HEAD = (
    b"POST /v1/plans:resolve HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: 999\r\n\r\n"
)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("postgresql://me:secret@host/plans", "postgresql://me:***@host/plans"),
        ("postgresql://me:se@cret@host:5432/plans", "postgresql://me:***@host:5432/plans"),
        (
            "postgresql+psycopg://me@host/plans?password=secret&x=1",
            "postgresql+psycopg://me@host/plans?password=***&x=1",
        ),
        ("postgresql:///plans?user=me&PASSWORD=secret", "postgresql:///plans?user=me&PASSWORD=***"),
        ("sqlite:////var/a@b:c/plans.db", "sqlite:////var/a@b:c/plans.db"),
    ],
)
def test_passwords_are_not_told(url: str, told: str) -> None:
    assert shown(url) == told


def test_commands_do_not_tell_passwords(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Commands print the address of a database that is not there without its password."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for place in ("me:s3cret@127.0.0.1:1/plans", "127.0.0.1:1/plans?password=s3cret", "me:s3cret@[bad/plans"):
        monkeypatch.setenv("FUSEPLAN_DB", f"postgresql://{place}")
        for command in (("config", "show"), ("config", "show", "--json"), ("plans", "list"), ("serve", "--port", "0")):
            main(command)
            assert "s3cret" not in "".join(capfd.readouterr()), command


NASTY = "a\x1b[2J\x1b]0;x\x07b\x9b31m\u202e\r\nc"


def test_escapes_are_shown_not_sent() -> None:
    assert visible(NASTY) == "a\\x1b[2J\\x1b]0;x\\x07b\\x9b31m\\u202e\\r\\nc"
    assert visible("µs × → \u00a0") == "µs × → \u00a0"
    console = SafeConsole(file=io.StringIO(), force_terminal=True, width=200)
    console.print(f"[bold]{'x'}[/]", NASTY, markup=True)
    file = console.file
    assert isinstance(file, io.StringIO)
    told = re.sub(r"\x1b\[[0-9;]*m", "", file.getvalue())  # the colours are the console's own
    assert not set(told) & set("\x1b\x07\x9b\u202e\r")


def test_a_text_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    for print_ in (say, out().print):
        print_(":x: and :smile: are names")
    assert "".join(capsys.readouterr()).count(":x: and :smile: are names\n") == 2


def test_a_message_of_the_log_is_one_line() -> None:
    record = logging.LogRecord("fuseplan.x", logging.ERROR, "", 0, "name %s", (NASTY,), None)
    formatter = logs._OneLine("%(message)s")
    assert formatter.format(record) == f"name {visible(NASTY)}"


def test_pages_of_other_origins_are_refused(tmp_path: Path) -> None:
    body = {"graph": wire()}
    with running(tmp_path) as service:
        for origin, status in (
            ("http://localhost", 202),
            ("http://LOCALHOST", 202),
            ("http://evil.example", 403),
            ("http://localhost:9", 403),
            ("https://localhost", 403),
            ("null", 403),
            ("", 403),
        ):
            answer = service.client.post(URL, json=body, headers={"Origin": origin})
            assert answer.status_code == status, origin
        assert service.client.get("/v1/plans", headers={"Origin": "http://evil.example"}).status_code == 200


def test_unknown_members_are_told_with_those_that_there_are(tmp_path: Path) -> None:
    with running(tmp_path) as service:

        def detail(body: object) -> str:
            return service.client.post(URL, json=body).json()["detail"]

        assert "graph_key, target, seconds" in detail({"graph": wire(), "secnds": 1})
        assert "extents, values, inputs, outputs" in detail({"source": "x", "shapes": {"what": 1}})
        assert "shape, strides, dtype" in detail({"source": "x", "shapes": {"inputs": {"T0": {"what": 1}}}})
        graph = wire()
        graph["nodes"][0]["what"] = 1
        assert "name, op, args, attrs" in detail({"graph": graph})


def test_unknown_variables_are_refused_as_unknown_settings_are(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"FUSEPLAN_PRT.*there are .*port"):
        load(env={"HOME": str(tmp_path), "FUSEPLAN_PRT": "1"})
    used = {name for folder in ("tests", "benchmarks") for file in (ROOT / folder).rglob("*.py")
            for name in re.findall(r"environ\S*?[\"'](FUSEPLAN_[A-Z_]+)", file.read_text())}  # fmt: skip
    for name in used:
        load(env={"HOME": str(tmp_path), **({name: "1"} if name in OTHER_VARIABLES else {})})
        assert (
            name in OTHER_VARIABLES
            or name.removeprefix("FUSEPLAN_").lower() in load.__globals__["Settings"].__annotations__
        )


@pytest.mark.turn("slow bodies")
def test_uploads_that_end_early_are_no_fault(tmp_path: Path) -> None:
    with server(tmp_path, workers=0) as (_, port):
        for sent in (HEAD, HEAD + b"{", HEAD + b"{" * 500):
            with socket.create_connection(("127.0.0.1", port)) as peer:
                peer.sendall(sent)
                time.sleep(0.05)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        counted = ""
        for _ in range(100):
            connection.request("GET", "/metrics")
            counted = connection.getresponse().read().decode()
            if counted.count('status="499"'):
                break
            time.sleep(0.1)
        connection.close()
        assert 'status="499"' in counted
        assert 'status="500"' not in counted
    assert "Traceback" not in (tmp_path / "log").read_text()


@pytest.mark.turn("slow bodies")
def test_a_body_that_drips_is_408(tmp_path: Path) -> None:
    code = f"from service.api import middleware as m; m.BODY_SECONDS = 0.3; {CODE}"
    with server(tmp_path, code=code, workers=0) as (_, port), socket.create_connection(("127.0.0.1", port)) as peer:
        peer.sendall(HEAD + b"{")
        answer = b""
        while data := peer.recv(4096):
            answer += data
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"/errors/body-too-slow" in answer


def test_bodies_held_together_have_a_limit(tmp_path: Path) -> None:
    with running(tmp_path, max_held_bytes=1024) as service:
        answer = service.client.post(URL, content=b"{" * 2000, headers={"Content-Type": "application/json"})
        assert (answer.status_code, answer.json()["type"]) == (429, "/errors/too-many-bodies")
        assert int(answer.headers["Retry-After"]) > 0
        for _ in range(20):  # each is let go of with its answer
            assert service.client.post(URL, json={"graph": wire()}).status_code == 202


def test_a_full_disk_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(tmp_path) as service:
        monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=10, f_frsize=4096))
        answer = service.client.get("/readyz")
        assert answer.status_code == 503
        assert int(answer.headers["Retry-After"]) > 0
        assert "has room for 0 MiB" in answer.json()["checks"]["disk"]


def test_a_cache_that_cannot_be_made_is_told_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    settings = load({"db": f"sqlite:///{tmp_path / 'd.db'}", "cache": str(tmp_path / "file" / "c")}, env={"HOME": "/"})
    with pytest.raises(CacheError):
        create_app(settings)


@pytest.mark.parametrize("seconds", [0.3, 1.0])
def test_an_interrupt_while_it_starts_prints_no_traceback(tmp_path: Path, seconds: float) -> None:
    """Wherever it comes: while modules are imported, the database is opened, the device is looked for."""
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "  # whatever started us ignores
        f"import os, sys, threading; threading.Timer({seconds}, os.kill, (os.getpid(), 2)).start(); "
        "sys.argv[1:] = ['serve', '--port', '0', '--workers', '0']; from service.__main__ import main; sys.exit(main())"
    )
    env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    done = subprocess.run([sys.executable, "-c", code], env=env, cwd=ROOT, capture_output=True, text=True, timeout=60,
                          check=False)  # fmt: skip
    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 130, -signal.SIGINT)


@pytest.mark.parametrize("interrupted", [False, True])
@pytest.mark.parametrize("last", ["KeyboardInterrupt", "asyncio.exceptions.CancelledError"])
def test_a_traceback_of_an_interrupt_is_not_logged_as_text(
    monkeypatch: pytest.MonkeyPatch, last: str, interrupted: bool
) -> None:
    """Starlette formats what ended its start, and uvicorn logs that. What was cancelled for another reason is told."""
    monkeypatch.setattr(interruption._State, "raised", interrupted)
    text = f"Traceback (most recent call last):\n  File x\n{last}\n"
    record = logging.LogRecord("uvicorn.error", logging.ERROR, "", 0, text, None, None)
    assert interruption.is_to_be_told(record) == ("Cancelled" in last and not interrupted)
    other = logging.LogRecord("uvicorn.error", logging.ERROR, "", 0, text.replace(last, "ValueError: x"), None, None)
    assert interruption.is_to_be_told(other)
