"""Answers that are none: of other programs, of other versions, damaged, endless; each is refused with a reason."""

import random

import pytest
from fuseplan_client.server import BadAnswer, Limits, Pending, PlanClient, PlanServerError, ProblemAnswer

from testing.plan_server import answer, http, patient, plan, plan_server, problem, sha

REQUEST = {"graph_key": "0" * 64}
ONCE = patient(attempts=1)
SMALL = patient(attempts=1, answer_bytes=100_000)
OPERATION = {"id": "abc", "state": "running", "done": False, "progress": {"measured": 3}, "result": None, "error": None}


OTHERS: dict[str, bytes] = {
    "a page": http(b"<html>It works!</html>", media_type="text/html"),
    "nothing": http(b""),
    "a list": http(b"[]"),
    "a number": http(b"7"),
    "an empty object": http({}),
    "no UTF-8": http(b'{"state": "\xff"}'),
    "half an object": http(answer()[:-1]),
    "something behind": http(answer() + b"x"),
    "NaN": http(answer()[:-1] + b',"x":NaN}'),
    "a member twice": http(answer()[:-1] + b',"state":"measured"}'),
    "a member twice inside": http(answer()[:-1] + b',"x":{"a":1,"a":2}}'),
    "too deep": http(b'{"a":' * 200_000),
    "too many digits": http(b'{"a":' + b"9" * 5000 + b"}"),
    "a redirect": http(b"", 302, headers=[("Location", "http://127.0.0.1:1/")]),
    "204": http(b"", 204),
    "an unknown state": http(answer(state="great")),
    "failed": http(answer(state="failed")),
    "an unknown cache": http(answer(cache="maybe")),
    "no key": http(answer(plan_key=None)),
    "another key": http(answer(plan_key="0" * 64)),
    "a key in capitals": http(answer(plan_key="A" * 64)),
    "names of another plan": http(answer(names={"inputs": ["a", "b"], "outputs": ["y"]})),
    "names that are numbers": http(answer(names={"inputs": [1], "outputs": ["y"]})),
    "names as a list": http(answer(names=[])),
    "no names": http(answer(names={})),
    "a plan without steps": http(answer({"inputs": [{}], "outputs": [{}]})),
    "a step that is none": http(answer({"inputs": [{}], "outputs": [{}], "steps": [7]})),
    "a binary with a path": http(answer({"inputs": [{}], "outputs": [{}], "steps": [{"binary": "../../etc"}]})),
    "encoded": http(answer(), headers=[("Content-Encoding", "gzip")]),
    "too long": http(answer(plan(note="x" * 200_000))),
    "declared too long": b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n",
    "no length and too long": b"HTTP/1.1 200 OK\r\n\r\n" + b" " * 200_000,
    "an operation without a state": http({"operation": {"id": "a"}}, 202),
    "an operation that is none": http({"operation": []}, 202),
    "no operation": http({}, 202),
    "an operation done and running": http({"operation": {**OPERATION, "done": True}}, 202),
}


@pytest.mark.parametrize("other", OTHERS)
def test_whatever_is_no_answer_is_refused_with_a_reason(other: str) -> None:
    with plan_server(lambda asked: (OTHERS[other],)) as server, pytest.raises(BadAnswer) as caught:
        PlanClient(server.url, limits=SMALL, cache_bytes=0).resolve(REQUEST)
    assert caught.value.reason
    assert all(c.isprintable() for c in caught.value.reason)


REFUSED: dict[str, bytes] = {
    "plain": http(b"out of order", 500, "text/plain"),
    "no body": http(b"", 404),
    "no object": http(b"[]", 400, "application/problem+json"),
    "no JSON": http(b"{", 400, "application/problem+json"),
    "no texts": http({"type": 7, "title": [], "detail": {}, "place": 1}, 422, "application/problem+json"),
    "escapes": problem(422, detail="\x1b[31m" + "x" * 10_000, place="\n"),
    "418": http(b"I'm a teapot", 418),
}


@pytest.mark.parametrize("name", REFUSED)
def test_any_refusal_is_a_problem_with_its_status(name: str) -> None:
    with plan_server(lambda asked: (REFUSED[name],)) as server, pytest.raises(ProblemAnswer) as caught:
        PlanClient(server.url, limits=ONCE, cache_bytes=0).resolve(REQUEST)
    assert 400 <= caught.value.status < 600
    assert all(c.isprintable() for c in caught.value.reason)
    assert len(caught.value.reason) < 2000


def test_no_bytes_raise_anything_but_this_rooms_errors() -> None:
    """Answers with random bytes in random places, heads included."""
    rng = random.Random(seed := random.SystemRandom().randrange(2**32))
    print(f"seed {seed}")
    whole = http(answer(), headers=[("Retry-After", "1")])
    damaged: list[bytes] = []
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(rng.choice((1, 2, 20))):
            at = rng.randrange(len(data) if rng.random() < 0.5 else 90)
            data[at : at + rng.randrange(3)] = rng.randbytes(rng.randrange(4))
        damaged.append(bytes(data))
    limits = Limits(attempts=1, hedge_s=60.0, attempt_s=0.5)
    refused = 0
    with plan_server(lambda asked: (damaged[asked.number % len(damaged)],)) as server:
        client = PlanClient(server.url, limits=limits, cache_bytes=0)
        for _ in damaged:
            try:
                found = client.resolve(REQUEST)
            except PlanServerError:
                refused += 1
            else:
                assert isinstance(found, Pending) or sha(found.plan_body) == found.plan_key
    assert refused > len(damaged) // 3
