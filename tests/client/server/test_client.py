"""The client against servers that are right, slow, wrong, absent, and killed in the middle of an answer."""

import asyncio
import hashlib
import json
import multiprocessing
import os
import random
import signal
import threading
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fuseplan_client.server import (
    Answer,
    AnswerCutOff,
    AsyncPlanClient,
    BadAnswer,
    BadArgument,
    Limits,
    Pending,
    PlanClient,
    ProblemAnswer,
    ServerAbsent,
    ServerSlow,
)
from fuseplan_client.server import background as background_module

from testing.plan_server import (
    BINARY,
    NEVER,
    Asked,
    Piece,
    answer,
    http,
    patient,
    plan,
    plan_server,
    problem,
    sha,
    unused_url,
    waited,
)

REQUEST = {"graph_key": "0" * 64}
ONCE = patient(attempts=1)
QUICK = patient(attempts=3)
OPERATION = {"id": "abc", "state": "running", "done": False, "progress": {"measured": 3}, "result": None, "error": None}


def bare(url: str, **more: Any) -> PlanClient:
    """A client that keeps nothing."""
    return PlanClient(url, cache_bytes=0, **more)


def always(*pieces: Piece) -> Callable[[Asked], Sequence[Piece]]:
    return lambda asked: pieces


def test_a_plan_comes_with_its_names_and_the_bytes_that_its_key_is_of() -> None:
    with plan_server(always(http(answer(cut_short="time was over", refining=True)))) as server:
        found = bare(server.url, limits=ONCE).resolve(REQUEST)
    assert isinstance(found, Answer)
    assert hashlib.sha256(found.plan_body).hexdigest() == found.plan_key
    assert found.plan == plan()
    assert (found.names.inputs, found.names.outputs) == (("x",), ("y",))
    assert (found.cut_short, found.refining, found.kept, found.state) == ("time was over", True, False, "measured")
    assert found.binaries == (sha(BINARY),)
    (asked,) = server.asked
    assert (asked.method, asked.path, json.loads(asked.body)) == ("POST", "/v1/plans:resolve", REQUEST)
    assert asked.headers["content-type"] == "application/json"
    assert "cache-control" not in asked.headers


def test_equal_requests_are_equal_bytes_and_bytes_stay_as_they_are() -> None:
    with plan_server(always(http(answer()))) as server:
        client = bare(server.url + "/", limits=ONCE)
        client.resolve({"b": 1, "a": {"d": 2, "c": "é"}})
        client.resolve({"a": {"c": "é", "d": 2}, "b": 1})
        client.resolve(b'{ "b":1 }')
        client.resolve(REQUEST, again=True)
    bodies = [asked.body for asked in server.asked]
    assert bodies[0] == bodies[1]
    assert bodies[2] == b'{ "b":1 }'
    assert server.asked[3].headers["cache-control"] == "no-cache"


def test_a_search_under_way_is_an_operation_which_can_be_looked_at() -> None:
    def respond(asked: Asked) -> Sequence[Piece]:
        if asked.method == "POST":
            return (http({"operation": OPERATION, "best_plan": None}, 202, headers=[("Retry-After", "7")]),)
        failed = {**OPERATION, "state": "failed", "done": True, "progress": None}
        failed["error"] = {"type": "/errors/tuning-failed", "title": "No plan", "status": 500, "detail": "Why."}
        return (http(failed),)

    with plan_server(respond) as server:
        client = bare(server.url, limits=ONCE)
        found = client.resolve(REQUEST)
        assert isinstance(found, Pending)
        assert (found.operation.id, found.operation.retry_after_s) == ("abc", 7.0)
        assert found.operation.progress == {"measured": 3}
        ended = client.operation("abc")
        assert server.asked[-1].path == "/v1/operations/abc"
    assert ended.done
    assert ended.error is not None
    assert (ended.error.type, ended.error.detail, ended.error.status) == ("tuning-failed", "Why.", 500)


def test_a_binary_is_what_its_name_says_or_refused() -> None:
    with plan_server(always(http(BINARY, media_type="application/octet-stream"))) as server:
        client = bare(server.url, limits=ONCE)
        assert client.binary(sha(BINARY)) == BINARY
        with pytest.raises(BadAnswer, match="does not hash to its name"):
            client.binary(sha(b"another"))


def test_problems_say_type_detail_and_place() -> None:
    with plan_server(always(problem(422, "bad-graph", detail="No op 'foo'.", place="/graph/nodes/3"))) as server:
        with pytest.raises(ProblemAnswer, match=r"No op 'foo'\. \(at /graph/nodes/3\)") as caught:
            bare(server.url, limits=QUICK).resolve(REQUEST)
        assert len(server.asked) == 1
    assert (caught.value.status, caught.value.type, caught.value.place) == (422, "bad-graph", "/graph/nodes/3")


def test_a_busy_server_is_asked_again_as_it_says() -> None:
    def respond(asked: Asked) -> Sequence[Piece]:
        return (problem(503, headers=[("Retry-After", "0")]) if asked.number < 2 else http(answer()),)

    with plan_server(respond) as server:
        assert isinstance(bare(server.url, limits=QUICK).resolve(REQUEST), Answer)
        assert len(server.asked) == 3
        server.respond = always(problem(429, "too-many-operations", headers=[("Retry-After", "30")]))
        with pytest.raises(ProblemAnswer) as caught:
            bare(server.url, limits=QUICK).resolve(REQUEST)
        assert len(server.asked) == 4
    assert caught.value.retry_after_s == 30.0


def test_an_absent_server_is_told_with_its_address() -> None:
    url = unused_url()
    with pytest.raises(ServerAbsent, match=f"no connection to {url}.*is the server running"):
        bare(url, limits=QUICK).resolve(REQUEST)


def test_a_slow_server_is_given_up_whether_it_says_nothing_or_a_byte_now_and_then() -> None:
    limits = Limits(attempt_s=0.15, connect_s=0.1, attempts=1, hedge_s=60.0)
    trickle = [piece for byte in http(answer()) for piece in (bytes([byte]), 0.02)]
    for pieces in ((NEVER,), (http(answer())[:-5], NEVER), trickle):
        with plan_server(always(*pieces)) as server, pytest.raises(ServerSlow, match=r"within 0\.15 s"):
            bare(server.url, limits=limits).resolve(REQUEST)


def test_a_slow_first_answer_is_overtaken_by_the_hedge() -> None:
    def respond(asked: Asked) -> Sequence[Piece]:
        return (NEVER,) if asked.number == 0 else (http(answer()),)

    with plan_server(respond) as server:
        found = bare(server.url, limits=patient(attempts=1, hedge_s=0.02)).resolve(REQUEST)
        assert isinstance(found, Answer)
        assert len(server.asked) == 2
        assert server.asked[0].body == server.asked[1].body


def test_answers_cut_off_at_any_byte_are_refused_and_asked_for_again() -> None:
    whole = http(answer())
    rng = random.Random(seed := random.SystemRandom().randrange(2**32))
    print(f"seed {seed}")
    for cut in [*sorted(rng.sample(range(len(whole)), 25)), len(whole) - 1]:
        with plan_server(lambda asked, cut=cut: (whole[:cut],) if asked.number == 0 else (whole,)) as server:
            with pytest.raises((AnswerCutOff, ServerAbsent)):
                bare(server.url, limits=ONCE).resolve(REQUEST)
            assert isinstance(bare(server.url, limits=QUICK).resolve(REQUEST), Answer)
        with plan_server(lambda asked, cut=cut: (whole[:cut],) if asked.number == 0 else (whole,)) as server:
            assert isinstance(bare(server.url, limits=QUICK).resolve(REQUEST), Answer)
            assert len(server.asked) == 2


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:8080",
        "ftp://a",
        "http://",
        "http://user:secret@a",
        "http://a/?q=1",
        "http://a:99999",
        "http://[",
        7,
    ],
    ids=repr,
)
def test_addresses_that_are_none_are_refused_at_once(url: Any) -> None:
    with pytest.raises(BadArgument) as caught:
        bare(url)
    assert "secret" not in str(caught.value)


def test_arguments_that_no_request_can_be_made_of_are_refused() -> None:
    client = bare(unused_url())
    nested: list[Any] = []
    nested.append(nested)
    for request in ({"a": object()}, {"a": float("nan")}, {"a": nested}):
        with pytest.raises(BadArgument):
            client.resolve(request)
    for id_ in ("", "a/b", "../x", "a" * 65):
        with pytest.raises(BadArgument):
            client.operation(id_)
    for key in ("", "A" * 64, "0" * 63, "../" + "0" * 61):
        with pytest.raises(BadArgument):
            client.binary(key)
    for wrong in (
        {"attempt_s": 1.0},
        {"attempt_s": 0},
        {"connect_s": 0.95},
        {"attempts": 0},
        {"hedge_s": float("nan")},
    ):
        with pytest.raises(BadArgument):
            Limits(**wrong)


def test_threads_share_a_client_and_its_connections() -> None:
    def respond(asked: Asked) -> Sequence[Piece]:
        return (http(answer(plan(note=json.loads(asked.body)["note"]))),)

    with plan_server(respond) as server:
        client = bare(server.url, limits=QUICK)
        with ThreadPoolExecutor(8) as threads:
            found = list(threads.map(lambda i: client.resolve({"note": str(i)}), range(200)))
        notes = [a.plan["note"] for a in found if isinstance(a, Answer)]
        assert notes == [str(i) for i in range(200)]
        assert server.connections <= 16
        before = server.connections
        for _ in range(20):
            bare(server.url, limits=QUICK).resolve({"note": ""})
        assert server.connections == before


def test_coroutines_of_any_loop_use_the_client_and_may_be_cancelled() -> None:
    slow = threading.Event()

    def respond(asked: Asked) -> Sequence[Piece]:
        if b"slow" in asked.body:
            slow.set()
            return (NEVER,)
        return (http(answer()),)

    async def several(client: AsyncPlanClient) -> None:
        found = await asyncio.gather(*(client.resolve(REQUEST) for _ in range(5)))
        assert all(isinstance(a, Answer) for a in found)
        task = asyncio.ensure_future(client.resolve({"slow": 1}))
        await asyncio.to_thread(slow.wait, 20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert isinstance(await client.resolve(REQUEST), Answer)

    with plan_server(respond) as server:
        client = AsyncPlanClient(server.url, limits=ONCE, cache_bytes=0)
        asyncio.run(several(client))
        slow.clear()
        asyncio.run(several(client))


def _in_child(url: str, client: PlanClient, results: Any) -> None:
    try:
        found = [client.resolve({"child": i}) for i in range(3)] + [bare(url, limits=QUICK).resolve(REQUEST)]
        results.put([isinstance(a, Answer) for a in found])
    except BaseException:
        results.put(traceback.format_exc())


def test_the_child_of_a_fork_makes_connections_of_its_own_and_leaves_its_parents_alone() -> None:
    with plan_server(always(http(answer()))) as server:
        client = bare(server.url, limits=QUICK)
        client.resolve({"parent": 0})
        of_parent = {asked.connection for asked in server.asked}
        context = multiprocessing.get_context("fork")
        results = context.Queue()
        children = [context.Process(target=_in_child, args=(server.url, client, results)) for _ in range(3)]
        for child in children:
            child.start()
        assert [results.get(timeout=30) for _ in children] == [[True] * 4] * 3
        for child in children:
            child.join(30)
            assert child.exitcode == 0
        of_children = {asked.connection for asked in server.asked if b"child" in asked.body}
        assert not of_children & of_parent
        client.resolve({"parent": 1})
        last = server.asked[-1]
        assert last.connection in of_parent, "the parent's connection was closed by a child"


def test_a_server_that_is_killed_and_comes_back_is_found_again() -> None:
    with plan_server(always(http(answer()))) as server:
        client = bare(server.url, limits=QUICK)
        client.resolve(REQUEST)
    with pytest.raises(ServerAbsent):
        client.resolve(REQUEST)
    with plan_server(always(http(answer()))) as other:
        assert isinstance(bare(other.url, limits=QUICK).resolve(REQUEST), Answer)


def test_a_kept_connection_that_the_server_closed_costs_no_answer() -> None:
    def respond(asked: Asked) -> Sequence[Piece]:
        return (http(answer()), b"") if asked.number % 2 == 0 else ()  # the second use of a connection closes it

    with plan_server(respond) as server:
        client = bare(server.url, limits=QUICK)
        for _ in range(4):
            assert isinstance(client.resolve(REQUEST), Answer)


def test_an_interrupt_drops_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    with plan_server(always(NEVER)) as server:
        client = bare(server.url, limits=ONCE)

        def interrupt() -> None:
            assert waited(lambda: bool(server.asked))
            os.kill(os.getpid(), 2)

        # Programs in the background of a shell ignore it.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        thread = threading.Thread(target=interrupt)
        thread.start()
        try:
            with pytest.raises(KeyboardInterrupt):
                client.resolve(REQUEST)
        finally:
            signal.signal(signal.SIGINT, before)
        thread.join()
        server.respond = always(http(answer()))
        # By a client that tries again: the server may close the connection of the request that was dropped at any time.
        assert isinstance(bare(server.url, limits=QUICK).resolve(REQUEST), Answer)


def test_work_goes_on_in_a_new_thread_where_the_old_one_has_ended() -> None:
    with plan_server(always(http(answer()))) as server:
        client = bare(server.url, limits=QUICK)
        client.resolve(REQUEST)
        background_module.background().stop()
        assert isinstance(client.resolve(REQUEST), Answer)
