"""Plans in what `torch.compiler.save_cache_artifacts` saves: where that was loaded, groups have their plans without a
server.

Answers are kept as they came, with their requests, signatures, binaries and the executor, and are checked as if they
came from a server when a group asks for a plan: where one is not what it says it is, a server is asked.

PyTorch's lists of artifacts are for the thread that saves them, and of two lists of one kind it reads the last one
alone. So all of ours are put there as it saves, and only then."""

import functools
import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch.compiler._cache import CacheArtifact, CacheArtifactFactory, CacheArtifactManager

from fuseplan_client.server.answers import Answer, answer_in
from fuseplan_client.server.cache import Kept
from fuseplan_client.server.errors import BadAnswer, PlanServerError
from fuseplan_client.server.session import EXECUTOR, RESOLVE, request_body
from fuseplan_client.server.trust import Trust

log = logging.getLogger("fuseplan")

TYPE = "fuseplan"
PLAN, BINARY, RUNS = "plan", "binary", "executor"  # kinds of artifacts, the first word of their keys


@CacheArtifactFactory.register
class PlanArtifact(CacheArtifact):
    """An answer with a plan by the digest of its request, a binary by its sha256, or the executor by its
    architecture."""

    @staticmethod
    def type() -> str:
        return TYPE

    def populate_cache(self) -> None:
        """Holds it in memory, in place of an earlier one of the same key."""
        _loaded[self.key] = self.content


_loaded: dict[str, bytes] = {}  # of artifacts
_received: dict[str, bytes] = {}  # of servers, in the same form


def _with_plans(serialize: Callable[[], Any]) -> Callable[[], Any]:
    """`CacheArtifactManager.serialize` of all plans that were loaded or received by now, besides what it has."""

    @functools.wraps(serialize)
    def serialized() -> Any:
        if ours := {**_loaded, **_received}:
            CacheArtifactManager._new_cache_artifacts[TYPE] = [PlanArtifact(*item) for item in ours.items()]
        return serialize()

    return serialized


CacheArtifactManager.serialize = _with_plans(CacheArtifactManager.serialize)  # type: ignore[method-assign]


@dataclass(frozen=True)
class LoadedPlan:
    """A plan as a server would have given it. executor: sha256 and bytes. seconds: of search, that were asked for."""

    answer: Answer
    binaries: Mapping[str, bytes]
    executor: tuple[str, bytes]
    seconds: float


def record(
    request: Mapping[str, Any], answer: Answer, binaries: Mapping[str, bytes], arch: str, executor: Kept
) -> None:
    """Keeps a plan for what PyTorch saves. request: as it was sent; a later answer to the same one but for `seconds`
    takes its place where artifacts are loaded. arch: of this machine, which the executor is for."""
    head = {"signature": answer.signature, "request": request_body(request).decode()}
    _record(f"{PLAN} {request_digest(request)}", head, answer.body)
    _record(f"{RUNS} {arch}", {"signature": executor.signature}, executor.body)
    for sha256, content in binaries.items():
        _received[f"{BINARY} {sha256}"] = content


def loaded_plan(requests: Sequence[Mapping[str, Any]], arch: str, trust: Trust) -> LoadedPlan | None:
    """The plan for the first of these requests that has one among what was loaded, and is what it says it is; None
    where there is none. trust: decides whether answer and executor have to be signed, and by whom."""
    for request in requests:
        key = f"{PLAN} {request_digest(request)}"
        if key not in _loaded:
            continue
        try:
            return _checked(key, request, arch, trust)
        except (PlanServerError, ValueError, RecursionError) as error:
            log.warning("a plan of loaded artifacts is not used: %s", error)
    return None


def forget_plan(plan_key: str) -> None:
    """Lets go of answers with a plan that was of no use."""
    for kept in (_loaded, _received):
        for key, content in list(kept.items()):
            if key.startswith(PLAN) and plan_key.encode() in content:
                kept.pop(key, None)


def request_digest(request: Mapping[str, Any]) -> str:
    """The name of a request, however many seconds of search it asks for."""
    return hashlib.sha256(request_body({k: v for k, v in request.items() if k != "seconds"})).hexdigest()


def _checked(key: str, request: Mapping[str, Any], arch: str, trust: Trust) -> LoadedPlan:
    """Raises BadAnswer, Untrusted."""
    head, body = _parts(key)
    asked = head.get("request", "").encode()
    trust.check(head.get("signature", ""), "POST", RESOLVE, asked, body)
    if f"{PLAN} {_digest_of(asked)}" != key:
        raise BadAnswer("it is an answer to another request")
    answer = answer_in(body, kept=True)
    if request.get("device_key", answer.device_key) != answer.device_key:
        raise BadAnswer(f"it is for devices of class {answer.device_key!r:.40}")
    head, executor = _parts(f"{RUNS} {arch}")
    trust.check(head.get("signature", ""), "GET", EXECUTOR, b"", executor)
    binaries = {sha256: _binary(sha256) for sha256 in answer.binaries}
    seconds = json.loads(asked).get("seconds", 0.0)
    return LoadedPlan(answer, binaries, (hashlib.sha256(executor).hexdigest(), executor), float(seconds))


def _digest_of(asked: bytes) -> str:
    try:
        return request_digest(json.loads(asked))
    except (ValueError, AttributeError) as error:
        raise BadAnswer(f"its request is no JSON: {error}") from error


def _binary(sha256: str) -> bytes:
    content = _loaded.get(f"{BINARY} {sha256}")
    if content is None or hashlib.sha256(content).hexdigest() != sha256:
        raise BadAnswer(f"the binary {sha256} is {'missing' if content is None else 'not what its name says'}")
    return content


def _record(key: str, head: Mapping[str, str], body: bytes) -> None:
    _received[key] = json.dumps(head).encode() + b"\n" + body


def _parts(key: str) -> tuple[Mapping[str, str], bytes]:
    """Texts of the first line, and the bytes behind it."""
    line, _, body = _loaded.get(key, b"").partition(b"\n")
    try:
        head = json.loads(line)
    except ValueError as error:
        raise BadAnswer(f"{key:.40} is missing or cut off") from error
    if not isinstance(head, dict) or not all(isinstance(text, str) for text in head.values()):
        raise BadAnswer(f"{key:.40} is of another version")
    return head, body
