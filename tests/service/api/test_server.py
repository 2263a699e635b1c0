"""The server as a process: address, refusals, big bodies over a real socket, an end without leftovers."""

import asyncio
import http.client
import io
import json
import re
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.server import ServeError, _check_address, _socket, is_loopback, serve
from service.settings import Settings, load
from tests.support.service_app import wire
from tests.support.service_process import server


def workers_of(process: int) -> list[int]:
    """Worker processes among the children of `process`, which for a moment also has compilers among them."""
    tasks = Path(f"/proc/{process}/task").iterdir()
    found = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    return [child for child in found if b"service.worker" in command(child)]


def command(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


@pytest.mark.turn("workers that end")
def test_it_starts_a_worker_and_both_end_on_sigterm(tmp_path: Path) -> None:
    with server(tmp_path) as (process, port):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("GET", "/livez")
        assert connection.getresponse().read() == b'{"status":"ok","checks":{}}'
        connection.close()
        workers = workers_of(process.pid)
        assert len(workers) == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        for _ in range(100):
            if not Path(f"/proc/{workers[0]}").exists():
                break
            time.sleep(0.1)
        else:
            raise AssertionError("the worker is still there")


def test_open_streams_end_with_the_server(tmp_path: Path) -> None:
    with server(tmp_path, workers=0) as (process, port):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        line = json.dumps({"custom_id": "a", "graph": wire()})
        connection.request("POST", "/v1/batches", line, {"Content-Type": "application/x-ndjson"})
        batch = json.loads(connection.getresponse().read())["id"]
        connection.request("GET", f"/v1/batches/{batch}/events")
        stream = connection.getresponse()
        while not stream.readline().startswith(b"event: progress"):
            pass
        process.send_signal(signal.SIGTERM)
        assert b"event: end" not in stream.read(), "its batch goes on"
        assert process.wait(30) == 0
    assert "Traceback" not in (tmp_path / "log").read_text(), "nothing was cut off"


@pytest.mark.turn("slow bodies")
def test_a_body_of_60_mb_is_answered_413_however_it_is_sent(tmp_path: Path) -> None:
    megabyte = b" " * 1_000_000

    def pieces() -> Iterator[bytes]:
        for _ in range(60):
            yield megabyte

    with server(tmp_path, workers=0) as (process, port):
        for body, headers in ((megabyte * 60, {}), (pieces(), {"Transfer-Encoding": "chunked"})):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            sent = {"Content-Type": "application/json", **headers}
            connection.request("POST", "/v1/plans:resolve", body, sent, encode_chunked=bool(headers))
            response = connection.getresponse()
            assert (response.status, response.getheader("Content-Type")) == (413, "application/problem+json")
            assert b"body-too-large" in response.read()
            connection.close()
        # 413 comes at once: before the body, from what its head declares.
        with socket.create_connection(("127.0.0.1", port), timeout=20) as raw:
            head = ("POST /v1/plans:resolve HTTP/1.1", "Host: localhost", "Content-Length: 60000000", "", "")
            raw.sendall("\r\n".join(head).encode())
            assert raw.recv(100).startswith(b"HTTP/1.1 413 ")
        peak = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
        assert peak
        assert int(peak[1]) < 400_000


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.1", "example.com", "", "127.0.0.1.example.com"])
def test_other_addresses_than_loopback_are_refused(tmp_path: Path, host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(ServeError, match="loopback"):
        serve(settings(tmp_path, host=host))


def test_loopback_addresses() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.1.2.3", "::1", "localhost")))


def test_other_addresses_are_taken_where_the_hosts_are_named(tmp_path: Path, logged: io.StringIO) -> None:
    """With `allowed_hosts`, as in a container, a server listens on other addresses and warns of it. Names stay refused,
    and so does "", which would be every address."""
    for host in ("0.0.0.0", "::", "192.168.1.1"):
        _check_address(settings(tmp_path, host=host, allowed_hosts="service"))
        assert f"listening on {host}: whoever reaches this address may do everything" in logged.getvalue()
    for host in ("", "example.com", "127.0.0.1.example.com"):
        with pytest.raises(ServeError, match=f"refusing to listen on {host}:"):
            serve(settings(tmp_path, host=host, allowed_hosts="service"))


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ServeError, match=f"cannot listen on 127.0.0.1:{port}"):
            serve(settings(tmp_path, port=port))


def settings(folder: Path, **given: object) -> Settings:
    return load(
        {"db": f"sqlite:///{folder / 'fuseplan.db'}", "cache": str(folder / "cache"), **given},
        env={"HOME": str(folder)},
    )


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_answers_wait_for_no_acknowledgement(host: str) -> None:
    """Nagle's algorithm is off on every connection: heads and bodies are written one after the other."""
    try:
        listener = _socket(load({"host": host, "port": 0}, env={}))
    except ServeError as error:
        assert host == "::1"
        pytest.skip(str(error))  # a machine without IPv6

    async def accepted() -> int:
        found = asyncio.get_running_loop().create_future()

        class Accepting(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                connection = transport.get_extra_info("socket")
                found.set_result(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
                transport.close()

        running = await asyncio.get_running_loop().create_server(Accepting, sock=listener)
        async with running:
            _, writer = await asyncio.open_connection(*listener.getsockname()[:2])
            writer.close()
            return await found

    assert asyncio.run(accepted()) != 0
