"""Child process that measures the ceilings of the CPU, with the kernels of runtime/ceilings.cpp on all threads."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from codegen.child.serve import Channel, serve
from codegen.launch.cpu import BoundSteps, CpuStep, PageMemory, Pool, bind_steps, entry_address
from codegen.sandbox.shared_object import load_object

KERNEL_US = 150.0  # about this long runs the part of a cache's measurement that is timed at once
ROUNDS = 6
DRAM_SAMPLES = 3
CACHE_SAMPLES = 8
ROUND_BYTES = 1 << 30  # of a tensor, that samples of one round go over: large caches would take ten seconds otherwise
WRITE_TURN = 4096  # bytes that `ceiling_move` writes between two looks at what there is to read
STREAMING = ("ceiling_copy_streaming", "ceiling_copy_fetching")  # past the caches, of which either may be faster
READING = ("ceiling_read", "ceiling_read_fetching")
# Instructions that multiply narrow operands, as far as the machine has them: the dtypes whose products they make, and
# how many for each sum of 4 bytes. An exact f8 is an exact bf16.
NARROW = {
    "ceiling_bf16_pairs": (("bf16", "f8e4m3", "f8e5m2"), 2),
    "ceiling_i8_fours": (("i8", "u8"), 4),
    "ceiling_i8_pairs": (("i8", "u8"), 2),
}
# Dtypes whose products tiles of registers make, where a CPU has them: an f8 is a bf16.
BY_TILES = ("bf16", "f8e4m3", "f8e5m2")
WIDENED = ("f32", "f16", "bf16", "f8e4m3", "f8e5m2")  # dtypes whose products f32's multiply-adds make
REPEATS, TILE_REPEATS = 100_000, 5_000  # of a loop that multiplies: about 0.5 ms
PARTS = (0.4, 0.8)  # of a level: smaller leaves room for what else is there, larger keeps out of the level below


def ceilings(message: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """Measures copy and read bandwidth (GB/s, bytes read and written) for each of `levels` (bytes of all caches of a
    level together) and for DRAM, of writes alone for DRAM, f32 multiply-adds (GFLOP/s, two per fma), products of
    narrow operands (likewise, by dtype), and one empty step (us)."""
    pool = Pool(Path(message["pool"]), message["cpus"])
    library = load_object(message["library"])
    dram_bytes = message["dram_bytes"]
    source, target = PageMemory(dram_bytes), PageMemory(dram_bytes)
    source.bytes[:] = 1
    sizes = np.zeros(3, np.int64)
    table = np.array([[source.address, target.address, sizes.ctypes.data]], np.uint64)

    def kernel(name: str) -> BoundSteps:
        return bind_steps([CpuStep(entry_address(library, name), (0, 1, 2), pool.threads)], table)

    def best_gbps(runs: BoundSteps, bytes_: int, moved: int, samples: int, limit: int) -> float:
        """Best rate at `bytes_` bytes per tensor; `moved`: bytes per byte of the tensor. Repeats inside the kernel
        within caches."""
        sizes[:2] = bytes_, 1
        samples = max(1, min(samples, ROUND_BYTES // bytes_))
        repeats = max(1, int(KERNEL_US / max(0.05, min(pool.time_us(runs, min(samples, 3)))))) if limit else 1
        sizes[1] = repeats
        return bytes_ * moved * repeats / min(pool.time_us(runs, samples)) / 1e3

    def copy_gbps(limit: int) -> float:
        if not limit:
            return max(best_gbps(kernel(name), dram_bytes, 2, DRAM_SAMPLES, 0) for name in ("ceiling_copy", *STREAMING))
        return max(best_gbps(kernel("ceiling_copy"), int(limit * part) // 2, 2, CACHE_SAMPLES, limit) for part in PARTS)

    def read_gbps(limit: int) -> float:
        if not limit:
            return max(best_gbps(kernel(name), dram_bytes, 1, DRAM_SAMPLES, 0) for name in READING)
        return max(
            best_gbps(kernel("ceiling_read"), min(dram_bytes, int(limit * p)), 1, CACHE_SAMPLES, limit) for p in PARTS
        )

    def write_gbps() -> float:
        sizes[:] = 0, dram_bytes, WRITE_TURN
        samples = max(1, min(DRAM_SAMPLES, ROUND_BYTES // dram_bytes))
        return dram_bytes / min(pool.time_us(kernel("ceiling_move"), samples)) / 1e3

    best: dict[tuple[str, int], float] = {}
    levels = [*message["levels"], 0]
    fma = launch = write = 0.0
    narrow = {name: 0.0 for name in NARROW if hasattr(library, name)}
    tiles = 0.0
    has_tiles = hasattr(library, "ceiling_bf16_tiles") and library.ceiling_has_bf16_tiles()
    for _ in range(ROUNDS):  # spread over time: what else runs on the machine must not pass for its limit
        channel.beat(-1, message["seconds"])
        for limit in levels:
            best["copy", limit] = max(best.get(("copy", limit), 0.0), copy_gbps(limit))
            best["read", limit] = max(best.get(("read", limit), 0.0), read_gbps(limit))
        write = max(write, write_gbps())
        sums = 12 * library.ceiling_width() // 4
        fma = max(fma, _gflops(pool, kernel("ceiling_fma"), sizes, sums))
        for name in narrow:
            narrow[name] = max(narrow[name], _gflops(pool, kernel(name), sizes, sums * NARROW[name][1]))
        if has_tiles:
            runs = kernel("ceiling_bf16_tiles")
            tiles = max(tiles, _gflops(pool, runs, sizes, library.ceiling_tile_products(), TILE_REPEATS))
        launch = min(launch or 1e9, _launch(pool))
    return {
        "copy_gbps": _falling([(limit, best["copy", limit]) for limit in levels]),
        "read_gbps": _falling([(limit, best["read", limit]) for limit in levels]),
        "fma_gflops": fma,
        "launch_us": launch,
        "write_gbps": write,
        "product_gflops": _product_gflops(fma, narrow, tiles),
    }


def _falling(rates: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """No level is slower than a larger one: noise may make it look so, and a bound must not be too high."""
    return [(limit, max(rate for _, rate in rates[i:])) for i, (limit, _) in enumerate(rates)]


def _gflops(pool: Pool, runs: BoundSteps, sizes: np.ndarray[Any, Any], products: int, repeats: int = REPEATS) -> float:
    """GFLOP/s of a kernel, a product and its addition to a sum counting two. products: of one turn of the kernel's
    loop in one thread, of which there are `repeats`."""
    sizes[:2] = 64, repeats
    return 2.0 * repeats * products * pool.threads / min(pool.time_us(runs, 5)) / 1e3


def _product_gflops(fma: float, narrow: Mapping[str, float], tiles: float) -> list[tuple[str, float]]:
    """GFLOP/s by dtype of the operands: the rate of the fastest instruction that makes such products. tiles: that of
    tiles of registers, 0 without them."""
    rates: dict[str, float] = dict.fromkeys(WIDENED, fma)
    for name, rate in narrow.items():
        rates |= {dtype: max(rate, rates.get(dtype, 0.0)) for dtype in NARROW[name][0]}
    rates |= {dtype: max(tiles, rates[dtype]) for dtype in BY_TILES}
    return list(rates.items())


def _launch(pool: Pool) -> float:
    """Microseconds of an empty step behind another: barrier and hand-over."""
    steps = 1000
    table = np.zeros((1, 1), np.uint64)
    empty = bind_steps([CpuStep(pool.nothing, (), pool.threads)] * steps, table)
    return min(pool.time_us(empty, 3)) / steps


if __name__ == "__main__":
    serve({"ceilings": ceilings})
