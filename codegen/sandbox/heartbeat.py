"""A child's progress, noted in a page that it shares with its parent: no system call, and never half a message.

Five words of 8 bytes, each written at once: a count, then two slots of (program at work, seconds it may take). A note
goes into the slot that the count does not name, and then the count moves on. (`struct` would clear its bytes first and
write them after: a parent that looks in between sees zeros.)
"""

import ctypes
import mmap
from dataclasses import dataclass

WORDS = 5
NOBODY = -1  # no program is at work


@dataclass(frozen=True, slots=True)
class Note:
    """A note to be made by code that writes to the page itself (runtime/pool.cpp)."""

    page: int  # address
    program: int
    seconds: float


class Heartbeat:
    """One end of the page."""

    SIZE = 8 * WORDS

    def __init__(self, descriptor: int) -> None:
        self._page = mmap.mmap(descriptor, self.SIZE)
        self._whole = memoryview(self._page).cast("q")
        self._seconds = memoryview(self._page).cast("d")

    def note(self, program: int, seconds: float) -> None:
        """`program` (or NOBODY) is at work and may take `seconds`."""
        count = self._whole[0] + 1
        slot = 1 + 2 * (count & 1)
        self._whole[slot] = program
        self._seconds[slot + 1] = seconds
        self._whole[0] = count

    @property
    def address(self) -> int:
        """Where the page lies in this process."""
        return ctypes.addressof(ctypes.c_char.from_buffer(self._page))

    def read(self) -> tuple[int, int, float]:
        """How many notes there were; program and seconds of the last one."""
        count = self._whole[0]
        slot = 1 + 2 * (count & 1)
        return count, self._whole[slot], self._seconds[slot + 1]

    def close(self) -> None:
        self._whole.release()
        self._seconds.release()
        self._page.close()
