"""The thread pool: every task once, steps in order, one barrier between them."""

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from codegen.devices.detection import detect
from codegen.hardware.machine import usable_cpus
from codegen.kernel import Kernel, Launch
from codegen.launch.cpu import CpuStep, GuardedTensor, PageMemory, Pool, bind_steps, load_entry
from codegen.sandbox.limits import Limits
from codegen.sandbox.object_cache import ObjectCache
from codegen.toolchain.builder import Builder
from codegen.toolchain.compiler import Binary
from codegen.toolchain.cpu import CpuCompiler, find_compiler
from codegen.toolchain.runtime import runtime_library
from tests.support.kernels import bare_headers

pytestmark = pytest.mark.compiles

COUNT = """extern "C" void count(void* const* args, long task, long tasks) {
  __atomic_fetch_add((long*)args[0] + task, 1 + 1000 * tasks, __ATOMIC_RELAXED);
}"""
# Sums what all tasks of the step before wrote, so that a missing barrier shows.
CHAIN = """extern "C" void chain(void* const* args, long task, long tasks) {
  const long* from = (const long*)args[0];
  long sum = 1;
  for (long i = 0; i < 64; i++) sum += from[i];
  for (long i = task; i < 64; i += tasks) ((long*)args[1])[i] = sum % 1000003;
}"""

WHERE = """extern "C" int sched_getcpu();
extern "C" void where(void* const* args, long task, long tasks) { ((long*)args[0])[task] = sched_getcpu(); }"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> ObjectCache:
    return ObjectCache(tmp_path_factory.mktemp("pool") / "cache")


@pytest.fixture(scope="module")
def compiler(cache: ObjectCache) -> CpuCompiler:
    return find_compiler(detect("cpu", cache, ceilings=False), include=bare_headers(cache.folder / "include"))


@pytest.fixture(scope="module")
def library(cache: ObjectCache, compiler: CpuCompiler) -> Path:
    with compiler.slot() as slot:
        return runtime_library("pool", compiler, slot, cache)


@pytest.fixture(scope="module")
def entries(cache: ObjectCache, compiler: CpuCompiler) -> dict[str, int]:
    builder = Builder(compiler, cache, Limits(), 1)
    kernels = [
        Kernel(name, source, "cpu", "t", "t", Launch())
        for name, source in (("count", COUNT), ("chain", CHAIN), ("where", WHERE))
    ]
    found: dict[str, int] = {}
    for kernel, binary in zip(kernels, builder.compile(kernels), strict=True):
        assert isinstance(binary, Binary), binary
        path = cache.path(binary.sha256)
        assert path is not None
        found[kernel.entry] = load_entry(path, kernel.entry)
    builder.close()
    return found


@pytest.fixture(params=[1, 2, 3])
def pool(request: pytest.FixtureRequest, library: Path) -> Iterator[Pool]:
    threads = request.param
    made = Pool(library, [-1] * threads)
    yield made
    made.close()


@pytest.mark.parametrize("tasks", [0, 1, 2, 3, 7, 64])
def test_each_task_runs_once(pool: Pool, entries: dict[str, int], tasks: int) -> None:
    counts = np.zeros(64, np.int64)
    runs = 50
    counting = bind_steps([CpuStep(entries["count"], (0,), tasks)], np.array([[counts.ctypes.data]], np.uint64))
    for _ in range(runs):
        pool.run(counting)
    expected = np.zeros(64, np.int64)
    expected[:tasks] = runs * (1 + 1000 * tasks)
    assert counts.tolist() == expected.tolist()


def test_steps_wait_for_each_other(pool: Pool, entries: dict[str, int]) -> None:
    first, second = np.ones(64, np.int64), np.zeros(64, np.int64)
    steps = 201
    chain = [CpuStep(entries["chain"], (i % 2, 1 - i % 2), (pool.threads, 5, 64)[i % 3]) for i in range(steps)]
    table = np.array([[first.ctypes.data, second.ctypes.data]], np.uint64)
    value = 1
    for _ in range(steps):
        value = (1 + 64 * value) % 1000003
    for _ in range(20):
        first[:] = 1
        pool.run(bind_steps(chain, table))
        assert second.tolist() == [value] * 64


def test_timing_goes_round_the_sets(pool: Pool, entries: dict[str, int]) -> None:
    counts = np.zeros((4, 64), np.int64)
    table = counts.ctypes.data + np.arange(4, dtype=np.uint64)[:, None] * np.uint64(64 * 8)
    counting = bind_steps([CpuStep(entries["count"], (0,), 1)], table)
    times = pool.time_us(counting, 6, first=3)
    assert len(times) == 6
    assert all(t > 0 for t in times)
    assert (counts[:, 0] // 1001).tolist() == [2, 1, 1, 2]


def test_an_empty_program_is_nothing(pool: Pool) -> None:
    pool.run(bind_steps([], np.zeros((1, 0), np.uint64)))


def test_usable_cpus_are_ours() -> None:
    cpus = usable_cpus()
    assert cpus
    assert len(set(cpus)) == len(cpus)


def test_memory_is_aligned_and_guards_are_tight() -> None:
    memory = PageMemory(5 << 20)
    assert memory.address % (2 << 20) == 0
    assert memory.bytes.size == 5 << 20
    for size, alignment in ((0, 16), (1, 1), (100, 16), (4096, 64), (10001, 4)):
        for at_end in (True, False):
            guard = GuardedTensor(size, alignment, at_end)
            assert guard.address % alignment == 0
            assert guard.bytes.size == size
            assert guard.intact
            if size:
                assert guard.address == guard.bytes.ctypes.data
            assert guard.behind.size < alignment if at_end else guard.before.size == 0
    guard = GuardedTensor(100, 64, True)
    ctypes.memset(guard.address + 100, 0, 1)
    assert not guard.intact


def test_an_entry_that_is_not_there_is_an_error(library: Path) -> None:
    with pytest.raises(OSError, match="no entry nowhere"):
        load_entry(library, "nowhere")


@pytest.mark.skipif(len(usable_cpus()) < 2, reason="needs two CPUs")
def test_an_unpinned_thread_does_not_share_the_caller_s_cpu(library: Path, entries: dict[str, int]) -> None:
    """Asleep where the caller runs, it would be woken there and wait until the caller is through with its share."""
    caller, before = os.sched_getaffinity(0), set(os.listdir("/proc/self/task"))
    pool = Pool(library, (-1, -1))
    try:
        (thread,) = {int(t) for t in set(os.listdir("/proc/self/task")) - before}
        memory = PageMemory(64)
        ran = memory.bytes.view(np.int64)
        where = bind_steps([CpuStep(entries["where"], (0,), 2)], np.array([[memory.address]], np.uint64))
        here = min(caller)
        os.sched_setaffinity(0, {here})
        os.sched_setaffinity(thread, {here})
        pool.run(where)
        os.sched_setaffinity(thread, {here})
        pool.run(where)  # the worker's last place is known by now to be the caller's
        pool.run(where)
        assert (ran[0], ran[1] != here) == (here, True)
    finally:
        os.sched_setaffinity(0, caller)
        pool.close()


@pytest.mark.skipif(len(usable_cpus()) < 2, reason="needs two CPUs")
def test_the_caller_is_pinned_while_programs_run_and_no_longer(library: Path, entries: dict[str, int]) -> None:
    """Threads that it started in between stayed on its CPU: those that check results, all on one."""
    cpus, allowed = usable_cpus(), os.sched_getaffinity(0)
    memory = PageMemory(8 * len(cpus))
    where = bind_steps([CpuStep(entries["where"], (0,), len(cpus))], np.array([[memory.address]], np.uint64))
    pool = Pool(library, cpus)
    try:
        for run in (lambda: pool.run(where), lambda: pool.time_us(where, 3)):
            run()
            assert memory.bytes.view(np.int64).tolist() == list(cpus), "each thread on its own"
            assert os.sched_getaffinity(0) == allowed
    finally:
        pool.close()
