"""Time that a call by a plan takes beyond its kernels: guards, memory for results, arguments, launches.

python -m benchmarks.models.overhead [--calls 3000]

Functions of tiny tensors by `torch.compile`, with plans that were accepted: for the CPU, whose kernels are timed by
themselves in the same turns, and for a CUDA device whose driver is a stand-in that launches nothing. Beside them, by
turns: the same function by `torch.compile(backend="eager")`, which has Dynamo's guards and PyTorch's ops.
"""

import argparse
import ctypes
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import torch
from fuseplan_client.cpu.program import CpuProgram, way_of
from fuseplan_client.torch import backend as backend_module
from fuseplan_client.torch import devices as devices_module
from fuseplan_client.torch import whole as whole_module
from fuseplan_client.torch.backend import Backend
from fuseplan_client.torch.devices import CPU, GroupDevice
from fuseplan_client.torch.slot import Slot
from torch import Tensor

from benchmarks.machine import RESULTS, machine
from testing.local_plans import LocalPlans
from testing.stub_cuda import Posing, instead_of_cuda, stub_driver

RUN = 50  # calls of one side before the other's turn
MOST_CALLS = 200  # until plans are judged
ROWS, COLUMNS = 4, 8


def _pointwise(x: Tensor, y: Tensor) -> Tensor:
    return (x * y + 1).tanh()


def _many(*tensors: Tensor) -> tuple[Tensor, ...]:
    return tuple((t * 2 + 1).tanh() for t in tensors)


def _chain(x: Tensor) -> Tensor:
    """Kernels one behind the other, for each of these sums along another axis than the one before."""
    for _ in range(4):
        x = torch.softmax(torch.softmax(x, 0), 1)
    return x


FUNCTIONS: dict[str, tuple[Callable[..., Any], int]] = {
    "two inputs, one result": (_pointwise, 2),
    "sixteen inputs, sixteen results": (_many, 16),
    "a chain of kernels": (_chain, 1),
}


@dataclass(frozen=True)
class Overhead:
    """Medians of one function's calls in microseconds. kernels_us: the plan's kernels alone, 0 where nothing is
    launched; plain_us: by Dynamo and eager mode; eager_us: by eager mode."""

    kernels: int
    us: float
    kernels_us: float
    plain_us: float
    eager_us: float


def main() -> int:
    """Measures every function for both devices and writes results/models_overhead.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=3000)
    calls = parser.parse_args().calls
    torch.set_num_threads(1)
    lines: list[str] = []
    with tempfile.TemporaryDirectory() as where:
        for target in ("cpu", "emulator"):
            with _plans(Path(where, target), target) as (plans, device):
                for name, (function, count) in FUNCTIONS.items():
                    found = _measured(function, count, plans, device, calls)
                    lines.append(_line("CPU" if target == "cpu" else "CUDA, no launches", name, found))
                    print(lines[-1], flush=True)
    (RESULTS / "models_overhead.md").write_text(_page(lines, calls))
    return 0


@contextmanager
def _plans(folder: Path, target: str) -> Iterator[tuple[LocalPlans, GroupDevice]]:
    """Plans that are there at once, and the device that they run on."""
    plans = LocalPlans.made(folder, target)
    try:
        if target == "cpu":
            yield plans, CPU
            return
        stub, device = stub_driver(plans.bench.cache), Posing()
        with (
            instead_of_cuda(stub),
            mock.patch.object(backend_module, "device_of", return_value=device),
            mock.patch.object(backend_module, "class_key", lambda target: target),
        ):
            yield plans, device
    finally:
        plans.close()


def _measured(function: Callable[..., Any], count: int, plans: LocalPlans, device: GroupDevice, calls: int) -> Overhead:
    torch._dynamo.reset()
    tensors = [torch.randn(ROWS, COLUMNS) for _ in range(count)]
    programs: list[Any] = []
    backend = Backend(asker=plans, least_ops=1)
    ours = torch.compile(function, backend=backend, dynamic=False)
    plain = torch.compile(function, backend="eager", dynamic=False)
    with torch.no_grad(), _noted(programs), _all_taken():
        for _ in range(MOST_CALLS):
            ours(*tensors)
        if not backend.is_settled or not all(s.accepted for g in backend.groups for s in g.slots.values()):
            raise RuntimeError("there is no plan that would be timed")
        kernels = [_alone(p) for p in programs[-1:] if isinstance(p, CpuProgram)]
        launching = contextmanager(_dry)(plans) if device is not CPU else None
        sides = [_Side(partial(call, *tensors)) for call in (ours, plain, function)] + kernels
        with launching or contextmanager(_nothing)():
            us, plain_us, eager_us, *alone = _by_turns(sides, calls)
    return Overhead(len(plans.plans[-1].steps), us, alone[0] if alone else 0.0, plain_us, eager_us)


@contextmanager
def _noted(programs: list[Any]) -> Iterator[None]:
    """Within it, programs that are loaded are noted down."""

    def made(*args: Any) -> CpuProgram:
        programs.append(CpuProgram(*args))
        return programs[-1]

    with mock.patch.object(devices_module, "CpuProgram", made):
        yield


@contextmanager
def _all_taken() -> Iterator[None]:
    """Within it, plans are taken whatever their times are."""
    with (
        mock.patch.object(Slot, "_decide", Slot._accept),
        mock.patch.object(whole_module, "_is_faster", return_value=True),
        mock.patch.object(whole_module, "CLOSE", 0.0),
    ):
        yield


def _nothing() -> Iterator[None]:
    yield


def _dry(plans: LocalPlans) -> Iterator[None]:
    """Within it, the stand-in for the driver launches nothing."""
    stub = ctypes.CDLL(stub_driver(plans.bench.cache)._name)
    stub.stub_dry(1)
    yield
    stub.stub_dry(0)


@dataclass(frozen=True)
class _Side:
    """One side of a race. before: what is done ahead of each of its turns."""

    call: Callable[[], Any]
    before: Callable[[], Any] = lambda: None


def _alone(program: CpuProgram) -> _Side:
    """The program's kernels on memory of their own."""
    plan, table = program.plan, program.table()  # which calls of the function use, too
    held = [torch.zeros(max(t.span, 1), dtype=torch.float64) for t in (*plan.inputs, *plan.outputs)]

    def fill() -> None:
        for i, tensor in enumerate(held):
            table.addresses[i] = tensor.data_ptr()

    return _Side(partial(program.run, table, 1, way_of(program.executor)), fill)


def _by_turns(sides: Sequence[_Side], count: int) -> list[float]:
    found: list[list[float]] = [[] for _ in sides]
    while len(found[0]) < count:
        for side, samples in zip(sides, found, strict=True):
            side.before()
            for _ in range(RUN):
                start = time.perf_counter()
                side.call()
                samples.append(1e6 * (time.perf_counter() - start))
    return [median(samples) for samples in found]


def _line(device: str, name: str, o: Overhead) -> str:
    return (
        f"| {device} | {name} | {o.kernels} | {o.us:.1f} | {o.kernels_us:.1f} | {o.us - o.kernels_us:.1f} "
        f"| {o.plain_us:.1f} | {o.eager_us:.1f} |"
    )


def _page(lines: Sequence[str], calls: int) -> str:
    about = machine()
    return "\n".join(
        (
            "# What a call by a plan takes beyond its kernels",
            "",
            f"{about['device']}; PyTorch {torch.__version__}; {about['commit']}. Medians of {calls:,} calls of",
            f"each side, {RUN} in turn, on tensors of {ROWS * COLUMNS} elements, in microseconds. Beyond: guards of",
            "Dynamo and of the plan, memory for results and temporaries, arguments; on CUDA the driver is a stand-in",
            "that launches nothing. `python -m benchmarks.models.overhead`",
            "",
            "| device | function | kernels | by plans | kernels alone | beyond them | Dynamo and eager | eager |",
            "|---|---|---:|---:|---:|---:|---:|---:|",
            *lines,
            "",
        )
    )


if __name__ == "__main__":
    raise SystemExit(main())
