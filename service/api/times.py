"""Times as clients see them."""

from datetime import UTC, datetime


def moment(seconds: float) -> str:
    """Seconds since 1970 as RFC 3339 in UTC: "2026-11-20T06:00:00.000Z"."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
