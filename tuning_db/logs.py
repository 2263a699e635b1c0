"""Warnings about what is stored, in the log of the process."""

from typing import Any


def warn(event: str, **fields: object) -> None:
    """Logs a warning with its fields, as structlog is configured."""
    import structlog  # noqa: PLC0415  a command that warns of nothing does without

    log: Any = structlog.get_logger("tuning_db")
    log.warning(event, **fields)
