"""The garbage collector while modules are imported: it would go through all of them over and over, and free nothing."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def resting() -> Iterator[None]:
    """Within the block nothing is collected; what was made there is left out of later collections. For imports: who
    makes garbage in cycles there keeps it."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
