"""The child's end of a slot: limits first, then one job after the other."""

import ctypes
import errno
import json
import os
import resource
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from codegen.child_process import LENGTH
from codegen.progress import Note, Progress
from fusion_ir.records import Status

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


class JobFailure(Exception):
    """A job that ended badly in a way that says something about the kernel or the compiler."""

    def __init__(self, status: Status, detail: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail


class Channel:
    """The way back to the parent."""

    def __init__(self, answer: int, progress: Progress) -> None:
        self._answer, self._progress, self._pid = answer, progress, os.getpid()

    def send(self, message: Mapping[str, Any]) -> None:
        """Sends one message. It wakes the parent: not while something is timed."""
        if os.getpid() != self._pid:
            os._exit(1)  # a copy of this process, which a kernel made: it must not answer in our name
        data = json.dumps(message).encode()
        view = memoryview(LENGTH.pack(len(data)) + data)
        while view:
            view = view[os.write(self._answer, view) :]

    def beat(self, index: int, seconds: float) -> None:
        """Notes that program `index` (-1: none) is at work and may take `seconds`. Costs no system call."""
        self._progress.note(index, seconds)

    def beats(self, index: int, seconds: float) -> Note:
        """The same, for whoever notes it many times."""
        return Note(self._progress.address, index, seconds)


Job = Callable[[dict[str, Any], Channel], dict[str, Any]]


def serve(jobs: Mapping[str, Job]) -> None:
    """Applies the limits in argv[1], then answers requests until the parent closes the pipe."""
    start = json.loads(sys.argv[1])
    _limit(start)
    channel = Channel(start["answer"], Progress(start["progress"]))
    threading.Thread(target=_die_with_parent, args=(start["lifeline"],), daemon=True).start()
    channel.send({"ready": True})
    with os.fdopen(start["request"], "rb") as requests:
        while header := requests.read(LENGTH.size):
            message = json.loads(requests.read(LENGTH.unpack(header)[0]))
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


def limit_cpu(seconds: float) -> None:
    """Lets this process (and each that it starts) use `seconds` of CPU time from now on, on top of what it used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(used.ru_utime + used.ru_stime + seconds) + 1
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def expect_no_processes() -> None:
    """For children that have none of their own. Raises JobFailure where a kernel left one: running, or not waited
    for."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return
    raise JobFailure(Status.crashed, "started a process and left it behind")


def _die_with_parent(lifeline: int) -> None:
    os.read(lifeline, 1)  # nothing is ever written: returns when the other end is closed, by close() or by death
    os.killpg(0, signal.SIGKILL)
