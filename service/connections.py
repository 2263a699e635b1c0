"""Connections of the HTTP server, held to limits: how long a head may take and be, how slowly an answer may be read,
how many there are at once, how far each asks ahead. uvicorn's own protocol has none of these."""

import asyncio
import logging
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

log = logging.getLogger("fuseplan.http")

HEAD_SECONDS = 10.0  # from the connection, or from the first byte of a later request, to the end of the head
HEAD_BYTES = 64 * 1024  # of a head, or of what else comes that is no body: extensions of chunks, trailers
UNREAD_SECONDS = 30.0  # that an answer waits while nothing of it is taken
MAX_CONNECTIONS = 1000
MAX_PIPELINE = 16  # requests that wait for the answers of others on their connection


class BoundedProtocol(HttpToolsProtocol):
    """One connection. Where all are taken, a new one takes the place of the one that has waited longest for a head."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._extra_bytes = 0  # received since the last of a body

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            waiting = [c for c in self.connections if isinstance(c, BoundedProtocol) and c is not self and c.waits]
            (min(waiting, key=lambda c: c.waits) if waiting else self).abort("there are too many connections")
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_timer = _cancelled(self._head_timer)
        self._write_timer = _cancelled(self._write_timer)
        super().connection_lost(exc)

    @property
    def waits(self) -> float:
        """The time of the loop at which it is closed unless there is a head; 0 where there is a request."""
        timer = self._head_timer or self.timeout_keep_alive_task
        return 0.0 if timer is None else timer.when()

    def data_received(self, data: bytes) -> None:
        self._extra_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._extra_bytes > HEAD_BYTES:
            self._refuse()
        elif self.cycle is None or self.cycle.response_complete:
            self._expect_head()

    def on_message_begin(self) -> None:
        self._expect_head()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._head_timer = _cancelled(self._head_timer)
        self._extra_bytes = 0
        super().on_headers_complete()
        if len(self.pipeline) > MAX_PIPELINE:
            self.abort("it asks on and on without waiting for answers")

    def on_body(self, body: bytes) -> None:
        self._extra_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._extra_bytes = 0
        super().on_message_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_timer = _cancelled(self._write_timer)
        self._watch_reader()

    def resume_writing(self) -> None:
        self._write_timer = _cancelled(self._write_timer)
        super().resume_writing()

    def abort(self, why: str) -> None:
        """Closes it at once, whatever is still to be sent."""
        log.debug("closing %s: %s", self.client, why)
        self.transport.abort()

    def _expect_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self.abort, "no request came in time")

    def _watch_reader(self) -> None:
        """Closes the connection unless its peer takes something of the answer until then."""
        unread = self.transport.get_write_buffer_size()

        def look() -> None:
            if self.transport.get_write_buffer_size() < unread:
                self._watch_reader()
            else:
                self.abort("its answer is not read")

        self._write_timer = self.loop.call_later(UNREAD_SECONDS, look)

    def _refuse(self) -> None:
        """A head that goes on and on."""
        if self.cycle is None or self.cycle.response_complete:
            text = f"The request's head has more than {HEAD_BYTES} bytes."
            head = f"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: {len(text)}\r\n"
            kind = "content-type: text/plain; charset=utf-8\r\nconnection: close\r\n\r\n"
            self.transport.write((head + kind + text).encode("ascii"))
            self.transport.close()
        else:
            self.abort("what surrounds its body has no end")


def _cancelled(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
