"""Answers of a server as records, each checked for its shape: `Answer`, `Pending`, `Operation`."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fuseplan_client.server.attempts import retry_after_s
from fuseplan_client.server.errors import BadAnswer, ProblemAnswer, shown
from fuseplan_client.server.strict_json import members, object_in
from fuseplan_client.server.transport import Received

PROBLEM = "application/problem+json"
SHA256 = re.compile(r"[0-9a-f]{64}")
STATES = ("measured", "predicted", "stale")
OPERATION_STATES = ("queued", "running", "done", "failed", "cancelled")
ENDED = ("done", "failed", "cancelled")

Json = Mapping[str, Any]


@dataclass(frozen=True)
class TensorNames:
    """The sender's names of a plan's inputs and outputs, in order; and of the nodes of the canonical text, where any
    has one, "" for those that have none."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    """A plan for a request. plan_body: its bytes, whose sha256 is `plan_key` (checked); plan: the same, as JSON gives
    it. state: "measured", "predicted" or "stale". cache: whether the server had the plan ("hit") or made it ("miss").
    cut_short: why the search for it ended early, None where it did not. refining: another search is waiting or running.
    kept: whether the answer is from this client's own cache, because nobody else was asked or nobody answered. body,
    signature: the whole answer and its header as they were received."""

    plan: Json
    plan_body: bytes
    plan_key: str
    graph_key: str
    device_key: str
    state: str
    cache: str
    names: TensorNames
    cut_short: str | None = None
    refining: bool = False
    kept: bool = False
    body: bytes = field(default=b"", repr=False)
    signature: str = ""

    @property
    def binaries(self) -> tuple[str, ...]:
        """Names (sha256) of the binaries that the plan's steps take, each once."""
        return tuple(dict.fromkeys(step["binary"] for step in self.plan["steps"]))


@dataclass(frozen=True)
class Operation:
    """A search on the server. progress, result: as the server has them. error: the problem that it ended with.
    retry_after_s: seconds after which it is worth to ask again, None where the server does not say."""

    id: str
    state: str
    done: bool
    progress: Json | None = None
    result: Json | None = None
    error: ProblemAnswer | None = None
    retry_after_s: float | None = None


@dataclass(frozen=True)
class Pending:
    """No plan yet: keep running your own code, and ask again after `operation.retry_after_s` seconds."""

    operation: Operation


def answer_in(body: bytes, *, signature: str = "", kept: bool = False) -> Answer:
    """The plan in the body of a resolve answer. signature: its header, which is not looked at here. Raises
    BadAnswer."""
    found = members(body)
    values = {name: value for name, (value, _) in found.items()}
    plan, plan_key = _of(values, "plan", dict), _sha256(values, "plan_key")
    plan_body = found["plan"][1]
    if (is_ := hashlib.sha256(plan_body).hexdigest()) != plan_key:
        raise BadAnswer(f"the plan does not hash to its key: expected {plan_key}, got {is_}")
    state, cache = _of(values, "state", str), _of(values, "cache", str)
    if state not in STATES or cache not in ("hit", "miss"):
        raise BadAnswer(f"the answer has state {state!r:.40} and cache {cache!r:.40}, which this client does not know")
    cut_short = values.get("cut_short")
    if not isinstance(cut_short, str | None):
        raise BadAnswer(f"the answer's `cut_short` is no text: {cut_short!r:.40}")
    names = _names(_of(values, "names", dict))
    for place, tensors in (("inputs", names.inputs), ("outputs", names.outputs)):
        if len(_of(plan, place, list)) != len(tensors):
            raise BadAnswer(f"the answer has {len(tensors)} names for {len(plan[place])} {place} of the plan")
    for step in _of(plan, "steps", list):
        _sha256(step if isinstance(step, dict) else {}, "binary")
    return Answer(
        plan,
        plan_body,
        plan_key,
        _sha256(values, "graph_key"),
        _of(values, "device_key", str),
        state,
        cache,
        names,
        cut_short,
        values.get("refining") is True,
        kept,
        body,
        signature,
    )


def pending_in(received: Received) -> Pending:
    """The operation in a 202. Raises BadAnswer."""
    return Pending(_operation(_of(_json(received), "operation", dict), received))


def operation_in(received: Received) -> Operation:
    """The operation in an answer about one. Raises BadAnswer."""
    return _operation(_json(received), received)


def problem_in(received: Received) -> ProblemAnswer:
    """The problem that an answer with a status of 400 or more has, as far as it can be read."""
    kind, wait = received.headers.get("content-type", ""), retry_after_s(received)
    if kind.partition(";")[0].strip().lower() != PROBLEM:
        return ProblemAnswer(received.status, detail=_unread(received), retry_after_s=wait)
    try:
        return _problem(object_in(received.body, kind), received.status, wait)
    except BadAnswer:
        return ProblemAnswer(received.status, detail=_unread(received), retry_after_s=wait)


def _problem(found: Json, status: int, wait: float | None) -> ProblemAnswer:
    texts = {name: found.get(name) for name in ("type", "title", "detail", "place")}
    said = {name: shown(text) for name, text in texts.items() if isinstance(text, str)}
    slug = said.get("type", "").rpartition("/")[2]
    return ProblemAnswer(status, slug, said.get("title", ""), said.get("detail", ""), said.get("place"), wait)


def _unread(received: Received) -> str:
    begin = shown(received.body[:120].decode("utf-8", "replace")).strip()
    return f"no problem document, but {begin!r}" if begin else ""


def _json(received: Received) -> Json:
    return object_in(received.body, received.headers.get("content-type", ""))


def _operation(found: Json, received: Received) -> Operation:
    state, done = _of(found, "state", str), _of(found, "done", bool)
    if state not in OPERATION_STATES or done != (state in ENDED):
        raise BadAnswer(f"the operation has state {state!r:.40} and done {done}, which do not go together")
    error = found.get("error")
    if not isinstance(error, dict | None):
        raise BadAnswer(f"the operation's error is no object: {error!r:.40}")
    status = error.get("status") if error else None
    return Operation(
        _of(found, "id", str),
        state,
        done,
        _optional(found, "progress"),
        _optional(found, "result"),
        None if error is None else _problem(error, status if isinstance(status, int) else 0, None),
        retry_after_s(received),
    )


def _optional(found: Json, name: str) -> Json | None:
    return None if found.get(name) is None else _of(found, name, dict)


def _names(found: Json) -> TensorNames:
    lists = [_of(found, name, list) for name in ("inputs", "outputs")] + [found.get("nodes", [])]
    if not all(isinstance(names, list) and all(isinstance(n, str) for n in names) for names in lists):
        raise BadAnswer("the answer's names are no lists of texts")
    return TensorNames(*(tuple(names) for names in lists))


def _of(found: Json, name: str, kind: type[Any]) -> Any:
    """A member of this type. Raises BadAnswer."""
    if name not in found:
        raise BadAnswer(f"the answer has no `{name}`: is it of another version, or of another program?")
    if not isinstance(found[name], kind):
        raise BadAnswer(f"the answer's `{name}` is a {type(found[name]).__name__}, expected a {kind.__name__}")
    return found[name]


def _sha256(found: Json, name: str) -> str:
    text = _of(found, name, str)
    if not SHA256.fullmatch(text):
        raise BadAnswer(f"the answer's `{name}` is no sha256: {text!r:.80}")
    return text
