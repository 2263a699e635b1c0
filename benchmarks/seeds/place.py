"""Where the seed cases are measured: this CPU, a CUDA device, or a GPU that is not there, of which all is predicted."""

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from benchmarks.corpus.pytorch import HAS_TORCH, to_torch, torch
from benchmarks.racing import Contestant, race
from codegen.devices.detection import detect
from codegen.hardware.machine import usable_cpus
from codegen.sandbox.object_cache import ObjectCache
from codegen.workbench.workbench import Workbench
from fusion_ir.core.graph import Graph
from fusion_ir.records import Device, Plan
from scheduler.budget import Budget
from scheduler.interfaces import Forgetful
from scheduler.rewrites.rule import Alternative
from scheduler.rewrites.rules import ALTERNATIVES
from scheduler.tune import tune

Tensors = tuple[Any, ...]
Function = Callable[..., Tensors]


class Sides(Protocol):
    """Tools for a race in PyTorch's process on one kind of device."""

    def tensors(self, arrays: Sequence[np.ndarray]) -> Tensors:
        """The arrays as PyTorch's tensors where the race is."""
        ...

    def function(self, plan: Plan) -> Function:
        """The plan as a function of tensors, for PyTorch's tensors and stream."""
        ...

    def race(self, calls: Mapping[str, Callable[[], object]], rounds: int, seed: int) -> dict[str, Contestant]:
        """Interleaved rounds, as the device's benchmark runs them."""
        ...


@dataclass(frozen=True)
class Place:
    """target: as on the command line. sides: None where nothing can be timed beside PyTorch. budget_s: of the search of
    a graph. rounds: of a race."""

    target: str
    device: Device
    cache: ObjectCache
    sides: Sides | None
    budget_s: float = 5.0
    rounds: int = 30
    seed: int = 0

    @property
    def is_there(self) -> bool:
        """Whether kernels can be timed; else everything is a prediction."""
        return self.device.origin == "detected" and self.device.target != "emulator"

    @contextlib.contextmanager
    def bench(self) -> Iterator[Workbench]:
        """A workbench on the device."""
        with Workbench(self.device, self.cache) as bench:
            yield bench

    def plan(self, graph: Graph, offers: Sequence[Alternative] = ALTERNATIVES) -> Plan:
        """A new plan; nothing is known of earlier ones. offers: rules that may compute it in another way."""
        budget = Budget(self.budget_s if self.is_there else 0.0, self.seed)
        with self.bench() as bench:
            return tune(graph, self.device, budget, Forgetful(), bench, offers=offers)


class HostSides:
    """This CPU. Fresh outputs in every call, as PyTorch's own functions have."""

    def __init__(self, cache: ObjectCache) -> None:
        from benchmarks.plan_runner import unpinned_pool  # noqa: PLC0415  needs PyTorch

        torch.ones(1 << 22).add_(1)  # PyTorch's threads start before ours
        self._cache, self._pool = cache, unpinned_pool(len(usable_cpus()), cache)

    def tensors(self, arrays: Sequence[np.ndarray]) -> Tensors:
        """See Sides."""
        return tuple(to_torch(a) for a in arrays)

    def function(self, plan: Plan) -> Function:
        """See Sides."""
        from benchmarks.plan_runner import PlanRunner  # noqa: PLC0415

        return PlanRunner(plan, self._cache, self._pool)

    def race(self, calls: Mapping[str, Callable[[], object]], rounds: int, seed: int) -> dict[str, Contestant]:
        """See Sides."""
        return race(calls, rounds, seed)


class CudaSides:
    """The first CUDA device: every call is a CUDA graph over static tensors, behind an evicted L2 cache."""

    def __init__(self, device: Device, cache: ObjectCache, folder: Path) -> None:
        from benchmarks.gpu.stage import CudaStage  # noqa: PLC0415  needs PyTorch

        self._stage, self._cache, self._folder = CudaStage(device), cache, folder

    def tensors(self, arrays: Sequence[np.ndarray]) -> Tensors:
        """See Sides."""
        from benchmarks.gpu.stage import placed  # noqa: PLC0415

        return tuple(placed(to_torch(a), "cuda") for a in arrays)

    def function(self, plan: Plan) -> Function:
        """See Sides. The outputs are the same tensors in every call."""
        from fuseplan_client import CudaPlan, load  # noqa: PLC0415  `gpu_stage` makes it found

        from benchmarks.gpu.stage import write_bundle  # noqa: PLC0415
        from benchmarks.plan_runner import TORCH_DTYPE  # noqa: PLC0415

        bundle = self._folder / plan.plan_key
        write_bundle(plan, self._cache, bundle)
        loaded = load(bundle)
        assert isinstance(loaded, CudaPlan)
        outputs = tuple(
            torch.empty_strided(s.shape, s.strides, dtype=TORCH_DTYPE[s.dtype], device="cuda") for s in plan.outputs
        )

        def call(*inputs: Any) -> Tensors:
            loaded.launch(inputs, outputs, stream=torch.cuda.current_stream())
            return outputs

        return call

    def race(self, calls: Mapping[str, Callable[[], object]], rounds: int, seed: int) -> dict[str, Contestant]:
        """See Sides; for about a tenth of a second a round."""
        ready = {name: self._stage.ready(call)[0] for name, call in calls.items()}
        return self._stage.race(ready, rounds / 10, seed)


@contextlib.contextmanager
def place(target: str, cache: str | None, budget_s: float, rounds: int, seed: int) -> Iterator[Place]:
    """The place for a target. cache: where compiled kernels are kept; None: until the end. Raises DeviceError."""
    with tempfile.TemporaryDirectory(prefix="fuseplan-seeds-") as folder:
        objects = ObjectCache(cache or Path(folder, "objects"))
        device = detect(target, objects)
        sides: Sides | None = None
        if HAS_TORCH and device.origin == "detected" and device.target != "emulator":
            torch.set_grad_enabled(False)
            os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(Path(folder, "inductor")))
            is_host = device.target == "cpu"
            sides = HostSides(objects) if is_host else CudaSides(device, objects, Path(folder))
        yield Place(target, device, objects, sides, budget_s, rounds, seed)
