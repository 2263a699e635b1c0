"""Races on global memory are found where there is one and nowhere else: random programs of several blocks, of stores,
loads, barriers, fences and atomics, of which it is known which accesses are ordered."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pytest

from codegen.kernel import Kernel, Launch
from codegen.launch.emulator import Emulation, EmulatorFault, run_arrays
from testing.emulated_kernels import build
from tests.support.whole import WHOLE

BLOCKS, THREADS, STEPS, BYTES, FLAGS = 3, 64, 24, 16, 2
NOTHING, STORE, LOAD, BLOCK, WARP, FENCE, ATOMIC, UPDATE = range(8)
FORWARD, BACKWARD = 0, 2  # seeds by which blocks run one after another, the first or the last first

# Every thread goes through its column of steps: what to do, and with which byte, lanes or flag.
SOURCE = """
extern "C" __global__ void __launch_bounds__(64)
k_grid_steps(const int* RESTRICT in0, const int* RESTRICT in1, int* RESTRICT out0, uint8_t* bytes, int* flags) {
  const int me = blockIdx.x * 64 + threadIdx.x;
  int seen = 0;
  for (int step = 0; step < 24; step++) {
    const int what = read(in0 + step * 192 + me), with = read(in1 + step * 192 + me);
    if (what == 1) write(bytes + with, (uint8_t)step);
    if (what == 2) seen += read(bytes + with);
    if (what == 7) write(bytes + with, (uint8_t)(read(bytes + with) + 1));
    if (what == 3) block_barrier();
    if (what == 4) warp_barrier((uint32_t)with);
    if (what == 5) memory_fence();
    if (what == 6) seen += atomic_add(flags + with, 1);
  }
  write(out0 + me, seen);
}
"""


@dataclass(frozen=True)
class Place:
    """Who does something, and at which of its steps."""

    block: int
    thread: int
    step: int


@dataclass(frozen=True)
class Program:
    """what, operand: [STEPS, BLOCKS, THREADS]. pairs: accesses to the same byte, of which one is a store."""

    what: np.ndarray
    operand: np.ndarray
    pairs: tuple[tuple[Place, Place], ...]

    def has_race(self, order: tuple[int, ...]) -> bool:
        return any(not self.ordered(order, a, b) for a, b in self.pairs)

    def ordered(self, order: tuple[int, ...], a: Place, b: Place) -> bool:
        """Whether one of two accesses is sure to see the other, where blocks run in this order."""
        if a.block != b.block:
            first, second = sorted((a, b), key=lambda p: order.index(p.block))
        else:
            first, second = sorted((a, b), key=lambda p: p.step)
        flagged = [False] * FLAGS
        for block in order[order.index(first.block) : order.index(second.block) + 1]:
            sees = self.seen(block, first, second, flagged)
        return bool(sees[second.thread])

    def seen(self, block: int, first: Place, second: Place, flagged: list[bool]) -> np.ndarray:
        """Threads of a block that see the first access, at the end or just before the second one. flagged: the flags
        with which others may learn of it."""
        sees, fenced, observed = (np.zeros(THREADS, bool) for _ in range(3))
        for step in range(second.step if block == second.block else STEPS):
            what, operand = self.what[step, block], self.operand[step, block]
            for thread in np.flatnonzero(what == ATOMIC):
                observed[thread] |= flagged[operand[thread]]
                flagged[operand[thread]] |= fenced[thread]
            for thread in np.flatnonzero(what == FENCE):
                sees[thread] |= observed[thread]
                fenced[thread] = sees[thread]
            for group in (np.flatnonzero(what == BLOCK), *warp_groups(what, operand)):
                sees[group] = sees[group].any()
            if (block, step) == (first.block, first.step):
                sees[first.thread] = True
        return sees


def warp_groups(what: np.ndarray, operand: np.ndarray) -> list[np.ndarray]:
    """Lanes of each warp that meet at a step."""
    return [np.flatnonzero((what == WARP) & (np.arange(THREADS) // 32 == warp)) for warp in range(THREADS // 32)]


def program(seed: int) -> Program:
    """Half of the steps are barriers, before which others of the block do nothing; fences and atomics stand where
    nothing else is done, of a flag one in each block."""
    rng = np.random.default_rng(seed)
    what = np.zeros((STEPS, BLOCKS, THREADS), np.int32)
    operand = np.zeros_like(what)
    for block in range(BLOCKS):
        for step in range(STEPS):
            kind = rng.choice([NOTHING, WARP, BLOCK], p=[0.6, 0.2, 0.2])
            if kind == BLOCK:
                what[step, block] = BLOCK
            elif kind == WARP:
                warp, lanes = int(rng.integers(2)), rng.random(32) < rng.choice([0.5, 1.0])
                what[step, block, 32 * warp : 32 * warp + 32][lanes] = WARP
                operand[step, block, 32 * warp : 32 * warp + 32][lanes] = np.packbits(lanes, bitorder="little").view(
                    np.int32
                )
        few = rng.choice(THREADS, 4, replace=False)
        for flag in range(FLAGS):
            thread = rng.choice(few)
            free = np.flatnonzero(what[:, block, thread] == NOTHING)
            if len(free):
                step = rng.choice(free)
                what[step, block, thread], operand[step, block, thread] = ATOMIC, flag
        for thread in few:
            for step in np.flatnonzero(what[:, block, thread] == NOTHING):
                if rng.random() < 0.4:
                    what[step, block, thread] = FENCE
    pairs: list[tuple[Place, Place]] = []
    for byte in range(int(rng.integers(1, 4))):
        free = np.argwhere(what == NOTHING)
        a, b = free[rng.integers(len(free))], free[rng.integers(len(free))]
        if a[1] == b[1] and a[0] == b[0]:
            continue  # not one before the other
        kinds = [(UPDATE, UPDATE), (STORE, LOAD), (LOAD, STORE)][rng.integers(3)]
        for (step, block, thread), kind in zip((a, b), kinds, strict=True):
            what[step, block, thread], operand[step, block, thread] = kind, byte
        pairs.append((Place(int(a[1]), int(a[2]), int(a[0])), Place(int(b[1]), int(b[2]), int(b[0]))))
    return Program(what, operand, tuple(pairs))


@lru_cache(maxsize=1)
def emulation() -> Emulation:
    return build([Kernel("k_grid_steps", SOURCE, "cuda", "test", "steps", Launch((BLOCKS, 1, 1), (THREADS, 1, 1)))])[0]


def reported(made: Program, seed: int) -> str:
    """Report of the emulator about a program, "" for nothing."""
    out, memory, flags = np.zeros(BLOCKS * THREADS, np.int32), np.zeros(BYTES, np.uint8), np.zeros(FLAGS, np.int32)
    try:
        run_arrays(emulation(), [made.what, made.operand], [out], seed=seed, updated=[memory, flags])
    except EmulatorFault as fault:
        return str(fault)
    return ""


PROGRAMS = 300 if WHOLE else 90


def test_programs_are_of_both_kinds() -> None:
    racy = [program(seed).has_race((0, 1, 2)) for seed in range(PROGRAMS)]
    across = sum(
        not p.has_race((0, 1, 2)) and any(a.block != b.block for a, b in p.pairs) for p in map(program, range(PROGRAMS))
    )
    assert 0.2 * PROGRAMS < sum(racy) < 0.9 * PROGRAMS
    assert across >= PROGRAMS // 60


@pytest.mark.parametrize("part", range(10))
def test_a_race_is_reported_if_and_only_if_there_is_one(part: int) -> None:
    for seed in range(part, PROGRAMS, 10):
        made = program(seed)
        for order, run in (((0, 1, 2), FORWARD), ((2, 1, 0), BACKWARD)):
            said = reported(made, run)
            assert ("race" in said) == made.has_race(order), (seed, run, said)
            assert "race" in said or not said, (seed, run, said)
