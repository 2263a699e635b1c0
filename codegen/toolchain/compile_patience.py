"""How long a file of kernels may take a compiler: by what others took, and by the time that there is for a search.

Compilers take about as long for each line as they did for others. A kernel of which that is not so, whatever a pass of
theirs makes of it, takes half a minute while everything waits: it is given up, which costs its own candidate alone.
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
    """Learns from files that compiled. most_s: CPU seconds of any."""

    def __init__(self, most_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.most_s = most_s
        self._clock = clock
        self._end: float | None = None
        self._each: deque[float] = deque(maxlen=REMEMBERED)  # seconds for a character
        self._lock = threading.Lock()

    def until(self, seconds: float | None) -> None:
        """From now on files have so many seconds of a search, or as many as they like."""
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
