"""The device for one process at a time: for the race of an entry, and for every time that Inductor takes while others
search or race."""

import functools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from codegen.sandbox.device_lock import device_turn
from codegen.sandbox.object_cache import ObjectCache
from fusion_ir.records import Device

TIMING_METHODS = ("benchmark_gpu", "benchmark_gpu_with_cuda_graph")


class Turn:
    """A device's turn, as searches take it, that may be asked for by whoever already holds it.

    waited_seconds: until it was ours, in all.
    """

    def __init__(self, cache: ObjectCache, device: Device) -> None:
        self.waited_seconds = 0.0
        self._cache, self._device = cache, device
        self._state = threading.local()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Holds the device for the block. Raises CacheError."""
        if getattr(self._state, "holds", False):
            yield
            return
        asked = time.monotonic()
        with device_turn(self._cache, self._device.class_key):
            self.waited_seconds += time.monotonic() - asked
            self._state.holds = True
            try:
                yield
            finally:
                self._state.holds = False

    def over_inductor(self, threads: int) -> None:
        """Lets Inductor compile with so many threads, and time kernels in no other way than with the device held. Whole
        calls of a compiled function would be too much to hold it for: most of the first one is compiling."""
        import torch._inductor.config as config  # noqa: PLC0415  # pyright: ignore[reportMissingImports]
        from torch._inductor.runtime import benchmarking  # noqa: PLC0415  # pyright: ignore[reportMissingImports]

        config.compile_threads = threads
        wrapped = 0
        for kind in type(benchmarking.benchmarker).__mro__:
            for name in TIMING_METHODS:
                if name in vars(kind):
                    setattr(kind, name, self._holding(vars(kind)[name]))
                    wrapped += 1
        if not wrapped:
            raise RuntimeError(f"Inductor of this PyTorch has none of {', '.join(TIMING_METHODS)}")

    def _holding(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def held(*arguments: Any, **named: Any) -> Any:
            with self.held():
                return method(*arguments, **named)

        return held


def cache_misses() -> int:
    """How many graphs Inductor compiled in this process because its cache did not have them."""
    from torch._dynamo.utils import counters  # noqa: PLC0415  # pyright: ignore[reportMissingImports]

    return sum(counters["inductor"][f"fxgraph_cache_{kind}"] for kind in ("miss", "bypass"))
