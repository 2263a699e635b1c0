"""How much of a CPU a thread gets that wants one, beside whatever else a machine runs."""

import threading
from pathlib import Path

from codegen.hardware.machine import ROOT, system_text


class CpuShare:
    """Counts for the thread that last called `restart`: how long it ran, and how long it was ready to run and waited.
    root: of the system's files."""

    def __init__(self, root: Path = ROOT) -> None:
        self._root = root
        self.restart()

    def restart(self) -> None:
        """Begins to count anew, for the thread that calls."""
        self._file = self._root / f"proc/self/task/{threading.get_native_id()}/schedstat"
        self._before = self._counted()

    def share(self) -> float | None:
        """Share of the time in which the thread wanted a CPU that it had one, since the restart; None where the system
        does not say."""
        now = self._counted()
        if self._before is None or now is None:
            return None
        ran, waited = (later - earlier for later, earlier in zip(now, self._before, strict=True))
        return ran / (ran + waited) if ran + waited > 0 else None

    def _counted(self) -> tuple[int, int] | None:
        """Nanoseconds that the thread ran and waited since it began."""
        words = system_text(self._file).split()
        return (int(words[0]), int(words[1])) if len(words) == 3 else None
