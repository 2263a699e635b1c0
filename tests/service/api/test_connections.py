"""Limits of one connection, over real sockets: bytes and seconds of heads, trailers and answers."""

import http.client
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from service import connections
from tests.support.service_process import server

LIMITS = (
    "from service import connections as c; c.HEAD_SECONDS = 0.5; c.UNREAD_SECONDS = 0.5; c.MAX_CONNECTIONS = 20; "
    "from service.server import serve; from service.settings import load; serve(load(), lambda a: print(a, flush=True))"
)
LIVEZ = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Port of a server that allows short times and few connections."""
    with server(tmp_path_factory.mktemp("connections"), code=LIMITS, workers=0) as (_, found):
        yield found


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=20)


def all_of(peer: socket.socket) -> bytes:
    """All bytes received until the other side closes or resets the connection."""
    found = b""
    try:
        while data := peer.recv(1 << 16):
            found += data
    except ConnectionResetError:
        pass
    return found


def send_until_closed(peer: socket.socket, data: bytes, pause_seconds: float) -> None:
    """Sends `data` again and again until the other side closes; fails where it took `data` 2,000 times."""
    try:
        for _ in range(2000):
            peer.sendall(data)
            time.sleep(pause_seconds)
    except (BrokenPipeError, ConnectionResetError):
        return
    raise AssertionError("it was never closed")


def alive(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", "/livez")
    return connection.getresponse().status == 200


@pytest.mark.parametrize("sent", [b"", b"\r\n", b"GET /livez HT", LIVEZ + b"X-A: 1\r\nX-B"], ids=repr)
def test_who_sends_no_head_is_closed(port: int, sent: bytes) -> None:
    with connected(port) as peer:
        peer.sendall(sent)
        assert all_of(peer) == b""


def test_who_drips_a_head_is_closed(port: int) -> None:
    """However little there is between two bytes."""
    with connected(port) as peer:
        peer.sendall(LIVEZ)
        send_until_closed(peer, b"X", 0.05)


def test_a_second_head_has_a_limit_too(port: int) -> None:
    with connected(port) as peer:
        peer.sendall(LIVEZ + b"\r\n" + LIVEZ)
        assert all_of(peer).count(b"HTTP/1.1 200") == 1


HEAD = connections.HEAD_BYTES
ENDLESS = {
    "a header": LIVEZ + b"X-A: " + b"a" * 8 * HEAD,
    "headers": LIVEZ + b"X-A: a\r\n" * HEAD,
    "an address": b"GET /" + b"a" * 8 * HEAD,
}


@pytest.mark.parametrize("name", ENDLESS)
def test_an_endless_head_is_431(port: int, name: str) -> None:
    with connected(port) as peer:
        try:
            peer.sendall(ENDLESS[name])
        except (BrokenPipeError, ConnectionResetError):
            return
        answer = all_of(peer)
        assert not answer or answer.startswith(b"HTTP/1.1 431 ")
    assert alive(port)


def test_endless_trailers_end_the_connection(port: int) -> None:
    head = b"POST /v1/plans:resolve HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with connected(port) as peer:
        peer.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n")
        send_until_closed(peer, b"X-A: " + b"a" * HEAD + b"\r\n", 0.005)
    assert alive(port)


def test_an_answer_that_nobody_reads_ends_the_connection(port: int) -> None:
    """The largest answer there is, asked for again and again, and never read."""
    with connected(port) as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        send_until_closed(peer, b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 4, 0.05)
    assert alive(port)


def test_who_never_waits_for_an_answer_is_closed(port: int) -> None:
    """363,000 requests were taken ahead of their answers from one connection."""
    with connected(port) as peer:
        send_until_closed(peer, b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100, 0.0)
    assert alive(port)


def test_idle_connections_make_room(port: int) -> None:
    """More than there may be, none of which sends a thing: who comes last is served."""
    idle = [connected(port) for _ in range(40)]
    try:
        assert alive(port)
    finally:
        for peer in idle:
            peer.close()


def test_a_usual_client_meets_none_of_this(port: int, tmp_path: Path) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    for _ in range(50):
        connection.request("GET", "/livez", headers={"X-Long": "a" * 8000})
        assert connection.getresponse().read() == b'{"status":"ok","checks":{}}'
