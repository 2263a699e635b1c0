"""The tables, as mapped classes. Keys are sha256 in hexadecimal, times are seconds since 1970, JSON is text.

`tuning_db/migrations` builds the same tables; a test compares the two.
"""

from typing import Any, ClassVar

from sqlalchemy import (
    BigInteger,
    Boolean,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Text,
    false,
    text,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

OPEN_STATES = text("state IN ('queued', 'running')")


class Blob(LargeBinary):
    """Bytes exactly as the driver returns them.

    SQLAlchemy calls `bytes(value)` on what SQLite returns: of a number, as damaged files have them, that many bytes.
    """

    cache_ok = True

    def result_processor(self, dialect: Dialect, coltype: Any) -> None:
        return None


class Base(DeclarativeBase):
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        str: Text,
        float: Double,
        int: BigInteger,
        bytes: Blob,
        bool: Boolean,
    }


class GraphRow(Base):
    """A graph someone asked about: canonical text (its sha256 is the key) and the names of its tensors."""

    __tablename__ = "graphs"

    key: Mapped[str] = mapped_column(String(64), primary_key=True)
    text: Mapped[str]
    names: Mapped[str]  # JSON, see tuning_db.reading.graphs.Names
    nodes: Mapped[int]
    ops: Mapped[str]  # distinct op names, each between blanks
    checksum: Mapped[str] = mapped_column(String(64))
    created: Mapped[float]


class DeviceRow(Base):
    """A class of devices: the record last reported for it, with measured ceilings once there are any."""

    __tablename__ = "devices"

    class_key: Mapped[str] = mapped_column(String(64), primary_key=True)
    target: Mapped[str]
    name: Mapped[str]
    record: Mapped[str]  # JSON of fusion_ir.records.Device, ceilings included
    checksum: Mapped[str] = mapped_column(String(64))
    first_seen: Mapped[float]
    last_seen: Mapped[float]


class PlanRow(Base):
    """An immutable plan: the body that its key is the sha256 of, and copies of what lists show."""

    __tablename__ = "plans"

    plan_key: Mapped[str] = mapped_column(String(64), primary_key=True)
    body: Mapped[bytes]
    graph_key: Mapped[str] = mapped_column(ForeignKey("graphs.key"), index=True)
    device_key: Mapped[str] = mapped_column(ForeignKey("devices.class_key"), index=True)
    numerics: Mapped[str]
    time_us: Mapped[float | None]
    spread: Mapped[float | None]
    unfused_us: Mapped[float | None]
    lower_bound_us: Mapped[float]
    copy_us: Mapped[float | None]
    search_gap: Mapped[float | None]
    steps: Mapped[int]
    families: Mapped[str]  # distinct families of its steps, each between blanks
    dtypes: Mapped[str]  # distinct dtypes of its outputs, each between blanks
    checksum: Mapped[str] = mapped_column(String(64))  # over the columns above, body aside
    created: Mapped[float]

    __table_args__ = (Index("ix_plans_created_plan_key", "created", "plan_key"),)


class RequestRow(Base):
    """A request, and the plan that answers it now. `state` and `conditions` belong to the answer, not the plan.

    takes_us, looseness and temporary_bytes are the plan's: by them the best plan for a request is found among the
    answers to other requests. searched, had_s and cut_short describe the last search for this request, which may have
    found no better plan than the one stored before.
    """

    __tablename__ = "requests"

    key: Mapped[str] = mapped_column(String(64), primary_key=True)
    graph_key: Mapped[str] = mapped_column(ForeignKey("graphs.key"), index=True)
    device_key: Mapped[str] = mapped_column(ForeignKey("devices.class_key"))
    numerics: Mapped[str]
    tenant: Mapped[str]
    generator: Mapped[str]
    wire_version: Mapped[int]
    memory_bytes: Mapped[int | None]
    plan_key: Mapped[str] = mapped_column(ForeignKey("plans.plan_key"), index=True)
    state: Mapped[str]  # measured | predicted | stale | failed
    conditions: Mapped[str]  # JSON, see tuning_db.requests.Conditions
    takes_us: Mapped[float | None]  # measured, or predicted where nothing was timed
    looseness: Mapped[int] = mapped_column(server_default="0")  # of the plan's numerics: place in NUMERICS
    temporary_bytes: Mapped[int] = mapped_column(server_default="0")
    searched: Mapped[str] = mapped_column(server_default="")  # conditions of the last search, "": it is out of date
    had_s: Mapped[float | None]  # seconds with which another search finds no more; None: with any
    cut_short: Mapped[str | None]  # why that search ended early
    checksum: Mapped[str] = mapped_column(String(64))
    hits: Mapped[int] = mapped_column(default=0)
    last_hit: Mapped[float | None]
    created: Mapped[float]


class FailureRow(Base):
    """A search that ended without a plan: why, under which conditions, and with how many seconds."""

    __tablename__ = "failures"

    key: Mapped[str] = mapped_column(String(64), primary_key=True)  # of the request
    conditions: Mapped[str]
    had_s: Mapped[float]
    error: Mapped[str]  # JSON, the service's own
    checksum: Mapped[str] = mapped_column(String(64))
    created: Mapped[float]


class BinaryRow(Base):
    """A compiled file, compressed by zlib."""

    __tablename__ = "binaries"

    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    content: Mapped[bytes]
    size: Mapped[int]  # bytes, not compressed


class SourceRow(Base):
    """The generated source of a compiled file."""

    __tablename__ = "sources"

    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    text: Mapped[str]


class SealRow(Base):
    """The one secret of a database, by which object caches tell what was compiled for it from what was planted."""

    __tablename__ = "seals"

    name: Mapped[str] = mapped_column(String(32), primary_key=True)
    secret: Mapped[bytes]


class PlanBinaryRow(Base):
    """A plan needs a binary."""

    __tablename__ = "plan_binaries"

    plan_key: Mapped[str] = mapped_column(ForeignKey("plans.plan_key", ondelete="CASCADE"), primary_key=True)
    sha256: Mapped[str] = mapped_column(ForeignKey("binaries.sha256"), primary_key=True, index=True)


class PlanSourceRow(Base):
    """A plan was compiled from a source."""

    __tablename__ = "plan_sources"

    plan_key: Mapped[str] = mapped_column(ForeignKey("plans.plan_key", ondelete="CASCADE"), primary_key=True)
    sha256: Mapped[str] = mapped_column(ForeignKey("sources.sha256"), primary_key=True, index=True)


class RefusalRow(Base):
    """A client could not use a plan: why, in its words, and with the times that it measured."""

    __tablename__ = "refusals"

    plan_key: Mapped[str] = mapped_column(ForeignKey("plans.plan_key", ondelete="CASCADE"), primary_key=True)
    id: Mapped[str] = mapped_column(String(32), primary_key=True)  # the client's
    why: Mapped[str]  # wrong | slower | unusable
    detail: Mapped[str]
    took_us: Mapped[float | None]
    instead_us: Mapped[float | None]
    checksum: Mapped[str] = mapped_column(String(64))
    created: Mapped[float]


class SegmentRow(Base):
    """A segment that something was tried on: its canonical text, which its key is the sha256 of."""

    __tablename__ = "segments"

    key: Mapped[str] = mapped_column(String(64), primary_key=True)
    text: Mapped[str]


class GraphSegmentRow(Base):
    """A search for a graph tried something on a segment."""

    __tablename__ = "graph_segments"

    graph_key: Mapped[str] = mapped_column(String(64), primary_key=True)
    segment_key: Mapped[str] = mapped_column(ForeignKey("segments.key"), primary_key=True)


class MeasurementRow(Base):
    """One candidate tried on one device. Never changed; a later try of the same candidate is a later row."""

    __tablename__ = "measurements"

    id: Mapped[int] = mapped_column(BigInteger().with_variant(Integer, "sqlite"), primary_key=True)
    segment_key: Mapped[str] = mapped_column(String(64))
    device_key: Mapped[str] = mapped_column(String(64))
    family: Mapped[str]
    schedule: Mapped[str]
    status: Mapped[str]
    samples_us: Mapped[str]  # JSON list
    median_us: Mapped[float | None]
    max_rel_error: Mapped[float | None]
    detail: Mapped[str]
    compile_seconds: Mapped[float]
    binary: Mapped[str]  # sha256, or ""
    race: Mapped[str] = mapped_column(String(32), server_default="")
    warm_us: Mapped[float | None]
    input_sets: Mapped[int | None]
    report: Mapped[str] = mapped_column(server_default="")  # JSON of fusion_ir.records.CompileReport, or ""
    surroundings: Mapped[str] = mapped_column(server_default="")  # JSON of fusion_ir.records.Surroundings, or ""
    toolchain: Mapped[str] = mapped_column(server_default="")
    driver: Mapped[str] = mapped_column(server_default="")
    origin: Mapped[str] = mapped_column(server_default="")  # "imported", or "" where we measured it
    version: Mapped[str]
    checksum: Mapped[str] = mapped_column(String(64))
    created: Mapped[float]

    __table_args__ = (Index("ix_measurements_segment_key_device_key", "segment_key", "device_key", "id"),)


class OperationRow(Base):
    """One job of the durable queue. `token` counts the leases: a worker that lost its lease holds an old one.

    request_key, conditions and had_s: what a failure is noted under where the job is given up; None: it is not noted.
    counted: whether some server's metrics have it, once it failed.
    """

    __tablename__ = "operations"

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    kind: Mapped[str]
    payload: Mapped[str]
    dedupe_key: Mapped[str | None]
    device_key: Mapped[str | None]  # the class of devices that it is for; None: for any
    state: Mapped[str]  # queued | running | done | failed | cancelled
    priority: Mapped[int]
    owner: Mapped[str]
    token: Mapped[int]
    lease_until: Mapped[float]
    attempt: Mapped[int]  # leases that were not given back
    not_before: Mapped[float] = mapped_column(server_default="0")  # when it may be leased again
    cancel_requested: Mapped[bool]
    progress: Mapped[str]
    result: Mapped[str | None]
    error: Mapped[str | None]
    created: Mapped[float]
    started: Mapped[float | None]
    finished: Mapped[float | None]
    request_key: Mapped[str | None]
    conditions: Mapped[str | None]
    had_s: Mapped[float | None]
    counted: Mapped[bool] = mapped_column(server_default=false())

    __table_args__ = (
        Index("ix_operations_queue", "state", "priority", "created"),
        # One open operation per dedupe key: equal requests join it. In PostgreSQL, too, where its migration says so: to
        # say it here would load that dialect for everybody who has SQLite.
        Index("ix_operations_dedupe_key", "dedupe_key", unique=True, sqlite_where=OPEN_STATES),
    )


class BatchRow(Base):
    """Requests that were submitted together. The last item to end sets `finished`."""

    __tablename__ = "batches"

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    idempotency_key: Mapped[str | None]
    payload: Mapped[str] = mapped_column(String(64))  # sha256 of what was submitted
    items: Mapped[int]
    ended: Mapped[int]  # of its items
    created: Mapped[float]
    cancelled: Mapped[float | None]  # when somebody cancelled it
    finished: Mapped[float | None]

    __table_args__ = (
        Index("ix_batches_idempotency_key", "idempotency_key", unique=True),
        Index("ix_batches_created_id", "created", "id"),
    )


class BatchItemRow(Base):
    """One request of a batch. `result` and `error` are those of its operation, which is forgotten before the batch."""

    __tablename__ = "batch_items"

    batch_id: Mapped[str] = mapped_column(ForeignKey("batches.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)  # as submitted, from 0
    custom_id: Mapped[str]
    graph_key: Mapped[str | None] = mapped_column(String(64))
    operation_id: Mapped[str | None] = mapped_column(String(32), index=True)
    state: Mapped[str]  # queued | done | failed | cancelled
    result: Mapped[str | None]
    error: Mapped[str | None]
    event: Mapped[int | None]  # n for the n-th item of its batch to end

    __table_args__ = (
        Index("ix_batch_items_custom_id", "batch_id", "custom_id", unique=True),
        Index("ix_batch_items_event", "batch_id", "event", unique=True),
    )
