"""Races are found where there is one, on any order of threads, and nowhere else: random programs of stores, loads and
barriers, of which it is known which accesses are ordered."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pytest

from codegen.kernel import Kernel, Launch
from codegen.launch.emulator import Emulation, EmulatorFault, run_arrays
from testing.emulated_kernels import build

THREADS, STEPS, BYTES = 128, 40, 64
NOTHING, STORE, LOAD, BLOCK, NAMED, WARP = range(6)

# Every thread goes through its column of steps: what to do, and with which byte, barrier or lanes.
SOURCE = """
extern "C" __global__ void __launch_bounds__(128)
k_steps(const int* RESTRICT in0, const int* RESTRICT in1, int* RESTRICT out0) {
  SHARED_MEMORY(shared);
  if (threadIdx.x == 0)
    for (int i = 0; i < 64; i++) shared_store(shared + i, splat<1>((uint8_t)i));
  block_barrier();
  int seen = 0;
  for (int step = 0; step < 40; step++) {
    const int what = read(in0 + step * 128 + threadIdx.x), with = read(in1 + step * 128 + threadIdx.x);
    if (what == 1) shared_store(shared + with, splat<1>((uint8_t)step));
    if (what == 2) seen += get(shared_load<uint8_t, 1>(shared + with), 0);
    if (what == 3) block_barrier();
    if (what == 4) named_barrier(with, __builtin_popcount(with) * 32);
    if (what == 5) warp_barrier((uint32_t)with);
  }
  write(out0 + threadIdx.x, seen);
}
"""


@dataclass(frozen=True)
class Program:
    what: np.ndarray  # [STEPS, THREADS]
    operand: np.ndarray
    has_race: bool


@lru_cache(maxsize=1)
def emulation() -> Emulation:
    kernel = Kernel("k_steps", SOURCE, "cuda", "test", "steps", Launch((1, 1, 1), (THREADS, 1, 1), BYTES))
    return build([kernel])[0]


def program(seed: int) -> Program:
    """Half of the steps are barriers of some threads, before which others do nothing; each byte is touched twice."""
    rng = np.random.default_rng(seed)
    what = np.zeros((STEPS, THREADS), np.int32)
    operand = np.zeros((STEPS, THREADS), np.int32)
    for step in range(STEPS):
        kind = rng.choice([NOTHING, WARP, NAMED, BLOCK], p=[0.3, 0.4, 0.28, 0.02])
        if kind == BLOCK:
            what[step] = BLOCK
        elif kind == NAMED:
            warps = int(rng.integers(1, 16))  # also the barrier's number
            for warp in range(4):
                if warps >> warp & 1:
                    what[step, 32 * warp : 32 * warp + 32] = NAMED
                    operand[step, 32 * warp : 32 * warp + 32] = warps
        elif kind == WARP:
            warp, lanes = int(rng.integers(4)), rng.random(32) < rng.choice([0.3, 0.7, 1.0])
            mask = np.packbits(lanes, bitorder="little").view(np.int32)[0]
            what[step, 32 * warp : 32 * warp + 32][lanes] = WARP
            operand[step, 32 * warp : 32 * warp + 32][lanes] = mask
    pairs: list[tuple[int, int, int, int]] = []
    for byte in range(int(rng.integers(1, 12))):
        free = np.argwhere(what == NOTHING)
        near = free[rng.integers(len(free))]
        others = free[(free[:, 1] // 32 == near[1] // 32) | (rng.random() < 0.5)]
        far = others[rng.integers(len(others))]
        if near[0] == far[0]:
            continue  # not one before the other
        (s1, t1), (s2, t2) = sorted(((int(s), int(t)) for s, t in (near, far)))
        kinds = [(STORE, STORE), (STORE, LOAD), (LOAD, STORE)][rng.integers(3)]
        for (s, t), kind in zip(((s1, t1), (s2, t2)), kinds, strict=True):
            what[s, t], operand[s, t] = kind, byte
        pairs.append((s1, t1, s2, t2))
    return Program(what, operand, any(not ordered(what, operand, *pair) for pair in pairs))


def ordered(what: np.ndarray, operand: np.ndarray, s1: int, t1: int, s2: int, t2: int) -> bool:
    """Whether t2 at step s2 is sure to see what t1 did at s1: by following who met whom at barriers in between."""
    sees = np.zeros(THREADS, bool)
    sees[t1] = True
    for step in range(s1 + 1, s2):
        for group in groups(what[step], operand[step]):
            if sees[group].any():
                sees[group] = True
    return bool(sees[t2])


def groups(what: np.ndarray, operand: np.ndarray) -> list[np.ndarray]:
    """Threads that meet at one step."""
    found = [np.flatnonzero(what == BLOCK)]
    found += [np.flatnonzero((what == NAMED) & (operand == o)) for o in set(operand[what == NAMED].tolist())]
    return [*found, np.flatnonzero(what == WARP)]  # of one warp and one mask


def test_programs_are_of_both_kinds() -> None:
    racy = [program(seed).has_race for seed in range(60)]
    assert 15 < sum(racy) < 45


@pytest.mark.parametrize("seed", range(60))
def test_a_race_is_reported_if_and_only_if_there_is_one(seed: int) -> None:
    made = program(seed)
    for order in range(5):
        out = np.zeros(THREADS, np.int32)
        if made.has_race:
            with pytest.raises(EmulatorFault, match="race"):
                run_arrays(emulation(), [made.what, made.operand], [out], seed=order)
        else:
            run_arrays(emulation(), [made.what, made.operand], [out], seed=order)
