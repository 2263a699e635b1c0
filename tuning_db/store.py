"""The one door to the database: plans, graphs, devices, measurements, the queue, and batches."""

import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from types import TracebackType

from sqlalchemy import select, true

from fusion_ir.records import Device, Measurement, Plan
from tuning_db import answers, checks, content, devices, failures, graphs, measurements, plans, schema, segments
from tuning_db import cache_seal as seals
from tuning_db.batches import Batches
from tuning_db.devices import StoredDevice
from tuning_db.engine import Database
from tuning_db.errors import DatabaseError
from tuning_db.failures import Failure, FailureKey
from tuning_db.graphs import NewGraph
from tuning_db.hits import HitCounter
from tuning_db.measurements import Trial
from tuning_db.models import PlanBinaryRow, PlanRow, PlanSourceRow
from tuning_db.operation import Operation
from tuning_db.operations import Operations
from tuning_db.page_tokens import Page
from tuning_db.plans import ALL_PLANS, PlanFilter, PlanSummary
from tuning_db.prefixes import beginning_with
from tuning_db.reading.answers import asked, resolve
from tuning_db.reading.content import binary, source, verify
from tuning_db.reading.graphs import Names, StoredGraph, graph, verifies
from tuning_db.requests import WHOLE, Conditions, RequestKey, Resolved, Searched
from tuning_db.states import OPERATION_STATES, OperationState, PlanState

MOST_WHOLE = 20_000  # plans and graphs that a process remembers having looked at
WHOLE_SECONDS = 60.0  # for so long


class Store:
    """Usable from any thread; every process opens its own. Close it, or use it as a context manager.

    Every method raises DatabaseError where the database is away, busy for too long, full or not writable. Damaged rows
    of the cache (plans, graphs, binaries, sources, measurements, devices) are logged and count as missing.
    """

    def __init__(self, url: str, *, upgrade: bool = False, clock: Callable[[], float] = time.time) -> None:
        """Opens `sqlite:///PATH` or `postgresql://...`, creating the tables where there are none.

        An older SQLite file is upgraded, after a copy; an older PostgreSQL database only with `upgrade`. Raises
        DatabaseError for a path that cannot be written, a file that is no database, and a newer schema.
        """
        self._database = Database(url)
        try:
            schema.prepare(self._database, upgrade=upgrade)
        except BaseException:
            self._database.close()
            raise
        self._hits = HitCounter(self._database, clock)
        self._clock = clock
        self._whole = dict[str, tuple[float, frozenset[str]]]()  # keys of plans and graphs: until when, and their parts
        self._operations = Operations(self._database, clock)
        self.batches = Batches(self._database, clock)

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Writes the hits counted so far and closes the connections."""
        self._hits.close()
        self._database.close()

    @property
    def place(self) -> str:
        """The file, or the address without its password."""
        return self._database.place

    def upgrade(self) -> str:
        """Brings the tables to the newest revision, unless they have it already, and returns that revision."""
        schema.prepare(self._database, upgrade=True)
        return self.revision()

    def revision(self) -> str:
        """The revision of the tables."""
        revision = schema.current(self._database)
        if revision is None:
            raise DatabaseError(f"database {self.place} has lost its tables")
        return revision

    def ping(self) -> None:
        """Raises DatabaseError unless the database answers."""
        self._database.rows(select(true()))

    # Graphs

    def put_graph(self, graph_key: str, text: str, names: Names) -> None:
        """Stores canonical text and names; idempotent. Raises ValueError where the text does not hash to the key."""
        graphs.put_graph(self._database, graph_key, text, names)

    def graph(self, graph_key: str) -> StoredGraph | None:
        """The graph. Where there is none that verifies, its plans answer nothing until it is stored again."""
        found = graph(self._database, graph_key)
        if found is None:
            self._whole.pop(graph_key, None)
        return found

    # Plans

    def resolve(self, request: RequestKey, now: Conditions | None = None, seconds: float = 0.0) -> Resolved | None:
        """The hot path: the best stored plan for `request`; counts a hit. None: a miss.

        With `now`, a plan measured under other conditions is `stale`: usable, due for another search. seconds: the
        search time that the asker would wait for; a plan whose search was cut short is due, too, where this is more.
        """
        resolved = self.answer(request, now, seconds)
        if resolved is not None and not self._has_graph(request.graph_key):
            return None
        while resolved is not None and not self._has_parts(resolved):
            resolved = self.answer(request, now, seconds) if self._distrust([resolved.plan_key]) else None
        if resolved is not None:
            self._hits.hit(resolved)
        return resolved

    def _has_graph(self, graph_key: str) -> bool:
        """Whether the graph is stored and verifies, checked once a minute by each process; damage in between is found
        when the graph is read."""
        return self._is_known(graph_key) or (verifies(self._database, graph_key) and self._know(graph_key, frozenset()))

    def _has_parts(self, resolved: Resolved) -> bool:
        """`_has_graph` for the binaries and sources of a plan."""
        if self._is_known(resolved.plan_key):
            return True
        steps = json.loads(resolved.body)["steps"]
        binaries, sources = ({step[name] for step in steps if step[name]} for name in ("binary", "source"))
        whole = verify(self._database, resolved.plan_key, binaries, sources)
        return whole and self._know(resolved.plan_key, frozenset(binaries | sources))

    def _is_known(self, key: str) -> bool:
        until, _ = self._whole.get(key, (0.0, None))
        return self._clock() < until

    def _know(self, key: str, parts: frozenset[str]) -> bool:
        if len(self._whole) >= MOST_WHOLE:
            self._whole.clear()
        self._whole[key] = self._clock() + WHOLE_SECONDS, parts
        return True

    def _distrust(self, plan_keys: Collection[str]) -> int:
        for key in plan_keys:
            self._whole.pop(key, None)
        return answers.distrust(self._database, sorted(plan_keys))

    def _lost(self, sha256: str, table: type[PlanBinaryRow] | type[PlanSourceRow]) -> None:
        """Marks the answers by plans with a lost or damaged binary or source as failed, see `answers.distrust`."""
        needing = set(content.plans_with(self._database, table, sha256))
        needing.update(key for key, (_, parts) in list(self._whole.items()) if sha256 in parts)
        if needing:
            self._distrust(needing)

    def answer(self, request: RequestKey, now: Conditions | None = None, seconds: float = 0.0) -> Resolved | None:
        """The best stored plan for `request`: `resolve` without a hit counted, and without a check that the plan's
        graph, binaries and sources verify."""
        found = resolve(self._database, request, now, seconds)
        if found is not None and found.due and now is not None and self.failure(request, now, seconds) is not None:
            return replace(found, due=False)
        return found

    def asked(self, plan_key: str) -> list[RequestKey]:
        """The requests that a plan answers now."""
        return asked(self._database, plan_key)

    def failure(self, request: RequestKey, now: Conditions, seconds: float) -> Failure | None:
        """The failure of an earlier search that a search of `seconds` would repeat; None where that is open."""
        return failures.failure(self._database, request, now, seconds)

    def put_failure(self, request: RequestKey, now: Conditions, had_s: float, error: str) -> None:
        """Notes that a search of `had_s` seconds ended without a plan, and why. Storing a plan deletes the note."""
        failures.put_failure(self._database, request, now, had_s, error)

    def forget_failure(self, request: RequestKey) -> bool:
        """Deletes the failure noted for a request, so that the next request searches again. False: none was noted."""
        return failures.forget_failure(self._database, request)

    def store_plan(
        self,
        request: RequestKey,
        plan: Plan,
        state: PlanState,
        binaries: Mapping[str, bytes],
        sources: Mapping[str, str],
        searched: Searched = WHOLE,
        *,
        only_better: bool = False,
    ) -> str:
        """Makes `plan` the answer to `request`; returns the answer's key. `binaries` and `sources` are keyed by sha256.

        only_better: where the best stored plan for the request stays (`answers.stays`), that plan is the answer: the
        search is noted, `plan` is not kept. Raises ValueError where the plan answers another request, its graph is not
        stored, content does not hash to its key, or a step's binary is neither given nor stored.
        """
        database = self._database
        return plans.store_plan(database, request, plan, state, binaries, sources, searched, only_better=only_better)

    def mark(self, request: RequestKey, state: PlanState, now: Conditions | None = None) -> bool:
        """Changes the state of the stored answer, and with `now` the conditions under which it was last verified.
        False: there is no answer."""
        return answers.mark(self._database, request, state, now)

    def plan(self, plan_key: str) -> bytes | None:
        """The body of a plan: JSON whose sha256 is its key."""
        return plans.plan(self._database, plan_key)

    def summary(self, plan_key: str) -> PlanSummary | None:
        """The entry of one plan in lists of plans."""
        return plans.summary(self._database, plan_key)

    def plans(
        self, selected: PlanFilter = ALL_PLANS, page_token: str | None = None, limit: int = 50
    ) -> Page[PlanSummary]:
        """A page of plans, newest first. Raises ValueError for a bad page token or a limit outside 1 ... 1000."""
        return plans.plans(self._database, selected, page_token, limit)

    def plan_keys(self, prefix: str, limit: int = 1000) -> list[str]:
        """At most `limit` keys of stored plans that begin with `prefix`. Raises ValueError unless that is 4 to 64
        hexadecimal digits."""
        return beginning_with(self._database, PlanRow.plan_key, prefix, limit)

    def evict(self, plan_key: str) -> bool:
        """Removes a plan, the requests it answers, and the binaries and sources only it needs. False: there is none."""
        return plans.evict(self._database, plan_key)

    def binary(self, sha256: str) -> bytes | None:
        """The binary. Where there is none that verifies, plans that need it answer nothing any more."""
        found = binary(self._database, sha256)
        if found is None:
            self._lost(sha256, PlanBinaryRow)
        return found

    @staticmethod
    def damaged() -> dict[str, int]:
        """How many rows this process found damaged, by table."""
        return checks.missed()

    def source(self, sha256: str) -> str | None:
        """The text of a source. Where there is none that verifies, plans that were stored with it answer nothing any
        more."""
        found = source(self._database, sha256)
        if found is None:
            self._lost(sha256, PlanSourceRow)
        return found

    def seal(self) -> bytes:
        """The database's secret for object caches, shared by all processes that use the database."""
        return seals.seal(self._database)

    def flush_hits(self) -> None:
        """Writes the hits counted so far, which otherwise happens once a second."""
        self._hits.flush()

    # Devices and measurements

    def put_device(self, device: Device) -> None:
        """Stores a device as seen now."""
        with self._database.write() as connection:
            devices.put_device(self._database, connection, device)

    def devices(self) -> list[StoredDevice]:
        """All device classes, the last seen first."""
        return devices.devices(self._database)

    def record(self, rows: Sequence[Measurement], version: str = "") -> None:
        """Adds a row per candidate tried, all or none."""
        measurements.record(self._database, rows, version)

    def trials(self, segment_key: str, device_key: str | None = None) -> list[Trial]:
        """Every try of every candidate of a segment, failed ones included, in order; on all devices, or on one."""
        return measurements.trials(self._database, segment_key, device_key)

    def import_trials(self, found: Sequence[Trial]) -> int:
        """Adds trials of another database, marked as imported; those that are here already are left out. Returns how
        many were added."""
        return measurements.import_trials(self._database, found)

    def tuned_segments(self, device_key: str, family: str, limit: int) -> list[str]:
        """Keys of segments that schedules of a family were timed on, on one class of devices; those of late first."""
        return segments.tuned_segments(self._database, device_key, family, limit)

    def fastest_times(self, device_key: str, version: str, limit: int) -> list[tuple[str, str, float]]:
        """Families, keys of segments that they were timed on, on one class of devices, and the shortest time (us),
        those of late first."""
        return segments.fastest_times(self._database, device_key, version, limit)

    def put_segment(self, graph_key: str, text: str) -> None:
        """Notes that a segment, as canonical text, is part of a graph; idempotent."""
        segments.put_segment(self._database, graph_key, text)

    def note_segment(self, graph_key: str, segment_key: str) -> None:
        """Notes that a stored segment is part of a graph, too; idempotent."""
        segments.note_segment(self._database, graph_key, segment_key)

    def segment(self, segment_key: str) -> str | None:
        """The canonical text of a segment that something was tried on."""
        return segments.segment(self._database, segment_key)

    def segments_of(self, graph_key: str) -> list[str]:
        """Keys of the segments that searches for a graph tried something on, or found tried."""
        return segments.segments_of(self._database, graph_key)

    # Queue

    def submit(
        self,
        kind: str,
        payload: str,
        dedupe_key: str | None = None,
        *,
        device_key: str | None = None,
        priority: int = 0,
        limit: int | None = None,
        graphs: Sequence[NewGraph] = (),
        failing: FailureKey | None = None,
    ) -> Operation:
        """Adds an operation or joins an equal open one. Raises QueueFull. See operations.py for all of these."""
        return self._operations.submit(
            kind,
            payload,
            dedupe_key,
            device_key=device_key,
            priority=priority,
            limit=limit,
            graphs=graphs,
            failing=failing,
        )

    def lease(
        self,
        owner: str,
        seconds: float,
        kinds: Sequence[str] | None = None,
        devices: Sequence[str] | None = None,
    ) -> Operation | None:
        return self._operations.lease(owner, seconds, kinds, devices)

    def waiting_devices(self, kinds: Sequence[str], known: Sequence[str]) -> dict[str, str]:
        return self._operations.waiting_devices(kinds, known)

    def abandon(self, owner: str) -> list[Operation]:
        return self._operations.abandon(owner)

    def renew(self, id: str, owner: str, token: int, seconds: float) -> Operation | None:
        return self._operations.renew(id, owner, token, seconds)

    def progress(self, id: str, owner: str, token: int, progress: str) -> Operation | None:
        return self._operations.progress(id, owner, token, progress)

    def finish(
        self,
        id: str,
        owner: str,
        token: int,
        *,
        result: str | None = None,
        error: str | None = None,
        cancelled: bool = False,
    ) -> bool:
        return self._operations.finish(id, owner, token, result=result, error=error, cancelled=cancelled)

    def release(self, id: str, owner: str, token: int) -> bool:
        return self._operations.release(id, owner, token)

    def cancel(self, id: str) -> Operation | None:
        return self._operations.cancel(id)

    def operation(self, id: str) -> Operation | None:
        return self._operations.operation(id)

    def operation_states(self, ids: Collection[str]) -> dict[str, str]:
        """The states of those of the operations that there are, by id."""
        return self._operations.states(ids)

    def operations(self, states: Sequence[OperationState] = OPERATION_STATES, limit: int = 100) -> list[Operation]:
        return self._operations.operations(states, limit)

    def waiting(self, limit: int = 100) -> list[Operation]:
        return self._operations.waiting(limit)

    def operation_counts(self) -> dict[OperationState, int]:
        return self._operations.counts()

    def newly_failed(self) -> list[str]:
        """Errors of operations that failed since somebody who shares the database asked last: each is given out
        once."""
        return self._operations.newly_failed()

    def forget_operations(self, seconds: float) -> int:
        """Deletes operations that ended more than `seconds` ago."""
        return self._operations.forget(seconds)
