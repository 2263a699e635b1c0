"""`fuseplan ...` or a worker as a process that writes down what the database acknowledged, for tests that kill it.

`logged_process.py LOG worker`, or `logged_process.py LOG ARGUMENTS...` of the command line. Every measurement gets a
mark in its detail; marks are appended to LOG once the transaction that wrote them is committed.
"""

import os
import secrets
import sys
from collections.abc import Sequence
from typing import Any

from fusion_ir.records import Measurement
from service import __main__ as command_line
from service import worker
from tuning_db.measurements import Trials

MARK = "mark:"


def log_records(path: str) -> None:
    """Lets `Trials.record` mark rows and append the marks to the file, in one write, as soon as they are stored."""
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    record = Trials.record

    def logged(trials: Trials, rows: Sequence[Measurement], *more: Any, **named: Any) -> None:
        marks = [f"{MARK}{secrets.token_hex(8)}" for _ in rows]
        marked = [
            row.model_copy(update={"detail": f"{row.detail} {mark}"}) for row, mark in zip(rows, marks, strict=True)
        ]
        record(trials, marked, *more, **named)
        os.write(log, "".join(f"{mark}\n" for mark in marks).encode())

    Trials.record = logged


if __name__ == "__main__":
    log = sys.argv.pop(1)
    log_records(log)
    sys.exit(worker.main([]) if sys.argv[1] == "worker" else command_line.main())
