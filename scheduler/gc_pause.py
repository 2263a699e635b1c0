"""Python's collector of cycles while a search runs.

A search makes hundreds of thousands of small objects that live until it ends, and no cycles: all are freed as it ends.
The collector would go through them again and again, which is a fifth of the time of searching twelve layers.
"""

import gc
from collections.abc import Generator
from contextlib import contextmanager
from threading import Lock

OBJECTS = 1_000_000  # that are made, and not freed, before it looks for cycles among them: bounds what these may hold

_lock = Lock()
_searches = 0
_thresholds = gc.get_threshold()  # before the first of the searches that run


@contextmanager
def collecting_rarely() -> Generator[None]:
    """Has the collector run rarely; as before when the last of those who asked for that leaves, in whatever thread."""
    global _searches, _thresholds
    with _lock:
        if not _searches:
            _thresholds = gc.get_threshold()
            gc.set_threshold(OBJECTS, *_thresholds[1:])
        _searches += 1
    try:
        yield
    finally:
        with _lock:
            _searches -= 1
            if not _searches:
                gc.set_threshold(*_thresholds)
