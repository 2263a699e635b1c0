"""Segments that searches tried something on, or found tried, and the graphs that they were part of."""

from sqlalchemy import Integer, bindparam, func, literal, select

from tuning_db.checks import digest, miss
from tuning_db.engine import Database
from tuning_db.models import GraphSegmentRow, MeasurementRow, SegmentRow

_TEXT = select(SegmentRow.text).where(SegmentRow.key == bindparam("key"))
_ROWS = MeasurementRow.__table__.c
_TUNED = (
    select(_ROWS.segment_key)
    .where(_ROWS.device_key == bindparam("device"), _ROWS.family == bindparam("family"), _ROWS.median_us.is_not(None))
    .group_by(_ROWS.segment_key)
    .order_by(func.max(_ROWS.id).desc())
    .limit(bindparam("most", type_=Integer))
)
_FASTEST = (
    select(_ROWS.family, _ROWS.segment_key, func.min(_ROWS.median_us))
    .where(_ROWS.device_key == bindparam("device"), _ROWS.version == bindparam("version"), _ROWS.median_us > 0)
    .group_by(_ROWS.family, _ROWS.segment_key)
    .order_by(func.max(_ROWS.id).desc())
    .limit(bindparam("most", type_=Integer))
)
_OF_GRAPH = (
    select(GraphSegmentRow.segment_key)
    .where(GraphSegmentRow.graph_key == bindparam("key"))
    .order_by(GraphSegmentRow.segment_key)
)


class Segments:
    """Segments by key, and where they were timed."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, graph_key: str, text: str) -> None:
        """Notes that a segment, in canonical form, is part of a graph; idempotent."""
        key = digest(text)
        rows = (
            (SegmentRow, {"key": key, "text": text}),
            (GraphSegmentRow, {"graph_key": graph_key, "segment_key": key}),
        )
        with self._database.write() as connection:
            for table, values in rows:
                connection.execute(self._database.insert(table).values(**values).on_conflict_do_nothing())

    def note(self, graph_key: str, segment_key: str) -> None:
        """Notes that a segment, where its text is stored, is part of a graph; idempotent."""
        known = select(literal(graph_key), SegmentRow.key).where(SegmentRow.key == segment_key)
        insert = self._database.insert(GraphSegmentRow).from_select(["graph_key", "segment_key"], known)
        with self._database.write() as connection:
            connection.execute(insert.on_conflict_do_nothing())

    def segment(self, segment_key: str) -> str | None:
        """Canonical text of a segment, None where there is none that verifies."""
        for (text,) in self._database.cached("segments", segment_key, _TEXT, {"key": segment_key}):
            if digest(text) == segment_key:
                return text
            miss("segments", segment_key, "text does not hash to its key")
        return None

    def of(self, graph_key: str) -> list[str]:
        """Keys of the segments that searches for a graph tried something on, or found tried."""
        return [key for (key,) in self._database.cached("graph_segments", graph_key, _OF_GRAPH, {"key": graph_key})]

    def tuned(self, device_key: str, family: str, limit: int) -> list[str]:
        """Keys of segments that schedules of a family were timed on, on one class of devices; those of late first."""
        found = self._database.cached(
            "measurements", device_key, _TUNED, {"device": device_key, "family": family, "most": limit}
        )
        return [row.segment_key for row in found]

    def fastest_times(self, device_key: str, version: str, limit: int) -> list[tuple[str, str, float]]:
        """Families, keys of segments that they were timed on, on one class of devices, and the shortest time (us),
        those of late first. Of rows as they are: what is unreadable is found out where rows are looked up."""
        values = {"device": device_key, "version": version, "most": limit}
        return [
            (family, key, time_us)
            for family, key, time_us in self._database.cached("measurements", device_key, _FASTEST, values)
        ]
