"""State that the endpoints share: settings, database, devices, metrics, the memo of request bodies."""

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from fastapi import Request

from codegen.devices.detection import DeviceError
from fusion_ir.records import Device
from service.api.pacing import Pacing
from service.api.readers import Readers
from service.api.threads import Threads
from service.api.watcher import Watcher
from service.errors import ApiError
from service.metrics import Metrics
from service.settings import Settings
from service.signing.key import SigningKey
from tuning_db.requests import Conditions, RequestKey
from tuning_db.store import Store

RETRY_SECONDS = 30.0
ROW_BYTES = 2000  # of a remembered request, names aside


@dataclass(frozen=True)
class Remembered:
    """The result of reading a body: the key of its request, the device's present conditions, the seconds that a search
    would have and, as JSON, the names of its tensors."""

    request: RequestKey
    conditions: Conditions
    seconds: float
    names: bytes

    @property
    def bytes(self) -> int:
        """Bytes of memory that the row takes, approximately."""
        return ROW_BYTES + len(self.names)


class Memo:
    """Least recently used map from the sha256 of a whole request body to what reading it gave, limited in bytes.

    Exact: equal bytes read equally, as long as the target's device is the same; devices are fixed for a server's life.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._rows: OrderedDict[bytes, Remembered] = OrderedDict()

    def get(self, digest: bytes) -> Remembered | None:
        row = self._rows.get(digest)
        if row is not None:
            self._rows.move_to_end(digest)
        return row

    def put(self, digest: bytes, row: Remembered) -> None:
        """Stores a row and forgets the least recently used ones beyond the limit; a row of more than a quarter of the
        limit is not stored."""
        if row.bytes > self._most_bytes // 4:
            return
        before = self._rows.pop(digest, None)
        self._rows[digest] = row
        self._bytes += row.bytes - (before.bytes if before else 0)
        while self._bytes > self._most_bytes:
            _, gone = self._rows.popitem(last=False)
            self._bytes -= gone.bytes


class DetectedDevices:
    """The devices of this machine by target, each detected once."""

    def __init__(self, detect: Callable[[str], Device]) -> None:
        self._detect = detect
        self._lock = threading.Lock()
        self._known: dict[str, Device] = {}
        self._failed: dict[str, tuple[float, str]] = {}  # when, and why

    def detect(self, target: str) -> Device:
        """Blocks while compilers and drivers are asked. Remembers a failure for RETRY_SECONDS. Raises DeviceError."""
        with self._lock:
            if target in self._known:
                return self._known[target]
            at, why = self._failed.get(target, (-RETRY_SECONDS, ""))
            if time.monotonic() - at < RETRY_SECONDS:
                raise DeviceError(why)
            try:
                self._known[target] = self._detect(target)
            except DeviceError as error:
                self._failed[target] = (time.monotonic(), str(error))
                raise
            return self._known[target]

    async def get(self, target: str) -> Device:
        """The device; waits without blocking others. Raises ApiError `no-device`."""
        device = self._known.get(target)
        if device is None:
            try:
                device = await asyncio.to_thread(self.detect, target)
            except DeviceError as error:
                raise ApiError("no-device", str(error), "/target") from error
        return device

    def state(self, target: str) -> str:
        """ "ok", "starting", or why there is no such device."""
        if target in self._known:
            return "ok"
        return self._failed[target][1] if target in self._failed else "starting"


@dataclass
class Context:
    """The state that endpoints share, one per application, in `app.state.context`."""

    settings: Settings
    store: Store
    devices: DetectedDevices
    memo: Memo
    version: str
    readers: Readers
    key: SigningKey
    database: Threads  # for what asks the database
    pages: Threads  # for what makes pages, which takes long
    drawing: Threads  # for laying out graphs, which takes longer
    batches: Threads  # for reading batches
    metrics: Metrics = field(default_factory=Metrics)
    submitting: set[str] = field(default_factory=set[str])  # idempotency keys of batches being read
    streams: int = 0  # of events, open now
    pacing: Pacing = field(default_factory=Pacing)
    watcher: Watcher = field(init=False)  # for what waits for operations
    stopping: bool = False  # the server ends: streams do, too, and their readers come back to the next one

    def __post_init__(self) -> None:
        self.watcher = Watcher(partial(self.database.run, self.store.queue.states), lambda: self.stopping)


def context(request: Request) -> Context:
    """The application's context."""
    found = request.app.state.context
    assert isinstance(found, Context)
    return found
