"""Models while their server is absent, slow, wrong or busy: results are PyTorch's, nothing is raised, no call waits."""

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

# ruff: noqa: E402  PyTorch is an extra
from fuseplan_client.server.client import PlanClient
from fuseplan_client.server.errors import ProblemAnswer
from fuseplan_client.server.limits import Limits
from fuseplan_client.torch import embedded
from fuseplan_client.torch.asking import Asker, Question
from fuseplan_client.torch.backend import Backend, fuseplan

from testing.plan_server import NEVER, Asked, Piece, http, plan_server, problem

QUICK = Limits(attempt_s=0.2, connect_s=0.1, hedge_s=0.05, attempts=2, deadline_s=0.5, backoff_s=0.01)
OPERATION = {"id": "op1", "state": "queued", "done": False, "kind": "plan"}


ANSWERS: dict[str, Sequence[Piece]] = {
    "slow": (NEVER,),
    "a byte now and then": (b"HTTP/1.1 200 OK\r\n", NEVER),
    "cut off": (http(b'{"plan": {' + b" " * 500)[:-200],),
    "no JSON": (http(b"<html>"),),
    "other JSON": (http({"plan": 3}),),
    "busy": (problem(429, "too-many-operations"),),
    "broken": (problem(500, "internal"),),
    "refuses": (problem(422, "bad-graph", place="/graph/nodes/0"),),
    "no such page": (http(b"", 404),),
    "never ends": (http({"operation": OPERATION}, 202, headers=[("Retry-After", "1")]),),
}


@contextmanager
def model(name: str, folder: Path) -> Iterator[tuple[Any, Backend]]:
    torch._dynamo.reset()

    def respond(_: Asked) -> Sequence[Piece]:
        return ANSWERS[name]

    with plan_server(respond) as server:
        options = {"limits": QUICK, "cache": folder}
        backend = Backend(server="http://127.0.0.1:9" if name == "absent" else server.url, client=options)
        yield torch.compile(lambda x: (x.exp() * 2 + 1).tanh(), backend=backend, dynamic=False), backend
    torch._dynamo.reset()


@pytest.mark.parametrize("name", ["absent", *ANSWERS])
@pytest.mark.parametrize("folder", ["cache", "read-only"])
@pytest.mark.sweep(0.3)
def test_whatever_becomes_of_the_server_calls_give_what_pytorch_gives(name: str, folder: str, tmp_path: Path) -> None:
    place = tmp_path / "cache"
    if folder == "read-only":
        place.mkdir()
        place.chmod(0o500)
        if os.geteuid() == 0:  # who may write anywhere: a file in the folder's place
            place.rmdir()
            place.write_text("")
    with model(name, place) as (compiled, backend):
        for seed in range(5):
            torch.manual_seed(seed)
            x = torch.randn(30, requires_grad=True)
            found = compiled(x)
            found.sum().backward()
            y = x.detach().clone().requires_grad_()
            expected = (y.exp() * 2 + 1).tanh()
            expected.sum().backward()
            assert torch.allclose(found, expected)
            assert torch.allclose(x.grad, y.grad)
        told = threading.Event()
        for _ in range(100):
            reasons = [s.reason for g in backend.groups for s in g.slots.values()]
            if name in ("slow", "never ends") or all(reasons):
                break
            told.wait(0.1)
        assert name in ("slow", "never ends") or all(reasons), reasons
        assert {s.state for g in backend.groups for s in g.slots.values()} == {"waiting"}


def test_no_call_asks_the_server_itself(tmp_path: Path) -> None:
    """Whatever is said to a server, or waited for, is so in another thread."""
    threads: set[str] = set()

    def server() -> str:
        threads.add(threading.current_thread().name)
        return "http://127.0.0.1:9"

    torch._dynamo.reset()
    asker = Asker(server, limits=QUICK, cache=tmp_path)
    compiled = torch.compile(lambda x: (x.exp() * 3 + 1).tanh(), backend=Backend(asker=asker), dynamic=False)
    for _ in range(3):
        compiled(torch.randn(7))
    asker.wait(1.0)
    assert threads == {"fuseplan-asking"}


def test_the_child_of_a_fork_asks_in_a_thread_of_its_own(tmp_path: Path) -> None:
    asked = threading.Event()
    asker = Asker(lambda: "http://127.0.0.1:9", limits=QUICK, cache=tmp_path)
    asker.ask(Question(lambda: [{}], lambda *_: None, lambda _: asked.set()))
    assert asked.wait(10)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        again = threading.Event()
        asker.ask(Question(lambda: [{}], lambda *_: None, lambda _: again.set()))
        os.write(write, b"yes" if again.wait(10) else b"no")
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 10) == b"yes"


def test_a_question_that_cannot_be_made_has_a_reason(tmp_path: Path) -> None:
    told: list[str] = []
    asker = Asker(lambda: "http://127.0.0.1:9", limits=QUICK, cache=tmp_path)

    def request() -> dict[str, Any]:
        raise ValueError("no words for it")

    asker.ask(Question(request, lambda *_: None, told.append))
    assert asker.wait(10)
    assert told == ["ValueError: no words for it"]


def test_without_a_server_and_without_fuseplan_the_reason_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "find_spec", lambda _: None)
    monkeypatch.delenv("FUSEPLAN_SERVER", raising=False)
    torch._dynamo.reset()
    backend = Backend(client={"cache": tmp_path})
    compiled = torch.compile(lambda x: (x.exp() * 5 + 1).tanh(), backend=backend, dynamic=False)
    compiled(torch.randn(7))
    assert backend.wait(10)
    (slot,) = (s for g in backend.groups for s in g.slots.values())
    assert "FUSEPLAN_SERVER" in slot.reason


def test_options_that_there_are_not_are_refused() -> None:
    module = torch.fx.symbolic_trace(lambda x: x + 1)
    with pytest.raises(ValueError, match="expected options server, seconds"):
        fuseplan(module, [torch.randn(3)], options={"servre": "x"})
    with pytest.raises(ValueError, match="expected no mode"):
        fuseplan(module, [torch.randn(3)], mode="max-autotune")


@pytest.mark.parametrize(
    "why",
    [
        ProblemAnswer(422, "no-device", "The device is not available"),
        ProblemAnswer(409, "other-device", "The device is of another class"),
        ProblemAnswer(422, "bad-request", "The request is not valid", "expected cpu", "/target"),
    ],
    ids=lambda why: why.type,
)
def test_a_server_without_the_device_is_asked_for_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: ProblemAnswer
) -> None:
    asked, told = list[str](), list[str]()

    class Client(PlanClient):
        def resolve(self, body: Mapping[str, Any], **__: Any) -> Any:
            asked.append(body["target"])
            raise why if body["target"] == "best" else ProblemAnswer(400, "bad-graph", "no such op")

    address = "http://127.0.0.1:9"
    asker = Asker(lambda: address)
    monkeypatch.setattr(asker, "_client", Client(address, limits=QUICK, cache=tmp_path))
    asker.ask(Question(lambda: [{"target": "best"}, {"target": "next"}], lambda *_: None, told.append))
    assert asker.wait(10)
    assert asked == ["best", "next"]
    assert len(told) == 1
    assert "no such op" in told[0]
