"""Speed of the emulator: per second, kernels compiled, switches between threads, threads that wait for nobody.

    python -m benchmarks.emulator

CPU seconds of this process, or of the compiler and the process that runs it: other work on the machine matters little.
"""

import resource
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from codegen.devices.detection import detect
from codegen.families import FAMILIES
from codegen.kernel import EmitError, Kernel, Launch
from codegen.launch.emulator import Emulation, emulator_library, load_kernels, load_runtime, run_arrays
from codegen.sandbox.object_cache import ObjectCache
from codegen.sandbox.temporary_folders import make_folder
from codegen.toolchain.compiler import Failure
from codegen.toolchain.emulator import EmulatorCompiler, emulator_compiler
from fusion_ir.records import Device
from testing.random_graphs import Seeded, any_graph

BLOCKS, THREADS, STEPS = 100, 256, 100
BODIES = {
    "barrier": "for (int i = 0; i < 100; i++) block_barrier();",
    "shuffle": "for (int i = 0; i < 100; i++) x = shuffle_xor(x, 1);",
    "nothing": "",
}


def main() -> None:
    """Prints the figures."""
    cache = ObjectCache(make_folder())
    device = detect("emulator", cache)
    compiler = emulator_compiler(device)
    load_runtime(emulator_library(compiler.compiler, cache))
    kernels = some_kernels(device, 48)
    for count in (1, 16, 48):
        seconds = spent(resource.RUSAGE_CHILDREN, lambda n=count: built(compiler, kernels[:n], cache))
        print(f"{count:3} kernels in one file: {seconds:.2f} s, {count / seconds:.0f} a second")
    made = {name: kernel(name, body) for name, body in BODIES.items()}
    library = built(compiler, list(made.values()), cache)
    x, out = np.ones(THREADS, np.float32), np.zeros(BLOCKS * THREADS, np.float32)
    for name, k in made.items():
        launch = replace(k.launch, grid=(BLOCKS, 1, 1))
        emulation = Emulation(k.entry, load_kernels(library), launch.grid, launch.block)
        switches = run_arrays(emulation, [x], [out]).switches
        times = 1 if switches > 10 * BLOCKS else 100
        seconds = spent(
            resource.RUSAGE_SELF, lambda e=emulation, n=times: [run_arrays(e, [x], [out]) for _ in range(n)]
        )
        if name == "nothing":
            print(f"threads that wait for nobody: {times * BLOCKS * THREADS / seconds / 1e6:.0f} million a second")
        else:
            each = seconds / BLOCKS / STEPS * 1e6
            print(
                f"{name} of {THREADS} threads: {each:.1f} us, {switches / seconds / 1e6:.0f} million switches a second"
            )


def some_kernels(device: Device, count: int) -> list[Kernel]:
    """Kernels of random graphs, of whatever families take them."""
    found: dict[str, Kernel] = {}
    seed = 0
    while len(found) < count:
        seed += 1
        graph = any_graph(Seeded(seed))
        for family in FAMILIES.values():
            if family.accepts(graph, device) is None:
                try:
                    made = family.emit(graph, family.space(graph, device)[0], device)
                except EmitError:
                    continue
                if made.target == "cuda":
                    found[made.entry] = made
    return list(found.values())[:count]


def kernel(name: str, body: str) -> Kernel:
    source = (
        f'extern "C" __global__ void __launch_bounds__({THREADS}) k_{name}(const float* RESTRICT in0, '
        f"float* RESTRICT out0) {{\n  float x = read(in0 + threadIdx.x);\n  {body}\n"
        f"  write(out0 + blockIdx.x * {THREADS} + threadIdx.x, x);\n}}\n"
    )
    return Kernel(f"k_{name}", source, "cuda", "benchmark", name, Launch(block=(THREADS, 1, 1)))


def built(compiler: EmulatorCompiler, kernels: list[Kernel], cache: ObjectCache) -> Path:
    """The compiled file of these kernels."""
    with compiler.slot() as slot:
        made = compiler.compile(slot, compiler.unit(kernels), [k.entry for k in kernels], 300.0)
    if isinstance(made, Failure):
        raise SystemExit(made.detail)
    file = cache.path(cache.put(made[0]))
    assert file is not None
    return file


def spent(whose: int, work: Callable[[], object]) -> float:
    """CPU seconds of `work`."""
    before = resource.getrusage(whose)
    work()
    after = resource.getrusage(whose)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
