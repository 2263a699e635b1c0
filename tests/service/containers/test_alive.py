"""The health check of the images: asks a server, believes nothing but 200."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.dockerfile import DOCKER
from tests.support.service_process import server


def alive(port: int) -> "subprocess.CompletedProcess[str]":
    env = {"PATH": os.environ["PATH"], "FUSEPLAN_PORT": str(port), "http_proxy": "http://127.0.0.1:9"}
    command = [sys.executable, "-I", str(DOCKER / "alive.py")]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)


@contextmanager
def answering(answer: bytes) -> Iterator[int]:
    """The port of somebody who answers one connection with these bytes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer_once() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

        thread = threading.Thread(target=answer_once)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


@pytest.mark.turn("containers")
def test_a_server_that_answers_is_alive(tmp_path: Path) -> None:
    with server(tmp_path, workers=0) as (_, port):
        done = alive(port)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_port_that_nobody_listens_on_is_not() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        done = alive(unused.getsockname()[1])
    assert done.returncode == 1
    assert "refused" in done.stderr


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", "expected 200 of /livez, got 503"),
        (b"SSH-2.0-OpenSSH\r\n", "SSH-2.0"),
        (b"", "closed connection"),
    ],
)
def test_other_answers_are_not(answer: bytes, why: str) -> None:
    with answering(answer) as port:
        done = alive(port)
    assert done.returncode == 1
    assert why in done.stderr
    assert "Traceback" not in done.stderr
