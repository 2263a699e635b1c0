"""Processes that let others go first."""

import os
import time
from pathlib import Path

AUTOGROUP = Path("/proc/self/autogroup")
TRIES = 10


def go_behind(nice: int) -> None:
    """Others take precedence over this process and those that it starts: `nice` as of nice(2), 1 to 19.

    Where the kernel groups processes by session (autogroups), niceness counts only within a session, and what sessions
    get of a CPU is their groups': the niceness of that of the session is set as well, if this process leads it.
    """
    os.nice(nice)
    for _ in range(TRIES if os.getsid(0) == os.getpid() else 0):
        try:
            AUTOGROUP.write_text(str(nice))
        except BlockingIOError:  # all unprivileged processes together may do this once in 0.1 s
            time.sleep(0.1)
        except OSError:  # a kernel that has no such groups
            break
        else:
            break
