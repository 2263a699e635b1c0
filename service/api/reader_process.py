"""Where bodies are read: a process that forks readers, each of which reads one body after another under limits.

Run as `python -m service.api.reader_process DESCRIPTOR`, with one end of a socket; `readers.Readers` has the other. For
every socket that arrives there, a reader is forked, whose process id goes back. A reader gets bodies through its own
socket and answers with what it read, or with a problem. Beyond its processor time the kernel ends it; beyond its memory
it says so and ends itself, as it does once it has grown, so that every reader stays small. The parent's end closes all.
"""

import gc
import json
import os
import resource
import signal
import socket
import struct
import sys
from collections.abc import Mapping
from typing import Any

from fusion_ir.formats import load_readers
from fusion_ir.text.printing import print_graph
from service.api.reading import Ask, read_body, read_line
from service.errors import ApiError
from service.process.yielding import go_behind

HEADER = struct.Struct(">II")  # bytes of JSON, bytes behind it
PID = struct.Struct(">q")
GROWTH_BYTES = 32 * 2**20  # beyond what it began with, after which a reader makes room for a fresh one
PAGE_BYTES = resource.getpagesize()
NICE = 5  # whoever answers requests goes first, and what is timed


class Closed(Exception):
    """The other end of a socket is closed."""


def main(descriptor: int) -> None:
    """Forks a reader for every socket that comes, until the parent is gone."""
    control = socket.socket(fileno=descriptor)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how a reader ended
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # from a terminal it reaches the parent, which closes the socket
    go_behind(NICE)
    load_readers()  # once, not in every reader
    gc.collect()
    gc.freeze()  # pages shared with readers are not written to by their collections
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, HEADER.size, 1)
        if not message:
            return
        own = socket.socket(fileno=descriptors[0])
        pid = os.fork()
        if pid == 0:
            control.close()
            try:
                _reader(own, *HEADER.unpack(message))
            finally:
                os._exit(0)
        own.close()
        control.sendall(PID.pack(pid))


def _reader(own: socket.socket, memory_mib: int, _: int) -> None:
    """Reads one body after another, until the socket closes or the process has grown by GROWTH_BYTES."""
    memory = memory_mib * 2**20
    limit = _virtual_bytes() + memory
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    while True:
        try:
            job, body = receive(own)
        except Closed:
            return
        # By default the signal ends the process, whatever it does: no handler, which would wait for the interpreter.
        signal.setitimer(signal.ITIMER_PROF, job["seconds"])
        try:
            head, content = _answer(job, body)
        except MemoryError:
            body = content = b""
            send(own, {"memory": memory, "last": True}, b"")
            return
        signal.setitimer(signal.ITIMER_PROF, 0)
        grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) > GROWTH_BYTES
        send(own, {**head, "last": grown}, content)
        if grown:
            return


def _answer(job: Mapping[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
    """The answer to a body, as a JSON head and bytes: the request that was read, or the problem. Raises MemoryError."""
    try:
        custom_id, ask = (None, read_body(body)) if job["line"] is None else read_line(body, **job["line"])
    except ApiError as error:
        shown = {"slug": error.slug, "detail": error.detail, "place": error.place, "status": error.status}
        return {"problem": shown}, b""
    if isinstance(ask, ApiError):
        shown = {"slug": ask.slug, "detail": ask.detail, "place": ask.place, "status": ask.status}
        return {"custom_id": custom_id, "failed": shown}, b""
    head, content = _read(ask)
    return {"custom_id": custom_id, **head}, content


def _read(ask: Ask) -> tuple[dict[str, Any], bytes]:
    names, text = b"", b""
    if ask.named is not None:
        given = {"inputs": ask.named.input_names, "outputs": ask.named.output_names}
        names = json.dumps(given | ({"nodes": ask.named.node_names} if ask.named.node_names else {})).encode()
        text = print_graph(ask.named.graph).encode()
    request = ask.request
    head = {
        "target": request.target,
        "seconds": request.seconds,
        "numerics": request.numerics,
        "memory_bytes": request.memory_bytes,
        "sampler": request.sampler,
        "device_key": request.device_key,
        "graph_key": ask.graph_key,
        "names": len(names),
    }
    return {"read": head}, names + text


def send(to: socket.socket, head: Mapping[str, Any], content: bytes) -> None:
    """Sends one message: `head` as JSON, `content` behind it. Raises OSError."""
    text = json.dumps(head).encode()
    to.sendall(HEADER.pack(len(text), len(content)) + text)
    to.sendall(content)


def receive(source: socket.socket) -> tuple[dict[str, Any], bytes]:
    """The next message. Raises Closed, OSError."""
    length, rest = HEADER.unpack(_exactly(source, HEADER.size))
    head = json.loads(_exactly(source, length))
    return head, bytes(_exactly(source, rest))


def _exactly(source: socket.socket, count: int) -> bytearray:
    found = bytearray(count)
    view = memoryview(found)
    while view:
        got = source.recv_into(view)
        if not got:
            raise Closed
        view = view[got:]
    return found


def _virtual_bytes() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[0]) * PAGE_BYTES


if __name__ == "__main__":
    main(int(sys.argv[1]))
