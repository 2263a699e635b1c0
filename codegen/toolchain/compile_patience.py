"""How long a compiler may work on a file of kernels: by the times of earlier files, and by the time left to a search.

A compiler takes about as long per character as it did for earlier files. Where it does not, because some pass of it
stumbles over a kernel, that takes half a minute while everything waits: the kernel is given up, which costs its own
candidate alone.
"""

import threading
import time
from collections import deque
from collections.abc import Callable

TIMES = 8.0  # what others took by length
LEAST_S = 6.0  # of CPU, whatever others took; of a file of several kernels times the root of their number
LEAST_PEERS = 4  # that say anything
REMEMBERED = 64
HEADERS = 4_000  # characters of kernels that take as long as the headers do


class Patience:
    """Learns from files that compiled. most_s: the most CPU seconds of any file."""

    def __init__(self, most_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.most_s = most_s
        self._clock = clock
        self._end: float | None = None
        self._each: deque[float] = deque(maxlen=REMEMBERED)  # seconds for a character
        self._lock = threading.Lock()

    def until(self, seconds: float | None) -> None:
        """From now on all files together have `seconds` of a search; None: no limit."""
        self._end = None if seconds is None else self._clock() + seconds

    def is_over(self) -> bool:
        """Whether the seconds of the search are over."""
        return self._end is not None and self._clock() >= self._end

    def seconds(self, characters: int, kernels: int = 1) -> float:
        """CPU seconds that a file of so many characters and kernels may take."""
        with self._lock:
            each = sorted(self._each)
        most = self.most_s
        if len(each) >= LEAST_PEERS:
            most = min(most, TIMES * each[len(each) // 2] * (HEADERS + characters))
        if self._end is not None:
            most = min(most, self._end - self._clock())
        return min(self.most_s, max(most, LEAST_S * kernels**0.5))

    def note(self, characters: int, seconds: float) -> None:
        """A file of so many characters took so long."""
        with self._lock:
            self._each.append(seconds / (HEADERS + characters))
