"""Bodies of requests as they come: hashed piece by piece, so that nobody waits for a large one."""

import hashlib

from fastapi import Request


async def receive(request: Request, prefix: bytes = b"") -> tuple[bytes, bytes]:
    """The body, and the sha256 of `prefix` and the body. Raises ClientDisconnect."""
    digest, pieces = hashlib.sha256(prefix), list[bytes]()
    async for piece in request.stream():
        digest.update(piece)
        pieces.append(piece)
    return b"".join(pieces), digest.digest()
