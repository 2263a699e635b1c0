"""Signatures on answers that carry plans, and the public key that they can be checked with."""

import hashlib
from typing import Any

from fastapi import APIRouter, Request

from service.api.context import context
from service.api.models import PublicKey
from service.signing.messages import answer_message

SIGNATURE = "Fuseplan-Signature"
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()

# How the header is described, for the answers that have it.
SIGNATURE_HEADER: dict[str, Any] = {
    SIGNATURE: {"schema": {"type": "string"}, "description": "`v1 KEYID BASE64`: see docs/api.md, Signatures."}
}

router = APIRouter(tags=["keys"])


@router.get("/v1/key", summary="The public key", response_model=PublicKey)
async def key(request: Request) -> PublicKey:
    """The Ed25519 key that answers with plans are signed with, for people to compare: a client that took a key from
    here would trust whoever answers."""
    found = context(request).key
    return PublicKey(algorithm="Ed25519", key_id=found.id, public_key=found.public)


def signed(request: Request, body: bytes, request_sha256: str = EMPTY_SHA256) -> dict[str, str]:
    """The header with the signature over an answer's body and the request that it is the answer to. request_sha256: of
    the request's body."""
    method = "GET" if request.method == "HEAD" else request.method
    message = answer_message(method, request.scope["path"], request_sha256, body)
    return {SIGNATURE: context(request).key.signature(message)}
