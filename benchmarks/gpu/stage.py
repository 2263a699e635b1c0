"""Where the sides of a comparison run and what their calls take: a CUDA device through PyTorch, or, to try the
benchmark itself out on any machine, this CPU.

On a device every side is a CUDA graph over static tensors, captured by PyTorch, so that nobody is timed launching;
where capturing fails, the call stands as it is and the row says so. Before each timed launch memory larger than the L2
cache is read, which leaves nothing there that would have to be written back.
"""

import gc
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Protocol

from benchmarks.corpus.pytorch import torch
from benchmarks.gpu.copies import copied_floats
from benchmarks.machine import machine
from benchmarks.racing import Contestant
from codegen.devices.detection import DeviceError
from codegen.hardware.machine import usable_cpus
from codegen.sandbox.object_cache import ObjectCache
from fusion_ir.records import Device, Plan

# The client is a distribution of its own, which need not be installed to be measured.
sys.path.append(str(Path(__file__).resolve().parents[2] / "client"))

LEAST_EVICTION_BYTES = 256 << 20
LEAST_ROUNDS, MOST_ROUNDS = 5, 50

Call = Callable[[], Any]
Tensors = tuple[Any, ...]


class Stage(Protocol):
    """See the module. target: of the plans that run here. place: PyTorch's name for it."""

    target: str
    place: str

    def facts(self) -> dict[str, str]:
        """The device, its driver, and versions."""
        ...

    def plan(self, bundle: Path, inputs: Tensors) -> tuple[Call, Callable[[], Tensors]]:
        """A call that runs the plan of a bundle on `inputs`, and its outputs once it ran."""
        ...

    def ready(self, call: Call) -> tuple[Call, str]:
        """The call as it is timed, and a note about it."""
        ...

    def copy(self, bytes_: int) -> Call:
        """Moves so many bytes, half of them read and half written."""
        ...

    def race(self, calls: Mapping[str, Call], seconds: float, seed: int) -> dict[str, Contestant]:
        """Times every call once a round, in an order that is random anew in each, for about `seconds`."""
        ...


def rounds(
    names: Sequence[str], once: Callable[[str], None], settle: Callable[[], None], seconds: float, seed: int
) -> int:
    """Calls `once` for each name in random order, round after round; `settle` after each. How many rounds were made."""
    order, mixed = random.Random(seed), list(names)
    end = time.monotonic() + seconds
    made = 0
    while made < MOST_ROUNDS and (made < LEAST_ROUNDS or time.monotonic() < end):
        order.shuffle(mixed)
        for name in mixed:
            once(name)
        settle()
        made += 1
    return made


class CudaStage:
    """The first CUDA device. Raises DeviceError where PyTorch sees none."""

    target = place = "cuda"

    def __init__(self, device: Device) -> None:
        if not torch.cuda.is_available():
            raise DeviceError("PyTorch sees no CUDA device")
        self.device = device
        self._stream: Any = torch.cuda.Stream()
        bytes_ = max(LEAST_EVICTION_BYTES, 2 * device.cache_bytes)
        self._evicting: Any = torch.ones(bytes_ // 4, device="cuda")
        self._evicted: Any = torch.empty((), device="cuda")

    def facts(self) -> dict[str, str]:
        """See Stage."""
        d = self.device
        return {
            **machine(),
            "device": f"{d.name}, {d.arch}, {d.units} multiprocessors",
            "driver": d.driver,
            "toolchain": d.toolchain,
            "torch": f"{torch.__version__}, CUDA {torch.version.cuda}",
            "clock": "CUDA events around one CUDA graph, behind an evicted L2 cache",
        }

    def plan(self, bundle: Path, inputs: Tensors) -> tuple[Call, Callable[[], Tensors]]:
        """See Stage. Through the client, on PyTorch's memory and stream."""
        from fuseplan_client import CudaPlan, load  # noqa: PLC0415  needs the path above

        from benchmarks.plan_runner import TORCH_DTYPE  # noqa: PLC0415

        plan, loaded = read_plan(bundle), load(bundle)
        assert isinstance(loaded, CudaPlan)
        outputs = [
            torch.empty_strided(s.shape, s.strides, dtype=TORCH_DTYPE[s.dtype], device="cuda") for s in plan.outputs
        ]
        aliases = dict(plan.aliases)

        def call() -> None:
            loaded.launch(inputs, outputs, stream=torch.cuda.current_stream())

        def result(i: int) -> Any:
            ref = aliases.get(i)
            return outputs[i] if ref is None else inputs[ref.index] if ref.place == "in" else result(ref.index)

        return call, lambda: tuple(result(i) for i in range(len(outputs)))

    def ready(self, call: Call) -> tuple[Call, str]:
        """See Stage: captured on the stream on which it ran three times before, so that all is allocated and loaded."""
        torch.cuda.synchronize()
        with torch.cuda.stream(self._stream):
            for _ in range(3):
                call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, stream=self._stream):
                call()
        except Exception as e:  # what does not capture can still be timed as it is
            torch.cuda.synchronize()
            return call, f"not captured: {type(e).__name__}"
        return graph.replay, ""

    def copy(self, bytes_: int) -> Call:
        """See Stage."""
        source = torch.rand(copied_floats(bytes_), device="cuda")
        target = torch.empty_like(source)
        return lambda: target.copy_(source)

    def race(self, calls: Mapping[str, Call], seconds: float, seed: int) -> dict[str, Contestant]:
        """See Stage."""
        spans: dict[str, list[Any]] = {name: [] for name in calls}

        def once(name: str) -> None:
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.sum(self._evicting, 0, out=self._evicted)
            start.record()
            calls[name]()
            end.record()
            spans[name].append((start, end))

        with torch.cuda.stream(self._stream):
            for name in calls:
                calls[name]()
            torch.cuda.synchronize()
            rounds(list(calls), once, torch.cuda.synchronize, seconds, seed)
        return {
            name: Contestant(name, tuple(round(1e3 * start.elapsed_time(end), 2) for start, end in found))
            for name, found in spans.items()
        }


class HostStage:
    """This CPU: for trying the benchmark out, with nothing of a device in its figures."""

    target = place = "cpu"

    def __init__(self, cache: ObjectCache) -> None:
        from benchmarks.plan_runner import unpinned_pool  # noqa: PLC0415  compiles

        self._pool, self._cache = unpinned_pool(len(usable_cpus()), cache), cache

    def facts(self) -> dict[str, str]:
        """See Stage."""
        return {**machine(), "driver": "none", "torch": torch.__version__, "clock": "a trial on the host"}

    def plan(self, bundle: Path, inputs: Tensors) -> tuple[Call, Callable[[], Tensors]]:
        """See Stage."""
        from benchmarks.plan_runner import PlanRunner  # noqa: PLC0415

        runner = PlanRunner(read_plan(bundle), self._cache, self._pool)
        outputs = runner.empty_outputs()
        return lambda: runner.into(inputs, outputs), lambda: outputs

    def ready(self, call: Call) -> tuple[Call, str]:
        """See Stage."""
        call()
        return call, ""

    def copy(self, bytes_: int) -> Call:
        """See Stage."""
        source = torch.rand(copied_floats(bytes_))
        target = torch.empty_like(source)
        return lambda: target.copy_(source)

    def race(self, calls: Mapping[str, Call], seconds: float, seed: int) -> dict[str, Contestant]:
        """See Stage."""
        samples: dict[str, list[float]] = {name: [] for name in calls}

        def once(name: str) -> None:
            start = time.perf_counter()
            calls[name]()
            samples[name].append(round(1e6 * (time.perf_counter() - start), 1))

        rounds(list(calls), once, lambda: None, seconds, seed)
        return {name: Contestant(name, tuple(found)) for name, found in samples.items()}


def write_bundle(plan: Plan, cache: ObjectCache, folder: Path) -> None:
    """A plan that was just made, as `fuseplan plans bundle` writes stored ones. Raises ValueError for a lost binary."""
    (folder / "binaries").mkdir(parents=True, exist_ok=True)
    for sha in {step.binary for step in plan.steps}:
        data = cache.get(sha)
        if data is None:
            raise ValueError(f"binary {sha} is not in the cache")
        (folder / "binaries" / sha).write_bytes(data)
    (folder / "plan.json").write_text(plan.model_dump_json())


def placed(tensor: Any, place: str) -> Any:
    """A tensor with its strides, whatever they are: PyTorch's own copies are dense where axes overlap or have gaps."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    extent = 1 + sum((n - 1) * stride for n, stride in pairs) if tensor.numel() else 0
    return tensor.as_strided((extent,), (1,)).to(place).as_strided(tensor.shape, tensor.stride())


def read_inputs(file: Path, place: str) -> Tensors:
    """Tensors that were saved, on the device."""
    return tuple(placed(t, place) for t in torch.load(file, weights_only=True))


def read_plan(bundle: Path) -> Plan:
    """The plan of a bundle."""
    return Plan.model_validate_json((bundle / "plan.json").read_text())


def free() -> None:
    """Lets go of what the last entry held."""
    torch.compiler.reset()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def no_gradients() -> AbstractContextManager[Any]:
    """PyTorch without gradients."""
    return torch.no_grad() if hasattr(torch, "no_grad") else nullcontext()
