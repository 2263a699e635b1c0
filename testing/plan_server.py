"""A server whose answers a test writes byte by byte: late, wrong, cut off in the middle, or none."""

import hashlib
import json
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from fuseplan_client.server import Limits, limits

Piece = bytes | float  # bytes to send, or seconds to wait
NEVER = 30.0  # seconds: longer than any test waits; a server that ends waits no longer


@dataclass(frozen=True)
class Asked:
    """A request as it came. number: how many came before it; connection: its number among the connections."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    number: int
    connection: int


Respond = Callable[[Asked], Sequence[Piece]]


@dataclass
class PlanServer:
    """The server's address, the requests that came, and the function that answers them, which may be another one at any
    time."""

    url: str
    respond: Respond
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0
    ended: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)


def http(
    body: bytes | dict[str, Any] = b"",
    status: int = 200,
    media_type: str = "application/json",
    headers: Sequence[tuple[str, str]] = (),
) -> bytes:
    """The bytes of a whole answer."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} Something", f"Content-Type: {media_type}", f"Content-Length: {len(content)}"]
    lines += [f"{name}: {value}" for name, value in headers]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + content


def problem(status: int, slug: str = "busy", headers: Sequence[tuple[str, str]] = (), **more: Any) -> bytes:
    """A problem document."""
    document = {"type": f"/errors/{slug}", "title": "Too much to do", "status": status, "detail": "Wait.", **more}
    return http(document, status, "application/problem+json", headers)


@contextmanager
def plan_server(respond: Respond) -> Iterator[PlanServer]:
    """Answers requests within the block. After the pieces of an answer that lacks a Content-Length, or that end early,
    the connection is closed: nothing else would tell."""
    found = PlanServer("", respond)
    opened: list[socket.socket] = []

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            with found.lock:
                found.connections += 1
                connection = found.connections
                opened.append(self.connection)
            while not found.ended.is_set() and self._one(connection):
                continue

        def _one(self, connection: int) -> bool:
            """Whether the connection may be used again."""
            try:
                method, path, _ = self.rfile.readline().decode().split(" ", 2)
                headers: dict[str, str] = {}
                while line := self.rfile.readline().decode().strip():
                    name, _, value = line.partition(":")
                    headers[name.lower()] = value.strip()
                body = self.rfile.read(int(headers.get("content-length", 0)))
            except (ValueError, OSError):
                return False
            with found.lock:
                asked = Asked(method, path, headers, body, len(found.asked), connection)
                found.asked.append(asked)
            sent = b""
            for piece in found.respond(asked):
                if isinstance(piece, float):
                    if found.ended.wait(piece):
                        return False
                else:
                    try:
                        self.wfile.write(piece)
                        self.wfile.flush()
                    except OSError:
                        return False
                    sent += piece
            return _is_whole(sent)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True
        request_queue_size = 64

    with Server(("127.0.0.1", 0), Handler) as listening:
        found.url = f"http://127.0.0.1:{listening.server_address[1]}"
        thread = threading.Thread(target=listening.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield found
        finally:
            found.ended.set()
            listening.shutdown()
            thread.join()
            for connection in opened:
                with suppress(OSError):  # one that its client has closed
                    connection.shutdown(socket.SHUT_RDWR)


def _is_whole(sent: bytes) -> bool:
    head, gap, body = sent.partition(b"\r\n\r\n")
    lengths = [line.split(b":")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    return bool(gap) and len(lengths) == 1 and len(body) == int(lengths[0])


def patient(**changed: Any) -> Limits:
    """Limits by which nothing is given up because other work has the machine, and nothing is hedged; an attempt may
    take longer than users may allow it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "LONGEST_ATTEMPT_S", 100.0)
        usual = {"attempt_s": 60.0, "connect_s": 60.0, "hedge_s": 90.0, "deadline_s": 90.0}
        return Limits(**{**usual, "backoff_s": 0.001, "most_backoff_s": 0.002, **changed})


def unused_url() -> str:
    """The address of a port that nobody listens on."""
    with socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler) as listening:
        port = listening.server_address[1]
    return f"http://127.0.0.1:{port}"


BINARY = b"\x7fELF" + bytes(range(256)) * 4


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def plan(binary: bytes = BINARY, note: str = "") -> dict[str, Any]:
    """The parts of a plan that the client looks at."""
    return {"note": note, "inputs": [{}], "outputs": [{}], "steps": [{"binary": sha(binary), "entry": "k"}]}


def answer(plan_: dict[str, Any] | None = None, **changed: Any) -> bytes:
    """The body of a resolve answer, with members changed, or left out where they are None."""
    body = json.dumps(plan() if plan_ is None else plan_, separators=(",", ":"))
    members: dict[str, Any] = {
        "state": "measured",
        "cache": "hit",
        "plan_key": sha(body.encode()),
        "graph_key": sha(b"graph"),
        "device_key": "cpu-0123456789abcdef",
        "cut_short": None,
        "refining": False,
        "plan": None,
        "names": {"inputs": ["x"], "outputs": ["y"], "nodes": []},
    }
    members |= changed
    rest = {n: v for n, v in members.items() if n not in ("plan", "names") and (v is not None or n == "cut_short")}
    start = json.dumps(rest, separators=(",", ":"))[:-1]
    return f'{start},"plan":{body},"names":{json.dumps(members["names"])}}}'.encode()


def waited(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    """Whether a condition came true within so many seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True
