"""The child's end of a slot: limits first, then one job after the other."""

import ctypes
import errno
import json
import os
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO

from codegen.sandbox.child_process import LENGTH
from codegen.sandbox.heartbeat import Heartbeat, Note
from fusion_ir.status import Status

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3
KEPT_BYTES = 256 << 20


class JobFailure(Exception):
    """A job that ended badly in a way that says something about the kernel or the compiler."""

    def __init__(self, status: Status, detail: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail


class Channel:
    """The way back to the parent."""

    def __init__(self, answer: int, progress: Heartbeat, requests: BinaryIO) -> None:
        self._answer, self._progress, self._requests, self._pid = answer, progress, requests, os.getpid()

    def _read(self) -> None:
        """Waits until the parent has seen what was sent."""
        if len(self._requests.read(LENGTH.size)) < LENGTH.size:
            os._exit(1)  # there is none any more

    def requests(self) -> Generator[dict[str, Any]]:
        """Requests of the parent, in order, until it closes the pipe."""
        while header := self._requests.read(LENGTH.size):
            yield json.loads(self._requests.read(LENGTH.unpack(header)[0]))

    def send(self, message: Mapping[str, Any]) -> None:
        """Sends one message. It wakes the parent: not while something is timed."""
        if os.getpid() != self._pid:
            os._exit(1)  # a copy of this process, which a kernel made: it must not answer in our name
        data = json.dumps(message).encode()
        view = memoryview(LENGTH.pack(len(data)) + data)
        while view:
            view = view[os.write(self._answer, view) :]

    @contextmanager
    def timing(self) -> Generator[None]:
        """For the block, the device is kept free for what is timed: sends {"times": true} and waits until the parent
        has seen to that, then {"times": false}."""
        self.send({"times": True})
        self._read()
        try:
            yield
        finally:
            self.send({"times": False})
            self._read()

    def beat(self, index: int, seconds: float) -> None:
        """Notes that program `index` (-1: none) is at work and may take `seconds`. Costs no system call."""
        self._progress.note(index, seconds)

    def beats(self, index: int, seconds: float) -> Note:
        """The note that `beat` makes, as an object for code that makes it many times (runtime/pool.cpp)."""
        return Note(self._progress.address, index, seconds)


Job = Callable[[dict[str, Any], Channel], dict[str, Any]]


def serve(jobs: Mapping[str, Job]) -> None:
    """Applies the limits in argv[1], then answers requests until the parent closes the pipe."""
    start = json.loads(sys.argv[1])
    _limit(start)
    keep_freed_memory()
    threading.Thread(target=_die_with_parent, args=(start["lifeline"],), daemon=True).start()
    with os.fdopen(start["request"], "rb") as requests:
        channel = Channel(start["answer"], Heartbeat(start["progress"]), requests)
        channel.send({"ready": True})
        for message in channel.requests():
            channel.beat(-1, message["seconds"])
            channel.send(_answer(jobs, message, channel))


def _answer(jobs: Mapping[str, Job], message: dict[str, Any], channel: Channel) -> dict[str, Any]:
    try:
        return {"result": jobs[message["job"]](message, channel)}
    except JobFailure as e:
        return {"failure": e.status.value, "detail": e.detail}
    except MemoryError as e:
        return {"failure": Status.out_of_memory.value, "detail": str(e) or "ran out of memory"}
    except OSError as e:
        if e.errno != errno.ENOMEM:
            return {"error": traceback.format_exc()}
        return {"failure": Status.out_of_memory.value, "detail": "the system gives no more memory"}
    except Exception:
        return {"error": traceback.format_exc()}


def _limit(start: Mapping[str, Any]) -> None:
    libc = ctypes.CDLL(None)
    if hasattr(libc, "prctl"):
        # Who has children of its own to end may be stopped when the parent dies: it goes on, and finds that out.
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL if start["dies"] else signal.SIGCONT, 0, 0, 0)
        if start["dies"]:
            libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # whatever a kernel starts stays below us
    if os.getppid() != start["parent"]:
        os._exit(1)  # the parent died before we asked
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)  # whoever started our parent may have had them ignored, as nohup does
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for limit, what in ((start["memory_bytes"], resource.RLIMIT_AS), (start["file_bytes"], resource.RLIMIT_FSIZE)):
        if limit is not None:
            _, hard = resource.getrlimit(what)
            soft = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
            resource.setrlimit(what, (soft, soft))


def keep_freed_memory() -> None:
    """Lets this process keep up to `KEPT_BYTES` of freed memory: checks make one temporary array after the other, and
    a virtual machine may take longer to hand out their pages anew than NumPy to compute them (twice as long, for error
    bounds of 64 MB of f32)."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):  # glibc: what is larger than its threshold goes back at once, whatever was set
        for parameter, value in ((M_TRIM_THRESHOLD, KEPT_BYTES), (M_TOP_PAD, 16 << 20), (M_MMAP_THRESHOLD, 32 << 20)):
            libc.mallopt(parameter, value)


def race_seconds(message: Mapping[str, Any], began: float) -> float:
    """Seconds for the race of a job that began at `began` (`time.monotonic`): the rest of its `timing_seconds`, but at
    least its `least_seconds`."""
    least: float = message["least_seconds"]
    return max(least, message["timing_seconds"] - (time.monotonic() - began))


def limit_cpu(seconds: float) -> None:
    """Lets this process (and each that it starts) use `seconds` of CPU time from now on, on top of what it used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(used.ru_utime + used.ru_stime + seconds) + 1
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def expect_no_processes() -> None:
    """Raises JobFailure where a kernel left a process behind, running or not waited for. Only for children that start
    no processes themselves."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return
    raise JobFailure(Status.crashed, "started a process and left it behind")


def _die_with_parent(lifeline: int) -> None:
    os.read(lifeline, 1)  # nothing is ever written: returns when the other end is closed, by close() or by death
    os.killpg(0, signal.SIGKILL)
