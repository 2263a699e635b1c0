"""Batches on a running server: the requests that `fuseplan batch` makes."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx

from service.api.batch_models import BatchError, BatchModel, BatchPage, BatchProgress, BatchResult, ItemEvent
from service.cli.errors import failed
from service.cli.server_client import Remote

BATCHES = "/v1/batches"
LINES = "application/x-ndjson"
# A stream that breaks is taken up again: a server that is started anew within this time costs nothing.
RECONNECT_SECONDS = 60.0
PAUSE_SECONDS = 1.0
SILENCE_SECONDS = 45.0  # three heartbeats

_MODELS = {"item": ItemEvent, "progress": BatchProgress, "end": BatchModel}
Event = ItemEvent | BatchProgress | BatchModel


@dataclass(frozen=True)
class ServerEvent:
    """A server-sent event: its fields as they came."""

    id: str | None
    kind: str
    data: str


class BatchRemote(Remote):
    """One server. Every method raises CommandError where the server cannot be reached or refuses."""

    def submit(
        self, lines: Sequence[Mapping[str, Any]], defaults: Mapping[str, Any], idempotency_key: str | None = None
    ) -> BatchModel:
        """A batch of these lines (see BatchLine); `defaults`: members for those that lack them."""
        content = b"".join(json.dumps(line, separators=(",", ":"), allow_nan=False).encode() + b"\n" for line in lines)
        headers = {"Content-Type": LINES}
        if idempotency_key is not None:
            headers["Idempotency-Key"] = idempotency_key
        response = self._send("POST", BATCHES, content=content, params=dict(defaults), headers=headers)
        return BatchModel.model_validate_json(response.content)

    def batches(self, limit: int) -> BatchPage:
        """The newest batches."""
        return BatchPage.model_validate_json(self._send("GET", BATCHES, params={"limit": limit}).content)

    def batch(self, id: str) -> BatchModel:
        return BatchModel.model_validate_json(self._send("GET", _address(id)).content)

    def cancel(self, id: str) -> BatchModel:
        return BatchModel.model_validate_json(self._send("POST", _address(id, ":cancel")).content)

    def results(self, id: str) -> list[BatchResult]:
        lines = self._send("GET", _address(id, "/results")).content.splitlines()
        return [BatchResult.model_validate_json(line) for line in lines]

    def errors(self, id: str) -> list[BatchError]:
        lines = self._send("GET", _address(id, "/errors")).content.splitlines()
        return [BatchError.model_validate_json(line) for line in lines]

    def events(self, id: str) -> Iterator[Event]:
        """Every event of the batch to its end, across restarts of the server."""
        last = "0"
        reached: float | None = None  # when the server last said something
        while True:
            try:
                for event in self._stream(id, last):
                    last, reached = event.id or last, time.monotonic()
                    if event.kind in _MODELS:
                        yield _MODELS[event.kind].model_validate_json(event.data)
                    if event.kind == "end":
                        return
            except httpx.HTTPError as error:
                if reached is None or time.monotonic() - reached > RECONNECT_SECONDS:
                    raise failed(f"{self.url}: {error or type(error).__name__}") from error
            time.sleep(PAUSE_SECONDS)

    def _stream(self, id: str, last: str) -> Iterator[ServerEvent]:
        """Events of one connection, until either side ends it."""
        limits = httpx.Timeout(10.0, read=SILENCE_SECONDS)
        with self._client.stream(
            "GET", _address(id, "/events"), headers={"Last-Event-ID": last}, timeout=limits
        ) as response:
            if response.status_code == httpx.codes.SERVICE_UNAVAILABLE:  # a server that is just starting
                raise httpx.ReadError("the server is not ready")
            if not response.is_success:
                response.read()
                raise self._refusal(response)
            yield from _parsed(response.iter_lines())


def _parsed(lines: Iterator[str]) -> Iterator[ServerEvent]:
    """Events in the lines of a stream, as far as our server uses the format: one line of data for each event."""
    fields: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
        else:
            if "data" in fields:
                yield ServerEvent(fields.get("id"), fields.get("event", "message"), fields["data"])
            fields = {}


def _address(id: str, what: str = "") -> str:
    return f"{BATCHES}/{quote(id, safe='')}{what}"
