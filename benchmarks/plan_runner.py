"""A plan's kernels called in this process, on tensors of PyTorch's allocator: what a framework's runtime would do."""

from pathlib import Path
from typing import Any

import numpy as np
import torch  # pyright: ignore[reportMissingImports]  # only make bench-cpu installs it

from codegen.launch.cpu import CpuStep, PageMemory, Pool, bind_steps, load_entry
from codegen.sandbox.object_cache import ObjectCache
from codegen.toolchain.cpu import find_compiler
from codegen.toolchain.runtime import runtime_library
from fusion_ir.records import Plan, Ref, TensorSpec

TORCH_DTYPE = {
    "f64": torch.float64,
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i64": torch.int64,
    "i32": torch.int32,
    "i16": torch.int16,
    "i8": torch.int8,
    "u8": torch.uint8,
    "bool": torch.bool,
}


class PlanRunner:
    """Runs one plan for the CPU on a pool that it shares with others. Temporaries are allocated once; the prologue runs
    again for other constants, and for such as PyTorch wrote to."""

    def __init__(self, plan: Plan, cache: ObjectCache, pool: Pool) -> None:
        """Raises ValueError for a plan with outputs that alias others, and for one whose binaries are gone."""
        if plan.aliases:
            raise ValueError(f"out{plan.aliases[0][0]} is an alias; this runner computes every output")
        self.plan = plan
        self._pool = pool
        self._buffers = [PageMemory(b.bytes) for b in plan.buffers]
        self._launches = [
            CpuStep(
                load_entry(_file(cache, s.binary), s.entry, s.libraries),
                tuple(self._position(r) for r in (*s.reads, *s.writes)),
                s.tasks,
            )
            for s in plan.steps
        ]
        self._prepared: tuple[tuple[int, int], ...] | None = None  # the constants that the prologue ran for

    def __call__(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Fresh outputs from PyTorch's allocator, computed from `inputs`."""
        outputs = self.empty_outputs()
        self.into(inputs, outputs)
        return outputs

    def into(self, inputs: tuple[torch.Tensor, ...], outputs: tuple[torch.Tensor, ...]) -> None:
        """Computes into `outputs`. Raises ValueError where a guard of the plan does not hold."""
        for ref, tensor, spec in zip(
            ("in", "out"), (inputs, outputs), (self.plan.inputs, self.plan.outputs), strict=True
        ):
            for i, (t, s) in enumerate(zip(tensor, spec, strict=True)):
                if not _fits(t, s):
                    raise ValueError(
                        f"{ref}{i}: expected {s.dtype}{list(s.shape)} with strides {list(s.strides)} aligned to "
                        f"{s.alignment_bytes} bytes, got {t.dtype}{list(t.shape)} with strides {list(t.stride())} at "
                        f"{t.data_ptr():#x}"
                    )
        addresses = [t.data_ptr() for t in (*inputs, *outputs)] + [b.address for b in self._buffers]
        once = len(self.plan.prologue)
        constants = tuple((inputs[i].data_ptr(), inputs[i]._version) for i in self.plan.constants)
        if once and constants != self._prepared:
            self._pool.run(bind_steps(self._launches[:once], np.array([addresses], np.uint64)))
            self._prepared = constants
        self._pool.run(bind_steps(self._launches[once:], np.array([addresses], np.uint64)))

    def empty_outputs(self) -> tuple[torch.Tensor, ...]:
        """Uninitialised outputs of the plan's shapes and strides."""
        return tuple(torch.empty_strided(s.shape, s.strides, dtype=TORCH_DTYPE[s.dtype]) for s in self.plan.outputs)

    def _position(self, ref: Ref) -> int:
        inputs, outputs = len(self.plan.inputs), len(self.plan.outputs)
        return {"in": 0, "out": inputs, "tmp": inputs + outputs}[ref.place] + ref.index


def _fits(tensor: torch.Tensor, spec: TensorSpec) -> bool:
    """Strides of axes of extent 1 do not count."""
    strides = zip(spec.shape, tensor.stride(), spec.strides, strict=True)
    return (
        tuple(tensor.shape) == spec.shape
        and tensor.dtype == TORCH_DTYPE[spec.dtype]
        and all(n == 1 or a == b for n, a, b in strides)
        and tensor.data_ptr() % spec.alignment_bytes == 0
    )


def unpinned_pool(threads: int, cache: ObjectCache) -> Pool:
    """The process's one pool. Unpinned, as PyTorch's threads are: neither side takes a core from the other."""
    compiler = find_compiler()
    with compiler.slot() as slot:
        library = runtime_library("pool", compiler, slot, cache)
    return Pool(library, (-1,) * threads)


def _file(cache: ObjectCache, sha: str) -> Path:
    path = cache.path(sha)
    if path is None:
        raise ValueError(f"binary {sha} is not in the cache")
    return path


def versions() -> dict[str, Any]:
    """PyTorch's version and how it was built, for a report."""
    return {"torch": torch.__version__, "torch threads": str(torch.get_num_threads())}
