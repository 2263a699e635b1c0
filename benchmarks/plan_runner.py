"""A plan's kernels called in this process, on tensors of PyTorch's allocator: what a framework's runtime would do."""

from pathlib import Path
from typing import Any

import numpy as np
import torch  # pyright: ignore[reportMissingImports]  # only make bench-cpu installs it

from codegen.launch_cpu import Launch, Memory, Pool, load_entry, program
from codegen.object_cache import ObjectCache
from codegen.toolchain.cpu import find_compiler
from codegen.toolchain.runtime import runtime_library
from fusion_ir.records import Plan, Ref

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
    """Runs one plan for the CPU. Temporaries are allocated once."""

    def __init__(self, plan: Plan, cache: ObjectCache, threads: int) -> None:
        """Raises ValueError for a plan with outputs that alias others."""
        if plan.aliases:
            raise ValueError(f"out{plan.aliases[0][0]} is an alias; this runner computes every output")
        self.plan = plan
        self._buffers = [Memory(b.bytes) for b in plan.buffers]
        launches = [
            Launch(
                load_entry(_file(cache, s.binary), s.entry),
                tuple(self._position(r) for r in (*s.reads, *s.writes)),
                s.tasks,
            )
            for s in plan.steps
        ]
        self._launches = launches
        compiler = find_compiler()
        with compiler.slot() as slot:
            library = runtime_library("pool", compiler, slot, cache)
        # Unpinned, as PyTorch's threads are: neither side takes a core from the other.
        self._pool = Pool(library, (-1,) * threads)

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
                if tuple(t.shape) != s.shape or t.dtype != TORCH_DTYPE[s.dtype] or t.data_ptr() % s.alignment_bytes:
                    raise ValueError(
                        f"{ref}{i}: expected {s.dtype}{list(s.shape)} aligned to {s.alignment_bytes} bytes, "
                        f"got {t.dtype}{list(t.shape)} at {t.data_ptr():#x}"
                    )
        addresses = [t.data_ptr() for t in (*inputs, *outputs)] + [b.address for b in self._buffers]
        self._pool.run(program(self._launches, np.array([addresses], np.uint64)))

    def empty_outputs(self) -> tuple[torch.Tensor, ...]:
        """Uninitialised outputs of the plan's shapes and strides."""
        return tuple(torch.empty_strided(s.shape, s.strides, dtype=TORCH_DTYPE[s.dtype]) for s in self.plan.outputs)

    def close(self) -> None:
        """Ends the pool's threads."""
        self._pool.close()

    def _position(self, ref: Ref) -> int:
        inputs, outputs = len(self.plan.inputs), len(self.plan.outputs)
        return {"in": 0, "out": inputs, "tmp": inputs + outputs}[ref.place] + ref.index


def _file(cache: ObjectCache, sha: str) -> Path:
    path = cache.path(sha)
    if path is None:
        raise ValueError(f"binary {sha} is not in the cache")
    return path


def versions() -> dict[str, Any]:
    """PyTorch's version and how it was built, for a report."""
    return {"torch": torch.__version__, "torch threads": str(torch.get_num_threads())}
