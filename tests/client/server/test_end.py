"""The ends of things: of the interpreter, of the thread, and imports that load no more than they need."""

import asyncio
import gc
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from fuseplan_client.server import Answer, AsyncPlanClient, PlanClient, PlanServerError, background
from fuseplan_client.server import session as session_module

from testing.plan_server import (
    NEVER,
    Asked,
    Piece,
    PlanServer,
    answer,
    http,
    patient,
    plan_server,
    sha,
    unused_url,
    waited,
)

ROOT = Path(__file__).resolve().parents[3]
LIMITS = patient(attempts=1)
REQUEST = {"graph_key": "0" * 64}

# Work that was handed to a thread that is stopped under it is never begun.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Collects what a test leaves, so that warnings about it belong to that test."""
    yield
    gc.collect()


@pytest.fixture
def server() -> Iterator[PlanServer]:
    with plan_server(lambda asked: (http(answer()),)) as found:
        yield found


def program(code: str) -> subprocess.CompletedProcess[str]:
    path = {"PYTHONPATH": str(ROOT / "client"), "PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code], env=path, capture_output=True, text=True, timeout=60
    )


def test_a_program_ends_quietly_and_may_ask_until_then(server: PlanServer) -> None:
    """Also where an answer is still waited for, and in what runs at the very end."""
    code = f"""
import atexit, threading
from fuseplan_client.server import PlanClient, PlanServerError, Limits
client = PlanClient({server.url!r}, cache_bytes=0, limits=Limits(attempts=9, deadline_s=50.0, hedge_s=60.0))
atexit.register(lambda: print("at the end", type(client.resolve({{}})).__name__))
print(type(client.resolve({{}})).__name__)
slow = PlanClient({server.url!r}, cache_bytes=0, limits=Limits(attempts=1))
def wait():
    try:
        slow.resolve({{"slow": 1}})
    except PlanServerError as error:
        print("slow:", type(error).__name__)
threading.Thread(target=wait, daemon=True).start()
"""
    server.respond = lambda asked: (NEVER,) if b"slow" in asked.body else (http(answer()),)
    ended = program(code)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines()[0] == "Answer"
    assert "at the end Answer" in ended.stdout


def test_imports_load_no_more_than_they_need() -> None:
    code = """
import sys, fuseplan_client, fuseplan_client.device
print(sorted({"httpx", "cryptography", "cupy", "torch"} & set(sys.modules)))
"""
    assert program(code).stdout == "[]\n"
    assert program(code.replace(".device", ".server")).stdout == "['httpx']\n"


def test_a_thread_that_ends_before_its_work_is_an_error_and_no_wait_for_ever(
    server: PlanServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "LOOK_SECONDS", 0.01)
    own = background.background()
    own.loop.call_soon_threadsafe(own.loop.stop)  # as one that is killed: nothing is cancelled or closed
    assert waited(lambda: not own.is_alive)
    monkeypatch.setattr(background, "background", lambda: own)
    client = PlanClient(server.url, limits=LIMITS, cache_bytes=0)
    other = AsyncPlanClient(server.url, limits=LIMITS, cache_bytes=0)
    with pytest.raises(PlanServerError, match="the thread that makes requests has ended"):
        client.resolve(REQUEST)
    with pytest.raises(PlanServerError, match="the thread that makes requests has ended"):
        asyncio.run(other.resolve(REQUEST))
    assert client.refuse(sha(b""), "wrong") is False
    assert asyncio.run(other.refuse(sha(b""), "wrong")) is False
    own.stop()
    with pytest.raises(PlanServerError, match="cannot be begun: Event loop is closed"):
        client.resolve(REQUEST)
    monkeypatch.undo()
    assert isinstance(client.resolve(REQUEST), Answer)


def test_requests_under_way_when_the_thread_ends_are_told_so(server: PlanServer) -> None:
    def respond(asked: Asked) -> Sequence[Piece]:
        background.background().start(_stop_soon())
        return (NEVER,)

    async def _stop_soon() -> None:
        asyncio.get_running_loop().call_soon(threading.Thread(target=background.background().stop).start)

    server.respond = respond
    limits = patient(attempts=1)
    with pytest.raises(PlanServerError, match="has ended"):
        PlanClient(server.url, limits=limits, cache_bytes=0).resolve(REQUEST)
    with pytest.raises(PlanServerError, match="has ended"):
        asyncio.run(AsyncPlanClient(server.url, limits=limits, cache_bytes=0).resolve(REQUEST))


def test_where_no_thread_can_be_begun_that_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> background.Background:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(background, "background", refuse)
    with pytest.raises(PlanServerError, match="cannot be begun"):
        PlanClient(unused_url(), cache_bytes=0).resolve(REQUEST)


def test_a_fault_of_our_own_is_an_error_of_this_room(server: PlanServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a fault")

    monkeypatch.setattr(session_module, "answer_in", fault)
    with pytest.raises(PlanServerError, match="ZeroDivisionError: a fault"):
        PlanClient(server.url, limits=LIMITS, cache_bytes=0).resolve(REQUEST)
