"""Plans in what `torch.compiler.save_cache_artifacts` saves: where that was loaded, groups have their plans without a
server.

Answers are saved as they came, with their requests, signatures, binaries and the executor, and are checked as if they
came from a server when a group asks for a plan: once in a while none of this fits, and a server is asked."""

import hashlib
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch.compiler._cache import CacheArtifact, CacheArtifactFactory, CacheArtifactManager

from fuseplan_client.server.answers import Answer, answer_in
from fuseplan_client.server.cache import Kept
from fuseplan_client.server.errors import BadAnswer, PlanServerError
from fuseplan_client.server.session import EXECUTOR, RESOLVE, request_body
from fuseplan_client.signatures import SignatureError, TrustedKeys, answer_message, trusted_keys

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


_loaded: dict[str, bytes] = {}


@dataclass(frozen=True)
class LoadedPlan:
    """A plan as a server would have given it. executor: sha256 and bytes."""

    answer: Answer
    binaries: Mapping[str, bytes]
    executor: tuple[str, bytes]


def record(
    request: Mapping[str, Any], answer: Answer, binaries: Mapping[str, bytes], arch: str, executor: Kept
) -> None:
    """Adds a plan to what PyTorch saves. request: as it was sent; a later answer to the same one but for `seconds`
    takes its place where artifacts are loaded. arch: of this machine, which the executor is for."""
    head = {"signature": answer.signature, "request": request_body(request).decode()}
    _record(f"{PLAN} {request_digest(request)}", head, answer.body)
    _record(f"{RUNS} {arch}", {"signature": executor.signature}, executor.body)
    for sha256, content in binaries.items():
        CacheArtifactManager.record_artifact(TYPE, f"{BINARY} {sha256}", content)


def loaded_plan(
    requests: Sequence[Mapping[str, Any]], arch: str, server_keys: Iterable[str] | None
) -> LoadedPlan | None:
    """The plan for the first of these requests that has one among what was loaded, and is what it says it is; None
    where there is none. server_keys: where there are any, by default in FUSEPLAN_SERVER_KEY, answer and executor have
    to be signed by one of them."""
    for request in requests:
        key = f"{PLAN} {request_digest(request)}"
        if key not in _loaded:
            continue
        try:
            return _checked(key, request, arch, trusted_keys(server_keys))
        except (SignatureError, PlanServerError) as error:
            log.warning("a plan of loaded artifacts is not used: %s", error)
    return None


def forget_plan(plan_key: str) -> None:
    """Lets go of answers with a plan that was of no use."""
    for key, content in list(_loaded.items()):
        if key.startswith(PLAN) and plan_key.encode() in content:
            _loaded.pop(key, None)


def request_digest(request: Mapping[str, Any]) -> str:
    """The name of a request, however many seconds of search it asks for."""
    return hashlib.sha256(request_body({k: v for k, v in request.items() if k != "seconds"})).hexdigest()


def _checked(key: str, request: Mapping[str, Any], arch: str, keys: TrustedKeys) -> LoadedPlan:
    """Raises BadAnswer, SignatureError."""
    head, body = _parts(key)
    asked = head.get("request", "").encode()
    if keys:
        message = answer_message("POST", RESOLVE, asked, body)
        keys.check(head.get("signature", ""), message, "the answer")
    if f"{PLAN} {_digest_of(asked)}" != key:
        raise BadAnswer("it is an answer to another request")
    answer = answer_in(body, kept=True)
    if request.get("device_key", answer.device_key) != answer.device_key:
        raise BadAnswer(f"it is for devices of class {answer.device_key!r:.40}")
    head, executor = _parts(f"{RUNS} {arch}")
    if keys:
        keys.check(head.get("signature", ""), answer_message("GET", EXECUTOR, b"", executor), "the executor")
    binaries = {sha256: _binary(sha256) for sha256 in answer.binaries}
    return LoadedPlan(answer, binaries, (hashlib.sha256(executor).hexdigest(), executor))


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
    CacheArtifactManager.record_artifact(TYPE, key, json.dumps(head).encode() + b"\n" + body)


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
