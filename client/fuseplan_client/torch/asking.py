"""Asking a server for plans in a thread of its own: no call of a model ever waits for it, and what goes wrong is a
reason."""

import atexit
import hashlib
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fuseplan_client.cpu.executor import Executor, process_executor
from fuseplan_client.cpu.machine import architecture
from fuseplan_client.server.answers import Answer, Pending
from fuseplan_client.server.cache import Kept
from fuseplan_client.server.client import PlanClient
from fuseplan_client.server.errors import BadArgument, PlanServerError, ProblemAnswer, ServerAbsent
from fuseplan_client.server.transport import base_url
from fuseplan_client.server.trust import Trust
from fuseplan_client.torch.artifacts import forget_plan, loaded_plan, record

log = logging.getLogger("fuseplan")

ENDING_S = 30.0  # for what is written or loaded when the process ends
END = object()
OWN_SERVER = "http://127.0.0.1"  # of this machine, at whatever port
TURN_S = 0.25  # between looks at what is open
REFINING_S = 2.0  # between looks at a plan that is being made better
NO_SUCH_DEVICE = ("no-device", "other-device")
AGAIN_S = (1.0, 2.0, 5.0, 15.0, 60.0)  # until a server that gave no answer is asked again


@dataclass
class Question:
    """A request for a plan. requests: makes its bodies, in the thread, once: the best first, the next one for servers
    without the device that it is for; what it raises is why there will be no plan. ready: called with the answer and
    the binaries of its plan, in the thread; what it raises is the reason why there is no plan. failed: called with why
    there will be none, as far as is known. ended: called once there is nothing more to ask. seconds: of search, for one
    plan after the other, each of which goes on where the one before ended."""

    requests: Callable[[], Sequence[Mapping[str, Any]]]
    ready: Callable[[Answer, Mapping[str, bytes], Executor], None]
    failed: Callable[[str], None]
    ended: Callable[[], None] = lambda: None
    seconds: Sequence[float] = (60.0,)
    rung: int = 0
    plan_key: str = ""
    bodies: Sequence[Mapping[str, Any]] = ()
    asked: float = field(default_factory=time.monotonic)
    answered: float | None = None
    operation: str = ""
    due: float = 0.0
    tries: int = 0
    is_new: bool = True


@dataclass(frozen=True)
class Refusal:
    """A plan that was of no use here: see `PlanClient.refuse`."""

    plan_key: str
    why: str
    text: str = ""
    took_us: float | None = None
    instead_us: float | None = None


class Asker:
    """The thread that asks. server: the address, or what gives it, which may take long, as where a server of this
    machine's is started first."""

    def __init__(self, server: str | Callable[[], str], **client: Any) -> None:
        self.address = server if isinstance(server, str) else None
        self._server, self._options = (lambda: server) if isinstance(server, str) else server, client
        self._client: PlanClient | None = None
        self._executor: Executor | None = None
        self._signed: Kept | None = None  # the server's executor
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._open = 0
        self._all_answered = threading.Event()
        self._all_answered.set()
        self._ending = False

    def ask(self, question: Question) -> None:
        """Takes a question; returns at once. In the child of a fork there is a thread anew."""
        if self._process != os.getpid():
            self._begin()
        with self._lock:
            self._open += 1
            self._all_answered.clear()
            self._put(question)

    def refuse(self, refusal: Refusal) -> None:
        """Tells the server that a plan was of no use here; returns at once."""
        if self._process == os.getpid():
            with self._lock:
                self._put(refusal)

    def _put(self, item: Question | Refusal) -> None:
        self._queue.put(item)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="fuseplan-asking", daemon=True)
            self._thread.start()
            atexit.register(self._end, self._thread)

    def _end(self, thread: threading.Thread) -> None:
        """Waits for the thread before the interpreter ends: a thread that is ended in the middle of PyTorch's code ends
        the process by SIGABRT."""
        self._ending = True
        if thread.is_alive():
            self._queue.put(END)
            thread.join(ENDING_S)

    def wait(self, seconds: float) -> bool:
        """Waits until every question has an answer. Whether that came about."""
        if self._process != os.getpid():
            return True  # nothing was asked in this child of a fork
        return self._all_answered.wait(seconds)

    def _work(self) -> None:
        waiting: list[Question] = []
        while True:
            try:
                item = self._queue.get(timeout=TURN_S if waiting else None)
                if item is END:
                    return
                if isinstance(item, Question):
                    waiting.append(item)
                else:
                    self._send(item)
                continue
            except queue.Empty:
                pass
            now = time.monotonic()
            for question in [q for q in waiting if q.due <= now]:
                if self._ending:
                    return
                if self._answered(question):
                    waiting.remove(question)
                    question.answered = time.monotonic()
                    question.ended()
                    with self._lock:
                        self._open -= 1
                        if not self._open:
                            self._all_answered.set()

    def _send(self, refusal: Refusal) -> None:
        if refusal.why != "slower":
            forget_plan(refusal.plan_key)
        if self._client is not None:  # who has a plan to refuse has had a server
            r = refusal
            self._client.refuse(r.plan_key, r.why, r.text, took_us=r.took_us, instead_us=r.instead_us)

    def _answered(self, question: Question) -> bool:
        """Whether nothing is left to ask."""
        try:
            return self._tried(question)
        except (BadArgument, ProblemAnswer) as error:
            if isinstance(error, ProblemAnswer) and (error.status >= 500 or error.status == 429):
                return self._later(question, error)
            if isinstance(error, ProblemAnswer) and _is_elsewhere(error) and len(question.bodies) > 1:
                question.bodies = question.bodies[1:]
                return False
            question.failed(error.reason)
        except PlanServerError as error:
            return self._later(question, error)
        except Exception as error:  # a fault here must never be the program's
            log.warning("no plan: %s: %s", type(error).__name__, error)
            question.failed(f"{type(error).__name__}: {error}")
        return True

    def _later(self, question: Question, error: PlanServerError) -> bool:
        pause = AGAIN_S[min(question.tries, len(AGAIN_S) - 1)]
        question.tries += 1
        question.operation = ""
        question.due = time.monotonic() + pause
        question.failed(error.reason)
        if isinstance(error, ServerAbsent):
            self._client = None  # an embedded one may be elsewhere by now
        return False

    def _tried(self, question: Question) -> bool:
        question.bodies = question.bodies or question.requests()
        if self._was_loaded(question):
            return True
        client = self._connected()
        if question.operation:
            operation = client.operation(question.operation)
            if not operation.done:
                question.due = time.monotonic() + min(operation.retry_after_s or 1.0, 5.0)
                return False
            if operation.error is not None:
                question.failed(operation.error.reason)
                return True
            question.operation = ""
        answer = client.resolve({**question.bodies[0], "seconds": question.seconds[question.rung]})
        if isinstance(answer, Pending):
            question.operation = answer.operation.id
            question.due = time.monotonic() + min(answer.operation.retry_after_s or 1.0, 5.0)
            return False
        return self._got(client, question, answer)

    def _got(self, client: PlanClient, question: Question, answer: Answer) -> bool:
        """Hands over a plan that is another one than before. Whether there is nothing more to ask."""
        if answer.plan_key != question.plan_key:
            self._hand_over(client, question, answer)
            question.plan_key = answer.plan_key
        if answer.kept or (not answer.refining and question.rung == len(question.seconds) - 1):
            return True
        if answer.refining:  # a search with as many seconds as these is under way
            question.due = time.monotonic() + REFINING_S
            return False
        question.rung += 1
        return False

    def _was_loaded(self, question: Question) -> bool:
        """Hands over the plan that artifacts of PyTorch's brought along, at the first look at a question. Whether there
        is nothing to ask a server, since as long a search as is wanted had found it."""
        if not question.is_new:
            return False
        question.is_new = False
        try:
            found = loaded_plan(question.bodies, architecture(), self._trust())
            if found is None:
                return False
            question.ready(found.answer, found.binaries, self._run_by(found.executor))
        except Exception as error:  # as if there had been none
            log.warning("a plan of loaded artifacts is not used: %s: %s", type(error).__name__, error)
            return False
        question.plan_key = found.answer.plan_key
        return found.seconds >= question.seconds[-1]

    def _trust(self) -> Trust:
        """The trust that answers of the server are given. Raises Untrusted, BadArgument."""
        server = base_url(self.address or OWN_SERVER)
        return Trust(server, self._options.get("server_keys"), self._options.get("signed"))

    def _hand_over(self, client: PlanClient, question: Question, answer: Answer) -> None:
        binaries = {sha256: client.binary(sha256) for sha256 in answer.binaries}
        if self._signed is None:
            self._signed = client.signed_executor(architecture())
        content = self._signed.body
        question.ready(answer, binaries, self._run_by((hashlib.sha256(content).hexdigest(), content)))
        request = {**question.bodies[0], "seconds": question.seconds[question.rung]}
        record(request, answer, binaries, architecture(), self._signed)

    def _run_by(self, executor: tuple[str, bytes]) -> Executor:
        if self._executor is None:
            self._executor = process_executor(*executor)
            self._executor.use_openmp()
        return self._executor

    def _connected(self) -> PlanClient:
        if self._client is None:
            self._client = PlanClient(self._server(), **self._options)
        return self._client


def _is_elsewhere(error: ProblemAnswer) -> bool:
    """Whether a server has no such device, or is older than the name of it."""
    return error.type in NO_SUCH_DEVICE or error.place == "/target"
