"""Processes, as tests see them from outside."""

import os
import time
from collections.abc import Callable
from pathlib import Path


def gone(pid: int) -> bool:
    """No such process, or a zombie that nobody has reaped yet."""
    return state(pid) in ("", "Z")


def state(pid: int) -> str:
    """One letter, as in proc(5); "" where there is no such process."""
    return _stat(pid)[0]


def parent_of(pid: int) -> int:
    """Process id of the parent, 0 where there is no such process."""
    return int(_stat(pid)[1])


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has used, with all of its threads."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def descendants(pid: int) -> list[int]:
    """Children of a process, their children, and so on, zombies left out."""
    parents = {int(name): parent_of(int(name)) for name in os.listdir("/proc") if name.isdigit()}
    found, frontier = list[int](), [pid]
    while frontier:
        frontier = [child for child, parent in parents.items() if parent in frontier]
        found += frontier
    return [child for child in found if not gone(child)]


def within(seconds: float, condition: Callable[[], bool]) -> bool:
    """Whether the condition holds at some moment within so many seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except (FileNotFoundError, ProcessLookupError):
        return ["", "0"]
