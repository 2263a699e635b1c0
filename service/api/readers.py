"""Reads bodies in processes of their own, each held to limits of processor time and memory, behind a bounded queue.

Two lanes, a reader each: whoever sends much waits for others who do, not those who send little.
"""

import contextlib
import logging
import os
import queue
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from codegen.sandbox import isolation
from service.api.reader_process import HEADER, PID, Closed, receive, send
from service.errors import ApiError
from tuning_db.reading.graphs import Names

log = logging.getLogger("fuseplan.readers")

START_SECONDS = 60.0  # that the process of readers may take to begin
PATIENCE = 20.0  # seconds by the clock for a second of processor time: others work, too
MEMORY_BYTES = 2**30  # that a reader may take beyond what it begins with
WAITING = 64  # bodies that wait in a lane
LINE_WAIT_SECONDS = 60.0  # that a line of a batch waits for a place in the queue
RETRY_SECONDS = 1


@dataclass(frozen=True)
class LaneLimits:
    """Which bodies a lane takes, and how long each may occupy a processor."""

    body_bytes: int
    seconds: float


LANES = (LaneLimits(64 * 1024, 2.0), LaneLimits(2**62, 20.0))


@dataclass(frozen=True)
class Read:
    """A request that was read. `text`: the graph as canonical text, None where only its key was given; `names`: of its
    tensors, as JSON."""

    target: str | None
    seconds: float | None
    numerics: Any
    memory_bytes: int | None
    sampler: str | None
    device_key: str | None
    graph_key: str
    text: bytes | None
    names: bytes

    def parsed_names(self) -> Names:
        """The names, where there is a text."""
        return Names.of_json(self.names.decode())


@dataclass
class _Job:
    body: bytes
    line: Mapping[str, Any] | None  # of a batch: what `reading.read_line` takes besides it
    future: "Future[tuple[str | None, Read | ApiError]]" = field(default_factory=Future)


class Readers:
    """Usable from any thread and any event loop. Processes are started when the first body comes, or by `start`."""

    def __init__(
        self, lanes: tuple[LaneLimits, ...] = LANES, memory_bytes: int = MEMORY_BYTES, waiting: int = WAITING
    ) -> None:
        self._source = _Source(memory_bytes)
        self._lanes = [_Lane(limits, self._source, waiting) for limits in lanes]

    def start(self) -> None:
        """Begins the process that readers come from; does not wait for it."""
        self._source.start()

    def close(self) -> None:
        """Ends the lanes, their readers and the process that they come from. Bodies that wait are not read."""
        for lane in self._lanes:
            lane.close()
        self._source.close()

    def submit(self, body: bytes) -> "Future[tuple[str | None, Read | ApiError]]":
        """A body of a resolve request. The future holds ApiError or (None, what was read). Raises ApiError
        `too-many-bodies`."""
        return self._lane(body).put(_Job(body, None), 0.0)

    def read_line(self, line: bytes, number: int, defaults: Mapping[str, Any]) -> tuple[str, Read | ApiError]:
        """Runs `reading.read_line` in a reader; blocks. Raises ApiError, too, if limits or the queue leave no room."""
        job = _Job(line, {"number": number, "defaults": dict(defaults)})
        try:
            custom_id, read = self._lane(line).put(job, LINE_WAIT_SECONDS).result()
        except ApiError as error:
            if error.slug != "too-much-to-read":
                raise
            raise ApiError("bad-batch", error.detail, str(number)) from error
        assert custom_id is not None
        return custom_id, read

    def _lane(self, body: bytes) -> "_Lane":
        return next(lane for lane in self._lanes if len(body) <= lane.limits.body_bytes)


class _Source:
    """The process that readers are forked from: what they import is there already."""

    def __init__(self, memory_bytes: int) -> None:
        self._memory_mib = memory_bytes // 2**20
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    def start(self) -> None:
        with self._lock:
            self._started()

    def close(self) -> None:
        with self._lock:
            self._stop()

    def reader(self) -> "_Reader":
        """A fresh reader. Raises OSError, Closed."""
        with self._lock:
            if self._process is not None:
                try:
                    return self._fork()
                except (Closed, OSError) as error:  # somebody ended it: once more
                    log.warning("the process that reads bodies has ended (%s); starting another", error)
            return self._fork()

    def _fork(self) -> "_Reader":
        control = self._started()
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                socket.send_fds(control, [HEADER.pack(self._memory_mib, 0)], [theirs.fileno()])
            reply = control.recv(PID.size, socket.MSG_WAITALL)
            if len(reply) < PID.size:
                raise Closed("no reader came")
            return _Reader(ours, os.pidfd_open(*PID.unpack(reply)))
        except BaseException:
            ours.close()
            self._stop()
            raise

    def _started(self) -> socket.socket:
        if self._control is None:
            ours, theirs = socket.socketpair()
            ours.settimeout(START_SECONDS)
            with theirs:
                self._process = subprocess.Popen(
                    isolation.command("service.api.reader_process", str(theirs.fileno())),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    cwd="/",
                    env={"PATH": os.environ.get("PATH", ""), "OPENBLAS_NUM_THREADS": "1"},
                    start_new_session=True,
                )
            self._control = ours
        return self._control

    def _stop(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class _Reader:
    """A reader as the server holds it: our end of its socket, and a descriptor of its process."""

    def __init__(self, own: socket.socket, process: int) -> None:
        self._own, self._process = own, process

    def read(self, job: _Job, limits: LaneLimits) -> tuple[dict[str, Any], bytes]:
        """The reader's answer to a body. Raises Closed, OSError (TimeoutError too)."""
        self._own.settimeout(PATIENCE * limits.seconds)
        send(self._own, {"seconds": limits.seconds, "line": job.line}, job.body)
        return receive(self._own)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._process, signal.SIGKILL)

    def end(self) -> None:
        self.kill()
        self._own.close()
        os.close(self._process)


class _Lane:
    """A queue of bodies, and the thread that has them read one after another."""

    def __init__(self, limits: LaneLimits, source: _Source, waiting: int) -> None:
        self.limits, self._source = limits, source
        self._jobs: queue.Queue[_Job | None] = queue.Queue(waiting)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._reader: _Reader | None = None
        self._closed = False

    def put(self, job: _Job, wait_seconds: float) -> "Future[tuple[str | None, Read | ApiError]]":
        """Queues a body, waiting up to `wait_seconds` for a place. Raises ApiError `too-many-bodies`."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="reading", daemon=True)
                self._thread.start()
        try:
            self._jobs.put(job, block=wait_seconds > 0, timeout=wait_seconds or None)
        except queue.Full:
            detail = f"{self._jobs.maxsize} bodies wait to be read."
            raise ApiError("too-many-bodies", detail, headers={"Retry-After": str(RETRY_SECONDS)}) from None
        return job.future

    def close(self) -> None:
        self._closed = True
        with contextlib.suppress(queue.Empty):
            while (job := self._jobs.get_nowait()) is not None:
                job.future.cancel()
        self._jobs.put(None)
        reader, thread = self._reader, self._thread
        if reader is not None:
            reader.kill()
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            if self._closed or not job.future.set_running_or_notify_cancel():
                job.future.cancel()
                continue
            try:
                job.future.set_result(self._read(job))
            except Exception as error:
                job.future.set_exception(error)
        self._forget()

    def _read(self, job: _Job) -> tuple[str | None, Read | ApiError]:
        """Raises ApiError, OSError, Closed."""
        head, content = self._answer(job)
        if head["last"]:
            self._forget()
        if "memory" in head:
            raise ApiError("too-much-to-read", f"Reading it takes more than {head['memory'] // 2**20} MiB.")
        if "problem" in head:
            raise ApiError(**head["problem"])
        if "failed" in head:
            return head["custom_id"], ApiError(**head["failed"])
        read = dict(head["read"])
        names = read.pop("names")
        text = content[names:]
        return head["custom_id"], Read(**read, names=content[:names], text=text or None)

    def _answer(self, job: _Job) -> tuple[dict[str, Any], bytes]:
        """A reader's answer. Raises ApiError, and OSError or Closed where there are no readers."""
        while True:
            kept = self._reader
            reader = self._reader = kept or self._source.reader()
            started = time.monotonic()
            try:
                return reader.read(job, self.limits)
            except (Closed, OSError) as error:
                self._forget()
                seconds = time.monotonic() - started
                if reader is not kept or seconds >= self.limits.seconds:
                    raise self._ended(seconds) from error
                # Somebody may have ended it while it had nothing to do: once more, with a fresh one.

    def _forget(self) -> None:
        if self._reader is not None:
            self._reader.end()
            self._reader = None

    def _ended(self, seconds: float) -> ApiError:
        """The error for a reader that ended while it read: mostly it was ended at its limit of processor time."""
        limit = f"more than {self.limits.seconds:g} s of a processor"
        detail = f"Reading it takes {limit}, or ended the process that reads; it went on for {seconds:.1f} s."
        return ApiError("too-much-to-read", detail)
