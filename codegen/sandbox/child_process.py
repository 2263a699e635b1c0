"""One child process: its pipes, its messages, its limits, and how it ended. The only file that starts any."""

import json
import os
import selectors
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from codegen.sandbox import isolation
from codegen.sandbox.heartbeat import NOBODY, Heartbeat
from codegen.sandbox.temporary_folders import make_folder, remove_folder
from fusion_ir.status import Status

# The progress page, which the child writes and the parent only looks at now and then: count of writes, program at
# work (-1: none), seconds it may take. Messages would wake the parent and disturb what is timed.
LENGTH = struct.Struct(">I")
# What a process says that dies for want of memory. The last: two threads at once; nothing else in a kernel throws.
OUT_OF_MEMORY = ("bad_alloc", "memoryerror", "out of memory", "terminate called recursively")
MAX_MESSAGE_BYTES = 256 << 20
MOST_WAIT_S = 3600.0  # at once: longer ones overflow what the system's call takes
EXIT_SECONDS = 0.5  # between the end of a process's pipes and its own: its memory is gone by then


class SlotFailure(Exception):
    """The child did not finish the job. `index`: the program that was running, or -1. was_killed: whether somebody else
    killed the child (the system for want of memory, a person), which says little about the job."""

    def __init__(self, status: Status, detail: str, index: int = -1, was_killed: bool = False) -> None:
        super().__init__(f"{status.value}: {detail}")
        self.status, self.detail, self.index, self.was_killed = status, detail, index, was_killed


class SlotError(RuntimeError):
    """The child could not start, or refused the job: a fault of the installation or of ours, not of a kernel."""


@dataclass(frozen=True, slots=True)
class ChildLimits:
    """Limits of one child. None: no limit. `file_bytes`: the largest file that it may write."""

    memory_bytes: int | None = None
    file_bytes: int | None = None
    output_bytes: int = 1 << 20


class ChildProcess:
    """One process and its pipes: requests to it, answers from it, what it prints, and a lifeline that ends with us. It
    has an empty folder of its own, which goes with it, as home and for temporary files."""

    def __init__(
        self, module: str, limits: ChildLimits, environment: Mapping[str, str], dies_with_parent: bool
    ) -> None:
        self.output_bytes = limits.output_bytes
        progress = os.memfd_create("progress")
        os.ftruncate(progress, Heartbeat.SIZE)
        self.progress = Heartbeat(progress)
        self.progress.note(NOBODY, 0.0)
        request_read, self.request = os.pipe()
        self.answer, answer_write = os.pipe()
        self.printed, printed_write = os.pipe()
        lifeline_read, self.lifeline = os.pipe()
        start = {
            "request": request_read,
            "answer": answer_write,
            "lifeline": lifeline_read,
            "parent": os.getpid(),
            "dies": dies_with_parent,
            "memory_bytes": limits.memory_bytes,
            "file_bytes": limits.file_bytes,
            "progress": progress,
        }
        self.home = make_folder()
        self.process = subprocess.Popen(
            isolation.command(module, json.dumps(start)),
            stdin=subprocess.DEVNULL,
            stdout=printed_write,
            stderr=printed_write,
            pass_fds=(request_read, answer_write, lifeline_read, progress),
            cwd="/",
            env={**isolation.environment(self.home), "CUPY_CACHE_IN_MEMORY": "1", **environment},
            start_new_session=True,
        )
        for descriptor in (request_read, answer_write, printed_write, lifeline_read, progress):
            os.close(descriptor)
        self.selector = selectors.DefaultSelector()
        for descriptor in (self.answer, self.printed):
            os.set_blocking(descriptor, False)
            self.selector.register(descriptor, selectors.EVENT_READ)
        self.received = bytearray()
        self.output = bytearray()
        self.eof = False
        self._beat, self._deadline = self.progress.read()[0], 0.0
        self._end = float("inf")  # of all of a call
        self._paused_at: float | None = None

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def wait_ready(self) -> None:
        """Waits until the child takes jobs. Raises SlotFailure."""
        self._deadline = self._end = time.monotonic() + 60.0
        self._receive()

    def call(
        self, message: Mapping[str, Any], seconds: float, total: float, on_event: Callable[[dict[str, Any]], None]
    ) -> dict[str, Any]:
        self.output.clear()
        data = json.dumps({**message, "seconds": seconds}).encode()
        try:
            self._send(LENGTH.pack(len(data)) + data, seconds)
        except BrokenPipeError:
            raise self._death() from None
        self._deadline, self._end = time.monotonic() + seconds, time.monotonic() + total
        while True:
            answer = self._receive()
            if "result" in answer:
                self._drain()
                return {**answer["result"], "output": self.text()}
            if "failure" in answer:
                raise SlotFailure(Status(answer["failure"]), answer["detail"], self.progress.read()[1])
            if "error" in answer:
                raise SlotError(answer["error"])
            on_event(answer)
            if "times" in answer:  # the child waits until that was seen to
                self._go_on(seconds)

    def _go_on(self, seconds: float) -> None:
        try:
            self._send(LENGTH.pack(0), seconds)
        except BrokenPipeError:
            raise self._death() from None

    def pause(self) -> None:
        """Stops the child and everything in its process group until `resume`; its time limits do not count that."""
        if self._paused_at is None:
            self._paused_at = time.monotonic()
            self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Lets the child go on if it was stopped by `pause`."""
        if self._paused_at is not None:
            away = time.monotonic() - self._paused_at
            self._deadline, self._end = self._deadline + away, self._end + away
            self._paused_at = None
            self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        """Sends a signal to the process group."""
        if self.process.returncode is None:
            with suppress(ProcessLookupError):  # it ended meanwhile
                os.killpg(self.process.pid, number)

    def stop(self) -> None:
        """Kills the process group; whoever waits for an answer is told."""
        self._signal(signal.SIGKILL)

    def kill(self) -> None:
        """Ends the child and everything in its process group."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            self.process.poll()  # gone already: nothing is left of the group
        self.process.wait()
        self.selector.close()
        for descriptor in (self.request, self.answer, self.printed, self.lifeline):
            os.close(descriptor)
        self.progress.close()
        remove_folder(self.home)

    def text(self) -> str:
        """The text that the child printed in this job."""
        return self.output.decode("utf-8", "replace")

    def _send(self, data: bytes, seconds: float) -> None:
        """Writes a request. A child reads all of it before it works, so this does not block for long."""
        os.set_blocking(self.request, False)
        end = time.monotonic() + seconds
        view = memoryview(data)
        with selectors.DefaultSelector() as ready:
            ready.register(self.request, selectors.EVENT_WRITE)
            while view:
                if not ready.select(min(max(0.0, end - time.monotonic()), MOST_WAIT_S)):
                    raise SlotFailure(Status.timed_out, "the child does not read its request")
                view = view[os.write(self.request, view) :]

    def _receive(self) -> dict[str, Any]:
        """The next message. Raises SlotFailure when the child dies, prints too much, or runs beyond its deadline or the
        end of the call."""
        while True:
            message = self._message()
            if message is not None:
                return message
            if self.eof:
                raise self._death()
            if len(self.output) > self.output_bytes:
                raise SlotFailure(
                    Status.crashed, f"printed more than {self.output_bytes} bytes: {self.text()[:200]!r}", self._index()
                )
            wait = min(self._deadline, self._end, time.monotonic() + 0.25) - time.monotonic()
            if self._paused_at is not None:
                wait = 0.25
            for key, _ in self.selector.select(max(0.0, wait)):
                self._read(key.fd)
            now = time.monotonic()
            count, index, allowed = self.progress.read()
            if count != self._beat:
                self._beat, self._deadline = count, now + allowed
            elif self._paused_at is None and now >= min(self._deadline, self._end) and not self.received:
                raise SlotFailure(
                    Status.timed_out,
                    f"still running after {'all of its time' if now >= self._end else f'{allowed:.3g} s'}",
                    index,
                )

    def _read(self, descriptor: int) -> None:
        try:
            data = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            return
        if descriptor == self.answer:
            self.received += data
            self.eof |= not data
        elif len(self.output) <= self.output_bytes:
            self.output += data
        if not data:
            self.selector.unregister(descriptor)

    def _message(self) -> dict[str, Any] | None:
        if len(self.received) < LENGTH.size:
            return None
        (length,) = LENGTH.unpack_from(self.received)
        if length > MAX_MESSAGE_BYTES:
            raise SlotFailure(Status.crashed, f"sent a message of {length} bytes", self._index())
        if len(self.received) < LENGTH.size + length:
            return None
        data = bytes(self.received[LENGTH.size : LENGTH.size + length])
        del self.received[: LENGTH.size + length]
        try:
            return json.loads(data)
        except ValueError:
            raise SlotFailure(Status.crashed, "sent a message that is not JSON", self._index()) from None

    def _index(self) -> int:
        return self.progress.read()[1]

    def _drain(self) -> None:
        """Reads what the child printed before it answered."""
        while len(self.output) <= self.output_bytes:
            try:
                data = os.read(self.printed, 1 << 16)
            except BlockingIOError:
                return
            if not data:
                return
            self.output += data

    def _death(self) -> SlotFailure:
        """Why the child ended."""
        try:
            code = self.process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            return SlotFailure(Status.crashed, "closed its pipes", self._index())
        self._drain()
        text = self.text()
        tail = f": {text.strip()[-400:]}" if text.strip() else ""
        if any(sign in text.lower() for sign in OUT_OF_MEMORY):
            return SlotFailure(Status.out_of_memory, f"ran out of memory{tail}", self._index())
        if code == -signal.SIGKILL:
            detail = "killed by the system, most likely for memory"
            return SlotFailure(Status.out_of_memory, detail, self._index(), was_killed=True)
        if code in (-signal.SIGXCPU, -signal.SIGALRM):
            return SlotFailure(Status.timed_out, "used up its CPU time", self._index())
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"
        return SlotFailure(Status.crashed, how + tail, self._index())
