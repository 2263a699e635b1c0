"""Memory of a device, byte by byte: who wrote it, and whether whoever reads it knows.

Threads have vector clocks (Lamport; Fidge): a barrier joins those of its threads, a release hands one over to the
acquire that reads what it wrote. A read of what another thread wrote, and nothing put before it, is an error.
"""

import numpy as np

from tests.support.ptx.syntax import PtxError
from tests.support.ptx.values import Array

NOBODY = -1


class Clocks:
    """Vector clocks: the steps of every other thread that each of a grid's threads knows of."""

    def __init__(self, threads: int) -> None:
        self.known = np.eye(threads, dtype=np.int32)
        self.given = np.zeros_like(self.known)  # at the last fence: what a relaxed write hands over
        self.heard = np.zeros_like(self.known)  # by relaxed reads: known from the next fence on

    def join(self, threads: Array) -> None:
        self.known[threads] = self.known[threads].max(0)
        self.known[threads, threads] += 1

    def release(self, thread: int) -> Array:
        given = self.known[thread].copy()
        self.known[thread, thread] += 1
        return given

    def acquire(self, thread: int, given: Array) -> None:
        np.maximum(self.known[thread], given, out=self.known[thread])

    def fence(self, thread: int) -> None:
        self.acquire(thread, self.heard[thread])
        self.given[thread] = self.release(thread)


class Space:
    """`size` bytes from address `base` on, each 0xff. valid: which bytes are there; all if None.

    unfenced: bytes that a thread wrote and no fence.proxy.async has shown to copies and wgmma.
    """

    def __init__(self, name: str, base: int, size: int, clocks: Clocks, valid: Array | None = None) -> None:
        self.name, self.base, self.clocks = name, base, clocks
        self.bytes = np.full(size, 0xFF, np.uint8)
        self.valid = np.ones(size, bool) if valid is None else valid
        self.writer = np.full(size, NOBODY, np.int32)
        self.clock = np.zeros(size, np.int32)
        self.relaxed = np.zeros(size, bool)
        self.unfenced = np.zeros(size, bool)
        self.flags: dict[int, Array] = {}  # the clock that comes with the last release, or relaxed write

    def holds(self, address: int) -> bool:
        return self.base <= address < self.base + len(self.bytes)

    def places(self, addresses: Array, size: int, alignment: int) -> Array:
        """Indices [address, byte]. Raises PtxError for bytes that are not there, or not aligned."""
        first = addresses.astype(np.int64) - self.base
        wrong = (first < 0) | (first + size > len(self.bytes))
        if not wrong.any():
            wrong = ~self.valid[first] | ~self.valid[first + size - 1]
        if wrong.any():
            raise PtxError(f"{size} bytes at {int(addresses[wrong][0]):#x} are beyond {self.name} memory")
        if (addresses.astype(np.int64) % alignment).any():
            raise PtxError(f"an access of {size} bytes is not aligned")
        return first[:, None] + np.arange(size)

    def read(self, addresses: Array, size: int, threads: Array, *, alignment: int = 0, relaxed: bool = False) -> Array:
        """Bytes [address, size]. relaxed: by atomics and the like, which may meet each other.
        Raises PtxError, for races too."""
        at = self.places(addresses, size, alignment or size)
        self._ordered(at, threads, relaxed)
        return self.bytes[at]

    def write(
        self, addresses: Array, data: Array, threads: Array, *, alignment: int = 0, relaxed: bool = False
    ) -> None:
        """data: bytes [address, size]. Raises PtxError, for races too."""
        at = self.places(addresses, data.shape[1], alignment or data.shape[1])
        self._ordered(at, threads, relaxed)
        self.bytes[at] = data
        self.writer[at] = threads[:, None]
        self.clock[at] = self.clocks.known[threads, threads][:, None]
        self.relaxed[at] = relaxed
        self.unfenced[at] = True

    def fence_async(self, thread: int) -> None:
        """Shows copies and wgmma all that the thread wrote, or knows to be written."""
        at = np.flatnonzero(self.unfenced)
        self.unfenced[at] = self.clocks.known[thread, self.writer[at]] < self.clock[at]

    def by_copies(self, at: Array) -> None:
        """Raises PtxError where copies or wgmma touch, at these indices, what a thread wrote and did not fence."""
        if self.unfenced[at].any():
            raise PtxError(f"byte {int(at[self.unfenced[at]][0])} of {self.name} memory was written and not fenced")

    def copied(self, at: Array, data: Array) -> None:
        """Written by a copy that runs by itself, which a barrier announces."""
        self.by_copies(at)
        self.bytes[at] = data
        self.writer[at] = NOBODY

    def _ordered(self, at: Array, threads: Array, relaxed: bool) -> None:
        writer, me = self.writer[at], np.broadcast_to(threads[:, None], at.shape)
        unknown = (writer != NOBODY) & (writer != me) & (self.clocks.known[me, writer] < self.clock[at])
        if relaxed:
            unknown &= ~self.relaxed[at]
        if unknown.any():
            byte, thread, other = (int(x[unknown][0]) for x in (at, me, writer))
            raise PtxError(f"race: thread {thread} touches byte {byte} of {self.name} memory, which {other} wrote")
