"""Logs of server and workers: lines on stderr, ours from `log_level` on, libraries' from warnings on."""

import logging
import sys

import structlog

QUIET = ("alembic", "asyncio", "sqlalchemy", "uvicorn.error")


def configure(level: str) -> None:
    """Sets up both kinds of logger that the packages use; stdout stays free for results."""
    number = logging.getLevelNamesMapping()[level.upper()]
    logging.basicConfig(level=number, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    for name in QUIET:
        logging.getLogger(name).setLevel(max(number, logging.WARNING))
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=_print_logger,
    )


def _print_logger(*_: object) -> structlog.PrintLogger:
    """Writes to stderr as it is when something is logged: whoever configured may have had another."""
    return structlog.PrintLogger(sys.stderr)
