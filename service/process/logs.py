"""Logs of server and workers: lines on stderr, ours from `log_level` on, libraries' from warnings on."""

import logging
import sys
from typing import Any

import structlog

from service.process.interruption import is_to_be_told
from service.wording.formatting import visible

QUIET = ("alembic", "asyncio", "sqlalchemy", "uvicorn.error")


class _OneLine(logging.Formatter):
    """A message is one line, whatever names of others stand in it: control characters are shown. Tracebacks follow
    on lines of their own."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return visible(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        return visible(super().formatException(ei), kept="\n")


def configure(level: str) -> None:
    """Sets up both kinds of logger that the packages use; stdout stays free for results."""
    number = logging.getLevelNamesMapping()[level.upper()]
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(is_to_be_told)
    handler.setFormatter(_OneLine("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=number, handlers=[handler])
    for name in QUIET:
        logging.getLogger(name).setLevel(max(number, logging.WARNING))
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=_print_logger,
    )


def _print_logger(*_: object) -> structlog.PrintLogger:
    """Writes to stderr as it is when something is logged: whoever configured may have had another."""
    return structlog.PrintLogger(sys.stderr)
