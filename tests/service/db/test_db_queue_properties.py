"""Any sequence of queue operations, against a model of what a queue is."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from tests.support.whole import WHOLE
from tuning_db.operations import BACK_OFF_SECONDS, MAX_ATTEMPTS
from tuning_db.store import Store

SECONDS = 10.0


@dataclass
class Job:
    """A job with all that the queue must know about it."""

    order: int
    priority: int
    key: str | None
    state: str = "queued"
    attempt: int = 0
    cancel: bool = False
    holder: tuple[str, int] | None = None
    until: float = 0.0
    not_before: float = 0.0
    device: str | None = None
    leases: int = 0

    @property
    def is_open(self) -> bool:
        return self.state in ("queued", "running")


class QueueMachine(RuleBasedStateMachine):
    """`held` are leases that workers believe to have, whether they still do or not."""

    jobs = Bundle("jobs")
    held = Bundle("held")

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.now = 0.0
        self.store = Store(f"sqlite:///{Path(self.folder.name) / 'queue.db'}", clock=lambda: self.now)
        self.model: dict[str, Job] = {}

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()

    @rule(
        target=jobs,
        key=st.sampled_from([None, "a", "b"]),
        priority=st.integers(-1, 1),
        device=st.sampled_from([None, "x", "y"]),
    )
    def submit(self, key: str | None, priority: int, device: str | None) -> str:
        self.now += 1e-3  # so that age has an order
        job = self.store.queue.submit("tune", "{}", key, device_key=device, priority=priority)
        equal = [i for i, m in self.model.items() if key is not None and m.key == key and m.is_open and not m.cancel]
        if equal:
            assert [job.id] == equal
            self.model[job.id].priority = max(self.model[job.id].priority, priority)
        else:
            assert job.id not in self.model
            self.model[job.id] = Job(len(self.model), priority, key, device=device)
        return job.id

    def lose(self, model: Job) -> None:
        lost = "failed" if model.attempt >= MAX_ATTEMPTS else "queued"
        model.state, model.holder = "cancelled" if model.cancel else lost, None
        model.not_before = min(self.now, model.until) + BACK_OFF_SECONDS[min(model.attempt, len(BACK_OFF_SECONDS)) - 1]

    @rule(owner=st.sampled_from(["w1", "w2"]))
    def abandon(self, owner: str) -> None:
        mine = {i for i, m in self.model.items() if m.holder is not None and m.holder[0] == owner}
        assert {job.id for job in self.store.queue.abandon(owner)} == mine
        for i in mine:
            self.lose(self.model[i])

    @rule(known=st.sampled_from([[], ["x"], ["x", "y"]]))
    def look(self, known: list[str]) -> None:
        ready = [m for m in self.model.values() if m.state == "queued" and m.not_before <= self.now]
        wanted = {m.device for m in ready if m.device is not None and m.device not in known}
        assert set(self.store.queue.waiting_devices(("tune",), known)) == wanted

    @rule(target=held, owner=st.sampled_from(["w1", "w2"]), devices=st.sampled_from([None, [], ["x"], ["x", "y"]]))
    def lease(self, owner: str, devices: list[str] | None) -> object:
        for model in self.model.values():
            if model.state == "running" and model.until < self.now:
                self.lose(model)
        able = lambda m: devices is None or m.device is None or m.device in devices  # noqa: E731
        waiting = [i for i, m in self.model.items() if m.state == "queued" and m.not_before <= self.now and able(m)]
        got = self.store.queue.lease(owner, SECONDS, devices=devices)
        if not waiting:
            assert got is None
            return multiple()
        assert got is not None
        assert got.id == min(waiting, key=lambda i: (-self.model[i].priority, self.model[i].order))
        model = self.model[got.id]
        model.state, model.attempt, model.leases = "running", model.attempt + 1, model.leases + 1
        model.holder, model.until = (owner, model.leases), self.now + SECONDS
        assert (got.owner, got.token, got.attempt) == (owner, model.leases, model.attempt)
        return got.id, owner, got.token

    @rule(lease=held)
    def renew(self, lease: tuple[str, str, int]) -> None:
        model = self.model[lease[0]]
        renewed = self.store.queue.renew(*lease, SECONDS)
        assert (renewed is not None) == (model.holder == lease[1:])
        if renewed is not None:
            assert renewed.cancel_requested == model.cancel
            model.until = self.now + SECONDS

    @rule(lease=held, result=st.sampled_from(["done", "failed", "cancelled"]))
    def finish(self, lease: tuple[str, str, int], result: str) -> None:
        model = self.model[lease[0]]
        outcome = {"done": {"result": "r"}, "failed": {"error": "e"}, "cancelled": {"cancelled": True}}[result]
        finished = self.store.queue.finish(*lease, **outcome)  # type: ignore[arg-type]
        assert finished == (model.holder == lease[1:])
        if finished:
            model.state, model.holder = result, None

    @rule(lease=consumes(held))
    def release(self, lease: tuple[str, str, int]) -> None:
        model = self.model[lease[0]]
        released = self.store.queue.release(*lease)
        assert released == (model.holder == lease[1:])
        if released:
            model.state, model.holder, model.attempt = "queued", None, model.attempt - 1

    @rule(job=jobs)
    def cancel(self, job: str) -> None:
        model = self.model[job]
        if model.is_open:
            model.cancel = True
        if model.state == "queued":
            model.state = "cancelled"
        cancelled = self.store.queue.cancel(job)
        assert cancelled is not None
        assert (cancelled.state, cancelled.cancel_requested) == (model.state, model.cancel)

    @rule(seconds=st.sampled_from([1.0, SECONDS / 2, SECONDS + 1]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def nothing_is_lost(self) -> None:
        stored = {job.id: job.state for job in self.store.queue.operations()}
        assert stored == {i: m.state for i, m in self.model.items()}


TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(max_examples=30 if WHOLE else 10, stateful_step_count=30, deadline=None, derandomize=True)
TestQueue = pytest.mark.soak(TestQueue)
