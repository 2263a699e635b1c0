"""Signatures of a Fuseplan service, checked with the public keys that a user trusts."""

import base64
import hashlib
import importlib
import os
from collections.abc import Iterable
from typing import Any

VARIABLE = "FUSEPLAN_SERVER_KEY"
VERSION = "v1"
KEY_BYTES, SIGNATURE_BYTES = 32, 64
KEY_ID_DIGITS = 16
_PREFIX = f"fuseplan-signature-{VERSION}\n"


class SignatureError(Exception):
    """Something is not signed by a key that is trusted, or no key can be used; says what to do."""


class TrustedKeys:
    """Public keys of services, in base64, as `fuseplan key show` prints them: several while keys are changed.

    Raises SignatureError for a text that is no key.
    """

    def __init__(self, keys: Iterable[str]) -> None:
        self._keys: dict[str, bytes] = {}
        for text in keys:
            raw = _decoded(text.strip(), KEY_BYTES)
            if raw is None:
                raise SignatureError(f"expected a key of {KEY_BYTES} bytes in base64, got {text.strip()!r:.80}")
            self._keys[hashlib.sha256(raw).hexdigest()[:KEY_ID_DIGITS]] = raw

    def __bool__(self) -> bool:
        return bool(self._keys)

    def check(self, signature: str, message: bytes, what: str) -> None:
        """Raises SignatureError unless `signature` ("v1 KEYID BASE64") is over this message, by one of the keys. what:
        the thing that is signed, for messages."""
        if not signature.strip():
            raise SignatureError(f"{what} is not signed, and is taken only where it is signed by a key that is trusted")
        words = signature.split()
        if words[0] != VERSION:
            raise SignatureError(f"{what} has a signature of version {words[0]!r:.20}, expected {VERSION}")
        made = _decoded(words[2], SIGNATURE_BYTES) if len(words) == 3 else None
        if made is None:
            raise SignatureError(f"{what} has a signature that is cut off or malformed")
        key = self._keys.get(words[1])
        if key is None:
            trusted = ", ".join(self._keys) or "none"
            raise SignatureError(
                f"{what} is signed by key {words[1]!r:.24}, and these are trusted: {trusted}; where the server has a "
                f"new key, give it ({VARIABLE}) after comparing it with what `fuseplan key show` prints there"
            )
        if not _is_by(key, made, message):
            raise SignatureError(
                f"{what} is not what key {words[1]} signed: it was changed, or belongs to another request"
            )


def trusted_keys(given: Iterable[str] | None) -> TrustedKeys:
    """The keys that are given, or where that is None those in FUSEPLAN_SERVER_KEY, separated by commas. Raises
    SignatureError."""
    if given is None:
        given = [text for text in os.environ.get(VARIABLE, "").split(",") if text.strip()]
    return TrustedKeys([given] if isinstance(given, str) else given)


def answer_message(method: str, path: str, request: bytes, body: bytes) -> bytes:
    """The message for an answer to a request with this body. path: from its "/v1" on."""
    return _message("answer", f"{method} {path}", _sha256(request), _sha256(body))


def bundle_message(plan: bytes, about: bytes) -> bytes:
    """The message for a bundle, of the contents of plan.json and bundle.json."""
    return _message("bundle", _sha256(plan), _sha256(about))


def _message(*lines: str) -> bytes:
    return (_PREFIX + "".join(f"{line}\n" for line in lines)).encode()


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _decoded(text: str, count: int) -> bytes | None:
    """So many bytes in base64, None for anything else."""
    try:
        raw = base64.b64decode(text, validate=True)
    except ValueError:
        return None
    return raw if len(raw) == count else None


def _is_by(key: bytes, signature: bytes, message: bytes) -> bool:
    """Whether a signature is one of this key over this message. Raises SignatureError."""
    try:
        ed25519: Any = importlib.import_module("cryptography.hazmat.primitives.asymmetric.ed25519")
        invalid: Any = importlib.import_module("cryptography.exceptions").InvalidSignature
    except ImportError as e:
        raise SignatureError(f"signatures cannot be checked ({e}): pip install 'fuseplan-client[signed]'") from e
    try:
        ed25519.Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except (invalid, ValueError):
        return False
    return True
