"""The race in the timing child of CUDA devices, on memory of the host: what others disturb is taken again."""

import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from codegen.child import cuda_bench
from codegen.child.case import make_case
from codegen.child.cuda_bench import Inspector, Turns
from codegen.child.cuda_checks import CudaCase
from codegen.child.nvml import CudaWatch
from codegen.timing.disturbance import Disturbance, RunQueue
from tests.unit.codegen.test_cuda_checks import FakeCupy
from tests.unit.codegen.test_cuda_prologue import GRAPH, Quiet
from tests.unit.codegen.test_cuda_prologue import cupy as cupy


class Machine(RunQueue):
    """A host and its device: a launch takes as many microseconds as the thread that queues it was late."""

    def __init__(self, late: Sequence[float]) -> None:
        super().__init__(Path("/nowhere"))
        self.late = list(late)
        self.now = self.waited = 0.0
        self.launches = 0

    def waited_seconds(self) -> float | None:
        return self.waited

    def launch(self, stream: object) -> None:
        late = self.late.pop(0) if self.late else 0.0
        self.launches += 1
        self.now += 1.0 + late
        self.waited += late


class Stream:
    def __init__(self, non_blocking: bool) -> None:
        pass

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exception: object) -> None:
        pass

    def synchronize(self) -> None:
        pass


@pytest.mark.parametrize("late", [(), (0.0, 5.0), (0.0, 0.0, 0.0, 0.0, 0.0, 5.0)])
def test_samples_with_a_late_launch_are_taken_again(
    cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch, late: tuple[float, ...]
) -> None:
    machine = Machine(late)

    class Event:
        def record(self, stream: object) -> None:
            self.at = machine.now

    cuda: Any = cupy.cuda
    cuda.Stream, cuda.Event = Stream, Event
    cuda.get_elapsed_time = lambda start, end: end.at - start.at
    monkeypatch.setattr(cuda_bench, "Eviction", lambda number, size: SimpleNamespace(launch=lambda: None))
    monkeypatch.setattr(Inspector, "run", lambda *arguments: SimpleNamespace(problem=""))
    graph: Any = SimpleNamespace(launch=machine.launch)
    candidate: Any = SimpleNamespace(
        temporaries=(),
        buffers=(),
        kept=(),
        once=0,
        aliases={},
        table=lambda *places: None,
        captured=lambda table, stream, prologue=False: graph,
    )
    watch = CudaWatch("", "libno-such-library.so.1")
    watch.disturbance = Disturbance(machine, clock=lambda: machine.now)
    channel: Any = Quiet()
    message = {
        "number": 0,
        "cache_bytes": 1,
        "seconds": 1.0,
        "kernel_seconds": 1.0,
        "timing_seconds": 0.0,
        "least_seconds": 0.0,
        "seed": 0,
    }
    turns = Turns(None, channel)
    prepared = CudaCase(make_case(GRAPH, 0))
    timings = cuda_bench._time(
        prepared, {0: candidate}, channel, message, watch, turns, Inspector(channel, message, turns), time.monotonic()
    )
    assert set(timings["0"]["samples_us"]) == {1e3}, "no sample has the wait in it"
    assert watch.disturbance.disturbed == 0
    assert watch.disturbance.visits >= 1
