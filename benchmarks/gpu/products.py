"""Every first schedule of family `wgmma` beside cuBLAS on one device: `python -m benchmarks.gpu.products`.

Products alone, and those with an epilogue of `benchmarks.gpu.entries`, on the same tensors in the same rounds, cold.
The ratio is that of cuBLAS's product alone, whatever our kernel computes behind it.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.corpus.pytorch import HAS_TORCH, to_torch, torch
from benchmarks.gpu.entries import Entry, entries
from benchmarks.gpu.stage import Call, CudaStage, free, no_gradients, placed
from benchmarks.machine import RESULTS
from benchmarks.plan_runner import TORCH_DTYPE
from codegen.child.cuda_memory import cupy
from codegen.child.tensor_maps import Parameters
from codegen.devices.detection import DeviceError, detect
from codegen.families import FAMILIES
from codegen.kernel import Kernel, Reject
from codegen.sandbox.object_cache import ObjectCache
from codegen.toolchain.compiler import Failure
from codegen.toolchain.cuda import CudaCompiler
from fusion_ir.core.graph import Graph
from fusion_ir.ops.contract import products
from fusion_ir.records import Device

FAMILY, ALONE = "wgmma", "product alone"
SECONDS = 300.0  # to compile all schedules of an entry
MAX_DYNAMIC_SHARED_SIZE_BYTES = 8  # CUfunction_attribute


@dataclass(frozen=True)
class Row:
    """A schedule: its time, its rate, cuBLAS's time for the product alone over it, and how far its result is from
    PyTorch's: the norm of the difference over the norm."""

    entry: str
    schedule: str
    us: float
    tflops: float
    of_cublas: float
    error: float


def main() -> int:
    """Prints, and writes STEM.json. 3 without a device."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.products", description=__doc__)
    parser.add_argument("--case", default="*", metavar="GLOB", help="names of entries, e.g. 'product_*'")
    parser.add_argument("--race", type=float, default=1.0, metavar="SECONDS", help="of timing per entry")
    parser.add_argument("--out", type=Path, default=RESULTS / "gpu_products", metavar="STEM", help="write STEM.json")
    options = parser.parse_args()
    with TemporaryDirectory(prefix="fuseplan-") as folder:
        try:
            device = detect("cuda", ObjectCache(folder), ceilings=False)
        except DeviceError as e:
            print(f"gpu_products needs a CUDA device: {e}", file=sys.stderr)
            return 3
    if not HAS_TORCH or not torch.cuda.is_available():
        print("gpu_products needs PyTorch with CUDA", file=sys.stderr)
        return 3
    stage = CudaStage(device)
    rows: list[Row] = []
    for entry in entries():
        if entry.alone is not None and fnmatch(entry.name, options.case):
            with no_gradients():
                found = sorted(held(entry, stage, device, options.race), key=lambda r: r.us)
            free()
            for r in found:
                print(f"{r.entry}: {r.us:.1f} us, {r.tflops:.0f} TFLOP/s, {r.of_cublas:.2f} of cuBLAS, "
                      f"error {r.error:.0e}  {r.schedule}", flush=True)  # fmt: skip
            rows += found
    content = {"title": "Products by wgmma beside cuBLAS", "facts": stage.facts(), "rows": [vars(r) for r in rows]}
    options.out.with_suffix(".json").write_text(json.dumps(content, indent=1) + "\n")
    return 0


def held(entry: Entry, stage: CudaStage, device: Device, seconds: float) -> Iterator[Row]:
    """The rows of one entry."""
    assert entry.alone is not None
    instance = entry.case.instance(entry.dtype, entry.case.sizes)
    inputs = [placed(to_torch(a), "cuda") for a in instance.sample(0)]
    (output,) = instance.graph.outputs
    expected = entry.case.peer(entry.case.sizes)(*inputs)[0].float()
    alone = entry.case.peer(entry.case.sizes, entry.alone)
    calls: dict[str, Call] = {ALONE: lambda: alone(*inputs)}
    errors: dict[str, float] = {}
    for kernel, launched in launches(instance.graph, device):
        result = torch.full(output.node.sizes, float("nan"), dtype=TORCH_DTYPE[output.node.dtype.name], device="cuda")
        calls[kernel.schedule] = launched([*inputs, result])
        calls[kernel.schedule]()
        torch.cuda.synchronize()
        errors[kernel.schedule] = float((result.float() - expected).norm() / expected.norm())
    timed = stage.race({name: stage.ready(call)[0] for name, call in calls.items()}, seconds, 0)
    operations = max(2.0 * n.elements * products(n) for n in instance.graph.nodes if n.op == "contract")
    for name, error in errors.items():
        us = timed[name].median_us
        yield Row(entry.name, name, us, operations / us / 1e6, timed[ALONE].median_us / us, error)


def launches(graph: Graph, device: Device) -> Iterator[tuple[Kernel, Any]]:
    """Kernels of the family's space, each with a function of tensors that gives a call. Nothing for graphs that it
    refuses. Raises RuntimeError where they do not compile."""
    family, compiler = FAMILIES[FAMILY], CudaCompiler(device)
    if isinstance(family.accepts(graph, device), Reject):
        return
    kernels = [family.emit(graph, schedule, device) for schedule in family.space(graph, device)]
    with compiler.slot() as slot:
        built = compiler.compile(slot, compiler.unit(kernels), [k.entry for k in kernels], SECONDS)
    if isinstance(built, Failure):
        raise RuntimeError(built.detail)
    module = cupy().cuda.function.Module()
    module.load(built[0])
    for kernel in kernels:
        function = module.get_function(kernel.entry)
        cupy().cuda.driver.funcSetAttribute(function.ptr, MAX_DYNAMIC_SHARED_SIZE_BYTES, kernel.launch.shared_bytes)

        def launched(tensors: list[Any], kernel: Kernel = kernel, function: Any = function) -> Call:
            shape = (*kernel.launch.grid, *kernel.launch.block, kernel.launch.shared_bytes)

            def call() -> None:  # holds the tensors: capturing a CUDA graph frees what PyTorch only caches
                parameters = Parameters([t.data_ptr() for t in tensors], kernel.launch.tensor_maps)
                stream = torch.cuda.current_stream().cuda_stream
                cupy().cuda.driver.launchKernel(function.ptr, *shape, stream, parameters.address, 0)

            return call

        yield kernel, launched


if __name__ == "__main__":
    sys.exit(main())
