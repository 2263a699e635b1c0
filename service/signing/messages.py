"""The bytes that signatures are over. What they say can be signed for nothing else: purpose and version come first."""

import hashlib

VERSION = "v1"
_PREFIX = f"fuseplan-signature-{VERSION}\n"


def answer_message(method: str, path: str, request_sha256: str, body: bytes) -> bytes:
    """The message for an answer. path: of the request, from its first "/v1"; request_sha256: of the request's body, so
    that the answer to another request does not pass."""
    lines = ("answer", f"{method} {path}", request_sha256, hashlib.sha256(body).hexdigest())
    return _message(lines)


def bundle_message(plan: bytes, about: bytes) -> bytes:
    """The message for a bundle. plan, about: contents of plan.json, which names all binaries by their sha256, and of
    bundle.json."""
    return _message(("bundle", hashlib.sha256(plan).hexdigest(), hashlib.sha256(about).hexdigest()))


def _message(lines: tuple[str, ...]) -> bytes:
    return (_PREFIX + "".join(f"{line}\n" for line in lines)).encode()
