"""Measured ceilings of a CUDA device: bandwidths, f32 GFLOP/s, launch interval. Not exercised in CI, which has no
GPU."""

from typing import Any

import numpy as np

from codegen.child.cuda_kernels import BLOCK, BLOCKS_PER_UNIT, grid, kernels
from codegen.child.cuda_memory import cupy
from codegen.child.serve import Channel

DRAM_BYTES = 1 << 30
LEAST_EVICTION_BYTES = 64 << 20
ROUNDS = 20
FMA_STEPS = 4096
LAUNCHES = 200  # in one CUDA graph


class Eviction:
    """Reads memory of twice the L2 cache, so that nothing else is left there, and nothing has to be written back."""

    def __init__(self, device: int, cache_bytes: int) -> None:
        cp = cupy()
        bytes_ = -(-max(2 * cache_bytes, LEAST_EVICTION_BYTES) // 4096) * 4096
        self._read = kernels(device).get_function("read")
        self._memory = cp.empty(bytes_, np.uint8)
        self._memory.data.memset(1, bytes_)
        self._args = (self._memory, self._memory, np.int64(bytes_ // 16))
        self._grid = grid(device)

    def launch(self) -> None:
        """Queues the read on the current stream."""
        self._read(self._grid, (BLOCK,), self._args)


def ceilings(message: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """Bandwidths (GB/s, bytes read and written) within half of the L2 cache (`cache_bytes`) and of DRAM, f32 GFLOP/s,
    launch interval."""
    cp = cupy()
    with cp.cuda.Device(message["number"]) as device, cp.cuda.Stream(non_blocking=True) as stream:
        module = kernels(message["number"])
        units = device.attributes["MultiProcessorCount"]
        dram = min(DRAM_BYTES, device.mem_info[0] // 4) // 4096 * 4096
        words = cp.arange(dram // 4, dtype=np.uint32)
        source = (words * np.uint32(2654435761)).view(np.uint8)  # scrambled: zeros may move faster than data
        target = cp.zeros(dram, np.uint8)
        start, end = cp.cuda.Event(), cp.cuda.Event()
        stream.synchronize()

        def best_us(name: str, n: int, launches: int = 1) -> float:
            """Least microseconds per launch over `ROUNDS` rounds, each a CUDA graph of `launches` launches."""
            function = module.get_function(name)
            args = (source, target, np.int64(n))
            function((units * BLOCKS_PER_UNIT,), (BLOCK,), args)
            stream.begin_capture()
            for _ in range(launches):
                function((units * BLOCKS_PER_UNIT,), (BLOCK,), args)
            graph = stream.end_capture()
            times: list[float] = []
            for _ in range(ROUNDS):
                channel.beat(-1, message["seconds"])
                start.record()
                graph.launch()
                end.record()
                end.synchronize()
                times.append(float(cp.cuda.get_elapsed_time(start, end)) * 1e3 / launches)
            return min(times)

        inside = message["cache_bytes"] // 4 // 4096 * 4096
        copy = [
            (message["cache_bytes"], 2 * inside / best_us("copy", inside // 16, LAUNCHES) / 1e3),
            (0, 2 * dram / best_us("copy", dram // 16) / 1e3),
        ]
        read = [
            (message["cache_bytes"], inside / best_us("read", inside // 16, LAUNCHES) / 1e3),
            (0, dram / best_us("read", dram // 16) / 1e3),
        ]
        operations = 2.0 * 8 * FMA_STEPS * units * BLOCKS_PER_UNIT * BLOCK
        return {
            "copy_gbps": [(limit, max(rate, copy[-1][1])) for limit, rate in copy],
            "read_gbps": [(limit, max(rate, read[-1][1])) for limit, rate in read],
            "fma_gflops": operations / best_us("multiply_add", FMA_STEPS) / 1e3,
            "launch_us": best_us("nothing", 0, LAUNCHES),
        }
