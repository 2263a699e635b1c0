"""The copies that plans are measured against in `make bench-gpu`: of as many bytes as a graph reads and writes, as fast
as the device copies about as much."""

from collections.abc import Sequence
from dataclasses import replace

from benchmarks.gpu.row import COPY, Row

# Halves of other sizes end within a page, and a copy between them was measured to take 1.36x to 1.59x as long.
FLOATS = 1024
NEARLY = 0.03  # sizes so far apart, as a share, are copied equally fast


def copied_floats(bytes_: int) -> int:
    """Elements of f32 that a copy reads, and as many that it writes, to move about so many bytes: whole pages."""
    return max(round(bytes_ / 8 / FLOATS), 1) * FLOATS


def with_copies(rows: Sequence[Row]) -> list[Row]:
    """The rows with what copying their bytes takes (`Row.copied_us`): as fast as the fastest of the copies of nearly as
    much that the run timed. Each row has one of its own, but how fast a copy is may depend on more than its size."""
    known = [(r.bytes, r.times[COPY].median_us) for r in rows if COPY in r.times and r.bytes]
    return [
        replace(
            row,
            copied_us=min(us * row.bytes / bytes_ for bytes_, us in known if abs(bytes_ / row.bytes - 1) <= NEARLY),
        )
        if COPY in row.times and row.bytes
        else row
        for row in rows
    ]
