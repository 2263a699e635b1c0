"""What a CUDA device can reach, by our own kernels. Not exercised in CI, which has no GPU."""

from typing import Any

import numpy as np

from codegen.child.cuda_memory import cupy
from codegen.child.serve import Channel

SOURCE = r"""
extern "C" __global__ void copy(const float4* from, float4* to, long long n) {
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += (long long)gridDim.x * blockDim.x)
  to[i] = from[i]; } extern "C" __global__ void read(const float4* from, float4* to, long long n) { float4 s =
  make_float4(0, 0, 0, 0); for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += (long
  long)gridDim.x * blockDim.x) { float4 v = from[i]; s.x += v.x, s.y += v.y, s.z += v.z, s.w += v.w; } if (s.x + s.y +
  s.z + s.w == 1.2345f) to[0] = s;  // never: keeps the sums alive } extern "C" __global__ void fma(const float4*
  from, float4* to, long long n) { float x = from[0].x, y = from[0].y, a[8]; for (int j = 0; j < 8; j++) a[j] = x + j
  + threadIdx.x; for (long long r = 0; r < n; r++) #pragma unroll for (int j = 0; j < 8; j++) a[j] = fmaf(a[j], x, y);
  float s = 0; for (int j = 0; j < 8; j++) s += a[j]; if (s == 1.2345f) to[0].x = s; } extern "C" __global__ void
  nothing(const float4* from, float4* to, long long n) {}
"""
DRAM_BYTES = 1 << 30
ROUNDS = 20
FMA_STEPS = 4096


def ceilings(message: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """Bandwidths (GB/s, bytes read and written) within half of the L2 cache (`cache_bytes`) and of DRAM, f32 GFLOP/s,
    launch interval."""
    cp = cupy()
    with cp.cuda.Device(message["number"]) as device:
        module = cp.RawModule(code=SOURCE)
        units = device.attributes["MultiProcessorCount"]
        dram = min(DRAM_BYTES, device.mem_info[0] // 4) // 4096 * 4096
        source, target = cp.zeros(dram, np.uint8), cp.zeros(dram, np.uint8)
        start, end = cp.cuda.Event(), cp.cuda.Event()

        def best_us(name: str, n: int, block: int = 512, launches: int = 1) -> float:
            function = module.get_function(name)
            times: list[float] = []
            for _ in range(ROUNDS):
                channel.beat(-1, message["seconds"])
                start.record()
                for _ in range(launches):
                    function((units * 4,), (block,), (source, target, np.int64(n)))
                end.record()
                end.synchronize()
                times.append(float(cp.cuda.get_elapsed_time(start, end)) * 1e3 / launches)
            return min(times)

        inside = message["cache_bytes"] // 4 // 4096 * 4096
        copy = [
            (message["cache_bytes"], 2 * inside / best_us("copy", inside // 16) / 1e3),
            (0, 2 * dram / best_us("copy", dram // 16) / 1e3),
        ]
        read = [
            (message["cache_bytes"], inside / best_us("read", inside // 16) / 1e3),
            (0, dram / best_us("read", dram // 16) / 1e3),
        ]
        operations = 2.0 * 8 * FMA_STEPS * units * 4 * 512
        return {
            "copy_gbps": [(limit, max(rate, copy[-1][1])) for limit, rate in copy],
            "read_gbps": [(limit, max(rate, read[-1][1])) for limit, rate in read],
            "fma_gflops": operations / best_us("fma", FMA_STEPS) / 1e3,
            "launch_us": best_us("nothing", 0, launches=200),
        }
