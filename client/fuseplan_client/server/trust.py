"""Which answers a client takes: those signed by a key that it trusts, or from this machine whatever comes."""

import ipaddress
from collections.abc import Iterable

import httpx

from fuseplan_client.server.errors import Untrusted
from fuseplan_client.signatures import VARIABLE, SignatureError, answer_message, trusted_keys


class Trust:
    """Checks of answers with plans. server_keys: see `PlanClient`. signed: whether answers have to be signed; None:
    where there are keys, or the server is not on a loopback address.

    Raises Untrusted where answers have to be signed and there is no key, or a key is none.
    """

    def __init__(self, server: httpx.URL, server_keys: Iterable[str] | None, signed: bool | None) -> None:
        try:
            self._keys = trusted_keys(server_keys)
        except SignatureError as e:
            raise Untrusted(str(e)) from e
        self.is_on = (bool(self._keys) or not is_loopback(server.host)) if signed is None else signed
        if self.is_on and not self._keys:
            raise Untrusted(
                f"answers of {server} are taken only where they are signed by a key that you trust, and there is none: "
                f"give server_keys or {VARIABLE}; `fuseplan key show` prints the key on the server's machine"
            )

    def check(self, signature: str, method: str, path: str, request: bytes, body: bytes) -> None:
        """Raises Untrusted for an answer that is not taken. path: from "/v1" on."""
        if not self.is_on:
            return
        try:
            self._keys.check(signature, answer_message(method, path, request, body), "the answer")
        except SignatureError as e:
            raise Untrusted(str(e)) from e


def is_loopback(host: str) -> bool:
    """Whether a host is this machine by its name alone: "localhost", or an address of loopback."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
