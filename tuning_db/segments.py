"""Segments that searches tried something on, and the graphs that they were part of."""

from sqlalchemy import bindparam, select

from tuning_db.checks import digest, miss
from tuning_db.engine import Database
from tuning_db.models import GraphSegmentRow, SegmentRow

_TEXT = select(SegmentRow.text).where(SegmentRow.key == bindparam("key"))
_OF_GRAPH = (
    select(GraphSegmentRow.segment_key)
    .where(GraphSegmentRow.graph_key == bindparam("key"))
    .order_by(GraphSegmentRow.segment_key)
)


def put_segment(database: Database, graph_key: str, text: str) -> None:
    """Notes that a segment, in canonical form, is part of a graph; idempotent."""
    key = digest(text)
    rows = ((SegmentRow, {"key": key, "text": text}), (GraphSegmentRow, {"graph_key": graph_key, "segment_key": key}))
    with database.write() as connection:
        for table, values in rows:
            connection.execute(database.insert(table).values(**values).on_conflict_do_nothing())


def segment(database: Database, segment_key: str) -> str | None:
    """Canonical text of a segment, None where there is none that verifies."""
    for (text,) in database.cached("segments", segment_key, _TEXT, {"key": segment_key}):
        if digest(text) == segment_key:
            return text
        miss("segments", segment_key, "text does not hash to its key")
    return None


def segments_of(database: Database, graph_key: str) -> list[str]:
    """Keys of the segments that searches for a graph tried something on."""
    return [key for (key,) in database.cached("graph_segments", graph_key, _OF_GRAPH, {"key": graph_key})]
