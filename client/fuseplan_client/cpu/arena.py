"""Memory for temporaries: one allocation for each thread that runs plans, shared by all plans, as large as the largest
needs."""

import ctypes
import mmap
import threading

HUGE_PAGE = 2 << 20


class Memory:
    """Private pages, huge where the system grants them; given back when nobody refers to them."""

    def __init__(self, size: int) -> None:
        self.size = -(-max(size, 1) // HUGE_PAGE) * HUGE_PAGE if size >= HUGE_PAGE else max(size, 1)
        self._map = mmap.mmap(-1, self.size + (HUGE_PAGE if size >= HUGE_PAGE else 0))
        if size >= HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE"):
            self._map.madvise(mmap.MADV_HUGEPAGE)
        start = _address(self._map)
        self.address = -(-start // HUGE_PAGE) * HUGE_PAGE if size >= HUGE_PAGE else start


class Arena(threading.local):
    """The memory of the calling thread. Calls of one thread run one after the other, so what one plan left there, the
    next may write over. A thread that ends gives its memory back."""

    def __init__(self) -> None:
        self._memory: Memory | None = None

    def memory(self, size: int) -> Memory:
        """Memory of `size` bytes or more, from an address that is a multiple of 4096 on. What was given before stays
        valid for who keeps it."""
        if self._memory is None or self._memory.size < size:
            self._memory = Memory(size if self._memory is None else max(size, self._memory.size * 3 // 2))
        return self._memory


ARENA = Arena()


def _address(pages: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(pages))
